"""What goes on the site: the sentences of the published positions, for the site's build alone."""

import json
from collections import Counter
from pathlib import Path

from canaryjax.detector.design import Part
from canaryjax.detector.generation import Generated
from canaryjax.detector.manifest import Manifest
from canaryjax.detector.new_file import create_file
from canaryjax.detector.sentence import render
from canaryjax.detector.spec import format_id

PLACES = {
    None: "on pages of the site",
    "linked": "on pages that other pages link to",
    "sitemap": "on pages that only the sitemap names",
    "honeypot": "on pages that robots.txt forbids and only an invisible link leads to",
}


def write_sentences(path: Path, site: Generated) -> int:
    """Writes the sentences to publish, one JSON object a line, to a new file that its owner alone may read.

    It is the one file with planted text that this program makes, and only where a user names it. Negatives are not
    in it.

    Args:
      path: Must not be there yet. A line's keys: `id` (12 hex digits), `tier`, `rung` (pages that it is to stand on),
        `cohort` (None but for tier cohort), `sentence`.
      site: As `generate_site` or `read_generated` returns it.

    Returns:
      The number of sentences.
    """
    lines = [
        {
            "id": format_id(entry.id),
            "tier": entry.part.tier,
            "rung": entry.part.occurrences,
            "cohort": entry.part.cohort,
            "sentence": render(entry.id, site.vocabulary, site.shapes),
        }
        for entry in site.manifest.entries
        if entry.part.population == "canary"
    ]
    data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    create_file(path, data.encode(), 0o600)
    return len(lines)


def placement(manifest: Manifest) -> list[str]:
    """What to publish where, one line a group, without text or ids; the last one is of what stays unpublished."""
    groups = Counter(entry.part for entry in manifest.entries)
    published = sorted((part for part in groups if part.population == "canary"), key=_place)
    lines = [
        f"{groups[part]} {part.tier} sentences, each on {_pages(part.occurrences)}: {PLACES[part.cohort]}"
        for part in published
    ]
    negatives = sum(count for part, count in groups.items() if part.population == "negative")
    return [*lines, f"{negatives} negatives: never publish them, anywhere"]


def _place(part: Part) -> tuple[int, int, int]:
    """Where a group stands in the list: site, cohorts, then the ladder from its top rung down."""
    return ("site", "cohort", "ladder").index(str(part.tier)), list(PLACES).index(part.cohort), -part.occurrences


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"
