"""Fisher's one-sided test and the fewest hits it can find."""

import pytest
from scipy import stats as sps

from canaryjax import stats
from canaryjax.errors import UserError


@pytest.mark.parametrize(
    ("counts", "p_value"),
    # By hand: all hits in the first sample has C(n1, k)/C(n1 + n2, k).
    [((3, 9, 0, 20), 84 / 3654), ((2, 9, 0, 20), 36 / 406), ((2, 3, 0, 20), 3 / 253), ((0, 9, 0, 20), 1.0)],
)
def test_fisher_by_hand(counts, p_value):
    assert stats.fisher_greater(*counts) == pytest.approx(p_value)


@pytest.mark.parametrize("counts", [(4, 7, 2, 11), (0, 5, 3, 13), (5, 5, 0, 17), (6, 11, 6, 11)])
def test_fisher_is_scipys(counts):
    k1, n1, k2, n2 = counts
    oracle = sps.fisher_exact([[k1, n1 - k1], [k2, n2 - k2]], alternative="greater").pvalue
    assert stats.fisher_greater(*counts) == pytest.approx(oracle)  # the other tail would give its complement


def test_an_empty_sample_has_no_p_value():
    assert stats.fisher_greater(0, 0, 0, 20) is None
    assert stats.fisher_greater(3, 9, 0, 0) is None
    with pytest.raises(UserError, match="at most n = 3"):
        stats.fisher_greater(4, 3, 0, 20)


@pytest.mark.parametrize(("n", "hits"), [(9, 3), (10, 3), (12, 3), (3, 2), (2, 2), (1, 1)])
def test_fewest_hits_against_none_of_twenty(n, hits):
    # SD-A7 of the site detector: 3 of 9, 3 of 10, 3 of 12, 2 of 3.
    assert stats.least_significant_hits(n, 0, 20, 0.05) == hits


def test_no_number_of_hits_may_do():
    assert stats.least_significant_hits(1, 0, 18, 0.05) is None  # 1/19
    assert stats.least_significant_hits(1, 0, 19, 0.05) == 1  # 1/20, the level itself
    assert stats.least_significant_hits(0, 0, 20) is None
    assert stats.least_significant_hits(5, 20, 20) is None
