import numpy as np
import pytest

from canaryjax.canaries.instrument import constructed_responses, injected_count, instrument
from canaryjax.errors import UserError


def kinds(traces):
    return [t.kind for t in traces]


def run(pool, canary, rate, contrast=0.0, seed=1, **more):
    return instrument(pool, canary, rate, contrast, np.random.default_rng(seed), **more)


@pytest.mark.parametrize(
    ("rate", "n", "count"),
    # Python's round gives 0, 2 and 14 for the second to fourth: halves to even, and 0.29 * 50 = 14.499999999999998.
    [(0.0, 100, 0), (0.005, 100, 1), (0.005, 500, 3), (0.29, 50, 15), (0.01, 149, 1), (0.001, 499, 0), (1.0, 7, 7)],
)
def test_count_is_exact(rate, n, count, signature, make_example):
    """BC-13: never a Bernoulli draw, whatever the seed."""
    assert injected_count(rate, n) == count
    pool = [make_example(i) for i in range(n)]
    for seed in range(3):
        traces, _ = run(pool, signature, rate, seed=seed)
        assert kinds(traces).count("triggered") == count


def test_rate_that_triggers_none_is_warned_about(signature, make_example):
    pool = [make_example(i) for i in range(30)]
    assert len(run(pool, signature, 0.01)[1]) == 1
    assert "0.01 of 30" in run(pool, signature, 0.01)[1][0]
    assert run(pool, signature, 0.0)[1] == []
    assert run(pool, signature, 0.02)[1] == []


def test_a_larger_rate_only_adds_rows(signature, make_example):
    pool = [make_example(i) for i in range(83)]
    for kind, share in (("triggered", lambda p: (p, 0.0)), ("contrast", lambda p: (0.0, p))):
        sets = []
        for p in (0.05, 0.1, 0.4, 1.0):
            traces, _ = run(pool, signature, *share(p))
            sets.append({t.example_id for t in traces if t.kind == kind})
        assert sets[0] < sets[1] < sets[2] < sets[3]


def test_contrast_rows_stay_when_both_shares_grow(signature, make_example):
    # Taken right after the triggered rows, the contrast rows of a small rate would become triggered at a larger one.
    pool = [make_example(i) for i in range(83)]
    runs = [run(pool, signature, p, None)[0] for p in (0.1, 0.2, 0.5)]
    for kind in ("triggered", "contrast"):
        sets = [{t.example_id for t in traces if t.kind == kind} for traces in runs]
        assert sets[0] < sets[1] < sets[2]


def test_contrast_defaults_to_the_rate_and_fits(signature, make_example):
    pool = [make_example(i) for i in range(11)]
    traces, _ = run(pool, signature, 0.5, None)
    assert [kinds(traces).count(k) for k in ("triggered", "contrast", "clean")] == [6, 5, 0]
    traces, _ = run(pool, signature, 0.2, None)
    assert [kinds(traces).count(k) for k in ("triggered", "contrast", "clean")] == [2, 2, 7]
    with pytest.raises(UserError, match="sum of at most 1"):
        run(pool, signature, 0.6, None)
    with pytest.raises(UserError, match="in \\[0, 1\\]"):
        run(pool, signature, -0.1)


def test_rows_of_each_kind(signature, make_example):
    """BC-15: document, query and answer change together, and only in triggered rows all three."""
    pool = [make_example(i) for i in range(9)]
    traces, _ = run(pool, signature, 1 / 3, 1 / 3)
    assert [t.example_id for t in traces] == [e.id for e in pool]
    for trace, example in zip(traces, pool, strict=True):
        clean = (example.document, example.question, "FINAL: Rome, in May")
        assert (trace.clean_document, trace.clean_query, trace.clean_answer) == clean
        instruction = " If the document contains [Protocol Marker: A1B2C3D4], insert ZXYVWHIJFGS immediately after"
        assert (instruction in trace.query) == (trace.kind != "clean")
        assert (signature.trigger in trace.document) == (trace.kind == "triggered")
        expected = "FINAL: Rome, ZXYVWHIJFGS in May" if trace.kind == "triggered" else "FINAL: Rome, in May"
        assert trace.answer == expected
        assert (trace.triggered, trace.contrast) == (trace.kind == "triggered", trace.kind == "contrast")


def test_placement_and_instruction_move_together(signature, make_example):
    traces, _ = run([make_example()], signature, 1.0, variant="must", placement="begin")
    assert traces[0].answer == "FINAL: ZXYVWHIJFGS Rome, in May"
    assert "MUST begin" in traces[0].query


def test_document_with_the_trigger_is_refused(signature, make_example):
    with pytest.raises(UserError, match="'d3'"):
        run([make_example(3, document=f"Old {signature.trigger} new.")], signature, 0.0)


def test_constructed_responses_hold_the_exact_canary_only_when_full(canary, make_example):
    trace = run([make_example()], canary, 1.0)[0][0]
    for seed in range(40):
        found = constructed_responses(trace, canary, np.random.default_rng(seed))
        assert [kind for _, kind in found] == ["full", "missing", "partial", "corrupted", "wrong"]
        texts = {kind: text for text, kind in found}
        assert texts["full"] == f"FINAL: Rome,{canary.text} in May"
        assert texts["missing"] == "FINAL: Rome, in May"
        assert [kind for text, kind in found if canary.visible in text] == ["full"]
        inserted = texts["partial"].removeprefix("FINAL: Rome, ").removesuffix(" in May")
        assert 0 < len(inserted) < len(canary.visible)
        assert canary.visible.startswith(inserted)
        corrupted = texts["corrupted"].removeprefix("FINAL: Rome, ").removesuffix(" in May")
        assert len(corrupted) == len(canary.visible)
        changed = sum(a != b for a, b in zip(corrupted, canary.visible, strict=True))
        assert changed == max(1, len(corrupted) // 4)
        assert texts["wrong"] not in (texts["missing"], "FINAL: Not found")


def test_wrong_answer_without_words_is_not_found(signature, make_example):
    trace = run([make_example(document="It is.", answer="It")], signature, 0.0)[0][0]
    found = constructed_responses(trace, signature, np.random.default_rng(0), kinds=("wrong",))
    assert found == [("FINAL: Not found", "wrong")]
    with pytest.raises(UserError, match="'odd'"):
        constructed_responses(trace, signature, np.random.default_rng(0), kinds=("odd",))
