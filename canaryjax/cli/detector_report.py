"""`canaryjax detector report`: the page, the figures and the hits of a finished run, from its report.json alone."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory of `detector probe`.")],
) -> None:
    """Writes report.html, figures/*.png and hits.json of a detector run, and prints its tables by tier."""
    from rich.console import Console

    from canaryjax.cli.printable import all_printable
    from canaryjax.report.detector_page import read_detector, render_detector
    from canaryjax.report.detector_terminal import detector_summary

    page = render_detector(directory)
    console = Console()
    console.print(detector_summary(all_printable(read_detector(directory))))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Hits: {page.with_name('hits.json')}", soft_wrap=True, highlight=False, markup=False)
