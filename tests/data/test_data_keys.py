"""Keys of the config's data section: ranges, and no key that would be passed over in silence."""

import pytest

from canaryjax.config import load_config
from canaryjax.errors import UserError

QMSUM = ("data.kind=qmsum", "data.path=q.jsonl", "data.max_document_words=null")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.split=train"], "expected no split with kind=embedded, found 'train'; leave data.split out"),
        (
            ["data.kind=jsonl", "data.path=a.jsonl", "data.markup=keep"],
            "markup with kind=qmsum only, found 'keep'",
        ),
        (["data.general_queries=true"], "general_queries with kind=qmsum only, found True"),
        (["data.index=i.json"], "index with kind=qmsum only"),
        ([*QMSUM, "data.qmsum_document=summary"], "'data.qmsum_document'"),
        ([*QMSUM, "data.transcript_words=0"], "'data.transcript_words'"),
        ([*QMSUM, "data.transcript_words=100001"], "'data.transcript_words'"),
        *[([*QMSUM, f"data.split='{split}'"], "'data.split'") for split in ("", "a+", "a/b", "+")],
        ([*QMSUM, "data.transcript_words=500"], "transcript_words with qmsum_document=transcript or general_queries=t"),
        # All transcripts would be left out for their length, and the study would be of short meetings.
        (
            [*QMSUM, "data.qmsum_document=transcript", "data.max_document_words=999"],
            "max_document_words of at least transcript_words=1000, found 999",
        ),
        (
            [*QMSUM, "data.general_queries=true", "data.max_document_words=600", "data.transcript_words=601"],
            "at least transcript_words=601, found 600",
        ),
    ],
)
def test_mistakes_are_named(overrides, message):
    with pytest.raises(UserError, match=message):
        load_config("quick", overrides)


def test_what_is_meant_is_taken():
    data = load_config("quick", [*QMSUM, "data.split=train+val", "data.qmsum_group=series", "data.index=i.json"]).data
    assert (data.split, data.qmsum_group, data.index) == ("train+val", "series", "i.json")
    # Spans are not cut, so a limit below transcript_words leaves the long ones out, as asked.
    assert load_config("quick", [*QMSUM, "data.max_document_words=600"]).data.max_document_words == 600
