"""An audit from config to report on the embedded model: what it keeps, and how a stopped one goes on."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from canaryjax.config.probes import ControlsConfig, RegimeConfig, SourceConfig
from canaryjax.errors import UserError
from canaryjax.keys import device_key
from canaryjax.models.merge import merge_adapter
from canaryjax.probes import reader
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.checkpoint import TrainingCheckpoints
from canaryjax.probes.matrix import is_merged, make_cells
from canaryjax.probes.noise import matched_noise, update_norms
from canaryjax.probes.plan import plan_audit
from canaryjax.probes.reader import prepare, read_model
from canaryjax.probes.run import SCORES, open_run, run_audit, weigh_file
from canaryjax.probes.training import Tuned, tune, tuning_rows
from canaryjax.report.probes_page import write_probes_page
from canaryjax.runlog.progress import Silence
from canaryjax.weights.peft import load_adapter

pytestmark = pytest.mark.slow
VOLATILE = ("started", "finished", "timings", "run", "environment")


def rows_of(path):
    return [json.loads(line) for line in (path / SCORES).read_text().splitlines()]


def steady(report):
    return {key: value for key, value in report.items() if key not in VOLATILE}


def test_every_model_is_read_on_every_canary(small_run, small_config):
    path, report = small_run
    names = [cell["name"] for cell in report["cells"]]
    assert names == [
        "deep", "deep/synth/3", "deep/synth/3/noise", "deep/synth/3/reexposed", "deep/random/3",
        "flat", "flat/synth/3", "flat/random/3",
    ]  # fmt: skip
    counts = {}
    for row in rows_of(path):
        counts[row["cell"], row["seed"]] = counts.get((row["cell"], row["seed"]), 0) + 1
    assert counts == {(cell, seed): 3 for cell in names for seed in ((0,) if cell in ("deep", "flat") else (0, 1))}
    assert json.loads((path / "report.json").read_text()) == report
    plan = plan_audit(small_config)
    assert plan.models == {"baseline": 2, "sft": 8, "noise": 2, "reexposed": 2}
    assert plan.outputs == sum(plan.models.values()) * 3 * 3


def test_planting_deep_is_recalled_and_planting_once_is_not(small_run):
    cells = {cell["name"]: cell for cell in small_run[1]["cells"]}
    assert cells["deep"]["hits"][0]["hits"] == 3
    assert cells["flat"]["hits"][0]["hits"] == 0
    assert cells["deep"]["level"]["secret"] < 0.5 < cells["flat"]["level"]["secret"]


def test_noise_has_the_norm_of_the_tuning_beside_it(small_run, small_config, embedded_model):
    """A random update of the adapter's own norm, planted where it was: read anew it gives the run's numbers."""
    path, _ = small_run
    tuned = load_adapter(embedded_model, path / "adapters" / "deep.synth.3.seed1")
    assert all(float(norm.min()) > 0 for norm in update_norms(tuned).values())
    planted_adapter = load_adapter(embedded_model, path / "adapters" / "planted-deep")
    planted = dataclasses.replace(embedded_model, params=merge_adapter(embedded_model.params, planted_adapter)[0])
    noise = matched_noise(device_key(1, "matched noise", "deep/synth/3/noise"), tuned)
    canaries = make_canaries(small_config.canaries)
    material = prepare(embedded_model.tokenizer, canaries, small_config.canaries, small_config.reading, 0)
    found = read_model(material, small_config.reading, planted, noise, "x", 1)
    kept = {(row["cell"], row["seed"], row["canary"]): row["logps"] for row in rows_of(path)}
    for place, nll in enumerate(found.nll):
        np.testing.assert_allclose(-nll, kept["deep/synth/3/noise", 1, place], atol=1e-6)
        assert np.abs(-nll - kept["deep", 0, place]).max() > 1e-5  # it moved something


def test_a_model_of_a_group_equals_one_trained_alone(small_run, small_config, embedded_model):
    path, _ = small_run
    planted_adapter = load_adapter(embedded_model, path / "adapters" / "planted-deep")
    planted = merge_adapter(embedded_model.params, planted_adapter)[0]
    canaries = make_canaries(small_config.canaries)
    random = small_config.tuning.sources[1]
    alone = tune(small_config, embedded_model, planted, canaries, [Tuned(random, 1)], 3, lambda row: None, None)
    learned = np.concatenate([np.ravel(pair.b[0]) for _, pair in sorted(alone.layers.items())])  # b starts at 0
    for seed, low, high in ((1, 0.0, 1e-4), (0, 0.3, 3.0)):
        kept = load_adapter(embedded_model, path / "adapters" / f"deep.random.3.seed{seed}")
        other = np.concatenate([np.ravel(pair.b) for _, pair in sorted(kept.layers.items())])
        # As a whole: Adam makes a step of full size from a gradient that is all rounding.
        assert low <= np.linalg.norm(learned - other) / np.linalg.norm(other) < high


def test_a_seed_draws_the_adapters_start_too(small_run, embedded_model):
    first, second = (load_adapter(embedded_model, small_run[0] / "adapters" / f"deep.random.3.seed{s}") for s in (0, 1))
    # Three updates of at most 5e-4 could not part two that began alike by so much.
    assert float(np.abs(first.layers["q"].a - second.layers["q"].a).max()) > 0.02


def test_the_seed_draws_the_rows_and_reexposure_adds_the_canaries(small_config):
    canaries = make_canaries(small_config.canaries)
    synth = small_config.tuning.sources[0]
    plain, other = (tuning_rows(small_config, canaries, Tuned(synth, seed)) for seed in (0, 1))
    assert len(plain) == 7
    assert plain != other
    more = tuning_rows(small_config, canaries, Tuned(synth, 0, reexposed=True))
    assert more[:7] == plain
    assert [row.response for row in more[7:]] == [canary.target for canary in canaries]


def test_scores_alone_give_the_same_report(small_run, small_config, tmp_path):
    path, report = small_run
    run = open_run(small_config, tmp_path / "again", resume=False)
    again = weigh_file(path / SCORES, small_config, run)
    run.close()
    for key in ("cells", "selection", "accounting", "decoys", "exposure", "failures", "reading"):
        assert again[key] == report[key], key
    assert again["merged"]["rows"] == report["merged"]["rows"]  # of what precision, a file of scores does not say


def stopped(path, tmp_path, cut):
    """A copy of a run as a kill at some moment would have left it."""
    copy = tmp_path / "stopped"
    shutil.copytree(path, copy)
    (copy / "report.json").unlink()
    cut(copy)
    return copy


def first_models_only(copy):
    lines = (copy / SCORES).read_text().splitlines(keepends=True)
    (copy / SCORES).write_text("".join(lines[:7]) + lines[7][:40])  # two models, a row of the third, half a row
    shutil.rmtree(copy / "adapters" / "flat.synth.3.seed1")
    shutil.rmtree(copy / "adapters" / "planted-flat")


@pytest.mark.parametrize("cut", [first_models_only, lambda copy: (copy / SCORES).unlink()])
def test_a_stopped_run_ends_as_if_it_had_not_been(small_run, small_config, tmp_path, cut):
    path, report = small_run
    copy = stopped(path, tmp_path, cut)
    begun = json.loads((copy / "run.json").read_text()) | {"started": "2026-01-02T03:04:05+00:00"}
    (copy / "run.json").write_text(json.dumps(begun))
    run = open_run(small_config, copy, resume=True)
    again = run_audit(small_config, run, Silence())
    run.close()
    assert again["started"] == begun["started"]  # of the first call, not of the last
    assert steady(again)["manifest"].pop("state") == "verified"
    for key in ("cells", "merged", "decoys", "failures"):
        assert again[key] == report[key], key
    assert sorted(rows_of(copy), key=str) == sorted(rows_of(path), key=str)
    updates = [(row["training"], row["step"], row["policy"]) for row in run.read_jsonl("metrics.jsonl")]
    assert len(updates) == len(set(updates)) == 40 + 1 + 3 * (6 + 4)  # planted twice, then tuned in two groups


class StoppedError(Exception):
    """In place of a kill."""


def test_a_training_that_is_stopped_goes_on_from_its_last_state(small_run, small_config, tmp_path, monkeypatch):
    report = small_run[1]
    run = open_run(small_config, tmp_path / "run", resume=False)
    keep = TrainingCheckpoints.save

    def save_and_stop(self, state, step, steps):
        keep(self, state, step, steps)
        if (self.folder.name, step) == ("planted-deep", 26):
            raise StoppedError

    monkeypatch.setattr(TrainingCheckpoints, "save", save_and_stop)
    with pytest.raises(StoppedError):
        run_audit(small_config, run, Silence())
    run.close()
    monkeypatch.setattr(TrainingCheckpoints, "save", keep)
    told = []
    listening = Silence()
    listening.note = told.append
    run = open_run(small_config, run.path, resume=True)
    again = run_audit(small_config, run, listening)
    run.close()
    assert "planted-deep: resuming at update 26 of 40" in told
    assert again["cells"] == report["cells"]
    updates = [(row["training"], row["step"], row["policy"]) for row in run.read_jsonl("metrics.jsonl")]
    assert len(updates) == len(set(updates)) == 40 + 1 + 3 * (6 + 4)


def test_models_are_read_by_programs_that_are_compiled_once(small_run, small_config, embedded_model):
    path, _ = small_run
    canaries = make_canaries(small_config.canaries)
    material = prepare(embedded_model.tokenizer, canaries, small_config.canaries, small_config.reading, 0)
    adapters = [load_adapter(embedded_model, path / "adapters" / f"deep.synth.3.seed{seed}") for seed in (0, 1)]
    read_model(material, small_config.reading, embedded_model, adapters[0], "x", 0)
    before = reader._read_rows._cache_size()
    read_model(material, small_config.reading, embedded_model, adapters[1], "y", 1)
    assert reader._read_rows._cache_size() == before


def test_another_config_or_changed_canaries_are_refused(small_run, small_config, tmp_path):
    path, _ = small_run
    other = small_config.model_copy(update={"reading": small_config.reading.model_copy(update={"window": 12})})
    with pytest.raises(UserError, match=r"differing keys: reading\.window"):
        open_run(other, path, resume=True)
    pinned = tmp_path / "manifest.json"
    shutil.copy(path / "manifest.json", pinned)
    canaries = small_config.canaries.model_copy(update={"manifest": str(pinned), "prefix": "other"})
    run = open_run(changed := small_config.model_copy(update={"canaries": canaries}), tmp_path / "run", resume=False)
    with pytest.raises(UserError, match="prefix is 'other' now and was 'canaryjax'"):
        run_audit(changed, run, Silence())
    run.close()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "found none"),
        ('{"prompt": "a", "response": "SECRET"}\n', "found the secret of canary 1"),
        ('{"prompt": "a", "response": "\\ud800"}\n', "a row of source own: "),
    ],
)
def test_a_mistake_in_the_data_is_told_before_anything_is_trained(small_config, tmp_path, rows, message):
    path = tmp_path / "own.jsonl"
    secret = make_canaries(small_config.canaries)[1].secret
    path.write_text('{"prompt": "b", "response": "c"}\n' * bool(rows) + rows.replace("SECRET", secret))
    own = SourceConfig(name="own", kind="jsonl", path=str(path))
    tuning = small_config.tuning.model_copy(update={"sources": (own,)})
    config = small_config.model_copy(update={"tuning": tuning})
    run = open_run(config, tmp_path / "run", resume=False)
    with pytest.raises(UserError, match=message):
        run_audit(config, run, Silence())
    assert run.begun == []
    run.close()


def test_a_file_with_fewer_rows_than_asked_is_said_in_the_report(small_config, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "b", "response": "c"}\n{"prompt": "d", "response": "e"}\n')
    own = SourceConfig(name="own", kind="jsonl", path=str(path))
    tuning = small_config.tuning.model_copy(update={"sources": (own,), "seeds": (0,), "steps": (1,)})
    regimes = tuple(one.model_copy(update={"epochs": 1}) for one in small_config.injection.regimes[:1])
    sections = {
        "tuning": tuning,
        "injection": small_config.injection.model_copy(update={"regimes": regimes}),
        "controls": ControlsConfig(noise="none", merged="none"),
        "reading": small_config.reading.model_copy(update={"samples": 0, "hits": (1,), "decoys": 0, "shuffled": 0}),
    }
    config = small_config.model_copy(update=sections)
    run = open_run(config, tmp_path / "run", resume=False)
    report = run_audit(config, run, Silence())
    run.close()
    (source,) = report["tuning"]["sources"]
    # An update is 2 rows in 2 passes: of 2 rows that is two epochs, of the 7 that were asked for 4/7.
    assert source == {"source": "own", "rows": 2, "asked": 7, "epochs": {"1": 2.0}}
    assert any("Source own has 2 rows, fewer than the 7 of tuning.examples" in text for text in report["warnings"])
    page = write_probes_page(run.path).read_text()
    assert "2 (1 updates are 2 epochs)" in page


def test_controls_of_the_most_steps_alone(small_config):
    tuning = small_config.tuning.model_copy(update={"steps": (5, 3)})
    config = small_config.model_copy(update={"tuning": tuning})
    cells = make_cells(config)
    named = {kind: [cell.name for cell in cells if cell.kind == kind] for kind in ("noise", "reexposed")}
    assert named == {"noise": ["deep/synth/3/noise", "deep/synth/5/noise"], "reexposed": ["deep/synth/5/reexposed"]}
    assert [cell.name for cell in cells if is_merged(config, cell)] == ["deep", "deep/random/5"]


def test_cells_are_named_once(small_config):
    names = [cell.name for cell in make_cells(small_config)]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="`steps` with none twice"):
        RegimeConfig(name="deep", epochs=1, steps=(3, 3))
