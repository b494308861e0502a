"""A data set's numbers by hand, and those of the real files."""

import json

from canaryjax.data.example import Example
from canaryjax.data.loaders import load_dataset
from canaryjax.data.statistics import dataset_statistics, statistics_line


def test_numbers_by_hand():
    # Documents of 1 to 11 words: by position the 2nd, 6th and 10th; interpolated they would be 2, 6 and 10 too, and
    # with the long document counted once a question the median would be 11.
    examples = [Example(f"{n}", f"d{n}", f"g{n % 3}", "w " * n, "What is it?", "a b") for n in range(1, 12)]
    examples += [Example(f"x{n}", "d11", "g2", "w " * 11, f"Why {n}?", "Not found") for n in range(13)]
    examples.append(Example("y", "d11", "g2", "w " * 11, "Why 0?", "One two three four five"))
    found = dataset_statistics(examples, {"duplicates_left_out": 7})
    assert found == {
        "documents": 11,
        "groups": 3,
        "questions": 25,
        "unanswerable": {"count": 13, "share": 0.52},
        "repeated_questions": 1,
        "words": {
            "document": {"median": 6, "p10": 2, "p90": 10, "max": 11},
            "question": {"median": 2, "p10": 2, "p90": 3, "max": 3},
            "answer": {"median": 2, "p10": 2, "p90": 2, "max": 5},
        },
        "counts": {"duplicates_left_out": 7},
    }
    assert json.loads(json.dumps(found)) == found  # plain numbers, no NumPy scalars
    assert statistics_line(found) == (
        "11 documents in 3 groups, 25 questions, 13 unanswerable; words a document: median 6, 10 to 90 % 2 to 10, at "
        "most 11; 1 asked twice; 7 duplicates left out"
    )


def test_nothing_is_no_error():
    found = dataset_statistics([], {})
    assert found["words"] == dict.fromkeys(["document", "question", "answer"])
    assert statistics_line(found) == "0 documents in 0 groups, 0 questions, 0 unanswerable"


def test_the_story_sections(shared_data, source):
    dataset = load_dataset(source(shared_data / "fairytaleqa.jsonl.gz", "fairytale"))
    assert statistics_line(dataset_statistics(dataset.examples, dataset.counts)) == (
        "3,346 documents in 278 groups, 9,277 questions, 0 unanswerable; words a document: median 145, 10 to 90 % 77 "
        "to 232, at most 300"
    )
