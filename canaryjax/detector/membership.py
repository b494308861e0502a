"""Min-K% and Min-K%++ of whole sentences, held against the never-published ones; a fourth signal beside the probes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from canaryjax.detector.group import Group
from canaryjax.detector.hit import Verdict
from canaryjax.stats import auroc, auroc_interval, dose_permutation, min_k_mean, tpr_at_fpr

if TYPE_CHECKING:
    from canaryjax.weights.checkpoint import LoadedModel

NEW_NEGATIVES_ABOVE = 0.05  # SD-35: the 95th percentile, as the order statistic that keeps it (SD-A11)
SMALLEST_SPREAD = 1e-6  # nats; a law that leaves one token only has none, and its token's standardised log-prob is 0
NO_LOGPS = "the backend gives no log-probs of a given text"
NO_LAW = "the backend does not give the whole law of the next token"


def standardise(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Log-probs of a text's tokens, less their mean under the model's own law and over their spread under it.

    Args:
      logits: `[tokens, vocabulary]`; row t predicts token t + 1.
      ids: `[tokens]`.

    Returns:
      float64 `[tokens - 1]`, of the tokens after the first.

    Source: Zhang et al., ICLR 2025, Min-K%++.
    """
    rows = np.asarray(logits[:-1], np.float64)
    rows = rows - rows.max(axis=1, keepdims=True)
    logps = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    probs = np.exp(logps)
    finite = np.where(probs > 0, logps, 0.0)  # a token that cannot come has no part in the mean
    mean = (probs * finite).sum(axis=1)
    spread = np.sqrt((probs * (finite - mean[:, None]) ** 2).sum(axis=1))
    own = logps[np.arange(len(rows)), np.asarray(ids)[1:]]
    return (own - mean) / np.maximum(spread, SMALLEST_SPREAD)


def standardised_logps(model: "LoadedModel", texts: Sequence[str]) -> list[np.ndarray]:
    """Standardised log-probs of each text's tokens, from a model that runs here.

    Args:
      model: From `load_model`, with its tokenizer.
      texts: Not empty.

    Returns:
      Per text what `standardise` gives.

    Raises:
      UserError: As `cj.logits`.
    """
    from canaryjax.inference.api import logits
    from canaryjax.inference.batch import LEAST_CONTEXT, step
    from canaryjax.inference.packing import pad
    from canaryjax.inference.request import encode_prompts

    found = []
    for ids in encode_prompts(model, list(texts)):  # one at a time: a text's whole law is large
        padded, _ = pad([ids], step(len(ids), LEAST_CONTEXT))  # all sentences share one program
        found.append(standardise(logits(model, list(padded))[0][: len(ids)], ids))
    return found


def membership(
    verdicts: Sequence[Verdict],
    groups: Sequence[Group],
    logps: Mapping[str, np.ndarray] | None,
    standardised: Mapping[str, np.ndarray] | None,
    share: float,
    level: float,
    permutations: int,
) -> dict[str, Any]:
    """The report's part on membership.

    Args:
      verdicts: Of all targets; says which are negatives.
      groups: Of the canaries.
      logps: By target's key, log-probs in nats of its sentence's tokens after the first; None where there are none.
      standardised: The same from `standardise`; None where the backend gives no whole law.
      share: Of the tokens, the least likely, that is averaged.
      level: Of the interval.
      permutations: Random allocations of the roles in the test.
    """
    settings = share, level, permutations
    names = [verdict.target.key for verdict in verdicts if verdict.target.population == "negative"]
    return {
        "available": bool(logps),
        "reason": None if logps else NO_LOGPS,
        "min_k": _method(names, groups, logps, NO_LOGPS, *settings),
        "min_k_plus_plus": _method(names, groups, standardised, NO_LAW if logps else NO_LOGPS, *settings),
    }


def _method(
    negatives: Sequence[str],
    groups: Sequence[Group],
    tokens: Mapping[str, np.ndarray] | None,
    absent: str,
    share: float,
    level: float,
    permutations: int,
) -> dict[str, Any]:
    def scores(keys: Sequence[str]) -> list[float]:
        found = [min_k_mean(tokens[key], share, "ceil") for key in keys if tokens and key in tokens]
        return [score for score in found if score is not None]

    floor = scores(negatives)
    by_group = {group.name: scores([verdict.target.key for verdict in group.verdicts]) for group in groups}
    planted = [score for own in by_group.values() for score in own]
    # Every published canary has the role 1: nobody chooses afterwards which of them count.
    roles = [0.0] * len(floor) + [1.0] * len(planted)
    test = dose_permutation(roles, rankdata(floor + planted) if roles else [], permutations)
    cut = tpr_at_fpr(floor, planted, NEW_NEGATIVES_ABOVE, "conformal", level)
    reason = None
    if not tokens:
        reason = absent
    elif cut.threshold is None or not planted:
        reason = cut.reason
    return {
        "share": share,
        "tokens": "max(1, ceil(share x tokens)) of the lowest",
        "threshold": cut.threshold,
        "rule": None
        if cut.threshold is None
        else f"above number {cut.rank} of {len(floor)} negatives, the least first; of new negatives "
        f"{cut.expected_fpr:.1%} lie there on average",
        "expected_fpr": cut.expected_fpr,
        "n": len(planted),
        "negatives": len(floor),
        "flagged": {
            name: {"n": len(own), "k": None if cut.threshold is None else sum(s > cut.threshold for s in own)}
            for name, own in by_group.items()
            if own
        },
        "auroc": auroc(floor, planted),
        "interval": auroc_interval(floor, planted, level).to_dict(),
        "p": test.p_value,
        "method": test.method,
        "permutations": test.permutations,
        "reason": reason,
    }
