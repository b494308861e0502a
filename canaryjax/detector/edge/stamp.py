"""How a page is stamped: which sentence a request gets, where it goes in the page, what the log says of it.

`canary.js` does the same step by step; the two agree on every byte. Pages are handled as bytes, and the sentence goes
in as ASCII with character references, so that a page in any encoding that extends ASCII, well-formed or not, keeps
every byte of its own.
"""

import html
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from canaryjax.detector.derive import edge_id
from canaryjax.detector.edge.settings import EdgeSettings
from canaryjax.detector.records import Tier
from canaryjax.detector.secret import Secret
from canaryjax.detector.sentence import render

HTML_TYPES = ("text/html", "application/xhtml+xml")
LARGEST_PAGE = 8 * 2**20  # bytes; a larger one is no page of prose, and would be held in memory
LONGEST_PATH, LONGEST_AGENT = 2048, 512  # characters, in the log
# What a stamped answer must not keep: it is made for one visitor, and is not what the site computed these for.
STALE_HEADERS = (
    "accept-ranges",
    "cache-control",
    "content-digest",
    "content-length",
    "content-md5",
    "digest",
    "etag",
    "expires",
    "last-modified",
    "repr-digest",
    "transfer-encoding",
)
BODY_END = re.compile(rb"</body[\t\n\f\r />]", re.IGNORECASE)
DOTS = {b".": 1, b"%2e": 1, b"..": 2, b".%2e": 2, b"%2e.": 2, b"%2e%2e": 2}  # segments that a browser resolves
PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
KEPT = PLAIN | frozenset(b"/!$&'()*+,;=:@")


@dataclass(frozen=True)
class Visit:
    """A request, as the edge knows it: time in milliseconds since 1970, canonical path, address, user agent."""

    time: int
    path: str
    ip: str | None
    user_agent: str | None


@dataclass(frozen=True)
class Edition:
    """Which sentence a request gets: the tier and label that its id, 48 bits, comes from; vendor is the one claimed."""

    vendor: str | None
    tier: Tier
    label: str
    id: int


def edition_for(visit: Visit, settings: EdgeSettings, secret: Secret) -> Edition:
    """The edition for a request: by vendor and page where it claims one, else by time window and page."""
    vendor = claimed_vendor(visit.user_agent, settings.agents)
    tier: Tier
    if vendor is not None:
        tier, label = "vendor", f"{vendor}|{visit.path}"
    else:
        window = settings.window_seconds * 1000
        start = datetime.fromtimestamp(visit.time // window * settings.window_seconds, UTC)
        tier, label = "window", f"{start:%Y-%m-%dT%H:%M:%SZ}|{visit.path}"
    return Edition(vendor, tier, label, edge_id(secret, tier, label))


def claimed_vendor(user_agent: str | None, agents: tuple[tuple[str, str], ...]) -> str | None:
    """The vendor of the first part that stands in a user agent, ASCII letters in any case; None where none does.

    >>> claimed_vendor("Mozilla/5.0 (compatible; examplebot/2)", (("ExampleBot", "example"),))
    'example'
    """
    agent = _ascii_lower(user_agent or "")
    return next((vendor for part, vendor in agents if _ascii_lower(part) in agent), None)


def _ascii_lower(text: str) -> str:
    # Not str.lower: JavaScript and Python differ in what other letters become.
    return re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def stamped(page: bytes, canary_id: int, settings: EdgeSettings) -> bytes | None:
    """A page with the sentence of an id in place of the first marker, or as a paragraph before the last `</body>`.

    None where the page has neither: a fragment, or in an encoding that does not extend ASCII.
    """
    sentence = escaped(render(canary_id, settings.vocabulary, settings.shapes))
    marker = settings.marker.encode()
    place = page.find(marker)
    if place >= 0:
        return page[:place] + sentence + page[place + len(marker) :]
    ends = [found.start() for found in BODY_END.finditer(page)]
    if not ends:
        return None
    return page[: ends[-1]] + b"<p>" + sentence + b"</p>\n" + page[ends[-1] :]


def escaped(text: str) -> bytes:
    """A text for HTML, as element content or attribute, in ASCII.

    >>> escaped('<b> & "\u00e9"')
    b'&lt;b&gt; &amp; &quot;&#233;&quot;'
    """
    return html.escape(text, quote=True).encode("ascii", "xmlcharrefreplace")


def log_row(visit: Visit, vendor: str | None, edition: Edition | None, status: int) -> dict[str, str | int | None]:
    """What the log says of a request; `edition` is None where its answer was not stamped. Holds no sentence."""
    seconds = datetime.fromtimestamp(visit.time // 1000, UTC)
    return {
        "time": f"{seconds:%Y-%m-%dT%H:%M:%S}.{visit.time % 1000:03d}Z",
        "path": visit.path,
        "ip": visit.ip,
        "user_agent": None if visit.user_agent is None else visit.user_agent[:LONGEST_AGENT],
        "vendor": vendor,
        "tier": edition.tier if edition else None,
        "label": edition.label if edition else None,
        "id": f"{edition.id:012x}" if edition else None,
        "page_status": status,
    }


def log_line(row: dict[str, str | int | None]) -> bytes:
    """A row as a line of the log, as `JSON.stringify` writes it."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def is_page(method: str, status: int, content_type: str, content_encoding: str) -> bool:
    """Whether an answer is a whole HTML page that can be stamped; the last two are its headers, or empty."""
    kind = content_type.split(";")[0].strip(" \t").lower()
    plain = content_encoding.strip(" \t").lower() in ("", "identity")
    return method == "GET" and status == 200 and kind in HTML_TYPES and plain


def canonical_path(raw: bytes) -> str:
    """A request's path in one spelling: dot segments resolved, percent-encoded as little as can be.

    Resolves as a browser and a JavaScript edge do before the request is made (WHATWG URL), then normalises escapes
    (RFC 3986, 6.2.2), so that one page has one label however it was asked for.
    Argument: the path as it came, without the query.

    >>> canonical_path(b"/a/./b/%2E%2e/caf\\xc3\\xa9%7e%2f")
    '/a/caf%C3%A9~%2F'
    """
    segments: list[bytes] = []
    parts = raw.replace(b"\\", b"/").removeprefix(b"/").split(b"/")
    for place, part in enumerate(parts):
        dots = DOTS.get(part.lower(), 0)
        if dots == 2 and segments:
            segments.pop()
        if not dots:
            segments.append(part)
        elif place == len(parts) - 1:
            segments.append(b"")
    path = b"/" + b"/".join(segments)
    return re.sub(rb"%[0-9A-Fa-f]{2}|[\x00-\xff]", _spelt, path)[:LONGEST_PATH].decode()


def _spelt(found: re.Match[bytes]) -> bytes:
    text = found[0]
    byte = int(text[1:], 16) if len(text) == 3 else text[0]
    kept = PLAIN if len(text) == 3 else KEPT  # %2F is no slash, but %7E is ~
    return bytes([byte]) if byte in kept else b"%%%02X" % byte
