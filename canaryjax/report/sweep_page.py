"""`sweep.html`: one file over all cells of a sweep, made of `sweep.json` alone, with every text escaped."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from canaryjax.report.figures import styled, to_png
from canaryjax.report.page import KIND_NAMES
from canaryjax.report.panel_section import panel_section
from canaryjax.report.paper_page import UNSAID, paper_parts
from canaryjax.report.run import ARMS
from canaryjax.report.schema import read_schema
from canaryjax.report.style import GREY, INK
from canaryjax.report.sweep_utility import utility_section
from canaryjax.report.template import fill_template
from canaryjax.report.text import METHODS, MISSING, brackets, label, number, percent, pick
from canaryjax.runlog import replacing

SCHEMA = "canaryjax.sweep/1"
HEAD = (
    *("cell", "status", "AUROC", "above threshold", "mean score (nats)", "reward-model bias", "exact match"),
    "warnings",
)


@dataclass(frozen=True)
class Row:
    """A cell as the page shows it; `cells` are texts of one or two lines, the second for the violating arm."""

    name: str
    link: str | None
    cells: Sequence[Sequence[str]]


def render_sweep(path: str | Path) -> Path:
    """Writes `sweep.html` of a sweep's directory.

    Args:
      path: The directory; `sweep.json` is needed, whatever of its cells is done.

    Returns:
      The path of the page.

    Raises:
      UserError: No readable `sweep.json` there.
    """
    folder = Path(path)
    sweep = read_schema(folder / "sweep.json", SCHEMA, "give a sweep")
    page = folder / "sweep.html"
    with replacing(page) as handle:
        handle.write(_page(sweep).encode("utf-8", "backslashreplace"))
    return page


def sweep_rows(sweep: Mapping[str, Any]) -> list[Row]:
    """The cells of a `sweep.json` under `HEAD`, in its order."""
    return [_row(cell) for cell in sweep["cells"]]


def _page(sweep: Mapping[str, Any]) -> str:
    cells = sweep["cells"]
    picture = draw_areas(sweep)
    return fill_template(
        "sweep.html",
        {},
        title=sweep["name"],
        description=sweep["description"],
        counts=counts_words(sweep),
        head=HEAD,
        rows=sweep_rows(sweep),
        caption=_caption(cells),
        picture=base64.b64encode(picture).decode() if picture else None,
        paper=paper_parts(sweep),
        unsaid=UNSAID,
        utility=utility_section(sweep),
        failed=[cell for cell in cells if cell["status"] == "failed"],
        warned=[cell for cell in cells if pick(cell, "found.warnings")],
        notes=_notes(sweep),
        panels=panel_section(sweep),
        design=yaml.safe_dump(
            {key: sweep[key] for key in ("common", "design", "varied", "seeds")}, sort_keys=False, allow_unicode=True
        ),
        cells=cells,
    )


def counts_words(sweep: Mapping[str, Any]) -> str:
    """How many cells are done, failed and left.

    >>> counts_words({"counts": {"done": 3, "failed": 1, "not run": 0}})
    '3 of 4 cells are done, 1 failed.'
    """
    counts = sweep["counts"]
    parts = [f"{counts['done']} of {sum(counts.values())} cells are done"]
    parts += [f"{counts['failed']} failed"] if counts["failed"] else []
    parts += [f"{counts['not run']} not run"] if counts["not run"] else []
    return ", ".join(parts) + "."


def _row(cell: Mapping[str, Any]) -> Row:
    found = cell["found"]
    if found is None:
        status = cell["status"]
        if cell["finished_policies"]:
            status += f" ({cell['finished_policies']} of {cell['policies']} policies)"
        why = [cell["error"]] if cell["error"] else []
        return Row(cell["name"], None, [[status, *why], *[[""]] * (len(HEAD) - 2)])
    tpr = found["tpr"] or {}
    drawn = tpr.get("threshold") is not None
    cells = [
        [cell["status"], KIND_NAMES.get(pick(found, "verdict.kind"), "")],
        [number(found["auroc"], 2), brackets(found["auroc_interval"])],
        [f"{tpr['count']} of {tpr['n']}", brackets(tpr.get("interval"))] if drawn else [MISSING],
        _both(found, "arms", "mean_score"),
        _both(found, "arms", "rm_bias"),
        [
            *(percent(pick(found, f"utility.{arm}.exact_match"), 1) for arm in ARMS),
            f"base {percent(pick(found, 'utility.base.exact_match'), 1)}",
        ],
        [str(len(found["warnings"]))],
    ]
    return Row(cell["name"], f"{cell['directory']}/report.html", [[text for text in own if text] for own in cells])


def _both(found: Mapping[str, Any], section: str, name: str) -> list[str]:
    return [
        f"{number(pick(found, f'{section}.{arm}.{name}'))} "
        f"{brackets(pick(found, f'{section}.{arm}.{name}_interval'), 3)}".strip()
        for arm in ARMS
    ]


def _caption(cells: Sequence[Mapping[str, Any]]) -> str:
    """What the table's brackets are: levels and methods over all cells."""
    done = [cell["found"] for cell in cells if cell["found"]]
    methods = {pick(found, "auroc_interval.method") for found in done} - {None}
    levels = {pick(found, "auroc_interval.level") for found in done} - {None}
    primary = sorted({label(pick(found, "primary", "not recorded")) for found in done})
    named = ", ".join(sorted(METHODS.get(method, method) for method in methods)) or "no method"
    text = "Of two lines for the arms the first is compliant, the second violating. "
    if not done:
        return text
    return text + (
        f"Primary score: {'; '.join(primary)}. Brackets: AUROC {', '.join(percent(x) for x in sorted(levels))} "
        f"({named}); share above the threshold, Clopper-Pearson given the threshold; means 95 %, Student t. "
        "The unit is the policy."
    )


def _notes(sweep: Mapping[str, Any]) -> list[str]:
    """What a reader of several cells must know that one report need not say."""
    done = sweep["counts"]["done"]
    notes = [
        f"Intervals and verdicts are each cell's own: nothing is corrected for there being {done}. The largest of many "
        "differences is larger than it would be alone.",
        "This is statistical evidence of influence, not proof of misuse for any individual document.",
    ]
    seeds = {cell["seed"] for cell in sweep["cells"]}
    if len(seeds) < len(sweep["cells"]):
        notes.insert(
            1,
            "Cells of one seed are not independent samples: where no key of data varies, trial k has the same "
            "documents in the same splits, and the same arm, in each of them. A test between cells must pair trials, "
            "or the sweep give each cell its own seed (seeds: own).",
        )
    return notes


def draw_areas(sweep: Mapping[str, Any]) -> bytes | None:
    """PNG of every cell's AUROC with its interval, top to bottom; None where no cell has one."""
    found = [(cell["name"], cell["found"]) for cell in sweep["cells"] if pick(cell, "found.auroc") is not None]
    if not found:
        return None
    with styled((7.0, 0.9 + 0.26 * len(found))) as figure:
        axes = figure.subplots()
        axes.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
        for place, (_, values) in enumerate(found):
            bounds = values["auroc_interval"] or {}
            if bounds.get("low") is not None:
                axes.hlines(place, bounds["low"], bounds["high"], color=INK, linewidth=1.4)
            axes.plot(values["auroc"], place, "o", color=INK, markersize=5)
        # A dollar sign in a name would begin a formula.
        axes.set_yticks(range(len(found)), [name.replace("$", r"\$") for name, _ in found])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xlabel("AUROC with its interval; the dotted line is chance")
        axes.grid(axis="y", visible=False)
        return to_png(figure)
