"""`canaryjax detector report`: the page, the figures and the hits of a finished run, from its report.json alone."""

import traceback
from pathlib import Path
from typing import Annotated

import typer

# What reading a report ends with where a value is missing or of another kind.
UNFIT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory of `detector probe`.")],
) -> None:
    """Writes report.html, figures/*.png and hits.json of a detector run, and prints its tables by tier."""
    from canaryjax.errors import UserError

    try:
        show(directory)
    except UserError:
        raise
    except UNFIT as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"expected {directory / 'report.json'} as `canaryjax detector probe` wrote it, found something of another "
            f"kind in it ({type(error).__name__} at {Path(place.filename).name}:{place.lineno}); restore it, or write "
            "it anew by detector probe --resume"
        ) from error


def show(directory: Path) -> None:
    """What the command does; an error says that a report which nobody edited was not as its reader expects it."""
    from rich.console import Console

    from canaryjax.cli.printable import all_printable
    from canaryjax.report.detector_page import read_detector, render_detector
    from canaryjax.report.detector_terminal import detector_summary

    page = render_detector(directory)
    console = Console()
    console.print(detector_summary(all_printable(read_detector(directory))))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Hits: {page.with_name('hits.json')}", soft_wrap=True, highlight=False, markup=False)
