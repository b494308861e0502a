import os
import subprocess
import sys

import pytest

from canaryjax.data.buckets import pad_rows
from canaryjax.data.example import Example
from canaryjax.data.splits import split_documents
from canaryjax.errors import UserError


def examples(n, questions=1, group_size=1):
    return [
        Example(f"{d}-{q}", f"d{d}", f"g{d // group_size}", f"text {d}", "Q?", "a")
        for d in range(n)
        for q in range(questions)
    ]


def documents(split):
    return {e.document_id for e in split}


@pytest.mark.parametrize("group_size", [1, 3])
def test_splits_are_disjoint_and_whole(group_size):
    pool = examples(60, questions=2, group_size=group_size)
    splits = split_documents(pool, seed=7, experiment="t0")
    parts = [splits.rm, splits.rl, splits.eval]
    assert sum(map(len, parts)) == 120
    for name in ("id", "document_id", "group"):
        sets = [{getattr(e, name) for e in part} for part in parts]
        assert len(set.union(*sets)) == sum(map(len, sets))


def test_eval_is_thirty_percent_of_documents():
    # 17 documents: 5.1 -> 5 for eval, 5.95 -> 6 for rm. Truncating would give 5 for rm.
    splits = split_documents(examples(17, questions=2), seed=7, experiment=0)
    assert [len(documents(s)) for s in (splits.rm, splits.rl, splits.eval)] == [6, 6, 5]


def test_fractions():
    splits = split_documents(examples(50), 1, 0, (0.442, 0.258, 0.3))
    assert [len(s) for s in (splits.rm, splits.rl, splits.eval)] == [22, 13, 15]


def test_split_depends_on_seed_and_experiment_but_not_on_order():
    pool = examples(40)
    first = documents(split_documents(pool, 7, "a").eval)
    assert first == documents(split_documents(pool[::-1], 7, "a").eval)
    assert first != documents(split_documents(pool, 8, "a").eval)
    assert first != documents(split_documents(pool, 7, "b").eval)


def test_split_is_the_same_in_another_process():
    """BC-12. A draw over a set of strings, or Python's hash as a seed, would differ between hash seeds."""
    code = (
        "from canaryjax.data.example import Example; from canaryjax.data.splits import split_documents;"
        "pool=[Example(str(i),f'd{i}',f'd{i}','t','q','a') for i in range(29)];"
        "print([e.id for e in split_documents(pool,3,'x').eval])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_too_few_documents_are_counted():
    with pytest.raises(UserError, match=r"at least 3 documents.*found 2 documents in 2 groups"):
        split_documents(examples(2, questions=9), 0, 0)
    with pytest.raises(UserError, match=r"found 6 documents in 2 groups: .*give documents of more groups"):
        split_documents(examples(6, group_size=3), 0, 0)
    splits = split_documents(examples(3), 0, 0)
    assert [len(s) for s in (splits.rm, splits.rl, splits.eval)] == [1, 1, 1]


def test_document_in_two_groups_is_refused():
    pool = [*examples(5), Example("x", "d0", "other", "text 0", "Q?", "a")]
    with pytest.raises(UserError, match="'d0' in 'g0' and 'other'"):
        split_documents(pool, 0, 0)


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.5, 0.5, 0.5), (0.7, 0.0, 0.3), (1.2, -0.5, 0.3)])
def test_bad_fractions(fractions):
    with pytest.raises(UserError, match="fractions"):
        split_documents(examples(9), 0, 0, fractions)


def test_padded_rows():
    ids, mask = pad_rows([[5, 6, 7], [], [9]], 4, 3)
    assert ids.tolist() == [[5, 6, 7, 3], [3, 3, 3, 3], [9, 3, 3, 3]]
    # A mask made by comparing with the pad id would also hide a real token 3.
    assert mask.tolist() == [[True, True, True, False], [False] * 4, [True, False, False, False]]
    assert (ids.dtype, mask.dtype) == ("int32", "bool")
    with pytest.raises(UserError, match="found 3 in row 0"):
        pad_rows([[1, 2, 3]], 2, 0)
