"""What an audit is about to do, counted before anything is loaded or trained."""

from collections import Counter
from dataclasses import dataclass

from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.matrix import is_merged, make_cells, regime_steps, seeds_of
from canaryjax.probes.records import DECOYS
from canaryjax.probes.training import planting_updates, updates_per_epoch


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
    """

    cells: dict[str, int]
    models: dict[str, int]
    updates: int
    epochs: dict[int, float]
    passes: int
    decoys: int
    outputs: int


def plan_audit(config: ProbesConfig) -> Plan:
    """Counts what `run_audit` does with a config."""
    cells, count = make_cells(config), config.canaries.count
    models: Counter[str] = Counter()
    for cell in cells:
        models[cell.kind] += len(seeds_of(config, cell))
    total, seeds = sum(models.values()), len(config.tuning.seeds)
    trained = [cell for cell in cells if cell.kind in ("sft", "reexposed")]
    updates = sum(planting_updates(config, regime) for regime in config.injection.regimes)
    updates += sum(cell.steps for cell in trained) * seeds
    steps = sorted({steps for regime in config.injection.regimes for steps in regime_steps(config, regime)})
    merged = sum(len(seeds_of(config, cell)) for cell in cells if is_merged(config, cell))
    drawn = {"shuffled": config.reading.shuffled, "wrong": config.reading.decoys, "format": 1}
    return Plan(
        cells=dict(Counter(str(cell.kind) for cell in cells)),
        models=dict(models),
        updates=updates,
        epochs={number: number / updates_per_epoch(config, config.tuning.examples) for number in steps},
        passes=(total * (1 + config.reading.second_pass) + merged) * count,
        decoys=total * count * sum(drawn[kind] for kind in DECOYS),
        outputs=total * count * (1 + config.reading.samples),
    )
