"""One trial before training: documents split, canary drawn, traces and pairs built; the arm is not known (BC-50)."""

from collections.abc import Sequence
from dataclasses import dataclass

from canaryjax.canaries.families import Canary, Placebo, draw_canary, draw_decoys, draw_placebos
from canaryjax.canaries.instrument import Trace, instrument
from canaryjax.canaries.pairs import EvalPair, PairCounts, PairSettings, build_eval_pairs
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.data.splits import Splits, split_documents
from canaryjax.data.tokens import TextTokenizer
from canaryjax.keys import host_rng


@dataclass(frozen=True, eq=False)
class Trial:
    """What is drawn for one trial.

    Attributes:
      trial: Its number.
      draw: Names its random streams (`Assignment.draw`).
      canary, decoys, placebos: Drawn fresh for the trial.
      splits: Documents for the reward model, the policy and the audit, disjoint.
      rm_traces, rl_traces: The service's log, instrumented, before any feedback.
      pairs, pair_counts: Held-out pairs, and how many were refused and why.
      warnings: To pass on.
    """

    trial: int
    draw: int
    canary: Canary
    decoys: list[Canary]
    placebos: list[Placebo]
    splits: Splits
    rm_traces: list[Trace]
    rl_traces: list[Trace]
    pairs: list[EvalPair]
    pair_counts: PairCounts
    warnings: list[str]


def build_trial(
    config: AuditConfig, trial: int, draw: int, examples: Sequence[Example], tokenizer: TextTokenizer
) -> Trial:
    """Draws and builds one trial; a fixed function of (config, draw, examples, tokenizer).

    Args:
      config: The study.
      trial: Its number, for the record only.
      draw: Names its random streams.
      examples: All documents with their questions.
      tokenizer: The base model's.

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
    placebos = draw_placebos(rng, evaluation.placebos_same_form, evaluation.placebos_other_form, canary)
    data = config.data
    fractions = (data.rm_share, 1.0 - data.rm_share - data.eval_share, data.eval_share)
    splits = split_documents(examples, seed, f"trial {draw}", fractions)
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
        trial, draw, canary, decoys, placebos, splits, traces["rm"], traces["rl"], pairs, counts, warnings
    )  # fmt: skip


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
