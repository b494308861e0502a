"""Score files from elsewhere: read, refused by line, and weighed like our own."""

import json

import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.probes.external import read_scores
from canaryjax.probes.findings import analyse
from canaryjax.probes.records import Cell
from canaryjax.probes.run import open_run, weigh, weigh_file
from canaryjax.report.probes_page import write_probes_page
from tests.probes import constructed

TEXT = "né code 12ab!"
SEGMENTS = [
    {"name": "preamble", "start": 0, "end": 2},
    {"name": "literal", "start": 2, "end": 8},
    {"name": "secret", "start": 8, "end": 12},
    {"name": "trailing", "start": 12, "end": 13},
]

BYTES = [[0, 3], [3, 9], [9, 11], [11, 13], [13, 14]]
# The preamble ends inside of the é, which has the bytes 1 and 2.
HALVED = [
    {"name": "preamble", "start": 0, "end": 2},
    {"name": "literal", "start": 2, "end": 9},
    {"name": "secret", "start": 9, "end": 13},
    {"name": "trailing", "start": 13, "end": 14},
]


def row(cell="tuned", seed=0, canary=0, **more):
    base = {"cell": cell, "seed": seed, "canary": canary, "text": TEXT, "segments": SEGMENTS}
    base |= {"ids": [5, 6, 7, 8, 9], "offsets": [[0, 2], [2, 8], [8, 10], [10, 12], [12, 13]]}
    base |= {"logps": [-0.5, -0.25, -1.0, -2.0, -0.125], "baseline": "base"}
    return base | more


def base_row(**more):
    return row("base", baseline=None, logps=[-0.5, -0.5, -0.5, -0.5, -0.5], **more)


def written(tmp_path, rows):
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def test_a_score_file_is_read_by_characters_or_bytes(tmp_path):
    given = read_scores(
        written(tmp_path, [base_row(), row(ranks=[1, 2, 3, 4, 5], outputs=["code 12ab", "no"])]), "last_byte"
    )
    assert given.tokens[0].offsets == ((0, 3), (3, 9), (9, 11), (11, 13), (13, 14))  # the é has two bytes
    assert given.tokens[0].owners == ("preamble", "literal", "secret", "secret", "trailing")
    assert (given.canaries[0].secret, given.canaries[0].recall) == ("12ab", "code 12ab")
    base, tuned = given.readings
    np.testing.assert_array_equal(tuned.nll[0], [0.5, 0.25, 1.0, 2.0, 0.125])
    assert (base.ranks, tuned.ranks[0].tolist()) == (None, [1, 2, 3, 4, 5])
    assert [cell.kind for cell in given.cells] == ["baseline", "sft"]

    shifted = [{**one, "start": one["start"] + (i > 0), "end": one["end"] + 1} for i, one in enumerate(SEGMENTS)]
    bytes_of = {"offset_unit": "bytes", "segments": shifted, "offsets": [list(o) for o in given.tokens[0].offsets]}
    again = read_scores(written(tmp_path, [base_row(**bytes_of), row(**bytes_of)]), "last_byte")
    assert again.tokens == given.tokens


def test_what_it_says_is_weighed(tmp_path):
    given = read_scores(written(tmp_path, [base_row(), row(), row(seed=1)]), "last_byte")
    config = constructed.config(reading={"window": 3, "sweep": [2, 5]})
    report = analyse(given.tokens, given.canaries, given.cells, given.readings, config)
    cell = report["cells"][1]
    # (0.5 - 0.5 + 0.25 - 0.5 + 1 - 0.5) / 3 and the secret's (0.5 + 1.5) / 2.
    assert cell["delta"]["window"]["value"] == pytest.approx(0.25 / 3)
    assert cell["delta"]["secret"]["value"] == 1.0
    assert cell["hits"] is None
    holds = {rule["label"]: rule["holds"] for rule in cell["verdict"]["rules"]}
    assert holds["behavioural damage"] is None  # nothing was generated: not known, and not "no"
    assert report["decoys"] == []
    assert any("No decoys" in text for text in report["reading"])
    assert any("was not read (recall)" in text for text in report["reading"])


def test_a_file_of_one_seed_and_no_tuned_model_says_so(tmp_path):
    given = read_scores(written(tmp_path, [base_row()]), "last_byte")
    report = analyse(given.tokens, given.canaries, given.cells, given.readings, constructed.config())
    assert report["reading"][0] == "No tuned cell was read: there is no change for the probes to agree on."
    assert report["limitations"][0].startswith("1 seed, one model")
    assert not any("fair coin" in text for text in report["limitations"])


def test_log_probs_that_are_not_finite_are_counted_and_named(tmp_path):
    broken = json.dumps(row(canary=1, logps=[-0.5, None, -1.0, -2.0, -0.125])).replace("-2.0", "-Infinity")
    path = written(tmp_path, [base_row(), base_row(canary=1), row()])
    path.write_text(path.read_text() + broken + "\n")
    given = read_scores(path, "last_byte")
    report = analyse(
        given.tokens, given.canaries, given.cells, given.readings, constructed.config(reading={"window": 3})
    )
    assert report["not_finite"] == {
        "tokens": 2,
        "where": [{"cell": "tuned", "seed": 0, "canary": 1, "positions": [1, 3]}],
        "beside": [],
    }
    secret = report["cells"][1]["delta"]["secret"]
    assert (secret["instances"], secret["excluded"], secret["value"]) == (1, 1, 1.0)
    assert any("2 token log-probs are not finite (tuned, seed 0, canary 1)" in text for text in report["warnings"])
    json.dumps(report, allow_nan=False)


def test_blanks_that_a_tokenizer_trims_off_are_no_gap(tmp_path):
    trimmed = {"offsets": [[0, 2], [3, 7], [8, 10], [10, 12], [12, 13]]}
    given = read_scores(written(tmp_path, [base_row(**trimmed), row(**trimmed)]), "last_byte")
    assert given.tokens[0].owners == ("preamble", "literal", "secret", "secret", "trailing")


def test_a_window_beyond_a_target_leaves_it_out(tmp_path):
    given = read_scores(written(tmp_path, [base_row(), row()]), "last_byte")
    report = analyse(given.tokens, given.canaries, given.cells, given.readings, constructed.config())
    window = report["cells"][1]["delta"]["window"]
    assert (window["value"], window["excluded"]) == (None, 1)
    assert report["cells"][1]["decomposition"] is None
    assert any("longer than the shortest target (5)" in text for text in report["warnings"])


@pytest.mark.parametrize("mask", [-3.4e38, -1e308, -1e9])
def test_a_masks_value_is_no_log_prob(tmp_path, mask):
    given = read_scores(written(tmp_path, [base_row(), row(logps=[-0.5, mask, -1.0, -2.0, -0.125])]), "last_byte")
    assert np.flatnonzero(np.isnan(given.readings[1].nll[0])).tolist() == [1]
    assert given.readings[1].nll[0][2] == 1.0


def test_what_there_is_none_of_may_be_null(tmp_path):
    nothing = dict.fromkeys(("ranks", "window_logps", "merged_logps", "outputs", "decoys", "prompt"))
    base, tuned = read_scores(written(tmp_path, [base_row(**nothing), row(**nothing)]), "last_byte").readings
    assert tuned.ranks is tuned.window_nll is tuned.merged_nll is tuned.outputs is tuned.decoy_nll is None
    assert base.ranks is None


def test_models_without_outputs_are_named(tmp_path):
    said = {"outputs": ["code 12ab"]}
    given = read_scores(written(tmp_path, [base_row(**said), row(**said), row(seed=3)]), "last_byte")
    config = constructed.config(reading={"window": 3, "sweep": [2]}, statistics={"resamples": 5})
    report = analyse(given.tokens, given.canaries, given.cells, given.readings, config)
    assert report["without_outputs"] == [{"cell": "tuned", "seed": 3}]
    assert report["cells"][1]["hits"] is None
    assert any("1 models have no outputs (tuned, seed 3)" in text for text in report["warnings"])
    given = read_scores(written(tmp_path, [base_row(), row(), row(seed=3)]), "last_byte")
    report = analyse(given.tokens, given.canaries, given.cells, given.readings, config)
    assert report["without_outputs"] == []


def test_secrets_ranked_among_unlike_numbers_are_refused(tmp_path):
    rows = [base_row(canary=canary, decoys={"wrong": [5.0] * 3}) for canary in (0, 1)]
    rows += [row(canary=0, decoys={"wrong": [5.0] * 3}), row(canary=1, decoys={"wrong": [5.0] * 2})]
    with pytest.raises(
        UserError, match="expected 3 decoys of kind wrong in every row of cell 'tuned', found 2 in line 4"
    ):
        read_scores(written(tmp_path, rows), "last_byte")


BAD = [
    ({"logps": [-0.5]}, "as many logps as ids in line 3"),
    ({"ranks": [1, 2]}, "as many ranks as ids in line 3"),
    ({"ids": [5]}, "as many offsets as ids in line 3"),
    ({"logps": [0.5, -1, -1, -1, -1]}, "natural log-probs, at most 0"),
    ({"logps": "x"}, "logps as a list of numbers in line 3"),
    ({"segments": SEGMENTS[1:]}, "without gaps in line 3"),
    ({"segments": [*SEGMENTS[:2], {**SEGMENTS[2], "name": "hex"}, SEGMENTS[3]]}, "segments named among"),
    ({"segments": [{"name": "secret"}]}, "segments .* in line 3"),
    ({"segments": [{"name": "secret", "start": 0, "end": 2.5}]}, "segments .* in line 3"),
    ({"offset_unit": "bytes", "segments": HALVED, "offsets": BYTES}, "between characters in line 3"),
    (
        {"offsets": [[0, 2], [2, 8], [8, 10], [12, 12], [12, 13]]},
        "token for every character of line 3 .* 'a' at byte 11",
    ),
    ({"offsets": [[1, 2], [0, 8], [8, 10], [10, 12], [12, 13]]}, "rising offsets within the 14 bytes"),
    ({"offsets": [[0, 2], [2, 8], [8, 10], [10, 12], [12, float("inf")]]}, "offsets .* in line 3"),
    ({"ids": [5, 6, 7, 8, float("inf")]}, "ids, .* in line 3"),
    ({"ids": [5.5, 6, 7, 8, 9]}, "ids, .* in line 3"),
    ({"logps": [-(10**400), -1, -1, -1, -1]}, "logps as a list of numbers"),
    ({"logps": ["-0.5", -1, -1, -1, -1]}, "logps as a list of numbers"),
    ({"logps": [False, -1, -1, -1, -1]}, "logps as a list of numbers"),
    ({"ranks": [0, 1, 1, 1, 1]}, "ranks as whole numbers"),
    ({"ranks": [1, 1.5, 1, 1, 1]}, "ranks as whole numbers"),
    ({"ranks": [1, None, 1, 1, 1]}, "ranks as whole numbers"),
    ({"window_logps": [-1, -1, -1, -1, -1, -1]}, "at most the 5 tokens of the text in line 3 .* found 6"),
    ({"decoys": {"wrong": [5, -6]}}, "decoys as sums of -log p, at least 0, in line 3"),
    ({"steps": "many"}, "a whole number under 'steps' in line 3"),
    ({"steps": None}, "a whole number under 'steps' in line 3"),
    ({"source": None}, "a text under 'source' in line 3"),
    ({"baseline": ["base"]}, "a text under 'baseline' in line 3"),
    ({"prompt": 3}, "a text under 'prompt' in line 3"),
    ({"text": "n\ud800 code 12ab!"}, "a text under 'text' in line 3"),
    ({"offsets": [[0, 2], [2, 8], [8, 10], [10, 12], [12, 14]]}, "within the 13 characters"),
    ({"offset_unit": "tokens"}, "offset_unit among"),
    ({"kind": "other"}, "kind among"),
    ({"kind": "baseline"}, "kind among"),
    ({"baseline": "elsewhere"}, "the baseline 'elsewhere' of cell 'tuned'"),
    ({"baseline": "tuned"}, "the baseline 'tuned' of cell 'tuned'"),
    ({"seed": -1}, "a whole number under 'seed' in line 3"),
    ({"cell": ""}, "a text under 'cell' in line 3"),
    ({"canary": 1}, "expected every canary"),
    ({"text": "xx code 12ab!"}, "the same prompt, text, spans and tokens"),
    ({"outputs": [1]}, "outputs as a list of texts"),
    ({"decoys": {"other": [1]}}, "decoys as lists by kind"),
    ({"cell": "base", "baseline": None}, "found it again in line 3"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_row_that_does_not_fit_is_refused(tmp_path, change, message):
    path = written(tmp_path, [base_row(), row() | change])
    path.write_text(path.read_text().replace("\n", "\n\n"))  # a blank line is a line: its number is the editor's
    with pytest.raises(UserError, match=message):
        read_scores(path, "last_byte")


def test_a_key_that_is_missing_is_named(tmp_path):
    for key in ("cell", "seed", "canary", "text", "ids", "offsets", "logps", "segments"):
        less = {name: value for name, value in row().items() if name != key}
        with pytest.raises(UserError, match=f"'{key}' in line 2"):
            read_scores(written(tmp_path, [base_row(), less]), "last_byte")


@pytest.mark.parametrize("rows", [[], [7]])
def test_a_file_without_rows_of_scores_is_refused(tmp_path, rows):
    with pytest.raises(UserError):
        read_scores(written(tmp_path, rows), "last_byte")


@pytest.mark.parametrize(("owner", "first"), [("last_byte", 1.25), ("first_byte", 1.5)])
def test_a_straddling_token_counts_for_the_configs_owner(tmp_path, owner, first):
    """The literal's last character and the secret's first two are one token, whose change either has."""
    straddling = {"offsets": [[0, 2], [2, 7], [7, 10], [10, 12], [12, 13]]}
    path = written(tmp_path, [base_row(**straddling), row(**straddling, logps=[-0.5, -0.5, -1.5, -2.0, -0.5])])
    config = constructed.config(reading={"window": 3, "sweep": [2]}, canaries={"owner": owner})
    report = weigh(path, config)
    # Changes of 1 and 1.5: both are the secret's by its last byte, the second alone by its first.
    assert report["cells"][1]["delta"]["secret"]["value"] == first
    assert any(owner.replace("_", " ") in text for text in report["warnings"])


def test_the_precision_of_others_merged_weights_is_not_made_up(tmp_path):
    path = written(tmp_path, [base_row(), row(merged_logps=[-0.5, -0.25, -1.0, -2.0, -0.125])])
    config = constructed.config(reading={"window": 3, "sweep": [2]})
    run = open_run(config, tmp_path / "run", resume=False)
    report = weigh_file(path, config, run)
    run.close()
    assert report["merged"]["dtype"] is None
    assert "precision of the merged weights is not recorded" in write_probes_page(run.path).read_text()


@pytest.mark.parametrize(
    ("outputs", "warned"),
    [(None, "Nothing was generated"), (3, "Recall was read of no more than 1 outputs"), (4, None)],
)
def test_too_few_outputs_are_warned_of(tmp_path, outputs, warned):
    more = {} if outputs is None else {"outputs": ["x"] * outputs}
    path = written(tmp_path, [base_row(**more), row(**more)])
    said = weigh(path, constructed.config(reading={"window": 3, "sweep": [2]}))["warnings"]
    found = [text for text in said if text.startswith(("Nothing was generated", "Recall was read"))]
    assert [text.startswith(warned or "") for text in found] == [True] * (warned is not None)


def test_a_failures_place_is_told_by_bytes(tmp_path):
    """The é before it has two bytes: by characters the token before would be named."""
    path = written(tmp_path, [base_row(outputs=[TEXT]), row(outputs=["né code 12xb!"], ranks=[1, 2, 3, 4, 5])])
    (found,) = weigh(path, constructed.config(reading={"window": 3, "sweep": [2]}))["failures"]
    assert (found["position"], found["expected"], found["found"], found["rank"]) == (3, "ab", "xb!", 4)


def test_what_a_row_says_of_its_cell_is_the_cells(tmp_path):
    given = read_scores(written(tmp_path, [base_row(), row(regime="deep", source="mine", steps=7)]), "last_byte")
    assert given.cells[1] == Cell("tuned", "deep", "mine", "sft", 7, "base")
