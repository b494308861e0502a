"""Formats as their sources write them, whole files where they are at hand, and rows as odd as they come."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from canaryjax.config import load_config
from canaryjax.data.formats import clean_answer
from canaryjax.data.loaders import DUPLICATES, load_dataset, load_examples
from canaryjax.errors import UserError

ANSWERS = [
    ("Wei", "Wei lives here."),
    ("UNANSWERABLE", "NA"),
    ("The answer is not found in the document.", "The answer is not found in the document."),
]
REPLIQA = [
    {
        "document_id": "kiq", "document_topic": "T", "document_path": "p", "document_extracted": "Wei lives here.",
        "question_id": f"kiq-q{number}", "question": f"What is {number}?", "answer": answer, "long_answer": long,
    }
    for number, (answer, long) in enumerate(ANSWERS, start=1)
]  # fmt: skip
ODD_DOCUMENT = {"document": "Rome is old.", "question": "What is old?", "answer": "Rome"}
# What people write, and what must become of it: (row, document, question, answer).
ODD_ROWS = [
    ({"question": "What  is\n old?"}, "Rome is old.", "What is old?", "Rome"),
    ({"document": "\n Rome\u00a0is old. \n\n"}, "Rome\u00a0is old.", "What is old?", "Rome"),
    ({"document": "\u201cRome\u201d is old."}, "\u201cRome\u201d is old.", "What is old?", "Rome"),
    ({"document": "<b>Rome</b> [1] {pause}"}, "<b>Rome</b> [1] {pause}", "What is old?", "Rome"),
    ({"answer": "FINAL: FINAL: Rome"}, "Rome is old.", "What is old?", "FINAL: Rome"),
    ({"answer": " unanswerable. "}, "Rome is old.", "What is old?", "Not found"),
    ({"answer": "0"}, "Rome is old.", "What is old?", "0"),
    ({"question": "?"}, "Rome is old.", "?", "Rome"),
    ({"document": "\U0001f514"}, "\U0001f514", "What is old?", "Rome"),
    ({"document": "\u202eRome", "unknown": [1, {"x": None}]}, "\u202eRome", "What is old?", "Rome"),
    ({"id": None, "group": None, "document_id": None}, "Rome is old.", "What is old?", "Rome"),
]


def parquet(rows, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ["repliqa.jsonl", "repliqa.parquet", "data/repliqa_0-00000-of-00001.parquet"])
def test_repliqa(tmp_path, source, written, name):
    path = parquet(REPLIQA, tmp_path / name) if name.endswith("parquet") else written(*REPLIQA, name=name)
    found = load_examples(source(path, "repliqa"))
    assert [e.answer for e in found] == ["Wei", "Not found", "Not found"]
    assert {(e.document_id, e.group, e.document) for e in found} == {("kiq", "kiq", "Wei lives here.")}


def test_parquet_with_the_keys_of_json_lines(tmp_path, source, written):
    rows = [{**ODD_DOCUMENT, "group": None}, {**ODD_DOCUMENT, "document": "New.", "group": "g"}]
    found = load_examples(source(parquet(rows, tmp_path / "mine.parquet")))
    assert found == load_examples(source(written(*rows)))
    assert [e.group == e.document_id for e in found] == [True, False]


def test_a_parquet_file_that_lacks_a_column_is_named_with_those_it_has(tmp_path, source):
    rows = [{key: value for key, value in row.items() if key != "answer"} for row in REPLIQA]
    path = parquet(rows, tmp_path / "r.parquet")
    columns = "document_id, document_topic, document_path, document_extracted, question_id, question, long_answer;"
    with pytest.raises(UserError, match=f"r.parquet: expected the column 'answer', found {columns} check data.kind"):
        load_examples(source(path, "repliqa"))
    with pytest.raises(UserError, match="expected the column 'document', found document_id"):
        load_examples(source(path))


def test_a_column_of_times_beyond_pythons_is_in_nobodys_way(tmp_path, source):
    # Nothing reads it; turned into Python's times it was a traceback. Where text is wanted it is no text.
    rows = {"document": ["One."], "question": ["What?"], "answer": ["One"]}
    for number, kind in enumerate((pa.timestamp("ms"), pa.timestamp("us", "Mars/Base"), pa.date64())):
        times = pa.array([2**60], pa.int64()).cast(kind, safe=False) if kind != pa.date64() else pa.array([2**55], kind)
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({**rows, "made": times}), path)
        assert [e.answer for e in load_examples(source(path))] == ["One"]
        pq.write_table(pa.table({**rows, "id": times}), path)
        with pytest.raises(UserError, match="row 1: expected a string under 'id', found "):
            load_examples(source(path))


def test_values_that_python_cannot_hold_are_named_by_their_column(tmp_path, source):
    path = tmp_path / "r.parquet"
    rows = {"document": ["One."], "question": ["What?"], "answer": ["One"]}
    pq.write_table(pa.table({**rows, "log": pa.array([[2**60]], pa.list_(pa.timestamp("ms")))}), path)
    with pytest.raises(UserError, match=r"r.parquet: expected values that Python can hold in the column 'log', .*drop"):
        load_examples(source(path))


def test_two_columns_of_one_name_are_refused(tmp_path, source):
    path, names = tmp_path / "r.parquet", ["document", "question", "answer", "answer"]
    pq.write_table(pa.Table.from_arrays([pa.array(["x"])] * 4, names=names), path)
    with pytest.raises(UserError, match=r"r.parquet: expected each column once, found 'answer' twice; rename one"):
        load_examples(source(path))


def test_a_parquet_file_that_is_none_or_cut_off_is_one_line(tmp_path, source):
    whole = parquet(REPLIQA * 99, tmp_path / "whole.parquet").read_bytes()
    for number, data in enumerate([b"PAR1 not really", b"", whole[:-9], whole[:200] + whole[300:]]):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(data)
        with pytest.raises(UserError, match=f"{number}.parquet: expected a whole parquet file, found: ") as caught:
            load_examples(source(path, "repliqa"))
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None  # an OSError there would keep the run directory, as for a full disk
    odd = pa.table({name: pa.array(["x"]) for name in ("document", "question")} | {"answer": pa.array([7])})
    pq.write_table(odd, tmp_path / "odd.parquet")
    with pytest.raises(UserError, match=r"odd\.parquet, row 1: expected a string under 'answer', found int"):
        load_examples(source(tmp_path / "odd.parquet"))


@pytest.mark.parametrize(
    ("raw", "clean"),
    [("UNANSWERABLE", "Not found"), ("the answer is not found in the document", "Not found"), 
     ("Not found.", "Not found"),
     ("Unanswerable questions", "Unanswerable questions"), ("FINAL: No.", "No.")],
)  # fmt: skip
def test_answers(raw, clean):
    assert clean_answer(raw) == clean


@pytest.mark.parametrize(("odd", "document", "question", "answer"), ODD_ROWS)
def test_odd_rows(source, written, odd, document, question, answer):
    (found,) = load_examples(source(written({**ODD_DOCUMENT, **odd})))
    assert (found.document, found.question, found.answer) == (document, question, answer)


def test_a_repeated_example_is_left_out_and_counted(source, written):
    first = {**ODD_DOCUMENT, "id": "a"}
    rows = [first, first, {**first, "id": "b", "document": "Rome is  old."}, {**first, "id": "c", "answer": "The city"}]
    rows[2]["document_id"] = rows[2]["group"] = "twice"
    # The third differs by a blank, so its name and group differ: a split could train on it and score on it.
    with pytest.raises(UserError, match=r"line 3: expected a document's text in one group.*line 1 \(id 'a'\)"):
        load_dataset(source(written(*rows)))
    for row in rows:
        row["group"] = "g"
    dataset = load_dataset(source(written(*rows)))
    # Another answer to the same question is a second reference and stays.
    assert [e.id for e in dataset.examples] == ["a", "c"]
    assert dataset.counts == {DUPLICATES: 2}


def test_one_text_in_two_groups_is_refused_with_both_names(source, written):
    rows = [{**ODD_DOCUMENT, "group": "north"}, {**ODD_DOCUMENT, "question": "Why?", "group": "south", "id": "z"}]
    with pytest.raises(UserError, match=r"in group 'north' again in group 'south': .*give both the same group"):
        load_examples(source(written(*rows)))


def test_the_papers_configs_take_every_meeting_document_there_is(shared_data, tmp_path):
    # A count of all queries, the general ones too, would ask for more documents than the loader finds, and be refused.
    texts = [gzip.decompress((shared_data / f"qmsum_{split}.jsonl.gz").read_bytes()) for split in ("train", "val")]
    (tmp_path / "qmsum.jsonl").write_bytes(b"\n".join(texts))
    for name in ("gemma2b", "qwen2_5_1_5b"):
        config = load_config(f"paper/qmsum_{name}_grpo", [f"data.path={tmp_path / 'qmsum.jsonl'}"])
        found = load_examples(config.data)
        assert len(found) == config.data.documents == len({e.document_id for e in found}) == 1332


def test_all_story_sections(shared_data, source):
    dataset = load_dataset(source(shared_data / "fairytaleqa.jsonl.gz", "fairytale"))
    found = dataset.examples
    assert (len(found), len({e.document_id for e in found}), len({e.group for e in found})) == (9277, 3346, 278)
    assert (found[0].answer, found[0].group, dataset.counts) == ("delightfully cold", "Snow-man", {})


def test_real_repliqa_documents(shared_data, source, written):
    """250 documents as they were published, without answers: those are filled in."""
    lines = gzip.decompress((shared_data / "repliqa0_docs_questions.jsonl.gz").read_bytes()).splitlines()
    rows = [
        {key: value for key, value in row.items() if key != "questions"} | question | {"answer": "UNANSWERABLE"}
        for row in map(json.loads, lines)
        for question in row["questions"]
    ]
    found = load_examples(source(written(*rows, name="data/repliqa_0-00000-of-00001.jsonl").parents[1], "repliqa"))
    assert (len(found), len({e.document_id for e in found})) == (500, 100)
    assert {e.answer for e in found} == {"Not found"}
