"""The simulated provider at work on a study: every trial's log curated before its arm is known (BC-6).

Curation is a function of the trial's draw alone. Both arms train on what is left of the log as it was collected, with
its documents; the compliant arm loses them later, as it does without a provider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from canaryjax.audit.base import Base, set_aside
from canaryjax.audit.perplexity import trace_perplexities
from canaryjax.audit.preflight import Prepared, check_sizes
from canaryjax.audit.trial import Trial, heldout_groups
from canaryjax.canaries.instrument import Trace, instrument
from canaryjax.canaries.provider import CurationSettings, contradict, count_kinds, curate, dilution_count
from canaryjax.config import AuditConfig
from canaryjax.config.provider import ProviderConfig
from canaryjax.data.example import Example
from canaryjax.errors import UserError
from canaryjax.keys import host_rng
from canaryjax.runlog import Progress

# What the traces of a trial are for, by their number in `_purposes`; those that were dropped are for nothing.
PURPOSES = ("to train the reward model", "held out for the reward model's evaluation", "to train the policy")
TRAIN, HELD_OUT, POLICY = range(3)
NOTHING = -1


def reserve_dilution(config: AuditConfig, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Splits off the documents that others' traces are of: (others', the study's), disjoint in groups."""
    rng = host_rng(config.study.seed, "dilution documents")
    return set_aside(examples, config.provider.dilution_documents, rng, "provider.dilution_documents")


def curate_study(config: AuditConfig, prepared: Prepared, base: Base, progress: Progress) -> Prepared:
    """The trials with what the provider leaves of their traces; as they are where every step is off.

    What is left differs from trial to trial, while policies trained in one program need equally many rows: each part
    is cut by lot to the study's smallest, after curation, so that rates are what the provider made them.

    Args:
      config: The study.
      prepared: All trials of the study, those already finished too: the smallest must not hang on what is left to run.
      base: Scores traces for the perplexity filter.
      progress: Told that it is under way.

    Raises:
      UserError: A part of some trial's log is left empty or too small, or there are too few other documents.
    """
    if not config.provider.active:
        return prepared
    progress.stage("provider curation")
    by_draw = {trial.draw: trial for trial in prepared.trials.values()}
    steps = _steps(config, by_draw, base)
    purposes = {draw: _purposes(config, trial, list(steps[draw].values())[-1]) for draw, trial in by_draw.items()}
    sizes = _smallest(by_draw, purposes)
    curated = {
        draw: _curated(config, trial, steps[draw], _cut(config, draw, purposes[draw], sizes), prepared.others)
        for draw, trial in by_draw.items()
    }
    trials = {number: replace(curated[trial.draw], trial=number) for number, trial in prepared.trials.items()}
    for trial in trials.values():
        check_sizes(config, trial, base.tokenizer)
    return replace(prepared, trials=trials)


def curation_settings(section: ProviderConfig) -> CurationSettings:
    """The steps that drop traces, of the provider section."""
    return CurationSettings(**{field.name: getattr(section, field.name) for field in fields(CurationSettings)})


def _log(trial: Trial) -> list[Trace]:
    return [*trial.rm_traces, *trial.rl_traces]


def _steps(config: AuditConfig, trials: Mapping[int, Trial], base: Base) -> dict[int, dict[str, np.ndarray]]:
    """What each step leaves of each draw's whole log: a provider does not know how it will be split."""
    settings, logs = curation_settings(config.provider), {draw: _log(trial) for draw, trial in trials.items()}
    perplexities: dict[int, Any] = dict.fromkeys(logs)
    if config.provider.reads_perplexity:
        found = trace_perplexities(config, base.params, base.tokenizer, list(logs.values()))
        perplexities = dict(zip(logs, found, strict=True))
    return {
        draw: curate(log, settings, host_rng(config.study.seed, "provider", draw), perplexities[draw])
        for draw, log in logs.items()
    }


def _purposes(config: AuditConfig, trial: Trial, kept: np.ndarray) -> np.ndarray:
    """What each trace of a trial's log is for, int `[traces]`.

    What the reward model is evaluated on is held out of what is left: a few rows held out before could all be dropped.
    """
    split = len(trial.rm_traces)
    purposes = np.full(len(kept), POLICY)
    purposes[:split] = trial.rm_heldout * HELD_OUT
    if config.provider.filters:
        left = [example for example, keep in zip(trial.splits.rm, kept[:split], strict=True) if keep]
        groups = heldout_groups(config, trial.draw, left)
        purposes[:split] = [HELD_OUT if e.group in groups else TRAIN for e in trial.splits.rm]
    return np.where(kept, purposes, NOTHING)


def _smallest(trials: Mapping[int, Trial], purposes: Mapping[int, np.ndarray]) -> list[int]:
    """Traces for each purpose in the trial that has fewest."""
    sizes = []
    for number, purpose in enumerate(PURPOSES):
        counts = {draw: int((own == number).sum()) for draw, own in purposes.items()}
        draw = min(counts, key=lambda name: counts[name])
        wanted = number != HELD_OUT or trials[draw].rm_heldout.any()
        if wanted and not counts[draw]:
            raise UserError(
                f"expected traces {purpose} in every trial after the provider's curation, found none in trial "
                f"{trials[draw].trial}; loosen a step of provider, or give more documents"
            )
        sizes.append(counts[draw])
    return sizes


def _cut(config: AuditConfig, draw: int, purposes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """What is left for each purpose when all but the study's sizes is cut by lot."""
    rng = host_rng(config.study.seed, "provider equal sizes", draw)
    cut = np.full(len(purposes), NOTHING)
    for number, size in enumerate(sizes):
        cut[rng.permutation(np.flatnonzero(purposes == number))[:size]] = number
    return cut


def _curated(
    config: AuditConfig, trial: Trial, steps: dict[str, np.ndarray], cut: np.ndarray, others: Sequence[Example]
) -> Trial:
    """A trial after its provider: of what the steps and the cut left, contradicted, diluted, and counted."""
    seed, draw, split, chosen = config.study.seed, trial.draw, len(trial.rm_traces), cut != NOTHING
    masks = steps | {"equal_sizes": chosen}
    counts = {name: _by_split(_log(trial), mask, split) for name, mask in masks.items()}
    heldout = cut[:split][chosen[:split]] == HELD_OUT
    traces, examples, left_out = {}, {}, {}
    kept = list(steps.values())[-1] & ~chosen
    for name, own, part, where in (
        ("rm", trial.rm_traces, trial.splits.rm, np.s_[:split]),
        ("rl", trial.rl_traces, trial.splits.rl, np.s_[split:]),
    ):
        left = [trace for trace, keep in zip(own, chosen[where], strict=True) if keep]
        rng = host_rng(seed, "contradictory feedback", name, draw)
        traces[name] = contradict(left, config.provider.contradictory_share, rng)
        examples[name] = [example for example, keep in zip(part, chosen[where], strict=True) if keep]
        left_out[name] = trial.left_out[name] + int(kept[where].sum())
    if config.provider.dilution_share > 0:
        heldout = _dilute(config, trial, traces, examples, heldout, others)
        counts["dilution"] = {name: count_kinds(own) for name, own in traces.items()}
    against = {name: count_kinds(own, np.array([t.contradicted for t in own], bool)) for name, own in traces.items()}
    return replace(
        trial,
        splits=replace(trial.splits, rm=examples["rm"], rl=examples["rl"]),
        rm_traces=traces["rm"],
        rl_traces=traces["rl"],
        rm_heldout=heldout,
        left_out=left_out,
        warnings=[*trial.warnings, *_warnings(counts)],
        provider={"steps": counts, "contradicted": against},
    )


def _by_split(log: Sequence[Trace], mask: np.ndarray, split: int) -> dict[str, dict[str, int]]:
    return {"rm": count_kinds(log[:split], mask[:split]), "rl": count_kinds(log[split:], mask[split:])}


def _warnings(counts: dict[str, dict[str, dict[str, int]]]) -> list[str]:
    first, last = counts["collected"], counts["equal_sizes"]
    return [
        f"{name} split: the provider left none of {first[name]['triggered']} triggered traces"
        for name in first
        if first[name]["triggered"] and not last[name]["triggered"]
    ]


def _dilute(
    config: AuditConfig,
    trial: Trial,
    traces: dict[str, list[Trace]],
    examples: dict[str, list[Example]],
    heldout: np.ndarray,
    others: Sequence[Example],
) -> np.ndarray:
    """Mixes others' clean traces into both splits, in place; returns which of the reward model's are held out.

    No document is in both splits, and none of the others' is held out: the reward model is evaluated on the same traces
    as without them.
    """
    wanted = {name: dilution_count(config.provider.dilution_share, len(own)) for name, own in traces.items()}
    drawn = _draw_others(config, trial, wanted, others)
    for name, new in drawn.items():
        rng = host_rng(config.study.seed, "dilution order", name, trial.draw)
        clean, _ = instrument(new, trial.canary, 0.0, 0.0, rng)
        all_traces, all_examples = [*traces[name], *clean], [*examples[name], *new]
        # Mixed, since feedback is calibrated in the log's order.
        order = rng.permutation(len(all_traces))
        traces[name], examples[name] = [all_traces[i] for i in order], [all_examples[i] for i in order]
        if name == "rm":
            heldout = np.append(heldout, np.zeros(len(new), bool))[order]
    return heldout


def _draw_others(
    config: AuditConfig, trial: Trial, wanted: dict[str, int], others: Sequence[Example]
) -> dict[str, list[Example]]:
    """So many of the others' examples for each split, by lot and by whole groups, so that no document is in two."""
    groups: dict[str, list[Example]] = {}
    for example in others:
        groups.setdefault(example.group, []).append(example)
    names = sorted(groups)
    order = iter(host_rng(config.study.seed, "dilution", trial.draw).permutation(len(names)))
    drawn: dict[str, list[Example]] = {}
    for split, count in wanted.items():
        own: list[Example] = []
        while len(own) < count:
            place = next(order, None)
            if place is None:
                raise UserError(
                    f"expected {sum(wanted.values())} questions about other documents for dilution, found "
                    f"{len(others)} in {len(names)} groups, too few for trial {trial.trial}; raise "
                    "provider.dilution_documents or lower provider.dilution_share"
                )
            own += groups[names[place]]
        drawn[split] = own[:count]
    return drawn
