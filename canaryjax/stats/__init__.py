"""Statistics of an audit, in NumPy and SciPy at float64; nothing here imports JAX.

The unit is the policy. Single numbers (`auroc`, `ppv`, `conformal_p_value`, `placebo_rank_p_value`, `min_k_mean`,
`pass_at_k`) are floats, None where undefined. Intervals are `Interval` records that unpack as `low, high`. Tests are
frozen records with `statistic` and `p_value` (`pvalue` is the same). Every record has `to_dict()` (plain JSON values)
and a `reason` that says why something in it is None. Scores may be lists, tuples, arrays or series; a NaN or infinite
one raises `UserError` and names its position.
"""

from canaryjax.stats.area import auroc_interval
from canaryjax.stats.contingency import fisher_greater, least_significant_hits
from canaryjax.stats.detection import (
    Remainder,
    RocCurve,
    auroc,
    direction_warning,
    implied_remainder_auroc,
    ppv,
    remainder_auroc,
    roc_curve,
    two_sided_scores,
)
from canaryjax.stats.effect import StandardisedEffect, hedges_g
from canaryjax.stats.equivalence import Equivalence, paired_equivalence, welch_equivalence
from canaryjax.stats.group import KruskalTest, PairTest, TrendTest, jonckheere_terpstra, kruskal_with_pairwise
from canaryjax.stats.hypothesis import (
    NullVerdict,
    PermutedBrunnerMunzel,
    WelchTest,
    brunner_munzel_permuted,
    null_verdict,
    welch,
)
from canaryjax.stats.matching import CaliperMatch, caliper_match
from canaryjax.stats.paired import PageTest, SignFlipTest, page_trend, require_independent, sign_flip_test
from canaryjax.stats.permutation import DoseTest, dose_permutation
from canaryjax.stats.prevalence import Prevalence, beta_binomial_ratio, jeffreys_rate, rogan_gladen
from canaryjax.stats.proportion import clopper_pearson, mean_interval, newcombe_interval, wilson_interval
from canaryjax.stats.rank import RankUniformity, conformal_p_value, holm, placebo_rank_p_value, rank_uniformity
from canaryjax.stats.ratio import Ratio, guarded_ratio, ratio_of_means
from canaryjax.stats.resampling import hierarchical_bootstrap, tpr_bootstrap_interval
from canaryjax.stats.result import Interval
from canaryjax.stats.tail import min_k_mean, pass_at_k
from canaryjax.stats.threshold import DetectionRate, least_negatives, tpr_at_fpr, true_fpr_range

__all__ = [
    "CaliperMatch",
    "DetectionRate",
    "DoseTest",
    "Equivalence",
    "Interval",
    "KruskalTest",
    "NullVerdict",
    "PageTest",
    "PairTest",
    "PermutedBrunnerMunzel",
    "Prevalence",
    "RankUniformity",
    "Ratio",
    "Remainder",
    "RocCurve",
    "SignFlipTest",
    "StandardisedEffect",
    "TrendTest",
    "WelchTest",
    "auroc",
    "auroc_interval",
    "beta_binomial_ratio",
    "brunner_munzel_permuted",
    "caliper_match",
    "clopper_pearson",
    "conformal_p_value",
    "direction_warning",
    "dose_permutation",
    "fisher_greater",
    "guarded_ratio",
    "hedges_g",
    "hierarchical_bootstrap",
    "holm",
    "implied_remainder_auroc",
    "jeffreys_rate",
    "jonckheere_terpstra",
    "kruskal_with_pairwise",
    "least_negatives",
    "least_significant_hits",
    "mean_interval",
    "min_k_mean",
    "newcombe_interval",
    "null_verdict",
    "page_trend",
    "paired_equivalence",
    "pass_at_k",
    "placebo_rank_p_value",
    "ppv",
    "rank_uniformity",
    "ratio_of_means",
    "remainder_auroc",
    "require_independent",
    "roc_curve",
    "rogan_gladen",
    "sign_flip_test",
    "tpr_at_fpr",
    "tpr_bootstrap_interval",
    "true_fpr_range",
    "two_sided_scores",
    "welch",
    "welch_equivalence",
    "wilson_interval",
]
