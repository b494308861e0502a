"""What an audit is about to do, counted before anything is loaded or trained."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from canaryjax.audit.plan import ASSUMED_UTILISATION, Stage, device_for, parameter_count, stage_flops
from canaryjax.config.probes import ProbesConfig, SourceConfig
from canaryjax.keys import host_rng
from canaryjax.models.config import ModelConfig
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.matrix import is_merged, make_cells, regime_steps, seeds_of
from canaryjax.probes.records import DECOYS
from canaryjax.probes.source import draw_rows
from canaryjax.probes.training import planting_updates, updates_per_epoch

CANARY_BYTES, ROW_BYTES = 2, 3  # a token; digits of a secret are cut nearly one by one
TEMPLATE_TOKENS = 40  # of a chat template around a turn
LOOKED_AT = 200  # rows of a source, whose longest stands for all: a group is padded to its longest


@dataclass(frozen=True)
class Plan:
    """Counts of an audit.

    Attributes:
      cells, models: By kind of cell.
      updates: Of the optimiser, of all models.
      epochs: By steps of a tuning, times it sees each of its examples, were there as many as are asked for.
      passes: Forward passes over (model, canary): one each, one more for the second pass and for merged weights.
      decoys: Spans scored of decoys.
      outputs: Texts generated.
      planting, tuning: Of `updates`, those that plant and those that tune.
    """

    cells: dict[str, int]
    models: dict[str, int]
    updates: int
    epochs: dict[int, float]
    passes: int
    decoys: int
    outputs: int
    planting: int
    tuning: int


@dataclass(frozen=True)
class Hours:
    """What an audit costs on a device.

    Attributes:
      device: Its name.
      hours: Of computing; loading and compilation are not counted.
      flops: By part.
      assumed: What the estimate rests on.
    """

    device: str
    hours: float
    flops: dict[str, float]
    assumed: str


def plan_audit(config: ProbesConfig) -> Plan:
    """Counts what `run_audit` does with a config."""
    cells, count = make_cells(config), config.canaries.count
    models: Counter[str] = Counter()
    for cell in cells:
        models[cell.kind] += len(seeds_of(config, cell))
    total, seeds = sum(models.values()), len(config.tuning.seeds)
    trained = [cell for cell in cells if cell.kind in ("sft", "reexposed")]
    planting = sum(planting_updates(config, regime) for regime in config.injection.regimes)
    tuning = sum(cell.steps for cell in trained) * seeds
    steps = sorted({steps for regime in config.injection.regimes for steps in regime_steps(config, regime)})
    merged = sum(len(seeds_of(config, cell)) for cell in cells if is_merged(config, cell))
    drawn = {"shuffled": config.reading.shuffled, "wrong": config.reading.decoys, "format": 1}
    return Plan(
        cells=dict(Counter(str(cell.kind) for cell in cells)),
        models=dict(models),
        updates=planting + tuning,
        epochs={number: number / updates_per_epoch(config, config.tuning.examples) for number in steps},
        passes=(total * (1 + config.reading.second_pass) + merged) * count,
        decoys=total * count * sum(drawn[kind] for kind in DECOYS),
        outputs=total * count * (1 + config.reading.samples),
        planting=planting,
        tuning=tuning,
    )


def plan_hours(config: ProbesConfig, model: ModelConfig, device: str | None = None) -> Hours:
    """Estimates how long an audit computes, from text lengths and a model's shape; no tokenizer is read.

    Args:
      config: The audit.
      model: The base model's shape.
      device: A key of `canaryjax.audit.plan.DEVICES`; None takes one that fits the model's size.

    Raises:
      UserError: An unknown device; a source's file that is malformed, or rows that its templates cannot make.
    """
    name, limits = device_for(model, device)
    plan, canaries, chat = plan_audit(config), make_canaries(config.canaries), config.canaries.prompt_format == "chat"
    turns = [(canary.prompt, canary.target) for canary in canaries]
    prompt, target = _longest(turns, CANARY_BYTES, chat)
    row_prompt, answer = _longest_of_all(config, chat)
    planted, tuned = (
        updates * section.batch_size * section.grad_accumulation
        for updates, section in ((plan.planting, config.injection), (plan.tuning, config.tuning))
    )
    models, written = sum(plan.models.values()), target + config.reading.extra_tokens
    stages = {
        # A frozen base needs no weight gradients: the backward pass costs one forward.
        "planting": Stage(planted * (prompt + target), 2.0, planted * target, prompt + target),
        "tuning": Stage(tuned * (row_prompt + answer), 2.0, tuned * answer, row_prompt + answer),
        "scoring": Stage(plan.passes * (prompt + target), 1.0, plan.passes * target, prompt + target),
        "decoys": Stage(plan.decoys * (prompt + target), 1.0, plan.decoys * target, prompt + target),
        "outputs": Stage(plan.outputs * written, 1.0, plan.outputs * written, prompt + written),
    }
    flops = {part: stage_flops(stage, model) for part, stage in stages.items()}
    weights = parameter_count(model) * (2.0 if config.model.dtype == "bfloat16" else 4.0)
    reads = models * written * (2 if config.reading.samples else 1)  # greedy outputs, then all sampled ones together
    seconds = sum(flops.values()) / (limits.matmul * ASSUMED_UTILISATION) + reads * weights / limits.bandwidth
    assumed = (
        f"a turn of {prompt} and {target} tokens a canary and up to {row_prompt} and {answer} a row, by their length; "
        f"each decoy a turn; {ASSUMED_UTILISATION:.0%} of {limits.matmul:.3g} FLOP/s in products, of which a small "
        "model reaches far less; decoding bound by reading the weights; loading, compilation and memory not counted"
    )
    return Hours(name, seconds / 3600, flops, assumed)


def _longest(turns: Sequence[tuple[str, str]], size: int, chat: bool) -> tuple[int, int]:
    """Tokens of the longest prompt and of the longest answer, by their bytes."""
    prompt, answer = (max(math.ceil(len(turn[part].encode()) / size) for turn in turns) for part in (0, 1))
    return prompt + TEMPLATE_TOKENS * chat, answer


def _longest_of_all(config: ProbesConfig, chat: bool) -> tuple[int, int]:
    """The same over what is tuned on; a file that is not here is taken at its longest."""
    found = [_longest_row(source, config, chat) for source in config.tuning.sources]
    prompt = min(max(one[0] for one in found), config.tuning.max_length)
    return prompt, min(max(one[1] for one in found), config.tuning.max_length - prompt)


def _longest_row(source: SourceConfig, config: ProbesConfig, chat: bool) -> tuple[int, int]:
    if source.path is not None and not Path(source.path).is_file():
        return config.tuning.max_length // 2, config.tuning.max_length // 2
    rows = draw_rows(source, min(LOOKED_AT, config.tuning.examples), host_rng(0, "plan", source.name))
    return _longest([(row.prompt, row.response) for row in rows], ROW_BYTES, chat)
