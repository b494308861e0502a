"""QMSum: spans, transcripts, general queries, markup, meetings and their series."""

import gzip
import json

import pytest

from canaryjax.data.loaders import DUPLICATES, load_dataset, load_examples
from canaryjax.data.meeting_index import read_meetings, series_of
from canaryjax.errors import UserError

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
DERIVED = {
    "meeting": "ES2002a", "document_id": "d", "document": "A: It\u2019s one.", "question_id": "q",
    "question": "What is \u201cone\u201d?", "answer": "It\u2019s that.",
}  # fmt: skip


@pytest.fixture
def meetings(source, written):
    """Loads meetings as examples, with keys of the config."""
    return lambda *rows, name="m.jsonl", **more: load_examples(source(written(*rows, name=name), "qmsum", **more))


def test_gold_spans_are_inclusive_decimal_strings(meetings):
    # Half-open bounds would lose "C: Two"; bounds compared as strings would put "10" before "9".
    first, second = meetings(MEETING)
    assert first.document == "B: One and more\nC: Two"
    assert (first.id, first.group, first.answer) == ("m/0/s0", "m/0", "B spoke.")
    # A turn that holds markup alone is left out, and the same query twice, on other spans, has two ids.
    assert (second.id, second.document) == ("m/0/s1", "A: Zero\nE: Four")


# What `int` would cut or read into is no turn: "12" is not from 1 to 2, and 1.9 is not 1.
@pytest.mark.parametrize(
    "span",
    [
        *(["1", "5"], ["2", "1"], ["-1", "1"], ["a", "1"], ["1"], 7, "12", {"1": 0, "2": 0}, None, ["1", None]),
        *([1.0, 1.9], [1, float("inf")], [1, float("nan")], [True, True], ["1_0", "1_1"], ["1", "9" * 5000], [-1, 1]),
    ],
)
def test_bad_span_is_named(meetings, span):
    query = {"query": "Q", "answer": "A", "relevant_text_span": [span]}
    with pytest.raises(UserError, match=r"line 1, specific query 0.*span"):
        meetings({**MEETING, "specific_query_list": [query]})


def test_bounds_may_be_whole_numbers(meetings):
    query = {"query": "Q", "answer": "A", "relevant_text_span": [[1, 2]]}
    assert meetings({**MEETING, "specific_query_list": [query]})[0].document == "B: One and more\nC: Two"


def test_a_meeting_without_turns_is_named(meetings):
    with pytest.raises(UserError, match=r"line 1: expected turns under 'meeting_transcripts', found none"):
        meetings({**MEETING, "meeting_transcripts": []})


@pytest.mark.parametrize("place", ["Zero", "What of B", "B  spoke", '"C"'])
def test_a_lone_surrogate_is_named_wherever_it_stands(meetings, place):
    # Below the first level it was met hours later, or as a traceback: no file of a run can hold it.
    line = json.dumps(MEETING).replace(place, place[:-1] + "\\udc00" + place[-1])
    with pytest.raises(UserError, match=r"line 1: expected Unicode text under '\w+', found a lone surrogate"):
        meetings(line)


@pytest.mark.parametrize(
    ("words", "text", "beyond"),
    [
        (1000, "A: Zero\nB: One and more\nC: Two\nE: Four", 0),
        (8, "A: Zero\nB: One and more\nC: Two", 0),
        (5, "A: Zero\nB: One and", 0),
        # The first query's span, turns 1 and 2, is gone; of the second's the first turn is still there.
        (2, "A: Zero", 1),
    ],
)
def test_a_transcript_is_one_document_of_its_meeting(source, written, words, text, beyond):
    path = written(MEETING, name="m.jsonl")
    dataset = load_dataset(source(path, "qmsum", qmsum_document="transcript", transcript_words=words))
    assert {(e.document_id, e.group, e.document) for e in dataset.examples} == {("m/0", "m/0", text)}
    assert [e.id for e in dataset.examples] == ["m/0/s0", "m/0/s1"]
    assert dataset.counts == {"spans_beyond_cut": beyond}


def test_only_queries_that_are_asked_are_counted_as_beyond_the_cut(source, written):
    # Of the two queries the first alone lies behind the cut, and only the one that stands first is asked.
    first, second = MEETING["specific_query_list"]
    keys = {"qmsum_document": "transcript", "transcript_words": 2, "questions_per_document": 1}
    for queries, count in (([first, second], 1), ([second, first], 0)):
        path = written({**MEETING, "specific_query_list": queries}, name="m.jsonl")
        assert load_dataset(source(path, "qmsum", **keys)).counts == {"spans_beyond_cut": count}


def test_general_queries_are_asked_of_the_transcript(meetings):
    found = meetings(MEETING, general_queries=True, transcript_words=6)
    assert [(e.id, e.document_id) for e in found] == [
        ("m/0/s0", "m/0/s0"),
        ("m/0/s1", "m/0/s1"),
        ("m/0/g0", "m/0"),
    ]
    assert (found[2].document, found[2].question) == ("A: Zero\nB: One and more", "Summarize the meeting")
    assert {e.group for e in found} == {"m/0"}


def test_markup_may_be_kept(meetings):
    second = meetings(MEETING, markup="keep")[1]
    assert second.document == "A: Zero {disfmarker}\nD: {gap}\nE: Four"


def test_odd_turns(meetings):
    turns = [
        {"speaker": "A\u00a0B", "content": "It\u2019s \u201cfine\u201d \u2014 \u00a35 "},
        {"speaker": "C", "content": ""},
        {"speaker": "C", "content": "\u00a0 "},
        {"speaker": "", "content": "{vocalsound}{pause} Yes ."},
    ]
    query = {"query": "What\u2019s\u00a0fine?", "answer": "It\u2019s.", "relevant_text_span": [["0", "3"]]}
    (found,) = meetings({**MEETING, "meeting_transcripts": turns, "specific_query_list": [query]})
    # Dashes and pounds are words' own; quotes and blanks are one thing written in two ways.
    assert found.document == 'A B: It\'s "fine" \u2014 \u00a35\n: Yes .'
    assert (found.question, found.answer) == ("What's fine?", "It's.")


def test_the_same_query_of_the_same_document(source, written):
    query = MEETING["specific_query_list"][0]
    twice = {**MEETING, "specific_query_list": [query, {**query, "answer": "Other."}, query]}
    dataset = load_dataset(source(written(twice, name="m.jsonl"), "qmsum"))
    # With another answer it stays; wholly repeated it is left out and counted.
    assert [e.id for e in dataset.examples] == ["m/0/s0", "m/0/s1"]
    assert dataset.counts == {DUPLICATES: 1}


def test_an_index_names_meetings_and_series(meetings, written):
    index = written(json.dumps(["ES2002a", "ES2002b"]), name="index.json")
    second = {**MEETING, "meeting_transcripts": [{"speaker": "Z", "content": "Nothing."}] * 5}
    found = meetings(MEETING, second, index=str(index))
    assert [(e.id, e.group) for e in found[::2]] == [("ES2002a/s0", "ES2002a"), ("ES2002b/s0", "ES2002b")]
    assert {e.group for e in meetings(MEETING, second, index=str(index), qmsum_group="series")} == {"ES2002"}
    assert meetings(DERIVED, qmsum_group="series")[0].group == "ES2002"
    with pytest.raises(UserError, match=r"line 1: expected data\.index with data\.qmsum_group=series, found none"):
        meetings(MEETING, qmsum_group="series")
    by_split = written(json.dumps({"train": ["a_1"], "val": ["b_1"]}), name="by_split.json")
    assert meetings(MEETING, index=str(by_split), name="qmsum_val.jsonl")[0].id == "b_1/s0"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (["one"], "expected a meeting for each of the 2 rows, found 1; give the index of these rows"),
        (["one", "one"], "expected each meeting once, found 'one' 2 times"),
        (["one", ""], "entry 1: expected a meeting's name or an object with 'meeting', found ''"),
        ([{"meeting": "one", "turns": 5}, {"name": "two"}], "entry 1: expected a meeting's name or an object"),
        ([{"meeting": "one", "turns": 5}, {"meeting": "two", "turns": 6}], "'two' of 6 turns, found 5 in .*line 2;"),
        (["one", {"meeting": "two", "turns": "5"}], "entry 1: expected a whole number under 'turns', found '5'"),
        ({"train": ["one", "two"]}, "expected a list of meetings for 'm', found lists for train"),
        ({"m": "one"}, "expected a list of meetings, found str"),
        (7, "expected a list of meetings, found int"),
        ("[1,", "expected valid JSON in .*index.json"),
        ('["one", "\\ud800"]', "entry 1: expected a meeting's name in Unicode, found a lone surrogate"),
    ],
)
def test_an_index_that_does_not_fit_is_named(meetings, written, index, message):
    path = written(index if isinstance(index, str) else json.dumps(index), name="index.json")
    with pytest.raises(UserError, match=message):
        meetings(MEETING, MEETING, index=str(path))


def test_an_index_that_is_not_there(meetings, tmp_path):
    with pytest.raises(UserError, match=r"expected an index file at .*none\.json, found: No such file"):
        meetings(MEETING, index=str(tmp_path / "none.json"))


@pytest.mark.parametrize("keys", [{"qmsum_document": "transcript"}, {"general_queries": True}, {"markup": "keep"}])
def test_derived_rows_have_no_transcript(meetings, keys):
    # Ignored, the key would leave a report on other documents than were asked for.
    with pytest.raises(UserError, match=r"expected original records .* found meeting, document_id"):
        meetings(DERIVED, **keys)
    assert (meetings(DERIVED)[0].document, meetings(DERIVED)[0].question) == ("A: It's one.", 'What is "one"?')


def test_a_meeting_without_specific_queries_is_not_an_empty_study(meetings):
    # Nothing but general queries: every later stage would meet an empty list.
    with pytest.raises(UserError, match="at least one question"):
        meetings(MEETING | {"specific_query_list": []})


def test_series_of_real_meetings(shared_data):
    names = json.loads((shared_data / "qmsum_meeting_ids.json").read_text())
    series = {series_of(name) for split in ("train", "val") for name in names[split]}
    assert {"Bdb", "Bed", "Bmr", "Bro", "ES2002", "IS1000", "TS3003", "covid", "education"} <= series
    assert len(series) == 37


@pytest.mark.parametrize(
    ("keys", "counts"),
    [
        ({"split": "qmsum_train"}, (1095, 1095, 162)),
        ({"split": "qmsum_val"}, (237, 237, 35)),
        ({"split": "qmsum_train+qmsum_val"}, (1332, 1332, 197)),
        ({"split": "qmsum_train+qmsum_val", "qmsum_document": "transcript"}, (1332, 197, 197)),
        ({"split": "qmsum_train+qmsum_val", "general_queries": True}, (1529, 1529, 197)),
        ({"split": "qmsum_train+qmsum_val", "qmsum_group": "series"}, (1332, 1332, 37)),
    ],
)
def test_all_of_qmsum(shared_data, source, tmp_path, keys, counts):
    for split in ("train", "val"):
        (tmp_path / f"qmsum_{split}.jsonl.gz").symlink_to(shared_data / f"qmsum_{split}.jsonl.gz")
    index = str(shared_data / "qmsum_meeting_ids.json")
    dataset = load_dataset(source(tmp_path, "qmsum", index=index, **keys))
    found = dataset.examples
    assert (len(found), len({e.document_id for e in found}), len({e.group for e in found})) == counts
    # No query is asked twice of one document; of a transcript's first 1,000 words most cannot be answered.
    assert dataset.counts == ({"spans_beyond_cut": 1096} if "qmsum_document" in keys else {})
    assert not any(c in e.document + e.question + e.answer for e in found for c in "\u00a0\u2018\u2019\u201c\u201d")


def test_the_index_of_the_small_file_fits(shared_data, source):
    index = shared_data / "qmsum_small_index.json"
    found = load_examples(source(shared_data / "qmsum_small.jsonl", "qmsum", index=str(index), general_queries=True))
    assert (len(found), found[0].group) == (192, "Bro007")
    assert [m.name for m in read_meetings(index, {"x": 24})][:2] == ["Bro007", "Bro008"]


def test_own_gold_spans_equal_the_derived_file(shared_data, source):
    """Documents derived by other code, row by row: a span bound off by one, or markup kept, shows here."""
    derived = load_examples(source(shared_data / "qmsum_goldspan600.jsonl.gz", "qmsum"))
    index = str(shared_data / "qmsum_meeting_ids.json")
    ours = set()
    for split in ("train", "val"):
        path = shared_data / f"qmsum_{split}.jsonl.gz"
        ours |= {_key(e) for e in load_examples(source(path, "qmsum", index=index))}
    with gzip.open(shared_data / "qmsum_goldspan600.jsonl.gz", "rt", encoding="utf-8") as stream:
        splits = [json.loads(line)["split"] for line in stream]
    found = [_key(e) for e, split in zip(derived, splits, strict=True) if split in ("train", "val")]
    assert len(found) > 700
    assert [key[:2] for key in found if key not in ours] == []


def _key(example):
    # The derived file also sets punctuation close, so blanks are left out of the comparison.
    return example.group, "".join(example.question.split()), "".join(example.document.split())


def test_derived_meeting_rows(shared_data, source):
    path = shared_data / "qmsum_goldspan600.jsonl.gz"
    assert len(load_examples(source(path, "qmsum", documents=11, questions_per_document=1), seed=2)) == 11
