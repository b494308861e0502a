"""The cells of an audit: regimes by sources by steps, and the controls beside them."""

from collections.abc import Iterable

from canaryjax.config.probes import CellConfig, ProbesConfig, RegimeConfig
from canaryjax.probes.records import Cell, Kind


def make_cells(config: ProbesConfig) -> tuple[Cell, ...]:
    """All cells, each regime's baseline first; what a cell is held against stands before it."""
    cells = []
    for regime in config.injection.regimes:
        cells.append(Cell(regime.name, regime.name, "none", "baseline", 0, None))
        for steps in regime_steps(config, regime):
            for source in config.tuning.sources:
                cells += _of_source(config, regime, source.name, steps)
    return tuple(cells)


def regime_steps(config: ProbesConfig, regime: RegimeConfig) -> tuple[int, ...]:
    """Updates of the tunings on top of a regime, rising."""
    return tuple(sorted(regime.steps or config.tuning.steps))


def is_merged(config: ProbesConfig, cell: Cell) -> bool:
    """Whether a cell's models are read once more with their adapters merged, or as the baseline of such a cell."""
    if cell.kind == "baseline":
        wanted = config.controls.merged
        return wanted == "all" if isinstance(wanted, str) else any(one.regime == cell.regime for one in wanted)
    return cell.kind == "sft" and _named(config.controls.merged, cell) and _is_longest(config, cell)


def seeds_of(config: ProbesConfig, cell: Cell) -> tuple[int, ...]:
    """Seeds of a cell's models; a baseline is one model, whatever is tuned on top."""
    return config.tuning.seeds[:1] if cell.kind == "baseline" else config.tuning.seeds


def counterpart(cells: Iterable[Cell], cell: Cell) -> Cell | None:
    """The tuned cell that a random update imitates or that a re-exposed cell repeats; None for other kinds.

    It has the same baseline, regime, source and steps; where several have, none is the one.
    """
    if cell.kind not in ("noise", "reexposed"):
        return None
    alike = [one for one in cells if one.kind == "sft" and _setting(one) == _setting(cell)]
    return alike[0] if len(alike) == 1 else None


def _setting(cell: Cell) -> tuple[str | None, str, str, int]:
    return cell.baseline, cell.regime, cell.source, cell.steps


def _of_source(config: ProbesConfig, regime: RegimeConfig, source: str, steps: int) -> list[Cell]:
    name = f"{regime.name}/{source}/{steps}"

    def cell(kind: Kind, suffix: str = "") -> Cell:
        return Cell(name + suffix, regime.name, source, kind, steps, regime.name)

    cells = [own := cell("sft")]
    if _named(config.controls.noise, own):
        cells.append(cell("noise", "/noise"))
    if _named(config.controls.reexposed, own) and _is_longest(config, own):
        cells.append(cell("reexposed", "/reexposed"))
    return cells


def _named(wanted: str | tuple[CellConfig, ...], cell: Cell) -> bool:
    if isinstance(wanted, str):
        return wanted == "all"
    return any(one.regime == cell.regime and one.source == cell.source for one in wanted)


def _is_longest(config: ProbesConfig, cell: Cell) -> bool:
    regime = next(regime for regime in config.injection.regimes if regime.name == cell.regime)
    return cell.steps == regime_steps(config, regime)[-1]
