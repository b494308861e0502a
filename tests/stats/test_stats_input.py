"""What the statistics accept and refuse, and that every record is valid JSON."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.errors import UserError

NEG, POS = [0.0, 1.0, 2.0, 3.0, 5.0], [2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        iter,
        lambda v: np.array(v, dtype=np.float32),
        lambda v: np.array(v, dtype=np.int8),
        lambda v: {str(i): x for i, x in enumerate(v)}.values(),
    ],
)
def test_any_flat_collection_gives_the_same_area(make):
    # Wins: 2 beats 0, 1 and ties 2 (2.5); 4 beats 4; 6 beats 5: 11.5 of 15. int8 would overflow if sums kept its dtype.
    assert stats.auroc(make(NEG), make(POS)) == 11.5 / 15


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), None])
@pytest.mark.parametrize(
    "call",
    [
        lambda v: stats.auroc(v, POS),
        lambda v: stats.roc_curve(POS, v),
        lambda v: stats.tpr_at_fpr(v, POS, rule="paper"),
        lambda v: stats.auroc_interval(POS, v, 0.9, method="bootstrap"),
        lambda v: stats.brunner_munzel_permuted(v, POS),
        lambda v: stats.kruskal_with_pairwise([POS, v]),
        lambda v: stats.jonckheere_terpstra([POS, v]),
        lambda v: stats.welch(POS, v),
        lambda v: stats.hierarchical_bootstrap([NEG, v]),
        lambda v: stats.conformal_p_value(1.0, v),
        lambda v: stats.placebo_rank_p_value(1.0, v),
        lambda v: stats.mean_interval(v),
        lambda v: stats.sign_flip_test(v),
        lambda v: stats.min_k_mean(v),
    ],
)
def test_a_score_that_is_not_finite_is_refused_with_its_position(call, bad):
    # A NaN sorts last and would pass for the largest score; NumPy turns None into NaN.
    with pytest.raises(UserError, match="at position 3"):
        call([0.0, 1.0, 2.0, bad, 5.0])


@pytest.mark.parametrize("bad", [3.0, [[1.0, 2.0]], "123", ["1", "2"], [1 + 2j], [[1], [2, 3]], {"a": 1.0}, [10**400]])
def test_what_is_no_flat_list_of_numbers_is_refused(bad):
    with pytest.raises(UserError, match="negatives"):
        stats.auroc(bad, POS)


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.clopper_pearson(3, 2, 0.95),
        lambda: stats.wilson_interval(-1, 5),
        lambda: stats.wilson_interval(1.5, 5),
        lambda: stats.wilson_interval(1, float("nan")),
        lambda: stats.wilson_interval(1, 5, level=95),
        lambda: stats.clopper_pearson(1, 5, level=1.0),
        lambda: stats.newcombe_interval(1, 2, 4, 3),
        lambda: stats.tpr_at_fpr(NEG, POS, fpr=10),
        lambda: stats.tpr_at_fpr(NEG, POS, rule="linear"),
        lambda: stats.auroc_interval(NEG, POS, 0.9, method="hanley"),
        lambda: stats.auroc_interval(NEG, POS, 0.9, method="bootstrap", resamples=0),
        lambda: stats.auroc_interval(NEG, POS, 0.9, method="bootstrap", seed=-1),
        lambda: stats.ppv(0.5, 0.1, 50),
        lambda: stats.kruskal_with_pairwise([NEG]),
        lambda: stats.kruskal_with_pairwise([NEG, POS], method="tukey"),
        lambda: stats.jonckheere_terpstra([NEG, POS], alternative="greater"),
        lambda: stats.hierarchical_bootstrap([1.0, 2.0]),
        lambda: stats.hierarchical_bootstrap(np.zeros(3)),
        lambda: stats.hierarchical_bootstrap([[1.0], [2.0, 3.0]], design="crossed"),
        lambda: stats.conformal_p_value([1.0], NEG),
        lambda: stats.holm([0.1, 1.2]),
        lambda: stats.holm([0.1, float("inf")]),
        lambda: stats.pass_at_k(3, 1, 4),
        lambda: stats.guarded_ratio(1, 1, smallest=0),
        lambda: stats.ratio_of_means([1, 2], [1]),
        lambda: stats.page_trend([[1, 2], [3]]),
    ],
)
def test_impossible_arguments_are_user_errors_of_three_parts(call):
    with pytest.raises(UserError) as caught:
        call()
    assert str(caught.value).count(";") >= 2  # expected; found; what to do
    assert "expected" in str(caught.value)


RECORDS = [
    stats.roc_curve(NEG, POS),
    stats.roc_curve([], POS),
    stats.tpr_at_fpr(range(20), POS),
    stats.tpr_at_fpr(NEG, POS),
    stats.tpr_at_fpr([], []),
    stats.auroc_interval(NEG, POS, 0.9),
    stats.auroc_interval([], POS, 0.9, method="auto"),
    stats.remainder_auroc(NEG, POS, 3.0),
    stats.brunner_munzel_permuted([1, 2], [3, 4]),
    stats.kruskal_with_pairwise({"a": NEG, "b": POS}),
    stats.kruskal_with_pairwise([[1, 1], [1]]),
    stats.jonckheere_terpstra([NEG, POS]),
    stats.welch([1, 1], [2, 2]),
    stats.null_verdict(NEG, POS),
    stats.ratio_of_means([1, 2], [3, 4]),
    stats.page_trend([[1, 2], [3, 4]]),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_every_record_is_frozen_and_valid_json(record):
    # An infinite threshold or statistic would be written as the token Infinity, which is no JSON.
    text = json.dumps(record.to_dict(), allow_nan=False)
    assert "reason" in json.loads(text)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.reason = "changed"


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_every_undefined_main_number_has_a_reason(record):
    main = [name for name in ("value", "p_value", "low", "statistic", "passed") if hasattr(record, name)]
    for name in main:
        if getattr(record, name) is None:
            assert record.reason


def test_interval_unpacks_indexes_and_contains():
    interval = stats.wilson_interval(5, 8)
    low, high = interval
    assert (interval[0], interval[1], interval[-1], len(interval)) == (low, high, high, 2)
    assert 0.5 in interval  # the default rule would look for an equal bound
    assert 0.2 not in interval
    assert 0.5 not in stats.wilson_interval(0, 0)


def test_the_statistics_do_not_import_jax():
    code = "import canaryjax.stats, sys; sys.exit(any(m.split('.')[0] in ('jax', 'flax') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
