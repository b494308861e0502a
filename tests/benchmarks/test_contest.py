"""What a benchmark records: one line a peer, a ratio only where both computed the same, peers that are absent named."""

import json
import sys
from pathlib import Path

import pytest

from harness.command import Options
from harness.contest import Peer, contest
from harness.record import finish
from harness.shape import TINY
from harness.timing import interleave

CONTRACT = ("name", "shape", "dtype", "device", "ours_s", "peer", "peer_s", "ratio", "agreement")


class Side:
    """A contender that takes stated times and answers a stated log-prob."""

    def __init__(self, logp, *times):
        self.logp, self.times = logp, iter(times)

    def answers(self):
        return {"logps": [self.logp]}

    def seconds(self):
        return next(self.times)


def options(*against, repeats=3):
    return Options(against=against, json=None, repeats=repeats, tiny=True, shape=TINY, changed=())


def test_the_median_of_the_timed_runs_and_its_ratio(capsys, tmp_path):
    # The first run of each, 100 and 900 s, compiles: counted, the medians would be 3.5 and 16.
    peers = {"other": Peer((), lambda: Side(-3.0, 900.0, 14.0, 10.0, 12.0))}
    records = contest("work", options("other"), {"vocab": 211}, Side(-3.0, 100.0, 3.0, 4.0, 2.0), peers)
    assert finish(records, tmp_path / "found.json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert (tmp_path / "found.json").read_text() == line + "\n"
    found = json.loads(line)
    assert list(found)[: len(CONTRACT)] == list(CONTRACT)
    assert (found["ours_s"], found["peer"], found["peer_s"], found["ratio"]) == (3.0, "other", 12.0, 4.0)
    assert found["agreement"] == {"holds": True, "checks": {"logps": {"difference": 0.0, "tolerance": 1e-5}}}
    assert found["versions"]["jax"]
    assert found["dtype"] == "float32"


def test_no_ratio_where_ours_computes_something_else(capsys):
    peers = {"other": Peer((), lambda: Side(-3.0, 1.0, 14.0))}
    records = contest("work", options("other", repeats=1), {}, Side(-3.1, 1.0, 2.0), peers)
    assert finish(records, None) == 1
    assert records[0]["ratio"] is None
    assert records[0]["agreement"]["holds"] is False
    assert "other do not agree" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("peer", "absent"),
    [
        (Peer(("no_such_module", "json"), lambda: pytest.fail("opened")), "no_such_module"),
        (Peer((), lambda: pytest.fail("opened"), Path("no/such/python")), "a Python of its own"),
    ],
)
def test_a_peer_that_is_not_installed_is_named_and_the_rest_is_run(capsys, peer, absent):
    peers = {"absent": peer, "other": Peer(("json",), lambda: Side(-3.0, 1.0, 14.0), Path(sys.executable))}
    records = contest("work", options("absent", "other", repeats=1), {}, Side(-3.0, 1.0, 2.0), peers)
    assert finish(records, None) == 0
    assert f"absent is skipped, not installed: {absent};" in capsys.readouterr().err
    assert (records[0]["peer"], records[0]["peer_s"], records[0]["ratio"]) == ("absent", None, None)
    assert absent in records[0]["skipped"]
    assert records[1]["ratio"] == 7.0


class Broken(Side):
    """A contender that loads and then stops, as a process of its own does."""

    def answers(self):
        raise RuntimeError("stopped;" + " and so on" * 99 + "\n  the cause")


def unopenable():
    raise OSError("libsome.so: undefined symbol")


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        (
            Peer(("broken_peer.trainer",), unopenable),
            "does not load: broken_peer.trainer: RuntimeError: built for another",
        ),
        (Peer(("needy_peer.trainer",), unopenable), "not installed: no_such_module, which needy_peer.trainer needs"),
        (Peer((), unopenable), "does not load: OSError: libsome.so: undefined symbol"),
        (Peer((), lambda: Broken(-3.0)), "does not answer: RuntimeError: ... "),
    ],
)
def test_a_peer_that_is_broken_is_named_and_the_rest_is_run(capsys, tmp_path, monkeypatch, peer, said):
    for name, line in {"broken": 'raise RuntimeError("built for another")', "needy": "import no_such_module"}.items():
        (tmp_path / f"{name}_peer").mkdir()
        (tmp_path / f"{name}_peer" / "__init__.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    peers = {"broken": peer, "other": Peer((), lambda: Side(-3.0, 1.0, 14.0))}
    records = contest("work", options("broken", "other", repeats=1), {}, Side(-3.0, 1.0, 2.0), peers)
    assert finish(records, None) == 0
    assert f"broken is skipped, {said}" in capsys.readouterr().err
    assert records[0]["skipped"].startswith(said)
    assert (records[0]["agreement"], records[0]["peer_s"], records[0]["ratio"]) == (None, None, None)
    assert len(records[0]["skipped"]) < 400
    assert "\n" not in records[0]["skipped"]
    assert records[1]["ratio"] == 7.0


def test_of_a_long_message_the_end_is_kept():
    # A worker's traceback has its cause in the last line.
    peers = {"broken": Peer((), lambda: Broken(-3.0))}
    (record,) = contest("work", options("broken", repeats=1), {}, Side(-3.0, 1.0, 2.0), peers)
    assert record["skipped"].endswith("and so on the cause")


def test_ours_alone_is_one_record():
    (record,) = contest("work", options(repeats=1), {}, Side(-3.0, 1.0, 2.0), {}, lambda: {"stage_s": 0.5})
    assert (record["ours_s"], record["peer"], record["ratio"], record["agreement"]) == (2.0, None, None, None)
    assert record["detail"] == {"stage_s": 0.5}


def test_runs_are_interleaved():
    order = []

    def side(name):
        return lambda: order.append(name) or 1.0

    interleave({"a": side("a"), "b": side("b")}, 2)
    # One run each to warm up; then the second round goes backwards.
    assert order == ["a", "b", "a", "b", "b", "a"]
