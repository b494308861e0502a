"""`canaryjax detector edge`: what an edge worker needs, in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from canaryjax.errors import UserError

MODULE, SETTINGS = "canary.js", "site.json"


def edge(
    site: Annotated[Path, typer.Argument(help="The site's folder: word lists, shapes, crawlers.yaml.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the worker's files; secret.")],
    marker: Annotated[
        str | None, typer.Option(help="Comment of the pages that the sentence takes the place of.")
    ] = None,
    window_seconds: Annotated[
        int | None, typer.Option(min=1, help="Length of a time window; a day unless given.")
    ] = None,
    ip_header: Annotated[
        str | None, typer.Option(help="Header in which the edge puts the visitor's address, if it always does.")
    ] = None,
) -> None:
    """Writes the JavaScript module that stamps pages per request, and its settings, for an edge worker."""
    from canaryjax.detector.edge import settings as module
    from canaryjax.detector.new_file import create_file

    settings = module.read_edge_settings(
        site, module.MARKER if marker is None else marker, window_seconds or module.DAY, ip_header
    )
    try:
        out.mkdir(mode=0o700)
    except OSError as error:
        raise UserError(f"expected a new folder {out}, found: {error.strerror}; give another --out") from None
    create_file(out / MODULE, Path(module.__file__).with_name(MODULE).read_bytes(), 0o600)
    create_file(out / SETTINGS, module.edge_json(settings).encode(), 0o600)
    print(f"wrote {out / MODULE} and {out / SETTINGS}, which holds the word lists and stays secret")
    print(f"put the text of {SETTINGS} in CANARY_SITE and that of the file edge_secret in CANARY_EDGE_SECRET")
    vendors = len({vendor for _, vendor in settings.agents})
    if vendors:
        print(f"crawlers.yaml names crawlers of {vendors} vendor{'s' if vendors > 1 else ''}")
    else:
        print(f"no crawlers.yaml in {site}: no visitor is told apart as a vendor's crawler")
