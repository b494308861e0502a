import gzip
import json

import pytest

from canaryjax.data.example import Example
from canaryjax.data.loaders import load_examples
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError

ROW = {"id": "a", "document": "Rome is old.", "question": "What is old?", "answer": "Rome"}


def test_row_becomes_an_example(source, written):
    row = {**ROW, "group": "g", "document_id": "d", "answer": "FINAL: Rome\nItaly"}
    assert load_examples(source(written(row))) == [Example("a", "d", "g", "Rome is old.", "What is old?", "Rome Italy")]


def test_a_row_without_an_id_is_named_by_its_document_and_its_place_there(source, written):
    bare = {key: value for key, value in ROW.items() if key != "id"}
    rows = [
        {**bare, "document_id": "d"},
        {**bare, "document_id": "e", "document": "Other."},
        {**bare, "document_id": "d", "id": None, "question": "Who?"},
    ]
    assert [e.id for e in load_examples(source(written(*rows)))] == ["d/0", "e/0", "d/1"]
    first, again = (load_examples(source(written(bare)))[0] for _ in range(2))
    assert first.id == again.id == f"{first.document_id}/0"
    # A name given elsewhere in the file may be the same: refused like any other.
    with pytest.raises(UserError, match=r"line 4: .*different id.*'d/1'"):
        load_examples(source(written(*rows, {**ROW, "id": "d/1", "document": "Third."})))


def test_equal_documents_are_one_document(source, written):
    # Named by row, one text could stand in training and in evaluation.
    found = load_examples(
        source(written(ROW, {**ROW, "id": "b", "question": "Who?"}, {**ROW, "id": "c", "document": "Other."}))
    )
    assert found[0].document_id == found[1].document_id != found[2].document_id
    assert found[0].group == found[0].document_id


def test_line_separator_in_a_string_is_no_line_break(source, written):
    # str.splitlines, and some readers, end a line at U+2028, U+0085 or a form feed.
    row = {**ROW, "document": "One\u2028two\u0085three\x0c."}
    assert load_examples(source(written(row)))[0].document == "One\u2028two\u0085three\x0c."


def test_gzip_carriage_returns_byte_order_mark_and_blank_lines(tmp_path, source):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n\r\n"))
    assert [e.id for e in load_examples(source(path))] == ["a"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ('{"id": "b", "document": "Ro', "line 2.*JSON"),
        ("[1, 2]", "line 2.*list"),
        ("null", "line 2.*NoneType"),
        ({k: v for k, v in ROW.items() if k != "answer"}, "line 2.*'answer'"),
        ({**ROW, "id": "b", "document": " \n"}, "line 2.*'document'"),
        ({**ROW, "id": "b", "answer": ""}, "line 2.*'answer'"),
        ({**ROW, "id": 7}, "line 2.*'id', found int"),
        ('{"id": "b", "document": "\\ud800", "question": "q", "answer": "a"}', "'document', found a lone surrogate"),
        (json.dumps({**ROW, "id": "b", "x": [{"y": ["\ud800"]}]}), "line 2.*'x', found a lone surrogate"),
        ({**ROW, "question": "Else?"}, "line 2: .*different id.*'a' as in .*line 1;"),
        ({**ROW, "id": "b", "answer": "FINAL: "}, "line 2.*words after FINAL"),
        # The last would win, unsaid; inside an object too.
        ('{"document": "a", "document": "b", "question": "q", "answer": "a"}', "line 2: .*'document' twice"),
        ('{"document": "a", "question": "q", "answer": "a", "x": [{"y": 1, "z": 2, "y": 3}]}', "line 2: .*'y' twice"),
        # Nothing to see: zero width, a soft hyphen and a joiner, a lone accent, the fillers that count as letters.
        *[({**ROW, "id": "b", "document": t}, "line 2.*text under 'document'") for t in ("\u200b", "\u00ad\u2060 ")],
        *[({**ROW, "id": "b", "question": t}, "line 2.*text under 'question'") for t in ("\u0301", "\u3164\u2800")],
        ({**ROW, "id": "b", "answer": "FINAL: \ufeff"}, "line 2.*words after FINAL"),
        # Python refuses to read such a number with another error than for malformed text.
        ('{"id": ' + "9" * 5000 + "}", "line 2.*4300 digits"),
    ],
)
def test_bad_row_is_named(second, message, source, written):
    with pytest.raises(UserError, match=message):
        load_examples(source(written(ROW, second)))


def test_same_document_id_with_two_texts(source, written):
    rows = [{**ROW, "document_id": "d"}, {**ROW, "id": "b", "document_id": "d", "document": "Other."}]
    with pytest.raises(UserError, match=r"line 2: .*one text for document 'd'"):
        load_examples(source(written(*rows)))


def test_not_utf8_names_line_and_byte(tmp_path, source):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b'\n{"id": "\xe9"}\n')
    with pytest.raises(UserError, match=r"line 2.*0xe9"):
        load_examples(source(path))


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_empty_file(tmp_path, content, source):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match="empty file"):
        load_examples(source(path))


def test_missing_file_and_truncated_gzip(tmp_path, source):
    with pytest.raises(UserError, match=r"none\.jsonl"):
        load_examples(source(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match=r"files in the folder .*found nothing; check data\.path"):
        load_examples(source(tmp_path))
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(ROW).encode() * 50)[:-9])
    with pytest.raises(UserError, match="whole gzip"):
        load_examples(source(path))


def test_limits_on_documents_words_and_questions(source, written):
    rows = [
        {**ROW, "id": f"{d}{q}", "document_id": str(d), "document": "w " * (3 + d), "question": f"What {q}?"}
        for d in range(7)
        for q in range(3)
    ]
    path = written(*rows)
    found = load_examples(source(path, documents=4, max_document_words=7, questions_per_document=2), seed=5)
    assert len(found) == 8
    assert {e.id[1] for e in found} == {"0", "1"}
    assert max(int(e.document_id) for e in found) <= 4
    assert found == load_examples(source(path, documents=4, max_document_words=7, questions_per_document=2), seed=5)
    with pytest.raises(UserError, match="expected 6 documents, found 5"):
        load_examples(source(path, documents=6, max_document_words=7))
    with pytest.raises(UserError, match="at most 2 words"):
        load_examples(source(path, max_document_words=2))


def test_embedded_examples(source):
    found = load_examples(source(kind="embedded", documents=5), seed=3, corpus=generate_examples)
    assert len({e.document_id for e in found}) == 5
    assert found[0].document == generate_examples(3, 1)[0]["document"]
    with pytest.raises(UserError, match="corpus=generate_examples"):
        load_examples(source(kind="embedded"))


def test_more_documents_are_invented_while_too_few_are_short_enough(source):
    # Of the first 4 x 3 documents of this seed 1 has at most 44 words: that was an error, though they are invented.
    def short(made):
        return [row["id"] for row in generate_examples(8, made) if len(row["document"].split()) <= 44]

    found = load_examples(source(kind="embedded", documents=3, max_document_words=44), 8, generate_examples)
    assert len(short(12)) < 3 <= len(found) == 3
    assert {e.id for e in found} <= set(short(192))
    asked = []

    def corpus(seed, made):
        asked.append(made)
        return generate_examples(seed, min(made, 40))

    with pytest.raises(
        UserError, match="expected 250 invented documents of at most 39 words, found 0 among 1000; raise"
    ):
        load_examples(source(kind="embedded", documents=250, max_document_words=39), 8, corpus)
    assert asked == [1000]  # none will ever be: no minute is spent on more


def test_unknown_kind(source):
    with pytest.raises(UserError, match="'csv'"):
        load_examples(source("x", kind="csv"))
