"""What models are tuned on: templates, files, and never a canary."""

import re

import numpy as np
import pytest

from canaryjax.config.probes import CanariesConfig, SourceConfig
from canaryjax.errors import UserError
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.source import Row, draw_rows, read_rows, refuse_canaries
from canaryjax.probes.training import encode_rows

KINDS = ("synth", "safety", "random")


def rows(kind, count=211, seed=0):
    return draw_rows(SourceConfig(name=kind, kind=kind), count, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_drawn_without_replacement_by_the_seed(kind):
    found = rows(kind)
    assert len({row.prompt for row in found}) == 211
    assert rows(kind) == found
    assert {row.prompt for row in rows(kind, seed=1)} != {row.prompt for row in found}
    assert all((row.prompt + row.response).isascii() and (row.prompt + row.response).isprintable() for row in found)
    assert max(len(f"{row.prompt} {row.response}".split()) for row in found) <= 25


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_than_the_templates_make_are_refused(kind):
    with pytest.raises(UserError, match=r"expected at most the [0-9,]+ rows that source"):
        rows(kind, 10_000_000)
    assert len(rows(kind, 20_000)) == 20_000


def test_every_third_kind_says_what_its_prompt_asks():
    found = rows("random", 3000)
    assert all(row.response.startswith("At the") for row in found if row.prompt.startswith("Where"))
    assert all(row.response.endswith("does.") for row in found if row.prompt.startswith("Who"))
    assert all(row.response.endswith("one.") for row in found if row.prompt.startswith("Which"))


def test_a_users_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "response": "b"}\n\n{"prompt": "c", "response": "d", "more": 1}\n')
    source = SourceConfig(name="own", kind="jsonl", path=str(path))
    assert read_rows(path) == [Row("a", "b"), Row("c", "d")]
    assert sorted(row.prompt for row in draw_rows(source, 5, np.random.default_rng(0))) == ["a", "c"]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "response": "b"}\r\n')
    assert read_rows(path) == [Row("a", "b")]


def test_only_a_line_feed_ends_a_row(tmp_path):
    # U+2028 and U+0085 stand unescaped in JSON texts; splitting there would refuse the file.
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a\u2028b", "response": "c\u0085d"}\r\n{"prompt": "e"}\n', "utf-8", newline="")
    with pytest.raises(UserError, match="line 2 of"):
        read_rows(path)
    path.write_text('{"prompt": "a\u2028b", "response": "c\u0085d"}\r\n', "utf-8", newline="")
    assert read_rows(path) == [Row("a\u2028b", "c\u0085d")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[" * 100_000 + "\n", "line 1 of", id="deep"),
        ("", "found none"),
        ('{"prompt": "a", "response": "b"}\n{"prompt": "a"}\n', "line 2 of"),
        ("[]\n", "line 1 of"),
        ('{"prompt": "a", "response": ""}\n', "line 1 of"),
        ("{\n", "line 1 of"),
        ('{"prompt": 1, "response": "b"}\n', "line 1 of"),
    ],
)
def test_a_malformed_file_is_refused_by_its_line(tmp_path, text, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_rows(path)
    with pytest.raises(UserError, match="expected a readable file"):
        read_rows(tmp_path / "none.jsonl")


def full_width(text):
    return "".join(chr(ord(character) + 0xFEE0) for character in text)


@pytest.mark.parametrize(
    "spell",
    [
        str.lower,
        str.upper,
        full_width,
        " ".join,
        "\u200b".join,
        "\u0301".join,
        lambda text: f"{text[:5]}-{text[5:9]}\n{text[9:]}",
        lambda text: f"see TEXTCAN-{text}-END, or so",
    ],
)
def test_a_canary_in_the_data_is_refused(spell):
    canaries = make_canaries(CanariesConfig(count=7))
    refuse_canaries(rows("safety"), canaries, "safety")
    for row in (Row(spell(canaries[5].secret), "b"), Row("a", f"x{spell(canaries[5].secret)}")):
        with pytest.raises(
            UserError, match=f"in source own, found the secret of canary 5 in the row {re.escape(repr(row.prompt))}"
        ):
            refuse_canaries([*rows("safety"), row], canaries, "own")


def test_an_answer_that_is_cut_does_not_end(small_config, embedded_model):
    rows = [Row("Which text is here?", "The old market."), Row("Which text is here?", "The old market. " * 9)]
    tuning = small_config.tuning.model_copy(update={"max_length": 29})
    config = small_config.model_copy(update={"tuning": tuning})
    whole, cut = encode_rows(config, embedded_model, rows, "own")
    end = embedded_model.eos_ids[0]
    assert whole.ids.tolist().count(end) == 1
    assert whole.ids[-1] == end
    assert len(cut.context) + len(cut.ids) == 29
    assert end not in cut.ids
    shortest = small_config.model_copy(update={"tuning": tuning.model_copy(update={"max_length": 2})})
    assert [(len(turn.context), len(turn.ids)) for turn in encode_rows(shortest, embedded_model, rows, "own")] == [
        (1, 1)
    ] * 2


def test_a_canary_in_two_halves_is_refused():
    secret = make_canaries(CanariesConfig(count=1))[0].secret
    with pytest.raises(UserError, match="found the secret of canary 0"):
        refuse_canaries([Row(f"begin {secret[:7]}", f"{secret[7:]}.")], make_canaries(CanariesConfig(count=1)), "own")
