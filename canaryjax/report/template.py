"""A page from its template: one file that opens anywhere, every text escaped."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from canaryjax.report.figures import Plot

_HERE = Path(__file__).resolve().parent


def fill_template(name: str, plots: Mapping[str, Plot], **values: Any) -> str:
    """A page of its own: style and pictures are in it.

    Args:
      name: The template's file here.
      plots: Figures by name, which the template has as `plots`.
      **values: What else it shows.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    pictures = {
        plot_name: {"data": base64.b64encode(plot.png).decode(), "alt": plot.alt, "caption": plot.caption}
        for plot_name, plot in plots.items()
    }
    css = Markup((_HERE / "page.css").read_text("utf-8"))  # ours, so not to be escaped
    return environment.get_template(name).render(css=css, plots=pictures, **values)
