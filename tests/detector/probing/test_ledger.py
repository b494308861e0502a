"""Which look at a model a run is: each run once, by model, however often it is taken up."""

import json

import pytest

from canaryjax.detector.ledger import take_look
from canaryjax.errors import UserError


def test_each_run_against_a_model_is_one_look(tmp_path):
    looks = [take_look(tmp_path, run, model, "t") for run, model in
             [("a", "m"), ("b", "m"), ("c", "other"), ("a", "m"), ("d", "m"), ("b", "m")]]  # fmt: skip
    # a and b come again, resumed: counted anew, they would spend alpha that was never used.
    assert looks == [1, 2, 1, 1, 3, 2]
    rows = [json.loads(line) for line in (tmp_path / "looks.jsonl").read_text().splitlines()]
    assert rows == [{"run": r, "model": m, "begun": "t"} for r, m in zip("abcd", ("m", "m", "other", "m"), strict=True)]


def test_a_half_written_row_is_cut_and_a_broken_one_refused(tmp_path):
    path = tmp_path / "looks.jsonl"
    take_look(tmp_path, "a", "m", "t")
    path.write_bytes(path.read_bytes() + b'{"run": "b", "mo')
    assert take_look(tmp_path, "c", "m", "t") == 2
    path.write_text("[]\n" + path.read_text())
    with pytest.raises(UserError, match=r"looks\.jsonl; line 1"):
        take_look(tmp_path, "d", "m", "t")


def test_a_site_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="each look at a model is counted"):
        take_look(tmp_path / "none", "a", "m", "t")
