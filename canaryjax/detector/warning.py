"""What a reader must know before the numbers: retrieval, gaps in the log, small or odd controls, missing answers."""

from collections.abc import Mapping, Sequence

from canaryjax.detector.group import Group, Tally, tally
from canaryjax.detector.hit import Verdict
from canaryjax.detector.posterior import Controls
from canaryjax.detector.prior import LogFacts
from canaryjax.stats import least_significant_hits

OFTEN_DECLINED = 0.25  # of all answers empty or refused: from there on a floor says little
UNEVEN = 0.1  # of the answers a target, canaries against negatives: more answers are more chances to be a hit


def warnings(
    verdicts: Sequence[Verdict],
    groups: Sequence[Group],
    tallies: Mapping[str, Tally],
    controls: Controls,
    alpha: float,
    log: LogFacts | None,
) -> list[str]:
    """Warnings of the report.

    Args:
      verdicts: Of all targets.
      groups: Of the canaries.
      tallies: By population.
      controls: Both control rates.
      alpha: Level at this look.
      log: None without a request log.
    """
    return [*_log(log), *_controls(tallies, controls), *_smallest(groups, tallies["negative"], alpha), *_gaps(verdicts)]


def _log(log: LogFacts | None) -> list[str]:
    if log is None:
        return ["There is no request log: whether an answer was retrieved rather than remembered cannot be told."]
    texts = []
    if log.during_run:
        texts.append(f"The site was fetched {log.during_run} times during the run: hits may be retrieval, not memory.")
    if log.during_run is None or not log.complete:
        reason = log.reason or "log incomplete: it does not cover the run"
        texts.append(f"{reason[0].upper()}{reason[1:]}. More fetches may have come during the run.")
    if log.unread:
        texts.append(f"{log.unread} lines of the request log could not be read; fetches in them are not counted.")
    return texts


def _controls(tallies: Mapping[str, Tally], controls: Controls) -> list[str]:
    texts = []
    negative, positive = tallies["negative"], tallies["positive"]
    if negative.hits:
        texts.append(
            f"{negative.hits} of {negative.n} never-published sentences are hits: the model guesses, or the questions "
            "give the answers away. Every rate is read against this floor."
        )
    if positive.n and not positive.field_hits:
        texts.append(
            f"None of {positive.n} famous facts is recalled in answer to the same questions: they cannot find what "
            "this model knows, and that canaries are not recalled says nothing."
        )
    elif controls.reason is not None:
        texts.append(f"Normalised rates and posteriors are not defined: {controls.reason}.")
    return texts


def _smallest(groups: Sequence[Group], negative: Tally, alpha: float) -> list[str]:
    """The fewest hits of a group that could be told from the floor at all."""
    if not negative.n:
        return ["No never-published sentence was answered: nothing can be told from chance."]
    sizes = sorted({tally(group.verdicts).n for group in groups} - {0})
    needs = [(size, least_significant_hits(size, negative.hits, negative.n, alpha)) for size in sizes]
    told = [f"{hits} of {size}" for size, hits in needs if hits is not None]
    never = [str(size) for size, hits in needs if hits is None]
    against = f"against {negative.hits} of {negative.n} negatives"
    texts = []
    if told:
        texts.append(
            f"Groups are small. Fewest hits with p of at most {alpha:.2g} {against}, before Holm's correction: "
            f"{', '.join(told)}."
        )
    if never:
        texts.append(f"No number of hits has p of at most {alpha:.2g} {against} in groups of {', '.join(never)}.")
    return texts


def _gaps(verdicts: Sequence[Verdict]) -> list[str]:
    texts = []
    silent = sum(not verdict.answers for verdict in verdicts)
    if silent:
        texts.append(f"{silent} of {len(verdicts)} targets have no answer; they are left out of every rate.")
    answers = [answer for verdict in verdicts for answer in verdict.answers]
    declined = sum(answer.empty or answer.refusal for answer in answers)
    if answers and declined >= OFTEN_DECLINED * len(answers):
        texts.append(
            f"{declined} of {len(answers)} answers are empty or refusals: that a canary is not recalled says less."
        )
    mean = {name: _answers_a_target(verdicts, name) for name in ("canary", "negative")}
    if min(mean.values()) > 0 and max(mean.values()) > (1 + UNEVEN) * min(mean.values()):
        texts.append(
            f"Canaries have {mean['canary']:.3g} answers a target and negatives {mean['negative']:.3g}: more answers "
            "are more chances to be a hit. Resume the run, as a further look, until all calls are answered."
        )
    return texts


def _answers_a_target(verdicts: Sequence[Verdict], population: str) -> float:
    counts = [len(v.answers) for v in verdicts if v.answers and v.target.population == population]
    return sum(counts) / len(counts) if counts else 0.0
