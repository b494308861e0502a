"""Runs whose trackers are missing or left out."""

import sys

import pytest

from canaryjax.errors import UserError
from canaryjax.runlog import RunDirectory
from canaryjax.runlog.mirror import mirroring
from canaryjax.runlog.trackers import MODULES, check_trackers

ROW = {"trial": 3, "stage": "grpo", "step": 0, "kl": 0.5}


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    yield run
    run.close()


@pytest.mark.parametrize("name", MODULES)
def test_a_missing_library_names_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULES[name], None)  # as if it were not installed
    with pytest.raises(
        UserError,
        match=rf"report_to={name}, found none .*; install it with: \.venv/bin/python -m pip install -e '\.\[{name}\]'",
    ):
        check_trackers((name,))


def test_a_library_that_does_not_load_is_a_mistake_of_the_installation(tmp_path, monkeypatch):
    (tmp_path / "tensorboardX.py").write_text("raise TypeError('descriptors cannot be created directly')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorboardX", raising=False)
    with pytest.raises(UserError, match="to load, found TypeError: descriptors cannot be created directly; mend its"):
        check_trackers(("tensorboard",))


def test_a_run_goes_on_without_trackers_whatever_was_kept_for_them(run):
    # As errors about it advise.
    (run.path / "reported.json").write_text("[]")
    with mirroring([], run, [{"step": 3}], [{"step": 3}], pytest.fail) as mirror:
        mirror.add(ROW)


def test_no_tracker_writes_nothing(run):
    before = sorted(path.name for path in run.path.iterdir())
    with mirroring([], run, [], [], pytest.fail) as mirror:
        mirror.add(ROW)
    assert sorted(path.name for path in run.path.iterdir()) == before
