"""Min-K% and Min-K%++ with a threshold at the negatives."""

import numpy as np
import pytest
from scipy import stats as sps
from scipy.special import log_softmax

from canaryjax.config.detector import EvidenceConfig
from canaryjax.detector.group import form_groups
from canaryjax.detector.hit import judge
from canaryjax.detector.membership import NO_LAW, NO_LOGPS, membership, standardise
from canaryjax.detector.records import Fact, Target

FACT = Fact("Aa", "Bb", "Cc", "Dd", "Ee", 1903)
NEGATIVES = [Target(f"negative-{i:03d}", "negative", None, 0, None, i, FACT) for i in range(20)]
LADDER = [Target(f"ladder-{i:03d}", "canary", "ladder", 100 if i < 3 else 1, None, 100 + i, FACT) for i in range(7)]


def weighed(logps, standardised=None, negatives=NEGATIVES, permutations=999):
    verdicts = judge([*negatives, *LADDER], [], EvidenceConfig())
    return membership(verdicts, form_groups(verdicts), logps, standardised, 0.2, 0.95, permutations)


def sentence(lowest):
    """Eleven tokens whose three lowest have the mean `lowest`: 20 % of 11 is 2.2, so three are kept."""
    return np.array([-0.1] * 8 + [lowest - 1, lowest, lowest + 1])


def scored(canaries, negatives=None):
    floor = -10.0 - np.arange(20) if negatives is None else negatives  # the best is -10
    found = {target.key: sentence(score) for target, score in zip(NEGATIVES, floor, strict=False)}
    return found | {target.key: sentence(score) for target, score in zip(LADDER, canaries, strict=True)}


def test_threshold_is_the_largest_of_twenty_negatives():
    # SD-A11: ceil(21 * 0.95) = 20; NumPy's linear percentile would be -10.95, between the two largest.
    found = weighed(scored([-9.9, -10.0, -10.5, -9, -11, -12, -13]))["min_k"]
    assert found["threshold"] == pytest.approx(-10.0)
    assert found["expected_fpr"] == pytest.approx(1 / 21)
    # Strictly above: -10.0 itself is no finding. Floor for ceil would keep two tokens and move every score.
    assert found["flagged"] == {"ladder 100": {"n": 3, "k": 1}, "ladder 1": {"n": 4, "k": 1}}
    assert (found["n"], found["negatives"], found["share"], found["reason"]) == (7, 20, 0.2, None)
    assert found["rule"].startswith("above number 20 of 20 negatives")
    assert found["rule"].endswith("of new negatives 4.8% lie there on average")


def test_area_and_p_are_those_of_ranks():
    scores = [-3.0, -4.0, -12.5, -5.0, -20.5, -15.5, -9.0]
    found = weighed(scored(scores), permutations=9999)["min_k"]
    oracle = sps.mannwhitneyu(scores, -10.0 - np.arange(20), alternative="greater", method="exact")
    assert found["auroc"] == pytest.approx(oracle.statistic / 140)
    assert found["p"] == pytest.approx(oracle.pvalue, abs=4 * (oracle.pvalue / 10_000) ** 0.5)
    assert found["interval"]["low"] < found["auroc"] < found["interval"]["high"]


def test_too_few_negatives_have_no_threshold():
    logps = scored([-1.0] * 7)
    for target in NEGATIVES[18:]:
        del logps[target.key]
    found = weighed(logps)["min_k"]
    assert found["threshold"] is None
    assert "needs at least 19 negatives, found 18" in found["reason"]
    assert found["flagged"]["ladder 100"] == {"n": 3, "k": None}
    assert found["auroc"] == 1.0


def test_without_log_probs_it_says_why():
    found = weighed(None)
    assert (found["available"], found["reason"]) == (False, NO_LOGPS)
    assert found["min_k"]["reason"] == found["min_k_plus_plus"]["reason"] == NO_LOGPS
    assert (found["min_k"]["p"], found["min_k"]["auroc"], found["min_k"]["flagged"]) == (None, None, {})


def test_the_standardised_one_needs_the_whole_law():
    found = weighed(scored([-1.0] * 7))
    assert found["available"]
    assert found["min_k_plus_plus"]["reason"] == NO_LAW
    both = weighed(scored([-1.0] * 7), scored([-30.0] * 7))
    assert both["min_k"]["flagged"]["ladder 1"]["k"] == 4
    assert both["min_k_plus_plus"]["flagged"]["ladder 1"]["k"] == 0


def test_standardised_log_probs_by_hand():
    # Row 0: probabilities 1/2, 1/4, 1/4. Mean of the log -1.5 ln 2, spread ln 2 / 2; token 2 is at -2 ln 2: z = -1.
    # Row 1: even, so every token is at its mean. Row 2: one token alone, and it came. The last row predicts nothing.
    logits = np.log([[2, 1, 1], [5, 5, 5], [1, 0.0, 0.0], [7, 1, 1]], where=[[1, 1, 1], [1, 1, 1], [1, 0, 0], [1] * 3],
                    out=np.full((4, 3), -np.inf))  # fmt: skip
    assert standardise(logits, np.array([0, 2, 1, 0])) == pytest.approx([-1.0, 0.0, 0.0], abs=1e-6)
    assert standardise(logits + 700.0, np.array([0, 0, 1, 0]))[0] == pytest.approx(1.0)


@pytest.mark.slow
def test_standardised_log_probs_of_a_model_here():
    # Oracle: the token's own log-prob by `score`, its law by SciPy from the logits.
    import canaryjax as cj
    from canaryjax.detector.membership import standardised_logps
    from canaryjax.inference.api import _logits
    from canaryjax.inference.request import encode_prompts

    model = cj.load_model("embedded")
    text = "a short text of a few words"
    ids = encode_prompts(model, [text])[0].tolist()
    own = np.asarray(cj.score(model, [ids[:1]], [ids[1:]])[0].logps, np.float64)
    law = log_softmax(np.asarray(cj.logits(model, [ids])[0], np.float64)[:-1], axis=1)
    mean = (np.exp(law) * law).sum(axis=1)
    spread = np.sqrt((np.exp(law) * law**2).sum(axis=1) - mean**2)
    (found,) = standardised_logps(model, [text])
    assert found == pytest.approx((own - mean) / spread, abs=1e-3)  # float32 logits
    before = _logits._cache_size()
    standardised_logps(model, ["a text", text + " and then of some more", text + " and then of some more" * 3])
    assert _logits._cache_size() == before  # all share the program of the first
