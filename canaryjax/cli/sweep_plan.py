"""`canaryjax sweep --plan`: what the cells of a sweep would run, one row each, and their sum."""

from collections.abc import Sequence
from typing import Any

from canaryjax.cli.plan import machine_obstacles, missing, model_shape, study_examples, study_material
from canaryjax.errors import UserError
from canaryjax.sweep.cells import Cell

UNITS = {"policies": "{:,}", "flops_total": "{:.3g}", "hours": "{:.3g}"}


def print_sweep_plan(name: str, cells: Sequence[Cell], device: str | None) -> None:
    """Prints policies, FLOPs and hours of every cell and of all together; needs no weights and no directory.

    Args:
      name: The sweep's.
      cells: All of its cells.
      device: Whose hours, None for the one that suits each cell's model.

    Raises:
      UserError: What would keep a cell from starting anywhere; a dose that plants nothing.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plans, obstacles = [], []
    for cell in cells:
        try:
            plan, odd = _plan(cell, device)
        except UserError as error:
            raise UserError(f"cell {cell.name}: {error}") from error
        plans.append(plan)
        obstacles += [text for text in odd if text not in obstacles]
    table = Table(title=Text(f"Plan of {name}"), title_justify="left", pad_edge=False)
    table.add_column("cell", overflow="fold")  # cut short, cells of long names could not be told apart
    for column in (*UNITS, "fits"):
        table.add_column(column.replace("_", " "), justify="right")
    rows = [(cell.name, plan) for cell, plan in zip(cells, plans, strict=True)]
    for title, plan in [*rows, (f"all {len(cells)} cells", total(plans))]:
        numbers = (text.format(plan[key]) for key, text in UNITS.items())
        table.add_row(Text(title), *numbers, "yes" if plan["fits"] else "no")
    console = Console()
    console.print(table)
    devices = ", ".join(sorted({plan["device"] for plan in plans}))
    console.print(f"Device: {devices}. Assumed: {plans[0]['assumed']}.", markup=False, highlight=False, soft_wrap=True)
    for text in obstacles:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def total(plans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sum over cells of what is counted; all fit where each does.

    >>> total([{"policies": 2, "flops_total": 3.0, "hours": 0.5, "fits": True}] * 2)
    {'policies': 4, 'flops_total': 6.0, 'hours': 1.0, 'fits': True}
    """
    return {key: sum(plan[key] for plan in plans) for key in UNITS} | {"fits": all(plan["fits"] for plan in plans)}


def _plan(cell: Cell, device: str | None) -> tuple[dict[str, Any], list[str]]:
    """A cell's plan, and what is missing here or keeps it from starting on this machine."""
    from canaryjax.audit.plan import plan_study
    from canaryjax.sweep.check import check_dose

    config, loaded = cell.config, study_examples(cell.config)
    if loaded is not None:
        check_dose(config, loaded[1])
    plan = plan_study(config, model_shape(config), study_material(config, loaded), device)
    odd = [f"On this machine it would not start: {text}" for text in machine_obstacles(config, loaded)]
    return plan, [f"Not here: {text}" for text in missing(config)] + odd
