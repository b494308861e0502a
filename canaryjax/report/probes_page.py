"""`report.html` of a probe audit: made of `report.json` alone, one file that opens anywhere, every text escaped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from canaryjax.report import probes_controls, probes_tables
from canaryjax.report.figures import Plot, write_plots
from canaryjax.report.probes_figures import draw_probes
from canaryjax.report.schema import read_schema
from canaryjax.report.tables import Table
from canaryjax.report.template import fill_template
from canaryjax.report.text import MISSING, pick
from canaryjax.runlog import replacing
from canaryjax.runlog.progress import duration

SCHEMA = "canaryjax.probes/1"
MOST_FAILURES, MOST_LEFT_OUT = 20, 6  # rows and columns that are shown; report.json holds all


def read_probes(path: str | Path) -> dict[str, Any]:
    """Reads the `report.json` of a probe audit.

    Raises:
      UserError: None there, a malformed file, or another schema.
    """
    return read_schema(Path(path) / "report.json", SCHEMA, "give a run of `canaryjax probes`")


def read_beside(path: str | Path) -> dict[str, Any]:
    """Reads another model's `report.json`, of which a page shows the tuned cells.

    Raises:
      UserError: As `read_probes`, or cells that lack something of what is shown.
    """
    report = read_probes(path)
    try:
        probes_tables.models([report])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"expected the cells of a probe audit in {Path(path) / 'report.json'}, found {type(error).__name__}: "
            f"{error}; restore the file, or leave it out"
        ) from error
    return report


def write_probes_page(path: str | Path, beside: Sequence[str | Path] = ()) -> Path:
    """Writes `report.html` and `figures/*.png` beside the `report.json` of a probe audit.

    Args:
      path: The run directory.
      beside: Run directories of other models, whose tuned cells are shown with its own.

    Returns:
      The path of the page.

    Raises:
      UserError: No readable report there.
    """
    folder = Path(path)
    report = read_probes(folder)
    others = [read_beside(other) for other in beside]
    plots = draw_probes(report)
    write_plots(folder, plots)
    page = folder / "report.html"
    with replacing(page) as handle:
        handle.write(_page(report, others, plots).encode("utf-8", "backslashreplace"))
    return page


def facts(report: Mapping[str, Any]) -> list[str]:
    """What was audited, in sentences."""
    model, manifest, tokens = report["model"], report["manifest"], report["tokens"]
    if model is None:
        said = ["The scores come from a file; which model and which training they are of is whoever made it's to say."]
    else:
        said = [f"{model['name']} ({model['family']}, {model['parameters']:,} parameters, {model['dtype']})."]
    sizes = tokens["target_tokens"]
    length = f"{sizes['min']}" if sizes["min"] == sizes["max"] else f"{sizes['min']} to {sizes['max']}"
    told = "" if manifest is None else f", pinned as {manifest['sha256'][:12]} ({manifest['state']})"
    said.append(
        f"{tokens['canaries']} canaries{told}; the probe is the mean NLL of the first {tokens['window']} of "
        f"{length} target tokens. Changes are to the baseline of the same regime, in nats a token."
    )
    said.append(
        "NLL is -log p, in nats, of a token given all before it. "
        + (
            "Cells are named by the file."
            if model is None
            else "A cell is named by how the canaries were planted, what the model was tuned on after that, and the "
            "optimiser's updates: regime/source/updates. /noise is a random update of the tuned one's norm in its "
            "place, /reexposed a tuning with the canaries among its rows; what only names a regime is its baseline."
        )
    )
    return said


def ran(report: Mapping[str, Any]) -> Table:
    """When, from which config and code, and on what."""
    spent = pick(report, "timings.seconds")
    rows = {
        "last call, from (UTC)": pick(report, "started"),
        "to (UTC)": pick(report, "finished"),
        "time of all calls": None if spent is None else duration(spent),
        "config, by hash": str(pick(report, "config_hash", MISSING))[:12],
        "code, by commit": str(pick(report, "environment.git.commit", MISSING))[:12]
        + (", with changes" if pick(report, "environment.git.modified") else ""),
        "device": pick(report, "environment.device.kind"),
        "python, jax": f"{pick(report, 'environment.python', MISSING)}, "
        f"{pick(report, 'environment.versions.jax', MISSING)}",
    }
    for one in pick(report, "tuning.sources") or ():
        seen = ", ".join(f"{steps} updates are {value:.2g} epochs" for steps, value in one["epochs"].items())
        rows[f"rows of {one['source']}"] = f"{one['rows']:,} ({seen})"
    return Table([(name, str(value or MISSING)) for name, value in rows.items()], kind="pairs", numeric=False)


def _page(report: Mapping[str, Any], others: Sequence[Mapping[str, Any]], plots: Mapping[str, Plot]) -> str:
    tuned = [cell["name"] for cell in report["cells"] if cell["kind"] == "sft"]
    failing = probes_controls.failing(report)
    return fill_template(
        "probes.html",
        plots,
        title=report.get("name") or "probes",
        facts=facts(report),
        reading=report["reading"],
        warnings=report["warnings"],
        limits=report["limitations"],
        verdicts=probes_tables.verdicts(report),
        rules=probes_tables.rules(report),
        models=probes_tables.models([report, *others]) if others else None,
        spans=probes_tables.spans(report),
        recall=probes_tables.recall(report),
        levels=probes_tables.levels(report),
        all_cells=probes_tables.all_cells(report),
        parts=probes_tables.decomposition(report),
        sweep=probes_tables.sweep(report),
        selection=probes_controls.selection(report),
        cases=probes_controls.cases(report),
        accounting=probes_controls.accounting(report),
        merged=probes_controls.merged(report),
        merged_dtype=None if report["merged"] is None else report["merged"]["dtype"],
        failures=probes_controls.failures(report, MOST_FAILURES),
        failing=len(failing),
        most=MOST_FAILURES,
        decoys=probes_controls.decoys(report),
        left_out=probes_controls.left_out(report, tuned[:MOST_LEFT_OUT]),
        most_left_out=MOST_LEFT_OUT,
        columns_cut=len(tuned) > MOST_LEFT_OUT,
        without_interval=probes_tables.without_interval(report),
        screens=probes_controls.screens(report),
        extremes=probes_controls.extremes(report),
        ran=ran(report),
        level=_level(report),
        footer=f"Run {report.get('run') or 'not named'}, schema {report.get('schema')}.",
    )


def _level(report: Mapping[str, Any]) -> str:
    levels = {cell["delta"]["window"]["nested"]["level"] for cell in report["cells"] if cell["delta"] is not None}
    levels |= {one["rate"]["level"] for cell in report["cells"] for one in cell["hits"] or ()}
    return f"{100 * levels.pop():g} %" if levels else "no"
