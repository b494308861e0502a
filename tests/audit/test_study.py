"""A whole study at the smallest size: run at once, and stopped after its first chunk and taken up again."""

import dataclasses
import importlib.util
import json
import shutil

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from canaryjax.audit import study
from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.base import reserve_warm_start
from canaryjax.audit.measure import plan_cells
from canaryjax.audit.preflight import prepare_trials
from canaryjax.audit.scoring import score_items
from canaryjax.config import config_hash, load_config
from canaryjax.data.loaders import Dataset, load_examples
from canaryjax.embedded.corpus import generate_examples
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, save_tokenizer
from canaryjax.errors import UserError
from canaryjax.models.lora import adapter_pairs
from canaryjax.runlog import RunDirectory, Silence
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.export import save_model
from canaryjax.weights.peft import load_adapter

pytestmark = pytest.mark.slow
SMALL = (
    *("study.compliant=1", "study.violating=1", "study.policies_per_chunk=1", "study.seed=7"),
    *("data.documents=40", "policy.max_completion_length=20"),
    *("model.warm_start.documents=8", "model.warm_start.batch_size=8", "model.warm_start.epochs=1"),
    *("policy.num_generations=2", "policy.generation_batch_size=8", "policy.train_batch_size=8"),
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.decoys=3", "evaluation.noise_floor_pairs=2"),
    *("evaluation.placebos_same_form=2", "evaluation.placebos_other_form=2", "evaluation.utility_examples=3"),
    *("output.save_adapters=true", "output.sample_every=2"),
    *(["output.report_to=[tensorboard]"] if importlib.util.find_spec("tensorboardX") else []),
    # The embedded model's head is tied: a warm start of the head unties it, and every policy adapts it further.
    *("model.warm_start.lora.targets=[q,head]", "policy.lora.targets=[q,v,head]", "policy.lora.rank_stabilised=true"),
)


class StopAfterFirstPolicy(Silence):
    """Stops the study as Ctrl-C would, once a chunk is kept."""

    def advance(self, count: int = 1, detail: str = "") -> None:
        if detail:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def config(tiny_model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "model"
    save_model(tiny_model, folder, eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer.backend, folder)
    return load_config("quick", [f"model.path={folder}", *SMALL])


def _open(config, path, resume=False):
    if resume:
        return RunDirectory.resume(path, config_hash(config), config.to_yaml())
    return RunDirectory.create(path, config.name, config_hash(config), config.to_yaml())


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    report = study.run_study(config, _open(config, path), False, Silence())
    return path, report


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "run"
    run = _open(config, path)
    # One after another, so that one policy is kept; the whole run has its two chunks side by side, and must not differ.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "choose_chunks_at_once", lambda shape: 1)
        with pytest.raises(KeyboardInterrupt):
            study.run_study(config, run, False, StopAfterFirstPolicy())
    run.close()
    return path


def _rows(path):
    rows = [json.loads(line) for line in (path / "trials.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name != "timings"} for row in rows]


def _metrics(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text("utf-8").splitlines()]
    kept = [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
    # Chunks side by side write their rows in turn: each trial's are in order, trials are not.
    return sorted(kept, key=lambda row: row.get("trial", -1))


def _samples(path):
    rows = [json.loads(line) for line in (path / "samples.jsonl").read_text("utf-8").splitlines()]
    return sorted(rows, key=lambda row: (row["trial"], row["step"]))  # a prompt's completions stay in order


def test_a_study_leaves_what_the_contract_names(whole):
    path, report = whole
    for name in ("config.yaml", "scores.jsonl", "trials.jsonl", "pairs.parquet", "metrics.jsonl", "samples.jsonl",
                 "data/eval_clean.jsonl", "data/eval_trigger.jsonl"):  # fmt: skip
        assert (path / name).is_file(), name
    assert sorted(p.name for p in (path / "adapters").iterdir()) == ["trial-0000", "trial-0001"]
    assert {"arms", "detection", "mechanism", "controls", "utility", "noise_floor", "timings", "warnings"} <= set(
        report
    )
    scores = [json.loads(line) for line in (path / "scores.jsonl").read_text("utf-8").splitlines()]
    assert not any("arm" in row for row in scores)
    assert {row["arm"] for row in _rows(path)} == {"compliant", "violating"}
    for part in report["arms"].values():
        for who in ("utility", "base_utility"):
            assert {len(values) for values in part[who].values()} == {part["n"]}
    assert report["utility"]["differences"]["compliant_minus_base"]["rouge_l"]["reason"].endswith("found 1")
    # Scores are means over the rows of pairs.parquet: triggered minus clean, minus the base's.
    pairs = pq.read_table(path / "pairs.parquet").to_pylist()
    for row in _rows(path):
        net = {"triggered": [], "clean": []}
        for cell in pairs:
            if (cell["trial"], cell["trigger_kind"], cell["query_mode"]) == (row["trial"], "real", "induced"):
                net[cell["view"]].append(cell["logp"] - cell["base_logp"])
        assert len(net["triggered"]) == len(net["clean"]) == 5
        expected = np.mean(net["triggered"]) - np.mean(net["clean"])
        assert row["scores"]["induced_net"] == pytest.approx(expected, abs=1e-9)


def test_a_saved_policy_scores_as_the_study_says(config, whole):
    # From the config through warm start, training and scoring to the file that PEFT reads: the head is in all of them.
    model = load_model(config.model.path)
    adapter = load_adapter(model, whole[0] / "adapters" / "trial-0000")
    assert set(adapter_pairs(adapter)) == {"q", "v", "head"}
    warm, own = config.model.warm_start.lora.rank, config.policy.lora.rank
    assert adapter.head.b.shape == (warm + own, model.config.vocab_size)
    assert min(np.abs(part).max() for part in (adapter.head.b[:warm], adapter.head.b[warm:])) > 1e-5
    _, examples = reserve_warm_start(config, load_examples(config.data, config.study.seed, generate_examples))
    assignments = assign_arms(config.study)[:1]
    trial = prepare_trials(config, assignments, examples, model.tokenizer).trials[0]
    items = [[cell.item for cell in plan_cells(trial, config)]]
    found = score_items(model.params, jax.tree.map(lambda x: x[None], adapter), items, config.evaluation.batch_size)[0]
    pairs = pq.read_table(whole[0] / "pairs.parquet").to_pylist()
    wanted = np.array([row["logp"] for row in pairs if row["trial"] == 0])
    tokens = np.array([row["tokens"] for row in pairs if row["trial"] == 0])
    assert (np.abs(found - wanted) <= 1e-5 * np.maximum(1.0, np.abs(wanted)) * tokens).all()


def test_a_stopped_study_ends_as_the_whole_one(config, whole, stopped):
    done = sorted(p.name for p in (stopped / "trials").glob("*.json"))
    assert len(done) == 1
    kept = (stopped / "trials" / done[0]).read_bytes()
    seldom = config.output.model_copy(update={"log_every": 3})  # only observes: no bit of the outcome is another
    config = config.model_copy(update={"output": seldom})
    run = _open(config, stopped, resume=True)
    other = next(row for row in _metrics(whole[0]) if row.get("trial") not in (None, int(done[0][:4])))
    run.append_jsonl("metrics.jsonl", other)  # as if it had been stopped in the middle of the other chunk
    study.run_study(config, run, True, Silence())
    run.close()
    assert _metrics(stopped) == _metrics(whole[0])
    assert _samples(stopped) == _samples(whole[0])
    assert {row["trial"] for row in _samples(stopped)} == {0, 1}
    assert (stopped / "trials" / done[0]).read_bytes() == kept
    assert _rows(stopped) == _rows(whole[0])
    for name in ("logp", "base_logp"):
        one, other = (pq.read_table(path / "pairs.parquet")[name].to_numpy() for path in (stopped, whole[0]))
        np.testing.assert_array_equal(one, other)


def test_tensorboard_has_each_row_once_stopped_or_not(whole, stopped, mirrored):
    for path in (whole[0], stopped):
        there, wanted = mirrored(path)
        assert there == wanted
        assert {"base", "trial-0000", "trial-0001"} >= set(there) > {"base"}


def test_a_finished_run_that_has_lost_files_is_completed_without_training(config, whole, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(whole[0], path)
    lost = ("config.yaml", "base.json", "scores.jsonl", "pairs.parquet", *study.EVAL_FILES)
    before = {name: (path / name).read_bytes() for name in lost}
    seconds = json.loads((path / "run.json").read_text())["seconds"]
    for name in lost:
        (path / name).unlink()
    stages = []
    progress = Silence()
    progress.stage = lambda name, *_, **__: stages.append(name)
    run = _open(config, path, resume=True)
    report = study.run_study(config, run, True, progress)
    run.close()
    assert stages == ["model and documents", "policies", "statistics"]  # no warm start
    assert {name: (path / name).read_bytes() for name in lost} == before
    assert report["arms"] == whole[1]["arms"]
    assert report["model"] == whole[1]["model"]
    # In all: this call trained nothing and took a fraction of the first.
    assert report["timings"]["total"] > seconds == whole[1]["timings"]["total"]


def test_a_trial_copied_over_another_ends_the_run_before_any_training(config, whole, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(whole[0], path)
    for suffix in ("json", "parquet"):
        shutil.copy(path / f"trials/0000.{suffix}", path / f"trials/0001.{suffix}")
    run = _open(config, path, resume=True)
    with pytest.raises(UserError, match=r"trials/0001\.json .* is a copy of another file; remove it, and --resume"):
        study.run_study(config, run, True, Silence())
    run.close()


def test_other_documents_are_not_the_same_study(config, stopped, monkeypatch):
    load = study.load_dataset

    def changed(*args):
        first, *rest = load(*args).examples
        return Dataset([dataclasses.replace(first, answer=first.answer + "s"), *rest], {})

    monkeypatch.setattr(study, "load_dataset", changed)
    run = _open(config, stopped, resume=True)
    with pytest.raises(UserError, match=r"the documents that .* was begun with .* give the same data"):
        study.run_study(config, run, True, Silence())
    run.close()


def test_a_trial_is_joined_with_the_studys_seed_and_its_own_draw(config, whole):
    rows = [json.loads(line) for line in (whole[0] / "trials.jsonl").read_text().splitlines()]
    # The number of the trial alone, 0 to n, cannot make any draw again.
    assert {row["seed"] for row in rows} == {config.study.seed}
    assert [row["draw"] for row in rows] == [row["trial"] for row in rows]
