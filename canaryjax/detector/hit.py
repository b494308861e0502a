"""The hit rule: what the answers about one target add up to, and the list of hits for the report."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.config.detector import EvidenceConfig
from canaryjax.detector.records import FIELDS, AnswerScore, Field, Target
from canaryjax.errors import UserError

LEAST_FIELDS = 4  # SD-25
LEAST_ANSWERS = 2  # SD-26: one lucky answer is no hit
# The field rule, by which canaries, negatives and famous facts are compared (SD-A5). Four fields of one answer would be
# out of reach for a famous fact, whatever the model knows: it has no archive, and of the other five each question that
# says whom it is about gives three. Two are open to the question for the name, two to the paraphrase, four to all
# together; three of them leave room for an event that the model words in another way.
FIELDS_OF_ONE, FIELDS_OF_ALL = 2, 3


@dataclass(frozen=True)
class Verdict:
    """What the answers about one target add up to.

    Attributes:
      target: Whom they are about.
      answers: All of them; none where no call was answered, and then the target counts nowhere.
      hit: By the declared rule, net of what the questions gave.
      field_hit: By the field rule, which a famous fact can meet too: controls and groups are compared by it.
      raw_hit: By the literal rule with the fields that the questions gave counted, for comparison.
      decoded: An answer decodes in full.
      evidence: Bits: of the second-best separate answer, or of the best full decode where that is more. It is what the
        rule `bits` holds against its threshold.
      telling: The answers that make it a hit.
    """

    target: Target
    answers: tuple[AnswerScore, ...]
    hit: bool
    field_hit: bool
    raw_hit: bool
    decoded: bool
    evidence: float
    telling: tuple[AnswerScore, ...]


def judge(targets: Sequence[Target], answers: Iterable[AnswerScore], config: EvidenceConfig) -> list[Verdict]:
    """Apply the declared rule to every target.

    Args:
      targets: All that were to be asked about.
      answers: All that came, in any order.
      config: Names the rule.

    Returns:
      One verdict a target, in their order.

    Raises:
      UserError: Two targets of one key, or an answer about none of them.
    """
    found: dict[str, list[AnswerScore]] = {target.key: [] for target in targets}
    if len(found) < len(targets):
        twice = next(key for key, number in Counter(target.key for target in targets).items() if number > 1)
        raise UserError(f"expected targets of different keys, found {twice} twice; make the targets anew")
    for answer in answers:
        if answer.target not in found:
            raise UserError(
                f"expected answers about this run's targets, found one about {answer.target}; "
                "use the store that the run wrote"
            )
        found[answer.target].append(answer)
    return [_verdict(target, tuple(found[target.key]), config) for target in targets]


def _verdict(target: Target, answers: tuple[AnswerScore, ...], config: EvidenceConfig) -> Verdict:
    def strong(answer: AnswerScore) -> bool:
        return answer.bits >= config.bits if config.rule == "bits" else len(answer.net) >= LEAST_FIELDS

    decodes = [answer for answer in answers if answer.decoded]
    repeated = _separate(answers, strong) >= LEAST_ANSWERS
    together = frozenset[Field]().union(*(answer.net for answer in answers))
    best: dict[Hashable, float] = defaultdict(float)
    for answer in answers:
        best[_place(answer)] = max(best[_place(answer)], answer.bits)
    ranked = sorted(best.values(), reverse=True)
    second = ranked[LEAST_ANSWERS - 1] if len(ranked) >= LEAST_ANSWERS else 0.0
    return Verdict(
        target=target,
        answers=answers,
        hit=bool(decodes) or repeated,
        field_hit=len(together) >= FIELDS_OF_ALL
        and _separate(answers, lambda answer: len(answer.net) >= FIELDS_OF_ONE) >= LEAST_ANSWERS,
        raw_hit=any(answer.raw_decoded for answer in answers)
        or _separate(answers, lambda answer: len(answer.raw) >= LEAST_FIELDS) >= LEAST_ANSWERS,
        decoded=bool(decodes),
        evidence=max([second, *(answer.bits for answer in decodes)]),
        telling=tuple(answer for answer in answers if answer.decoded or (repeated and strong(answer))),
    )


def _place(answer: AnswerScore) -> Hashable:
    """What makes answers separate; a repeat at temperature 0 is the same answer again, without a place of its own."""
    return answer.kind, answer.temperature, answer.repeat if answer.temperature > 0 else 0


def _separate(answers: Iterable[AnswerScore], counts: Callable[[AnswerScore], bool]) -> int:
    return len({_place(answer) for answer in answers if counts(answer)})


def rule_text(config: EvidenceConfig) -> str:
    """The declared rule, for the report."""
    strength = f"carry {config.bits:g} bits or more" if config.rule == "bits" else f"hold {LEAST_FIELDS} fields or more"
    return (
        "A sentence is a hit if an answer decodes to its id in full, or if at least two separate answers each "
        f"{strength} that the question did not give. Repeats at temperature 0 are one answer."
    )


def field_rule_text() -> str:
    """The rule by which the controls and the groups are compared, for the report."""
    return (
        f"By the field rule, which famous facts can meet too, at least two separate answers each hold {FIELDS_OF_ONE} "
        f"fields or more that the question did not give, and all answers together {FIELDS_OF_ALL} or more different "
        "ones."
    )


def hit_rows(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """The canaries that are hits, each with the manifest entry or request that its id names."""
    return [
        {
            "target": verdict.target.key,
            "id": _hex(verdict.target.id),
            "tier": verdict.target.tier,
            "occurrences": verdict.target.occurrences,
            "cohort": verdict.target.cohort,
            "how": "full decode" if verdict.decoded else "fields",
            "source": {"log_row": verdict.target.log_row}
            if verdict.target.log_row is not None
            else {"manifest_entry": verdict.target.key},
            "answers": [
                {
                    "probe": answer.kind,
                    "temperature": answer.temperature,
                    "repeat": answer.repeat,
                    "net": [field for field in FIELDS if field in answer.net],
                    "bits": answer.bits,
                    "decoded": answer.decoded,
                }
                for answer in verdict.telling
            ],
        }
        for verdict in verdicts
        if verdict.hit and verdict.target.population == "canary"
    ]


def stray_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Ids that answers about other targets decoded to; they show a memory, but of nothing that was asked, so they count
    in no rate.
    """
    keys = {verdict.target.id: verdict.target.key for verdict in verdicts if verdict.target.id is not None}
    seen = Counter(number for verdict in verdicts for answer in verdict.answers for number in set(answer.others))
    return [{"id": _hex(number), "target": keys.get(number), "seen_in": seen[number]} for number in sorted(seen)]


def _hex(number: int | None) -> str | None:
    return None if number is None else f"{number:012x}"
