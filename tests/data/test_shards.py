"""Folders of splits in shards, names on the hub, and what is said where they are not as they should be."""

import json
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from canaryjax.data.hub import is_hub_name
from canaryjax.data.loaders import load_examples
from canaryjax.errors import UserError


def rows(*names):
    return [
        {
            "document_id": name, "document_extracted": f"Text of {name}.", "question_id": f"{name}-q1",
            "question": "Who?", "answer": "Wei",
        }
        for name in names
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A clone of a dataset's repository: two splits, one in two shards, and what else lies in such a folder."""
    files = {
        "data/repliqa_0-00000-of-00002.parquet": rows("a", "b"),
        "data/repliqa_0-00001-of-00002.parquet": rows("c"),
        "data/repliqa_1-00000-of-00001.parquet": rows("d"),
        "repliqa_3/0000.parquet": rows("e"),
        "repliqa_3/0001.parquet": rows("f"),
        ".cache/repliqa_9-00000-of-00001.parquet": rows("z"),
    }
    for name, content in files.items():
        path = tmp_path / "repliqa" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(content), path)
    (tmp_path / "repliqa" / "README.md").write_text("RepliQA")
    (tmp_path / "repliqa" / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows("g")))
    return tmp_path / "repliqa"


@pytest.mark.parametrize(
    ("split", "documents"),
    [("repliqa_0", "abc"), ("repliqa_1", "d"), ("repliqa_3", "ef"), ("mine", "g"), ("repliqa_1+repliqa_0", "dabc")],
)
def test_a_split_of_a_folder(folder, source, split, documents):
    found = load_examples(source(folder, "repliqa", split=split))
    assert [e.document_id for e in found] == list(documents)


def test_shards_come_by_number_whatever_their_names(tmp_path, source):
    # By name, 10 stands before 2: a folder of eleven such files was once told to lack none of them.
    for number in range(11):
        path = tmp_path / "repliqa_0" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows(f"d{number}")), path)
    found = load_examples(source(tmp_path, "repliqa"))
    assert [e.document_id for e in found] == [f"d{number}" for number in range(11)]


def test_shards_with_a_digest_are_one_split(tmp_path, source):
    for number, digest in enumerate(("b42a775f407cee45", "0123456789abcdef")):
        path = tmp_path / f"train-{number:05d}-of-00002-{digest}.parquet"
        pq.write_table(pa.Table.from_pylist(rows(f"d{number}")), path)
    assert [e.document_id for e in load_examples(source(tmp_path, "repliqa", split="train"))] == ["d0", "d1"]


def test_a_file_is_the_split_of_its_name(folder, source):
    path = folder / "data" / "repliqa_0-00001-of-00002.parquet"
    for split in (None, "repliqa_0"):
        assert [e.document_id for e in load_examples(source(path, "repliqa", split=split))] == ["c"]
    with pytest.raises(UserError, match="found 'repliqa_1'; choose among repliqa_0"):
        load_examples(source(path, "repliqa", split="repliqa_1"))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("repliqa_2", "splits that are in .*found 'repliqa_2'; choose among mine, repliqa_0, repliqa_1, repliqa_3$"),
        ("repliqa_0+repliqa_9", "found 'repliqa_9'; choose among"),  # a hidden folder is passed over
        ("mine+mine", "expected each split once, found 'mine\\+mine'"),
        # All of them would mix training and test splits, unsaid.
        (None, "expected data.split with the 4 splits in .*set it to one of mine, repliqa_0"),
    ],
)
def test_a_split_that_is_not_there(folder, source, split, message):
    with pytest.raises(UserError, match=message):
        load_examples(source(folder, "repliqa", split=split))


def test_a_folder_without_data_names_what_is_there(tmp_path, source):
    for name in ("dataset_info.json", "data-00000-of-00001.arrow", *(f"{number}.pdf" for number in range(9))):
        (tmp_path / name).write_text("")
    with pytest.raises(
        UserError, match=r"\.jsonl\.gz or \.parquet files in .*found 0\.pdf, .*5\.pdf and 5 more; check"
    ):
        load_examples(source(tmp_path, "repliqa"))
    with pytest.raises(UserError, match=r"expected a data file or folder at .*nowhere, found none; check"):
        load_examples(source(tmp_path / "nowhere", "repliqa"))


def test_a_missing_shard_and_a_split_in_two_forms_are_refused(folder, source):
    # A download that broke off would be a smaller study, unsaid; a copy in another format would stand twice.
    first = folder / "data" / "repliqa_0-00000-of-00002.parquet"
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(UserError, match=r"expected 2 shards of split 'repliqa_0' in .*found 1, without number 0; copy"):
        load_examples(source(folder, "repliqa", split="mine"))
    first.write_bytes(kept)
    (folder / "repliqa_0.jsonl").write_text("{}")
    with pytest.raises(UserError, match=r"split 'repliqa_0' in one form, found .*repliqa_0\.jsonl; move all but one"):
        load_examples(source(folder, "repliqa", split="mine"))


class Table(list):
    column_names = tuple(rows("a")[0])


def test_a_name_on_the_hub(monkeypatch, source):
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        if split == "repliqa_7":
            raise ConnectionError("Couldn't reach\n'ServiceNow/repliqa' on the Hub")
        return Table(rows(split))

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    found = load_examples(source("ServiceNow/repliqa", "repliqa", split="repliqa_1+repliqa_0"))
    assert [e.document_id for e in found] == ["repliqa_1", "repliqa_0"]
    assert asked == [("ServiceNow/repliqa", "repliqa_1"), ("ServiceNow/repliqa", "repliqa_0")]
    with pytest.raises(
        UserError, match=r"repliqa_7 of Serv.*, found ConnectionError: Couldn't reach 'Serv.*set data\.p"
    ) as e:
        load_examples(source("ServiceNow/repliqa", "repliqa", split="repliqa_7"))
    assert "\n" not in str(e.value)
    assert e.value.__cause__ is None
    with pytest.raises(UserError, match=r"expected data\.split with data\.path=ServiceNow/repliqa, found none"):
        load_examples(source("ServiceNow/repliqa", "repliqa"))
    with pytest.raises(UserError, match=r"expected each split once, found 'repliqa_0\+repliqa_0'"):
        load_examples(source("ServiceNow/repliqa", "repliqa", split="repliqa_0+repliqa_0"))
    monkeypatch.setattr(Table, "column_names", ("text",))
    with pytest.raises(UserError, match="repliqa_0: expected the column 'document_id', found text"):
        load_examples(source("ServiceNow/repliqa", "repliqa", split="repliqa_0"))
    # Other formats are nobody's on the hub: there such a path is a file that is not there.
    with pytest.raises(UserError, match="expected a data file or folder at ServiceNow/repliqa, found none"):
        load_examples(source("ServiceNow/repliqa", "jsonl", split="repliqa_0"))


def test_a_misspelt_path_is_not_asked_for_in_public(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("secret/names")
    (tmp_path / "secret").mkdir()
    assert not is_hub_name("secret/names")
    for path in ("mine/a.jsonl", "./a/b", "a/b/c", "a", "../a/b", "~/a", "a/b.parquet", "a/ b"):
        assert not is_hub_name(path), path
