"""All that was read of an audit, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from canaryjax.probes.records import Canary, Cell, Reading, TargetTokens


@dataclass(frozen=True, eq=False)
class Read:
    """What was read of an audit, by cell.

    Attributes:
      canaries, tokens: In one order.
      cells: In their order.
      by_cell: Readings of each cell, by name, in the order of seeds.
    """

    canaries: Sequence[Canary]
    tokens: Sequence[TargetTokens]
    cells: Sequence[Cell]
    by_cell: dict[str, list[Reading]]

    def baseline(self, cell: Cell, seed: int) -> Reading:
        """What a cell's model of a seed is held against: the baseline of that seed, or the one that all share."""
        own = self.by_cell[cell.baseline or cell.name]
        return next((one for one in own if one.seed == seed), own[0])
