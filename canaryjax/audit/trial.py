"""One trial before training: documents split, canary drawn, traces and pairs built; the arm is not known (BC-50)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from canaryjax.audit.assignment import assign_arms
from canaryjax.canaries.families import Canary, Placebo, draw_canary, draw_decoys, draw_placebos
from canaryjax.canaries.instrument import Trace, instrument
from canaryjax.canaries.pairs import EvalPair, PairCounts, PairSettings, build_eval_pairs
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.data.splits import Splits, split_documents
from canaryjax.data.tokens import TextTokenizer
from canaryjax.keys import host_rng


@dataclass(frozen=True)
class SplitSizes:
    """How many examples every policy of a study trains on.

    Attributes:
      rm_training, rm_heldout: Of the reward model's split, to train on and to evaluate it.
      rl: Prompts of the policy.
    """

    rm_training: int
    rm_heldout: int
    rl: int


@dataclass(frozen=True, eq=False)
class Trial:
    """What is drawn for one trial.

    Attributes:
      trial: Its number.
      draw: Names its random streams (`Assignment.draw`).
      canary, decoys, placebos: Drawn fresh for the trial.
      splits: Documents for the reward model, the policy and the audit, disjoint; the first two of the study's sizes.
      rm_traces, rl_traces: The service's log, instrumented, before any feedback.
      rm_heldout: bool `[rm_traces]`, kept for the reward model's evaluation.
      left_out: Examples of the `rm` and the `rl` split that the study's sizes have no room for.
      pairs, pair_counts: Held-out pairs, and how many were refused and why.
      warnings: To pass on.
      provider: What curation left, as counts for the record (`audit.curation`); None where there was none.
    """

    trial: int
    draw: int
    canary: Canary
    decoys: list[Canary]
    placebos: list[Placebo]
    splits: Splits
    rm_traces: list[Trace]
    rl_traces: list[Trace]
    rm_heldout: np.ndarray
    left_out: dict[str, int]
    pairs: list[EvalPair]
    pair_counts: PairCounts
    warnings: list[str]
    provider: dict[str, Any] | None = None


def build_trial(
    config: AuditConfig,
    trial: int,
    draw: int,
    examples: Sequence[Example],
    tokenizer: TextTokenizer,
    sizes: SplitSizes,
) -> Trial:
    """Draws and builds one trial; a fixed function of (config, draw, examples, tokenizer), the sizes being one too.

    Args:
      config: The study.
      trial: Its number, for the record only.
      draw: Names its random streams.
      examples: All documents with their questions.
      tokenizer: The base model's.
      sizes: The study's (`study_sizes`).

    Returns:
      The trial.

    Raises:
      UserError: Too few documents, a document that already holds the trigger, or no pair that fits.
    """
    seed, canary_config = config.study.seed, config.canary
    canary = trial_canary(config, draw, tokenizer)
    rng = host_rng(seed, "controls", draw)
    evaluation = config.evaluation
    decoys = draw_decoys(rng, evaluation.decoys, canary, tokenizer=tokenizer)
    placebos = draw_placebos(
        rng, evaluation.placebos_same_form, evaluation.placebos_other_form, canary, tokenizer=tokenizer
    )
    whole = _splits(config, draw, examples)
    heldout = heldout_groups(config, draw, whole.rm)
    splits = _thinned(whole, heldout, sizes, host_rng(seed, "equal splits", draw))
    traces: dict[str, list[Trace]] = {}
    warnings: list[str] = []
    for name, part in (("rm", splits.rm), ("rl", splits.rl)):
        traces[name], raised = instrument(
            part,
            canary,
            canary_config.rate,
            canary_config.contrast_rate,
            host_rng(seed, "instrument", name, draw),
            variant=canary_config.instruction,
            placement=canary_config.placement,
        )
        warnings += [f"{name} split: {text}" for text in raised]
    pairs, counts = build_eval_pairs(
        _held_out(splits.eval, evaluation.max_pairs, seed, draw),
        canary,
        tokenizer,
        pair_settings(config),
        decoys=decoys,
        placebos=placebos,
        control_pairs=evaluation.control_pairs,
        training_documents={e.document_id for e in (*splits.rm, *splits.rl)},
    )
    warnings += [f"{n} pairs refused ({reason}): {counts.examples[reason]}" for reason, n in counts.refused.items()]
    return Trial(
        trial=trial,
        draw=draw,
        canary=canary,
        decoys=decoys,
        placebos=placebos,
        splits=splits,
        rm_traces=traces["rm"],
        rl_traces=traces["rl"],
        rm_heldout=np.array([trace.group in heldout for trace in traces["rm"]]),
        left_out={"rm": len(whole.rm) - len(splits.rm), "rl": len(whole.rl) - len(splits.rl)},
        pairs=pairs,
        pair_counts=counts,
        warnings=warnings,
    )


def study_sizes(config: AuditConfig, examples: Sequence[Example]) -> SplitSizes:
    """The sizes of each part in the trial of the study that has fewest.

    Groups are split whole, so with groups of different sizes the splits differ between trials, while policies must have
    equally many rows to be trained in one program. Cut to the chunk's smallest, a policy's data and its learning rate
    would hang on who trains beside it; cut to the study's, on the study alone, whatever is left of it to run.
    """
    found = []
    for draw in sorted({assignment.draw for assignment in assign_arms(config.study)}):
        splits = _splits(config, draw, examples)
        groups = heldout_groups(config, draw, splits.rm)
        heldout = sum(example.group in groups for example in splits.rm)
        found.append((len(splits.rm) - heldout, heldout, len(splits.rl)))
    return SplitSizes(*map(min, zip(*found, strict=True)))


def _splits(config: AuditConfig, draw: int, examples: Sequence[Example]) -> Splits:
    data = config.data
    fractions = (data.rm_share, 1.0 - data.rm_share - data.eval_share, data.eval_share)
    return split_documents(examples, config.study.seed, f"trial {draw}", fractions)


def heldout_groups(config: AuditConfig, draw: int, examples: Sequence[Example]) -> set[str]:
    """Groups kept for the reward model's evaluation: whole ones, at least one and not all of several.

    By group and not by document: sections of one story, or spans of one meeting, would tell of each other.
    """
    names = sorted({example.group for example in examples})
    order = host_rng(config.study.seed, "reward held out", draw).permutation(len(names))
    share = config.reward_model.heldout_share
    count = min(max(1, round(share * len(names))), len(names) - 1) if share > 0 else 0
    return {names[i] for i in order[:count]}


def _thinned(splits: Splits, heldout: set[str], sizes: SplitSizes, rng: np.random.Generator) -> Splits:
    """The splits cut to the study's sizes by lot, in their order; canaries are planted later, so rates are kept."""

    def kept(examples: list[Example], of_heldout: bool, count: int) -> list[int]:
        where = [i for i, e in enumerate(examples) if (e.group in heldout) == of_heldout]
        return rng.permutation(where)[:count].tolist()

    rm = kept(splits.rm, False, sizes.rm_training) + kept(splits.rm, True, sizes.rm_heldout)
    rl = kept(splits.rl, False, sizes.rl)
    return replace(splits, rm=[splits.rm[i] for i in sorted(rm)], rl=[splits.rl[i] for i in sorted(rl)])


def trial_canary(config: AuditConfig, draw: int, tokenizer: TextTokenizer) -> Canary:
    """The canary of a draw, the same whoever asks."""
    return draw_canary(host_rng(config.study.seed, "canary", draw), config.canary.family, tokenizer=tokenizer)


def study_canaries(config: AuditConfig, tokenizer: TextTokenizer) -> list[Canary]:
    """The canaries of all draws of a study."""
    return [trial_canary(config, draw, tokenizer) for draw in range(config.study.compliant + config.study.violating)]


def pair_settings(config: AuditConfig) -> PairSettings:
    """How evaluation pairs are made under a config."""
    return PairSettings(
        variant=config.canary.instruction,
        placement=config.canary.placement,
        prompt_format=config.data.prompt_format,
        max_tokens=config.policy.max_prompt_length + config.policy.max_completion_length,
    )


def _held_out(examples: Sequence[Example], limit: int, seed: int, draw: int) -> list[Example]:
    """At most `limit` held-out examples, as many documents as possible before a second question of any."""
    order = host_rng(seed, "held out", draw).permutation(len(examples))
    seen: dict[str, int] = {}
    ranked = []
    for place, index in enumerate(order):
        document = examples[index].document_id
        seen[document] = seen.get(document, 0) + 1
        ranked.append((seen[document], place, index))
    return [examples[index] for _, _, index in sorted(ranked)[:limit]]
