import gzip
import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from canaryjax.config import load_config
from canaryjax.data.formats import clean_answer, fairytale_examples, qmsum_examples, repliqa_examples
from canaryjax.data.loaders import load_examples
from canaryjax.errors import UserError

REPLIQA = [
    {
        "document_id": "kiq", "document_topic": "T", "document_path": "p", "document_extracted": "Wei lives here.",
        "question_id": "kiq-q1", "question": "Who?", "answer": "Wei", "long_answer": "Wei lives here.",
    },
    {
        "document_id": "kiq", "document_topic": "T", "document_path": "p", "document_extracted": "Wei lives here.",
        "question_id": "kiq-q2", "question": "When?", "answer": "UNANSWERABLE", "long_answer": "NA",
    },
    {
        "document_id": "kiq", "document_topic": "T", "document_path": "p", "document_extracted": "Wei lives here.",
        "question_id": "kiq-q3", "question": "Why?", "answer": "The answer is not found in the document.",
        "long_answer": "The answer is not found in the document.",
    },
]  # fmt: skip
MEETING = {
    "topic_list": [],
    "general_query_list": [{"query": "Summarize the meeting", "answer": "All."}],
    "specific_query_list": [
        {"query": "What of B?", "answer": "B  spoke.", "relevant_text_span": [["1", "2"]]},
        {"query": "What of B?", "answer": "Twice.", "relevant_text_span": [["0", "0"], ["3", "4"]]},
    ],
    "meeting_transcripts": [
        {"speaker": "A", "content": "Zero {disfmarker}"},
        {"speaker": "B", "content": "{vocalsound} One\u00a0and {pause} more"},
        {"speaker": "C", "content": "Two"},
        {"speaker": "D", "content": "{gap}"},
        {"speaker": "E", "content": "Four"},
    ],
}


def written(tmp_path, *rows):
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_repliqa(tmp_path, suffix):
    path = tmp_path / f"repliqa.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(REPLIQA), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in REPLIQA))
    found = list(repliqa_examples(path))
    assert [e.answer for e in found] == ["Wei", "Not found", "Not found"]
    assert {(e.document_id, e.group, e.document) for e in found} == {("kiq", "kiq", "Wei lives here.")}


def test_broken_parquet_is_named(tmp_path):
    path = tmp_path / "repliqa.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match="parquet"):
        list(repliqa_examples(path))


@pytest.mark.parametrize(
    ("raw", "clean"),
    [("UNANSWERABLE", "Not found"), ("the answer is not found in the document", "Not found"), 
     ("Not found.", "Not found"),
     ("Unanswerable questions", "Unanswerable questions"), ("FINAL: No.", "No.")],
)  # fmt: skip
def test_answers(raw, clean):
    assert clean_answer(raw) == clean


def test_gold_spans_are_inclusive_decimal_strings(tmp_path):
    # Half-open bounds would lose "C: Two"; bounds compared as strings would put "10" before "9".
    first, second = qmsum_examples(written(tmp_path, MEETING))
    assert first.document == "B: One and more\nC: Two"
    assert (first.id, first.group, first.answer) == ("m/0/s0", "m/0", "B spoke.")
    # A turn that holds markup alone is left out, and the same query twice has two ids.
    assert (second.id, second.document) == ("m/0/s1", "A: Zero\nE: Four")


@pytest.mark.parametrize("span", [["1", "5"], ["2", "1"], ["-1", "1"], ["a", "1"], ["1"], 7])
def test_bad_span_is_named(tmp_path, span):
    query = {"query": "Q", "answer": "A", "relevant_text_span": [span]}
    with pytest.raises(UserError, match=r"line 1, specific query 0.*span"):
        list(qmsum_examples(written(tmp_path, {**MEETING, "specific_query_list": [query]})))


def test_own_gold_spans_equal_the_derived_file(shared_data):
    """Documents derived by other code, row by row: a span bound off by one, or markup kept, shows here."""
    meetings = json.loads((shared_data / "qmsum_meeting_ids.json").read_text())
    ours = set()
    for split in ("train", "val"):
        for example in qmsum_examples(shared_data / f"qmsum_{split}.jsonl.gz"):
            meeting = meetings[split][int(example.id.split("/")[1])]
            ours.add((meeting, "".join(example.question.split()), "".join(example.document.split())))
    with gzip.open(shared_data / "qmsum_goldspan600.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    # The derived file also sets punctuation close, so blanks are left out of the comparison.
    derived = [(r["meeting"], "".join(r["question"].split()), "".join(r["document"].split())) for r in rows]
    derived = [key for key, row in zip(derived, rows, strict=True) if row["split"] in ("train", "val")]
    assert len(derived) > 700
    assert [key[:2] for key in derived if key not in ours] == []


def test_the_papers_configs_take_every_meeting_document_there_is(shared_data, tmp_path):
    # A count of all queries, the general ones too, would ask for more documents than the loader finds, and be refused.
    texts = [gzip.decompress((shared_data / f"qmsum_{split}.jsonl.gz").read_bytes()) for split in ("train", "val")]
    (tmp_path / "qmsum.jsonl").write_bytes(b"\n".join(texts))
    for name in ("gemma2b", "qwen2_5_1_5b"):
        config = load_config(f"paper/qmsum_{name}_grpo", [f"data.path={tmp_path / 'qmsum.jsonl'}"])
        found = load_examples(config.data)
        assert len(found) == config.data.documents == len({e.document_id for e in found}) == 1332


def test_story_sections(shared_data):
    found = list(fairytale_examples(shared_data / "fairytaleqa.jsonl.gz"))
    assert (len(found), len({e.document_id for e in found})) == (9277, 3346)
    assert found[0].answer == "delightfully cold"
    assert found[0].group == "Snow-man"


def test_derived_meeting_rows(shared_data):
    config = SimpleNamespace(
        kind="qmsum", path=str(shared_data / "qmsum_goldspan600.jsonl.gz"), documents=11, max_document_words=None,
        questions_per_document=1,
    )  # fmt: skip
    assert len(load_examples(config, seed=2)) == 11


def test_a_meeting_without_specific_queries_is_not_an_empty_study(tmp_path):
    # Nothing but general queries: every later stage would meet an empty list.
    path = written(tmp_path, MEETING | {"specific_query_list": []})
    source = SimpleNamespace(
        kind="qmsum", path=str(path), documents=None, max_document_words=None, questions_per_document=None
    )
    with pytest.raises(UserError, match="at least one question"):
        load_examples(source)
