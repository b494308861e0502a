"""What lies at the ends of float64, and collections that look like numbers: a result, or an error that says why."""

import json
import math
import warnings

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.errors import UserError
from canaryjax.stats.sample import as_choice, generator

NEG, POS = [0.0, 1.0, 2.0, 3.0, 5.0], [2.0, 4.0, 6.0]
HUGE = [1.7e308, -1.7e308, 3.0]


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def valid_json(record) -> str:
    return json.dumps(record.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda v: stats.auroc(v, POS),
        lambda v: stats.welch(POS, v),
        lambda v: stats.kruskal_with_pairwise([POS, v]),
        lambda v: stats.hierarchical_bootstrap([NEG, v], resamples=9),
        lambda v: stats.conformal_p_value(1.0, v),
    ],
)
def test_masked_values_are_refused_and_not_counted(call):
    # The data under the mask, 99, would count: an area of 0.75 in place of 1.
    with pytest.raises(UserError, match=r"masked value at position 2.*compressed"):
        call(np.ma.array([1.0, 2.0, 99.0], mask=[0, 0, 1]))
    with pytest.raises(UserError, match="at position 1"):
        call([1.0, np.ma.masked, 2.0])


def test_an_array_without_a_masked_entry_is_an_array():
    assert stats.auroc(np.ma.array(NEG), np.ma.array(POS, mask=False)) == 11.5 / 15
    assert stats.holm(np.ma.array([0.01, 0.5, 0.011], mask=[0, 1, 0])) == [0.02, None, 0.02]


@pytest.mark.parametrize(
    "bad", [np.array(["1", "3"], object), np.array([1, "3"], object), np.array(["1"]), [b"3"], (2, "3")]
)
def test_text_is_no_number_in_any_container(bad):
    # NumPy turns the text "3" in an array of objects into 3.
    with pytest.raises(UserError, match="negatives: expected"):
        stats.auroc(bad, POS)
    with pytest.raises(UserError, match="score: expected"):
        stats.conformal_p_value(np.array("3", object), POS)


def test_groups_whose_names_read_the_same_are_not_merged():
    for test in (stats.kruskal_with_pairwise, stats.jonckheere_terpstra):
        with pytest.raises(UserError, match="found '1' twice"):
            test({1: [1, 2], "1": [3, 4]})
    with pytest.raises(UserError, match="groups: expected a list"):
        stats.kruskal_with_pairwise({(1, 2), (3, 4)})  # a set has no order


def test_an_option_is_one_of_the_names_and_nothing_that_compares_like_one():
    for wrong in (np.array(["newcombe", "delong"]), ["newcombe"], None, 3):
        with pytest.raises(UserError, match="method: expected one of"):
            stats.auroc_interval(NEG, POS, 0.9, method=wrong)
    assert as_choice("a", "x", ("a", "b")) == "a"


@pytest.mark.parametrize("count", [10**300, 2**53 + 2, 10**400, 1e300])
def test_counts_that_no_float_holds_exactly_are_refused(count):
    for test in (stats.clopper_pearson, stats.wilson_interval, lambda k, n: stats.newcombe_interval(k, n, 1, 3)):
        with pytest.raises(UserError, match="n: expected"):
            test(1, count)
    low, high = stats.clopper_pearson(1, 2**53)
    assert 0 < low < high < 1e-14


def test_seeds_of_any_size_are_used_whole():
    # As floats the first two would be one number, and the streams one.
    assert len({generator(seed).random() for seed in (2**53, 2**53 + 1, 2**200)}) == 3
    assert generator(np.int64(7)).random() == generator(7.0).random() == np.random.default_rng(7).random()
    for wrong in (-1, 1.5, "7", None):
        with pytest.raises(UserError, match="seed"):
            generator(wrong)


def test_a_missing_p_value_is_missing_in_every_float_type():
    for kind in (float, np.float64, np.float32, np.float16):
        assert stats.holm([0.01, kind("nan"), 0.011]) == [0.02, None, 0.02]
    assert stats.holm(np.array([0.25, np.nan], np.float32)) == [0.25, None]


@pytest.mark.parametrize("level", [0.9999999999999999, math.nextafter(1, 0), 1.0, 0.0])
def test_a_level_whose_quantile_is_infinite_is_refused(level):
    for test in (
        lambda: stats.wilson_interval(3, 10, level),
        lambda: stats.welch(NEG, POS, level),
        lambda: stats.auroc_interval(NEG, POS, level),
        lambda: stats.clopper_pearson(3, 10, level),
    ):
        with pytest.raises(UserError, match="level"):
            test()
    for record in (stats.wilson_interval(3, 10, 1 - 1e-15), stats.auroc_interval(NEG, POS, 1 - 1e-15)):
        assert 0 <= record.low < record.high <= 1


@pytest.mark.parametrize("rule", ["conformal", "tolerance"])
@pytest.mark.parametrize("fpr", [5e-324, 1e-320, 1e-300, 1e-12])
def test_a_target_near_zero_is_a_null_with_a_reason(rule, fpr):
    # 1 / 1e-320 is infinite and had no ceiling.
    rate = stats.tpr_at_fpr(range(40), range(20, 60), fpr, rule)
    assert rate.value is None
    assert "more negatives than can be had, found 40" in rate.reason


def test_rank_statistics_take_every_finite_number():
    # Their ranks are 1 to 3; the range of the values exceeds float64.
    small = [2.0, 1.0, 1.5]
    assert stats.auroc(HUGE, [4.0, 5.0]) == stats.auroc(small, [1.6, 1.7])
    high, low = stats.kruskal_with_pairwise([HUGE, POS]), stats.kruskal_with_pairwise([[9.0, 1.0, 3.0], POS])
    assert (high.statistic, high.pairs) == (low.statistic, low.pairs)
    by_u = stats.kruskal_with_pairwise([HUGE, POS], "mannwhitney")
    assert by_u.p_value == high.p_value
    assert stats.jonckheere_terpstra([HUGE, POS]) == stats.jonckheere_terpstra([[9.0, 1.0, 3.0], POS])
    assert stats.brunner_munzel_permuted(HUGE, POS).p_value == stats.brunner_munzel_permuted([9, 1, 3], POS).p_value
    # Halfway between -1.7e308 and 1.7e308 is 0, though their difference is infinite.
    rate = stats.tpr_at_fpr([-1.7e308, 1.7e308], [1.0], 0.5, "paper")
    assert (rate.threshold, rate.value) == (0.0, 1.0)
    assert math.isfinite(stats.tpr_bootstrap_interval(HUGE, POS, 0.3, "paper", resamples=19).high)


@pytest.mark.parametrize(
    "call",
    [
        lambda v: stats.welch(v, POS),
        stats.mean_interval,
        lambda v: stats.hierarchical_bootstrap([v, v], resamples=9),
        lambda v: stats.ratio_of_means(v, [1, 2, 3]),
        stats.sign_flip_test,
        stats.two_sided_scores,
        stats.min_k_mean,
    ],
)
@pytest.mark.parametrize("values", [HUGE, [1e200, -1e200, 3e200], [1e71, 0, 1]])
def test_means_of_what_cannot_be_squared_are_refused(call, values):
    with pytest.raises(UserError, match=r"sizes of at most 1e\+70; found .* at position 0"):
        call(values)


@pytest.mark.parametrize("unit", [1e69, 1e30, 1e-30, 1e-100])
def test_means_do_not_depend_on_the_unit(unit):
    plain, scaled = (
        stats.welch([1, 2, 3], [1, 2, 2.5]),
        stats.welch([unit, 2 * unit, 3 * unit], np.array([1, 2, 2.5]) * unit),
    )
    assert [scaled.t, scaled.df, scaled.effect] == pytest.approx([plain.t, plain.df, plain.effect])
    assert valid_json(scaled)
    ratio = stats.ratio_of_means(np.array([1, 2, 3]) * unit, np.array([4, 5, 6]) * unit)
    assert valid_json(ratio)
    assert ratio.value == pytest.approx(0.4) or ratio.reason
    assert valid_json(stats.mean_interval(np.array([1, 2, 3]) * unit))


def test_a_spread_that_underflows_has_a_reason():
    assert "as good as constant" in stats.welch([1e-200, 2e-200], [3e-200, 5e-200]).reason


def test_an_infinite_ratio_is_a_null_with_a_reason():
    ratio = stats.guarded_ratio(1e308, 1e-8)
    assert ratio.value is None
    assert "exceeds" in ratio.reason


def test_a_table_that_is_none_is_refused():
    for wrong in (None, 5, "ab", {1: [1, 2]}):
        with pytest.raises(UserError, match="table: expected one row a trial"):
            stats.page_trend(wrong)
