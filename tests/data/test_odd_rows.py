"""Rows as odd as they come, ten or more a format: each is read as it stands, or refused by its place."""

import json
import os

import pytest

from canaryjax.data.loaders import load_examples
from canaryjax.errors import UserError

LONG = "word " * 200_000  # a line of a megabyte
TWO_GROUPS = r"line 2.* in one group, found that of .*line 1\b"


def jsonl(number, **changes):
    return {"document": f"Text {number}.", "question": "What?", "answer": "Rome"} | changes


def repliqa(number, **changes):
    own = {"document_id": f"d{number}", "document_topic": "T", "document_path": "p", "question_id": f"q{number}"}
    return own | {"document_extracted": f"Text {number}.", "question": "What?", "answer": "Rome"} | changes


def qmsum(number, content=None, **changes):
    query = {"query": "What?", "answer": "Rome", "relevant_text_span": [["0", "0"]]} | changes
    turn = {"speaker": "A", "content": content or f"Text {number}."}
    return {"general_query_list": [], "specific_query_list": [query], "meeting_transcripts": [turn]}


def written_lines(tmp_path, rows):
    path = tmp_path / "odd.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    return path


# Kind, rows, and of the last example what a field must be.
READ = [
    ("jsonl", [jsonl(1, answer="word " * 5000)], "answer", ("word " * 5000).strip()),  # longer than any completion
    ("jsonl", [jsonl(1, document="a\0b")], "document", "a\0b"),
    ("jsonl", [jsonl(1, document=LONG)], "document", LONG.strip()),
    ("jsonl", [jsonl(1, answer="\U0001f600\U0001f44d\U0001f3fd")], "answer", "\U0001f600\U0001f44d\U0001f3fd"),
    ("jsonl", [jsonl(1, id="a"), jsonl(2, id="a ")], "id", "a "),
    ("jsonl", [jsonl(1, answer="a\u2028b")], "answer", "a b"),
    # Composed or not, one group: nothing to leak between.
    ("jsonl", [jsonl(1, document="caf\u00e9", group="g"), jsonl(2, document="cafe\u0301", group="g")], "group", "g"),
    ("repliqa", [repliqa(1, document_extracted="[Protocol Marker: A1] a")], "document", "[Protocol Marker: A1] a"),
    ("repliqa", [repliqa(1, document_extracted="\u05e9\u05dc\u05d5\u05dd")], "document", "\u05e9\u05dc\u05d5\u05dd"),
    ("repliqa", [repliqa(1, question="Q\nFINAL: no")], "question", "Q FINAL: no"),
    ("repliqa", [repliqa(1, document_id="../../x")], "group", "../../x"),
    ("repliqa", [repliqa(1, answer="FINAL: Not\u00a0FOUND..")], "answer", "Not found"),
    ("repliqa", [repliqa(1, answer="Not found in Rome")], "answer", "Not found in Rome"),  # an answer of its own
    ("repliqa", [repliqa(1), repliqa(1)], "id", "q1"),
    ("qmsum", [qmsum(1, "x\0y")], "document", "A: x\0y"),
    ("qmsum", [qmsum(1, answer="Not found.")], "answer", "Not found"),
    ("qmsum", [qmsum(1, "\u202b\u05e9\u05dc\u05d5\u05dd")], "document", "A: \u202b\u05e9\u05dc\u05d5\u05dd"),
    ("qmsum", [qmsum(1, LONG)], "document", f"A: {LONG.strip()}"),
    ("qmsum", [qmsum(1, "[Protocol Marker: A1]", answer="\U0001f600")], "answer", "\U0001f600"),
]
REFUSED = [
    # One text to whoever reads it: other composition, nothing to see, a mark of direction.
    ("jsonl", [jsonl(1, document="caf\u00e9", group="g"), jsonl(2, document="cafe\u0301", group="h")], TWO_GROUPS),
    ("jsonl", [jsonl(1, document="Rome"), jsonl(2, document="Ro\u00adme\u200b")], TWO_GROUPS),
    ("jsonl", [jsonl(1, question={"a": 1})], "line 1: expected a string under 'question', found dict"),
    ("repliqa", [repliqa(1), repliqa(2, question_id="q1")], "line 2: .*different id.*'q1'"),
    ("repliqa", [repliqa(1, answer=["a"])], "line 1: expected a string under 'answer', found list"),
    ("repliqa", [repliqa(1, question_id="\0")], "line 1: expected text under 'question_id', found none"),
    ("repliqa", ["[" * 100_000], "line 1: expected one JSON object, found maximum recursion"),
    ("repliqa", [repliqa(1), "\ufeff" + json.dumps(repliqa(2))], "line 2: .*BOM"),  # two files joined
    ("qmsum", [qmsum(1, "Same."), qmsum(2, "Same.")], TWO_GROUPS),
    ("qmsum", [qmsum(1, relevant_text_span=[["\u0660", "\u0660"]])], "line 1, specific query 0: expected a span"),
    ("qmsum", [qmsum(1, relevant_text_span=[])], "line 1, specific query 0: expected words in the gold span"),
    ("qmsum", [qmsum(1) | {"specific_query_list": [None]}], "specific query 0: expected an object, found NoneType"),
    ("qmsum", [qmsum(1) | {"meeting_transcripts": "abc"}], "expected a list under 'meeting_transcripts', found str"),
]


@pytest.mark.parametrize(("kind", "rows", "field", "value"), READ)
def test_what_is_read_as_it_stands(tmp_path, source, kind, rows, field, value):
    assert getattr(load_examples(source(written_lines(tmp_path, rows), kind))[-1], field) == value


@pytest.mark.parametrize(("kind", "rows", "message"), REFUSED)
def test_what_is_refused_is_named(tmp_path, source, kind, rows, message):
    with pytest.raises(UserError, match=message) as caught:
        load_examples(source(written_lines(tmp_path, rows), kind))
    assert len(str(caught.value)) < 800


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_pointer_of_git_lfs_is_told_from_a_damaged_file(tmp_path, source, name):
    # It was taken for a file that was cut off: copied again, it is the same.
    (tmp_path / name).write_text(POINTER)
    with pytest.raises(UserError, match=rf"{name}: expected rows, found a Git LFS pointer to them; .*git lfs pull"):
        load_examples(source(tmp_path))


def test_what_only_looks_like_data_in_a_folder_is_told(tmp_path, source):
    # "expected .jsonl files, found a.jsonl" would help nobody.
    (tmp_path / "a.jsonl").mkdir()
    os.symlink(tmp_path / "gone", tmp_path / "b.jsonl")
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(UserError, match=r"found a\.jsonl/, b\.jsonl \(a broken link\), c\.json; check data\.path"):
        load_examples(source(tmp_path))


@pytest.mark.parametrize("text", ['[\n {"document": "a"}\n]', "id,document\n1,2\n"])
def test_a_file_of_another_kind_is_not_only_called_cut_off(tmp_path, source, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"line 1: .*or of another kind than JSON lines with one object a line"):
        load_examples(source(tmp_path / "a.json"))
