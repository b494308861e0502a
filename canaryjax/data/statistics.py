"""What a data set is, in a few numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax.data.example import NOT_FOUND, Example


def dataset_statistics(examples: Sequence[Example], counts: Mapping[str, int]) -> dict[str, Any]:
    """Sizes and lengths of what a study asks.

    Words are what blanks separate. Lengths are observed ones: the smallest that at least 10, 50 or 90 % do not exceed.

    Args:
      examples: Questions with their documents; each document is counted once, by its id.
      counts: What the loader has counted besides (`Dataset.counts`), taken over as it is.

    Returns:
      Plain values: `documents, groups, questions, unanswerable {count, share}, repeated_questions` (asked of a document
      before, with another answer), `words {document, question, answer}` with `median, p10, p90, max` each (answers are
      those that are not "Not found"; None where there are none), and the counts.

    >>> found = dataset_statistics([Example("a", "d", "g", "One two.", "What?", "Not found")], {})
    >>> found["unanswerable"], found["words"]["document"], found["words"]["answer"]
    ({'count': 1, 'share': 1.0}, {'median': 2, 'p10': 2, 'p90': 2, 'max': 2}, None)
    """
    documents = {e.document_id: e.document for e in examples}
    unanswerable = sum(e.answer == NOT_FOUND for e in examples)
    return {
        "documents": len(documents),
        "groups": len({e.group for e in examples}),
        "questions": len(examples),
        "unanswerable": {"count": unanswerable, "share": unanswerable / len(examples) if examples else None},
        "repeated_questions": len(examples) - len({(e.document, e.question) for e in examples}),
        "words": {
            "document": _lengths(list(documents.values())),
            "question": _lengths([e.question for e in examples]),
            "answer": _lengths([e.answer for e in examples if e.answer != NOT_FOUND]),
        },
        "counts": dict(counts),
    }


def statistics_line(found: Mapping[str, Any]) -> str:
    """`dataset_statistics` for whoever watches a run begin."""
    words, unanswerable = found["words"]["document"], found["unanswerable"]
    text = (
        f"{found['documents']:,} documents in {found['groups']:,} groups, {found['questions']:,} questions, "
        f"{unanswerable['count']:,} unanswerable"
    )
    if words is not None:
        text += (
            f"; words a document: median {words['median']:,}, 10 to 90 % {words['p10']:,} to {words['p90']:,}, at most "
            f"{words['max']:,}"
        )
    told = {"asked twice": found["repeated_questions"]}
    told |= {name.replace("_", " "): count for name, count in found["counts"].items()}
    return "; ".join([text, *(f"{count:,} {name}" for name, count in told.items() if count)])


def _lengths(texts: Sequence[str]) -> dict[str, int] | None:
    if not texts:
        return None
    words = [len(text.split()) for text in texts]
    low, median, high = np.quantile(words, (0.1, 0.5, 0.9), method="inverted_cdf").tolist()
    return {"median": int(median), "p10": int(low), "p90": int(high), "max": max(words)}
