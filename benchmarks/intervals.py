"""The statistics of a finished study of 50 + 50 policies: one bootstrap against SciPy's, and all of them together."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.command import parse, run_script
from harness.contest import Peer, contest
from harness.record import finish

ARM = 50  # policies of each arm, as in the paper
RESAMPLES = 10_000
LEVEL = 0.90
SEED = 5

Arms = tuple[np.ndarray, np.ndarray]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit status."""
    options = parse(__doc__, ("scipy",), arguments, sizes=())
    arms = _arms()
    shape = {"policies": 2 * ARM, "resamples": RESAMPLES}
    peers = {"scipy": Peer(("scipy",), lambda: Bootstrap(arms, _scipy_interval))}
    ours = Bootstrap(arms, _our_interval)
    return finish(contest("intervals", options, shape, ours, peers, lambda: _study(arms)), options.json)


class Bootstrap:
    """One side: the percentile interval of an AUROC, each arm resampled for itself."""

    def __init__(self, arms: Arms, interval: Callable[[Arms], tuple[float, ...]]):
        self._arms, self._interval = arms, interval

    def answers(self) -> Mapping[str, np.ndarray]:
        """The bounds, which two bootstraps draw for themselves."""
        return {"auroc_bounds": np.asarray(self._interval(self._arms))}

    def seconds(self) -> float:
        """Seconds of one interval."""
        start = time.perf_counter()
        self._interval(self._arms)
        return time.perf_counter() - start


def _arms() -> Arms:
    rng = np.random.default_rng(SEED)
    return rng.normal(0.0, 0.1, ARM), rng.normal(0.1, 0.15, ARM)


def _our_interval(arms: Arms) -> tuple[float, ...]:
    from canaryjax import stats

    found = stats.auroc_interval(*arms, LEVEL, "bootstrap", RESAMPLES, SEED)
    return tuple(found.to_dict()[bound] for bound in ("low", "high"))


def _scipy_interval(arms: Arms) -> tuple[float, ...]:
    from scipy import stats

    def auroc(low: np.ndarray, high: np.ndarray) -> float:
        # The rank sum, which is quicker than `mannwhitneyu` with its p-value.
        ranks = stats.rankdata(np.concatenate([low, high]))[len(low) :]
        return (ranks.sum() - len(high) * (len(high) + 1) / 2) / (len(low) * len(high))

    found = stats.bootstrap(
        arms, auroc, n_resamples=RESAMPLES, vectorized=False, method="percentile", confidence_level=LEVEL, rng=SEED
    )
    return found.confidence_interval.low, found.confidence_interval.high


def _study(arms: Arms) -> dict[str, Any]:
    """Seconds of everything that a report computes of the policies' scores, all of its intervals by bootstrap."""
    from canaryjax import stats
    from canaryjax.audit.summary import SCORES, detection, mechanism, standardised
    from canaryjax.config.study import StatisticConfig

    # The paper's rule has a bootstrap of the detection rate besides.
    settings = StatisticConfig(auroc_interval="bootstrap", threshold_rule="paper", bootstrap_samples=RESAMPLES)
    compliant, violating = (arm.tolist() for arm in arms)
    start = time.perf_counter()
    for _ in SCORES:
        detection(compliant, violating, settings, SEED)
    stats.null_verdict(compliant, violating, settings.null_alpha, SEED)
    for arm in (compliant, violating):
        mechanism(arm, arm, arm)
    standardised(compliant, violating)
    return {"statistics_s": time.perf_counter() - start}


if __name__ == "__main__":
    run_script(main)
