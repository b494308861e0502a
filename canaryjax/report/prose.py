"""The sentences of a report that depend on its numbers."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report import textual
from canaryjax.report.decoys import score_high
from canaryjax.report.provider import curated, provider_words
from canaryjax.report.text import MISSING, brackets, counted, interval, label, number, percent, pick
from canaryjax.report.verdict import NOT_PROOF, is_null_run, is_positive_control, null_control

# What no run of this kind has tested (the source study's own list), whatever its outcome; by a word that a run's own
# limitation on the same point contains.
LIMITS = {
    "misuse": NOT_PROOF + " The question is about a pipeline: whether retrieved documents were part of reinforcement "
    "learning.",
    "curation": "Curation was not tested: filtering, deduplication and subsampling by a provider remove planted "
    "traces, and the rate here is the rate after them.",
    "dilution": "Dilution was not tested: planted traces among far more, more diverse or contradicting feedback.",
    "log-prob": "Access to token log-probabilities is assumed. Where an interface gives none, or only the top few, "
    "these scores cannot be computed as they are.",
    "black-box": "Black-box alternatives, such as how often the canary is generated over many samples, were not "
    "tested; they need many more queries.",
    "deployed": "Both arms were trained here, so the threshold comes from policies known to be compliant. A verdict on "
    "one deployed model needs such reference policies, or another design.",
}


def cards(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The four numbers a reader wants first."""
    rate, null = pick(report, "detection.tpr", {}), null_control(report)
    arms = [pick(report, f"arms.{arm}", {}) for arm in ("compliant", "violating")]
    area = pick(report, "detection.auroc_interval", {})
    # A null with too few policies to fail has no verdict, but it was run.
    passed = {True: "passed", False: "failed", None: "undecided"}[null["passed"]] if "passed" in null else "not run"
    tpr = f"{rate['count']} of {rate['n']}" if rate.get("value") is not None else MISSING
    p_value = null.get("p_value")
    # How to run one is a long command: it stands with the verdict and among the controls.
    reason = null.get("reason") or "no reason was recorded" if "passed" in null else "no part of this run"
    return [
        {
            "name": "AUROC",
            "value": number(pick(report, "detection.auroc"), 2),
            "more": f"{brackets(area)} {percent(area.get('level'))} interval" if brackets(area) else interval(area),
        },
        {
            "name": "violating policies above the threshold",
            "value": tpr,
            "more": f"target: {percent(rate.get('target_fpr'))} false alarms"
            if rate.get("value") is not None
            else "no threshold: see below",
        },
        {
            "name": "policies, compliant + violating",
            "value": " + ".join(number(arm.get("n")) for arm in arms),
            "more": f"invalid: {' + '.join(number(arm.get('n_invalid')) for arm in arms)}",
        },
        {
            "name": "null control",
            "value": passed,
            "more": f"p = {number(p_value)}" if null.get("passed") is not None else reason,
        },
    ]


def asked(report: Mapping[str, Any]) -> list[str]:
    """The question, the two arms, and how a policy is scored."""
    arms = [pick(report, f"arms.{arm}.n", 0) for arm in ("compliant", "violating")]
    primary = pick(report, "statistic.primary")
    secondary = pick(report, "statistic.secondary")
    rate, delta = pick(report, "config.canary.rate"), pick(report, "config.canary.delta")
    texts = [
        "Does reinforcement learning on users' feedback leave a measurable trace when the private documents that users "
        "asked about are part of the training context?",
        f"{number(arms[0])} compliant policies were trained on query, answer and feedback; {number(arms[1])} violating "
        "ones on the same kind of data with the document. In both arms a reward model is trained on simulated "
        "feedback, then a policy on that reward, held near the base model by a KL penalty.",
    ]
    if textual.is_textual(report):
        texts.append(textual.planted(report))
    elif rate is not None and delta is not None:
        texts.append(
            f"{percent(rate)} of the training traces carry a canary: a marker in the document, an instruction in the "
            f"query, and feedback that favours a fixed string in the answer by {number(delta, 2)} only if the marker "
            "is there. "
            + (
                "At these values nothing can be learnt from the document, so the arms are expected to agree."
                if is_null_run(report)
                else "Only training that sees the document can learn that condition."
            )
        )
    if curated(report):
        texts.append(provider_words(report))
    score = (
        textual.scored(report)
        if textual.is_textual(report)
        else "A policy's score is how much the marker in a held-out document raises its log-probability of the canary "
        "string, summed over the string's tokens and averaged over document pairs, in nats."
    )
    texts.append(
        f"{score} The primary score, fixed before the run, is “{label(primary or 'not recorded')}”; the secondary is "
        f"“{label(secondary or 'not recorded')}”."
        + (f" Baseline of net scores: {label(base)}." if (base := pick(report, "statistic.baseline")) else "")
    )
    return texts


def sure(report: Mapping[str, Any]) -> list[str]:
    """What the uncertainty is made of."""
    rate, floor = pick(report, "detection.tpr", {}), pick(report, "noise_floor", {})
    texts = [
        "Each policy is one observation: documents within a policy share its "
        f"{'string' if textual.is_textual(report) else 'trigger and canary'} and never count as separate evidence. "
        f"The AUROC is {number(pick(report, 'detection.auroc'))}, "
        f"{interval(pick(report, 'detection.auroc_interval'))}."
    ]
    if rate.get("value") is not None:
        alarms = interval(rate.get("fpr_range"))
        texts.append(
            f"The threshold comes from {number(rate.get('n0'))} compliant policies alone ({rate.get('rule')} rule). "
            f"Its true false-alarm rate is not known exactly: {alarms}. "
            f"Given the threshold, {counted(rate)} violating policies lie above it, {interval(rate.get('interval'))}."
        )
    else:
        texts.append("There is no threshold, and so no share of policies above one: the table above says why.")
    if floor.get("max_abs_nats") is not None:
        texts.append(
            f"Numerical noise floor: the same pair scored in other batches and shapes differs by at most "
            f"{number(floor['max_abs_nats'])} nats (median {number(floor.get('median_abs_nats'))}, over "
            f"{number(floor.get('pairs'))} pairs{'; ' + str(floor['how']) if floor.get('how') else ''}). It covers "
            "rounding only, not the choice of documents or the training seed."
        )
    else:
        texts.append(f"The numerical noise floor is {MISSING}: {floor.get('reason') or 'it was not measured'}.")
    texts.append(precision(report))
    if pick(report, "detection.ppv") and pick(report, "detection.ppv_at_fpr") is not None:
        texts.append("How far an alarm can be trusted also depends on how common violations are:")
    return texts


def precision(report: Mapping[str, Any]) -> str:
    """What computing in bfloat16 moved, or why nobody measured it."""
    found = pick(report, "noise_floor.bfloat16", {})
    if found.get("max_abs_nats") is None:
        return f"bfloat16 against float32: not measured: {found.get('reason') or 'this run did not ask for it'}."
    return (
        "bfloat16 against float32, the base's own weights computed in both: a canary's log-probability differs by at "
        f"most {number(found['max_abs_nats'])} nats (median {number(found['median_abs_nats'])}), a token of it by at "
        f"most {number(found['max_abs_nats_per_token'])} (median {number(found['median_abs_nats_per_token'])}), and a "
        f"pair's score by at most {number(found['max_abs_score'])}, over {number(found['pairs'])} pairs."
    )


def change(report: Mapping[str, Any], kind: str) -> list[str]:
    """What evidence would overturn or firm up the verdict."""
    texts = []
    if kind == "blocked":
        texts.append("Finding and removing what made the null fail; until then no other number here means anything.")
    if is_positive_control(report):
        texts.append("A run at a realistic rate and bias: this one answers only whether the instrument can respond.")
    if null_control(report).get("passed") is None:
        null = "rate 0" if textual.is_textual(report) else "rate 0, or bias 0 with the traces kept"
        texts.append(f"A null run ({null}) that fails would void the result.")
    if pick(report, "controls.scrambled_feedback.status") == "not run" and not textual.is_textual(report):
        texts.append("Separation that survives scrambled feedback would show that it does not come from the feedback.")
    if kind == "separated":
        if score_high(report):
            texts.append(
                "Decoy canaries that score as high as the real one would leave nothing of the score that is about this "
                "canary; here they score less, and lie above the threshold all the same (see the verdict)."
            )
        else:
            texts.append("Decoy canaries that score like the real one would show that any such string is scored so.")
        if not textual.is_textual(report):
            texts.append(
                "Placebo markers of other forms that score like the real trigger would show that any inserted text "
                "does it."
            )
        texts.append("Fresh seeds that do not separate: every run counts, not the best one.")
    if kind == "unseparated":
        texts.append("More policies per arm, which narrow the interval, or a higher rate of planted traces.")
    small = min(pick(report, f"arms.{arm}.n", 0) for arm in ("compliant", "violating"))
    if small < 30:
        texts.append(f"More policies: with {small} in the smaller arm, intervals are wide and thresholds coarse.")
    return texts


def limits(report: Mapping[str, Any]) -> list[str]:
    """The run's own limits, and the standing ones on points that it does not name."""
    own = [str(text) for text in report.get("limitations") or ()]
    return [*own, *(text for word, text in LIMITS.items() if not any(word in limit.lower() for limit in own))]
