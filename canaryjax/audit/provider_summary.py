"""What the simulated provider did, summed over the trials of a study for `report.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax import stats
from canaryjax.canaries.provider import KINDS
from canaryjax.config import AuditConfig

SPLITS = ("rm", "rl")
NOT_DROPPED = ("equal_sizes", "dilution")  # the study's own cut and what is added: no trace is dropped by a provider

CURATION = (
    "Curation: a provider's filtering, deduplication or subsampling may remove canary traces; the rate given here is "
    "the rate after it."
)
CURATED = (
    "Curation: traces were dropped here by a simulated provider (the config's provider section); a real one may drop "
    "others, or more of them. The realised rate is the rate after it."
)
DILUTION = (
    "Dilution: much larger preference data with other or contradictory feedback may drown the signal; not tested here."
)
DILUTED = (
    "Dilution: {share:.0%} of the traces were others', of the same kind of documents, and {against:.0%} of the canary "
    "traces had contradictory feedback; real preference data are larger and more diverse."
)


def curation_limits(config: AuditConfig) -> list[str]:
    """What a run's own provider leaves untested, for the report's limitations (BC-70)."""
    section = config.provider
    diluted = section.dilution_share > 0 or section.contradictory_share > 0
    words = DILUTED.format(share=section.dilution_share, against=section.contradictory_share)
    return [CURATED if section.filters else CURATION, words if diluted else DILUTION]


def realised_rates(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Triggered traces among all that are trained on or held out of a split, over the trials together.

    Returns:
      `overall`, `rm` and `rl`, each with `value`, `count` and `n`.
    """
    counts = {split: _summed([r["injected"][split] for r in _drawn(records)]) for split in SPLITS}
    counts = {"overall": _summed(list(counts.values()))} | counts
    return {name: _rate(own["triggered"], sum(own.values())) for name, own in counts.items()}


def provider_summary(config: AuditConfig, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was collected, what each step left and dropped, and how much of the canary survived.

    Args:
      config: The study.
      records: Finished records; matched trials, which share their traces, count once.

    Returns:
      Plain values: `curated`, and where it is True the rates, `steps`, `contradicted` and `survival`, which has for
      each kind of trace the share that no step dropped, with a Clopper-Pearson interval, and the canary's design.
    """
    rates = {"configured_rate": config.canary.rate, "realised_rate": realised_rates(records)}
    if not config.provider.active:
        return {"curated": False, "reason": "every step of the config's provider section is off"} | rates
    found = [record["provider"] for record in _drawn(records)]
    names = list(found[0]["steps"])
    left = {name: {split: _summed([one["steps"][name][split] for one in found]) for split in SPLITS} for name in names}
    against = {split: _summed([one["contradicted"][split] for one in found]) for split in SPLITS}
    return {"curated": True, "trials": len(found)} | rates | {
        "steps": _steps(left),
        "contradicted": against | {"overall": _summed(list(against.values()))},
        "survival": _survival(config, left),
    }  # fmt: skip


def _steps(left: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[dict[str, Any]]:
    """By step what it left, and what the step before had besides (less than nothing where traces were added)."""
    steps, before = [], None
    for name, splits in left.items():
        kept = _summed(list(splits.values()))
        dropped = {kind: 0 if before is None else before[kind] - kept[kind] for kind in KINDS}
        steps.append({"step": name, "kept": kept, "dropped": dropped, "by_split": splits})
        before = kept
    return steps


def _survival(config: AuditConfig, left: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[dict[str, Any]]:
    """By kind, of the run's canary design. Traces of a trial share a canary, which the interval does not know."""
    last = [name for name in left if name not in NOT_DROPPED][-1]
    first, final = (_summed(list(left[name].values())) for name in ("collected", last))
    canary, level = config.canary, config.statistic.level
    # A textual canary has no place in an answer and no instruction.
    placement, instruction = (None, None) if canary.textual else (canary.placement, canary.instruction)
    design = {"family": canary.family, "placement": placement, "instruction": instruction}
    return [
        design
        | {"kind": kind}
        | _rate(final[kind], first[kind])
        | {"interval": stats.clopper_pearson(final[kind], first[kind], level).to_dict()}
        for kind in ("triggered", "contrast", "clean")
    ]


def _drawn(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One record a draw: the trials of a matched pair have the same traces."""
    return list({record["draw"]: record for record in records}.values())


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {kind: sum(own[kind] for own in counts) for kind in KINDS}


def _rate(count: int, n: int) -> dict[str, Any]:
    return {"value": count / n if n else None, "count": count, "n": n, "reason": None if n else "there were none"}
