"""Whatever a file holds, no document and no group of it stands on two sides of a split: or the file is refused."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaryjax.data.loaders import load_examples
from canaryjax.data.splits import split_documents
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError

# Few names and few texts, so that they meet: (group, document of the group, text, question).
ROWS = st.lists(st.tuples(*[st.integers(0, n) for n in (6, 2, 40, 2)]), min_size=3, max_size=23)
GROUPS = ("ES2002a", "ES2002b", "ES2003a", "Bro003", "Bro007", "covid_0", "covid_1")


def jsonl(rows, folder):
    return _lines(
        folder,
        [
            {"document": f"Text {t}.", "question": f"What {q}?", "answer": "A", "group": GROUPS[g]}
            for g, _, t, q in rows
        ],
    )


def ungrouped(rows, folder):
    lines = [{"document": f"Text {t}.", "question": f"What {q}?", "answer": "A"} for _, _, t, q in rows]
    pq.write_table(pa.Table.from_pylist(lines), folder / "rows.parquet")
    return folder / "rows.parquet"


def repliqa(rows, folder):
    (folder / "data").mkdir()
    for number in range(2):
        lines = [
            {
                "document_id": f"{g}-{d}", "document_topic": "T", "document_path": "p", "document_extracted": f"T {t}.",
                "question_id": f"{number}-{i}", "question": f"What {q}?", "answer": "A", "long_answer": "A.",
            }
            for i, (g, d, t, q) in enumerate(rows[number::2])
        ]  # fmt: skip
        path = folder / "data" / f"repliqa_0-{number:05d}-of-00002.parquet"
        pq.write_table(pa.Table.from_pylist(lines), path)
    return folder


def fairytale(rows, folder):
    lines = [
        {
            "document_id": f"{g}-{d}", "story": GROUPS[g], "document": f"Text {t}.", "question_id": str(i),
            "question": f"What {q}?", "answer": "A",
        }
        for i, (g, d, t, q) in enumerate(rows)
    ]  # fmt: skip
    return _lines(folder, lines)


def derived(rows, folder):
    lines = [
        {
            "document_id": f"{g}-{d}", "meeting": GROUPS[g], "document": f"Text {t}.", "question_id": str(i),
            "question": f"What {q}?", "answer": "A",
        }
        for i, (g, d, t, q) in enumerate(rows)
    ]  # fmt: skip
    return _lines(folder, lines)


def records(rows, folder):
    """A meeting for each group there is; a row is a turn and a query with that turn as its span."""
    present = sorted({g for g, *_ in rows})
    meetings = []
    for group in present:
        own = [(t, q) for g, _, t, q in rows if g == group]
        queries = [
            {"query": f"What {q}?", "answer": "A", "relevant_text_span": [[str(i), str(i)]]}
            for i, (_, q) in enumerate(own)
        ]
        meetings.append(
            {
                "specific_query_list": queries,
                "general_query_list": [{"query": "All?", "answer": "A"}],
                "meeting_transcripts": [{"speaker": "S", "content": f"text {t}"} for t, _ in own],
            }
        )
    (folder / "index.json").write_text(json.dumps([GROUPS[g] for g in present]))
    return _lines(folder, meetings)


def _lines(folder, rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check_splits(examples, seed):
    """Disjoint in names, groups and texts, and nothing lost."""
    splits = split_documents(examples, seed, "x")
    parts = [splits.rm, splits.rl, splits.eval]
    assert sum(map(len, parts)) == len(examples)
    for value in (lambda e: e.document_id, lambda e: e.group, lambda e: " ".join(e.document.split())):
        sides = [{value(e) for e in part} for part in parts]
        assert len(set.union(*sides)) == sum(map(len, sides))


@pytest.mark.parametrize(
    ("write", "keys"),
    [
        (jsonl, {}),
        (ungrouped, {}),
        (repliqa, {"kind": "repliqa", "split": "repliqa_0"}),
        (fairytale, {"kind": "fairytale"}),
        (derived, {"kind": "qmsum"}),
        (derived, {"kind": "qmsum", "qmsum_group": "series"}),
        (records, {"kind": "qmsum"}),
        (records, {"kind": "qmsum", "qmsum_group": "series", "general_queries": True}),
        (records, {"kind": "qmsum", "qmsum_document": "transcript", "transcript_words": 5}),
    ],
)
def test_no_document_and_no_group_is_on_two_sides(source, write, keys):
    ended = {"split": 0, "leak": 0, "other": 0}

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(rows=ROWS, seed=st.integers(0, 5))
    def check(rows, seed):
        with tempfile.TemporaryDirectory() as name:
            path = write(rows, Path(name))
            index = Path(name) / "index.json"
            more = keys | ({"index": str(index)} if index.exists() else {})
            try:
                check_splits(load_examples(source(path, **more)), seed)
                ended["split"] += 1
            except UserError as error:
                words = str(error)
                assert "in one group, found" in words or "one text for document" in words or "at least 3 doc" in words
                ended["leak" if "in one group, found" in words else "other"] += 1

    check()
    # Both ends are met, or the test shows nothing. Without groups of its own a text is its own group.
    assert ended["split"] > 3
    assert ended["leak"] > 3 or write is ungrouped, ended


@pytest.mark.parametrize("limit", [None, 60])
def test_invented_documents(source, limit):
    wanted = source(kind="embedded", documents=23, max_document_words=limit)
    check_splits(load_examples(wanted, 5, generate_examples), 5)


def test_whole_files(shared_data, source):
    check_splits(load_examples(source(shared_data / "fairytaleqa.jsonl.gz", "fairytale")), 3)
    index = str(shared_data / "qmsum_meeting_ids.json")
    train = source(shared_data / "qmsum_train.jsonl.gz", "qmsum", qmsum_group="series", index=index)
    check_splits(load_examples(train), 3)
