"""A page from its template: one file that opens anywhere, every text escaped."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from canaryjax.report.figures import Plot

_HERE = Path(__file__).resolve().parent
# Control characters but for tab and line feed, and those that turn the direction of what follows: shown as escapes.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def fill_template(name: str, plots: Mapping[str, Plot], **values: Any) -> str:
    """A page of its own: style and pictures are in it.

    Args:
      name: The template's file here.
      plots: Figures by name, which the template has as `plots`.
      **values: What else it shows.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=_inert,
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    pictures = {
        plot_name: {"data": base64.b64encode(plot.png).decode(), "alt": plot.alt, "caption": plot.caption}
        for plot_name, plot in plots.items()
    }
    css = Markup((_HERE / "page.css").read_text("utf-8"))  # ours, so not to be escaped
    return environment.get_template(name).render(css=css, plots=pictures, **values)


def _inert(value: Any) -> Any:
    """A text from elsewhere, such as a model's output, without what steers a page or a terminal that shows it."""
    return _STEERING.sub(lambda match: repr(match[0])[1:-1], value) if type(value) is str else value
