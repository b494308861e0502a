"""`canaryjax keys`: every key of a config, its default, its range and what it means."""

import difflib
import textwrap
from typing import Annotated

import typer

from canaryjax.errors import UserError

WIDTH = 80


def keys(
    prefix: Annotated[
        str,
        typer.Argument(
            help="A section or a key, such as policy or canary.rate; all if left out. detector, probes: keys of those."
        ),
    ] = "",
) -> None:
    """Prints the keys that `audit` and its configs take: default, what is allowed, meaning."""
    from canaryjax.config.listing import config_keys, detector_keys, probes_keys

    top, _, rest = prefix.partition(".")
    others = {"detector": detector_keys, "probes": probes_keys}
    known, asked = (others[top](), rest.rstrip(".")) if top in others else (config_keys(), prefix.rstrip("."))
    found = [key for key in known if not asked or key.name == asked or key.name.startswith(f"{asked}.")]
    if not found:
        raise UserError(f"expected a config key or a section, found {prefix!r}; {_hint(asked, known)}")
    for key in found:
        print(f"{key.name} = {key.default}" + (f"    with policy.algorithm={key.algorithm}" if key.algorithm else ""))
        for text in (key.allowed, key.meaning):
            print(textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False))


def _hint(asked: str, known: list) -> str:
    names = {key.name for key in known}
    names |= {name.rsplit(".", n)[0] for name in names for n in (1, 2) if name.count(".") >= n}
    # A key's own name is what is remembered, more often than where it stands.
    ends = [name for name in sorted(names) if name.rsplit(".", 1)[-1] == asked.rsplit(".", 1)[-1]]
    near = ends or difflib.get_close_matches(asked, sorted(names), n=1, cutoff=0.0)
    return f"did you mean {near[0]!r}?"
