"""`canaryjax probes --plan`: what a config would train and read, and for how long, as a table."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from canaryjax.cli.plan import flat, model_shape
from canaryjax.cli.printable import printable
from canaryjax.config.probes import ProbesConfig
from canaryjax.errors import UserError
from canaryjax.probes.plan import Plan, plan_audit, plan_hours
from canaryjax.report.probes_text import KINDS
from canaryjax.weights.checkpoint import model_location


def print_plan(config: ProbesConfig, device: str | None) -> None:
    """Prints counts and hours of a config; needs no weights and no run directory."""
    rows = [*_counts(config, plan_audit(config)), *_hours(config, device)]
    table = Table(title=f"Plan of {config.name}", show_header=False, title_justify="left", pad_edge=False)
    for label, value in rows:
        table.add_row(label, printable(value))
    console = Console()
    console.print(table, highlight=False, markup=False)
    for text in _missing(config):
        console.print(f"Not here: {text}", markup=False, highlight=False, soft_wrap=True)


def _counts(config: ProbesConfig, plan: Plan) -> list[tuple[str, str]]:
    cells = [
        (f"cells: {KINDS[kind]}", f"{count:,} ({plan.models[kind]:,} models)") for kind, count in plan.cells.items()
    ]
    epochs = ", ".join(f"{steps:,} updates are {value:.2g}" for steps, value in plan.epochs.items())
    return [
        ("model", f"{config.model.path} ({config.model.dtype})"),
        ("canaries", f"{config.canaries.count:,}"),
        *cells,
        ("models in all", f"{sum(plan.models.values()):,}"),
        ("optimiser updates", f"{plan.updates:,}, all models together"),
        ("epochs of tuning", f"{epochs}, of {config.tuning.examples:,} examples"),
        ("scoring passes", f"{plan.passes:,} of one canary each"),
        ("decoy spans", f"{plan.decoys:,}"),
        ("generated texts", f"{plan.outputs:,}"),
    ]


def _hours(config: ProbesConfig, device: str | None) -> list[tuple[str, str]]:
    try:
        shape = model_shape(config)
    except UserError as error:
        return [("hours", f"not known: {error}")]
    found = plan_hours(config, shape, device)
    flops = {part: value for part, value in found.flops.items() if value}
    counted = flat({"device": found.device, "flops": flops, "hours": found.hours})
    return [*counted, ("assumed", found.assumed)]


def _missing(config: ProbesConfig) -> list[str]:
    """What a run would need and is not there."""
    found = []
    if not model_location(config.model.path).exists():
        found.append(f"the model {config.model.path} (model.path)")
    return found + [
        f"the rows {source.path} of source {source.name} (tuning.sources); taken at tuning.max_length"
        for source in config.tuning.sources
        if source.path is not None and not Path(source.path).is_file()
    ]
