"""The tables of the results, and that the README shows those of the committed ones."""

import pytest

import table


def row(name, device="cpu: some processor, 2 threads", **changed):
    """A result as the harness records it."""
    plain = {
        "name": name,
        "shape": {"context": 31, "group": 5},
        "dtype": "float32",
        "device": device,
        "ours_s": 2.0,
        "peer": None,
        "peer_s": None,
        "ratio": None,
        "agreement": None,
        "skipped": None,
        "detail": {},
        "versions": {"jax": "0.10.2", "scipy": "1.17.1"},
        "commit": {"commit": "0123456789abcdef", "modified": False},
        "date": "2026-11-30",
    }
    return plain | changed


AGREED = {"holds": True, "checks": {"loss": {"difference": 3e-7, "tolerance": 1e-4}}}


def test_the_readme_shows_the_committed_results():
    text = table.README.read_text("utf-8")
    # Run `python benchmarks/table.py --write` after a change of the results.
    assert text == table.with_tables(text, table.render(table.read_results()))


def test_a_comparison_a_missing_peer_and_one_that_computes_something_else():
    found = table.render(
        [
            row("step", peer="other", peer_s=7.0, ratio=3.5, agreement=AGREED),
            row("step", peer="absent", skipped="not installed: torch"),
            row("step", peer="wrong", peer_s=7.0, agreement=AGREED | {"holds": False}),
        ]
    )
    assert "| step | context 31, group 5 | 2 | other | 7 | 3.5 | loss 3e-07 / 1e-04 |" in found
    assert "| absent | not installed: torch |" in found
    assert "| wrong | 7 | does not agree |" in found  # never a ratio
    assert "- step: cpu: some processor, 2 threads; float32; jax 0.10.2; 2026-11-30; commit 0123456789\n" in found


def test_a_platform_that_was_not_measured_says_so():
    assert table.render([row("step")]).endswith("### GPU\n\nNot measured, no GPU.\n")
    on_both = table.render([row("step"), row("step", "gpu: some accelerator, 16 threads")])
    assert "Not measured" not in on_both
    assert on_both.index("some processor") < on_both.index("### GPU") < on_both.index("some accelerator")


def test_stages_policies_memory_and_starts():
    rates = {"matmul_flops_per_s": 2.7e11, "copy_bytes_per_s": 1.3e10, "gradient_matmul_share": 0.41}
    stages = {"rollout_s": 1.5, "reference_s": 0.75, "gradient_s": 3.25} | rates
    start = {"total_s": 70.0, "compile_s": 30.0, "programs": 11}
    found = table.render(
        [
            row("grpo_step", detail=stages, peer="a", skipped="not installed: a"),
            row("grpo_step", detail=stages, peer="b", skipped="not installed: b"),
            row("policies", shape={"policies": 16}, detail={"one_program_s": 2.5}),
            row("memory", ours_s=None, detail={"forward_bytes": 2**20, "gradient_bytes": 3 * 2**19}),
            row("study", shape={}, detail={"first": start, "second": start | {"compile_s": 2.0}, "compile_share": 0.1}),
        ]
    )
    assert found.count("| grpo_step | context 31, group 5 | 1.5 | 0.75 | 3.25 | 41% | 270 | 13.0 |") == 1
    assert "| 16 | 2 | 2.5 |" in found
    assert "| context 31, group 5 | 1.0 | 1.5 |" in found
    assert "| first start | 70 | 30 | 11 |\n| second start | 70 | 2 | 11 |" in found


def test_stages_of_another_device_or_day_stand_beside():
    rates = {"matmul_flops_per_s": 2.7e11, "copy_bytes_per_s": 1.3e10, "gradient_matmul_share": 0.41}
    stages = {"rollout_s": 1.5, "reference_s": 0.75, "gradient_s": 3.25} | rates
    fast = stages | {"rollout_s": 0.5}
    found = table.render(
        [
            row("grpo_step", detail=stages),
            row("grpo_step", detail=fast, device="cpu: another processor, 2 threads"),
            row("grpo_step", detail=stages | {"rollout_s": 0.25}, date="2026-12-01"),
        ]
    )
    # With work and sizes alone for a key, only the last was left.
    assert [found.count(f"| context 31, group 5 | {s} | 0.75 |") for s in ("1.5", "0.5", "0.25")] == [1, 1, 1]


def test_a_large_model_and_what_was_timed_alone():
    detail = {"step_s": 3.5, "score_s": 0.25, "score_mfu": 0.413, "update_mfu": 0.307, "decode_bytes_per_s": 2.9e12}
    detail |= {"decode_tokens_per_s": 970.0, "policies_per_hour": 21.6, "peak_memory_bytes": 61e9, "compile_s": 93.4}
    unknown = detail | {"score_mfu": None, "update_mfu": None, "peak_memory_bytes": None}
    shape = {"model": "gemma_2b", "policies": 7, "context": 31}
    gpu = "gpu: some accelerator, 16 threads"
    found = table.render(
        [
            row("large_model", gpu, shape=shape, detail=detail),
            row("large_model", gpu, shape=shape | {"model": "other"}, detail=unknown),
            row("rollout", gpu, ours_s=0.125),
        ]
    )
    assert "| gemma_2b | 7 | 3.5 | 0.25 | 41.3% | 30.7% | 2,900 | 21.6 | 61.0 | 93 |" in found
    assert "| other | 7 | 3.5 | 0.25 | unknown | unknown | 2,900 | 21.6 | unknown | 93 |" in found
    # A row that no other table shows; one with a table of its own is not said twice.
    assert (
        "| work, ours alone | sizes | ours, s |\n| --- | --- | --- |\n| rollout | context 31, group 5 | 0.125 |\n\n"
        in found
    )


def test_a_readme_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="put them back"):
        table.with_tables("# no markers", "| a |")
