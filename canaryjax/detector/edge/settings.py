"""What an edge needs beside its secret: word lists and shapes, whose crawlers there are, where a sentence goes."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from canaryjax.detector.edge.crawler import read_crawlers
from canaryjax.detector.shapes import Shapes, read_shapes
from canaryjax.detector.vocabulary import SHAPES_FILE, Vocabulary, read_vocabulary
from canaryjax.errors import UserError

MARKER = "<!--edition-->"
DAY = 86_400  # seconds
LONGEST_WINDOW = 36_600 * DAY
HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")  # in lower case


@dataclass(frozen=True, repr=False)
class EdgeSettings:
    """Settings of the edge, the same for the Python middleware and the JavaScript worker.

    Attributes:
      vocabulary, shapes: The site's.
      agents: Part of a user agent, and the vendor whose crawler it claims to be; the first that stands in it counts.
      marker: Comment of the site's pages that the sentence takes the place of, ASCII.
      window_seconds: Length of a time window; a visitor that claims no vendor gets one sentence a page and window.
      ip_header: Header, in lower case, in which whatever stands before the edge puts the visitor's address; None where
        nothing does. Visitors can send it too: name one only if it is always overwritten.
    """

    vocabulary: Vocabulary
    shapes: Shapes
    agents: tuple[tuple[str, str], ...] = ()
    marker: str = MARKER
    window_seconds: int = DAY
    ip_header: str | None = None

    def __post_init__(self) -> None:
        if not self.marker.strip() or not self.marker.isascii():
            raise UserError(f"expected a marker in ASCII, found {self.marker!r}; write a comment such as {MARKER}")
        if not 1 <= self.window_seconds <= LONGEST_WINDOW:  # a larger number is none that JavaScript's dates can hold
            raise UserError(
                f"expected a window of 1 to {LONGEST_WINDOW} seconds, found {self.window_seconds}; correct it"
            )
        if self.ip_header is not None and not HEADER.fullmatch(self.ip_header):  # JavaScript fails on any other
            raise UserError(f"expected the name of a header, found {self.ip_header!r}; write one such as x-real-ip")

    def __repr__(self) -> str:
        return "EdgeSettings(...)"


def read_edge_settings(
    site: str | Path, marker: str = MARKER, window_seconds: int = DAY, ip_header: str | None = None
) -> EdgeSettings:
    """Settings from a site's folder: word lists, shapes.yaml, and crawlers.yaml where there is one.

    Other arguments as `EdgeSettings`. Raises UserError as the readers of these files do.
    """
    folder = Path(site)
    crawlers = read_crawlers(folder / "crawlers.yaml") if os.path.lexists(folder / "crawlers.yaml") else ()
    agents = tuple((agent, crawler.vendor) for crawler in crawlers for agent in crawler.agents)
    header = None if ip_header is None else ip_header.lower()
    vocabulary, shapes = read_vocabulary(folder), read_shapes(folder / SHAPES_FILE)
    return EdgeSettings(vocabulary, shapes, agents, marker, window_seconds, header)


def edge_json(settings: EdgeSettings) -> str:
    """The settings as the JavaScript worker takes them in `env.CANARY_SITE`; as secret as the word lists are."""
    words = settings.vocabulary
    return json.dumps(
        {
            "version": 1,
            "given": words.given,
            "surname": words.surname,
            "place": words.place,
            "event": words.event,
            "archive": words.archive,
            "first_year": words.first_year,
            "years": words.years,
            "openings": settings.shapes.openings,
            "sentences": settings.shapes.sentences,
            "agents": settings.agents,
            "marker": settings.marker,
            "window_seconds": settings.window_seconds,
            "ip_header": settings.ip_header,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
