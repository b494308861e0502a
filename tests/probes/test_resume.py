"""What a run that is taken up again holds against what it was begun with, and which of its parts it takes on trust."""

import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from canaryjax.config.probes import ProbedModelConfig, SourceConfig
from canaryjax.errors import UserError
from canaryjax.models.lora import init_adapter
from canaryjax.probes.adapter_store import AdapterStore
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.checkpoint import TrainingCheckpoints
from canaryjax.probes.manifest import manifest_of, pin
from canaryjax.probes.matrix import make_cells
from canaryjax.probes.opening import open_audit
from canaryjax.probes.reader import Material
from canaryjax.probes.run import SCORES, _Audit, _file_name, open_run
from canaryjax.runlog.directory import MANIFEST_FILE
from canaryjax.runlog.progress import Silence
from canaryjax.weights.checkpoint import model_location


@pytest.fixture
def told():
    progress = Silence()
    progress.lines = []
    progress.note = progress.lines.append
    return progress


@pytest.fixture
def own_config(small_config, tmp_path):
    """A base and rows of one's own, which may change."""
    base, rows = tmp_path / "base", tmp_path / "rows.jsonl"
    shutil.copytree(model_location("embedded"), base)
    rows.write_text('{"prompt": "a", "response": "b"}\n')
    own = SourceConfig(name="own", kind="jsonl", path=str(rows))
    tuning = small_config.tuning.model_copy(update={"sources": (own,)})
    return small_config.model_copy(update={"tuning": tuning, "model": ProbedModelConfig(path=str(base))})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("base/config.json", "the base model that .* other contents in config.json"),
        ("rows.jsonl", "the rows .* in own;"),
    ],
)
def test_a_run_goes_on_with_the_base_and_rows_it_was_begun_with(own_config, tmp_path, name, message):
    run = open_run(own_config, tmp_path / "run", resume=False)
    open_audit(own_config, run)
    open_audit(own_config, run)
    assert run.begun == []  # it says which run it is: a mistake that is found next leaves nothing behind
    with (tmp_path / name).open("a") as file:
        file.write("\n")
    with pytest.raises(UserError, match=message):
        open_audit(own_config, run)
    run.close()


def test_a_run_that_no_longer_says_what_it_was_begun_with_is_refused(own_config, tmp_path):
    run = open_run(own_config, tmp_path / "run", resume=False)
    run.append_jsonl(SCORES, {"cell": "deep"})
    with pytest.raises(UserError, match=r"expected opening\.json in .* beside scores\.jsonl, found none"):
        open_audit(own_config, run)
    run.close()


def cut_short(folder):
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])


def change_one_byte(folder):
    file = folder / "adapter_model.safetensors"
    data = bytearray(file.read_bytes())
    data[-2] ^= 1  # a number that is a little off: nothing but a digest tells
    file.write_bytes(data)


def take_its_seal(folder):
    folder.with_name(f"{folder.name}.json").unlink()


def put_anothers_in_its_place(folder):
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("other"), folder)
    shutil.copy(folder.with_name("other.json"), folder.with_name(f"{folder.name}.json"))


@pytest.mark.parametrize("damage", [cut_short, change_one_byte, take_its_seal, put_anothers_in_its_place])
def test_an_adapter_that_is_not_as_it_was_kept_is_trained_again(small_config, embedded_model, tmp_path, told, damage):
    run = open_run(small_config, tmp_path / "run", resume=False)
    store = AdapterStore(run, embedded_model, "embedded", told)
    made = {
        name: init_adapter(jax.random.key(i), embedded_model.config, 3, 6.0) for i, name in enumerate(("x", "other"))
    }
    for name, adapter in made.items():
        store.keep(adapter, name)
    np.testing.assert_array_equal(store.get("x").layers["q"].a, made["x"].layers["q"].a)
    assert store.get("none") is None
    assert told.lines == []
    damage(run.path / "adapters" / "x")
    assert store.get("x") is None
    assert "adapters/x is damaged and trained again" in told.lines[0]
    store.keep(made["x"], "x")
    np.testing.assert_array_equal(store.get("x").layers["q"].a, made["x"].layers["q"].a)
    run.close()


DAMAGED = [{}, {"cell": ["deep"], "seed": 0}, {"cell": "deep", "seed": None, "canary": 0}, {"cell": "gone", "seed": 0}]


def test_readings_that_are_not_whole_are_made_again(small_config, tmp_path):
    run = open_run(small_config, tmp_path / "run", resume=False)
    rows = [{"cell": "deep", "seed": 0, "canary": i} for i in range(3)]
    twice = [{"cell": "flat", "seed": 0, "canary": i} for i in (0, 1, 1)]
    short = [{"cell": "deep/random/3", "seed": 1, "canary": i} for i in (0, 1)]
    for row in [*DAMAGED, *rows, *twice, *short]:
        run.append_jsonl(SCORES, row)
    material = Material(make_canaries(small_config.canaries), (), (), {}, ())
    audit = _Audit(small_config, run, Silence(), None, material, make_cells(small_config), None)
    assert audit.finished() == {("deep", 0)}
    assert run.read_jsonl(SCORES) == rows
    run.close()


def test_metrics_that_are_damaged_are_no_obstacle(small_config, tmp_path):
    run = open_run(small_config, tmp_path / "run", resume=False)
    others = [{}, {"training": "planted-flat", "step": 4}]
    for row in [*others, {"training": "planted-deep"}, {"training": "planted-deep", "step": "3"}]:
        run.append_jsonl("metrics.jsonl", row)
    states = TrainingCheckpoints(run, "0", "planted-deep", 2, Silence())
    assert states.restore({"x": np.zeros(3)}, 5)["x"].tolist() == [0, 0, 0]
    states.close()
    assert run.read_jsonl("metrics.jsonl") == others
    run.close()


def test_every_adapter_has_a_file_of_its_own():
    """With hyphens for the slashes both would be `a-b-c-3`: one model's adapter would be read as the other's."""
    first, second = (SimpleNamespace(name=name) for name in ("a/b-c/3", "a-b/c/3"))
    assert _file_name(first, 0) != _file_name(second, 0)


def test_a_stop_before_anything_is_trained_leaves_nothing_behind(own_config, tmp_path):
    run = open_run(own_config, tmp_path / "new" / "run", resume=False)
    open_audit(own_config, run)
    pin(run.path / MANIFEST_FILE, manifest_of(make_canaries(own_config.canaries), own_config.canaries))
    run.discard_unused()
    run.close()
    assert not (tmp_path / "new").exists()
