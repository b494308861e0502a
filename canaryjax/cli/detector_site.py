"""`canaryjax detector` secrets, lists, generate, sentences, verify, decode: a site's secrets and ids."""

import codecs
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.detector.edge.request_log import RequestLog
    from canaryjax.detector.manifest import Manifest

MOST_BYTES = 2**28  # of a text to decode: all of it is held in memory, several times over
BYTE_ORDER_MARKS = (  # that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
Folder = Annotated[Path, typer.Argument(help="The site's folder: word lists, shapes, manifest.", show_default=False)]
SecretsFolder = Annotated[Path, typer.Option("--secrets", help="Folder of seed, control_seed and edge_secret.")]

OLD_PAGE = "canaryjax.windows-1252"


def secrets(
    folder: Annotated[Path, typer.Argument(help="New folder; outside the site's.", show_default=False)],
) -> None:
    """Makes the three secrets of a site, in files that nobody but you may read."""
    from canaryjax.detector.secret import make_secrets

    make_secrets(folder)
    print(f"wrote seed, control_seed and edge_secret in {folder}; keep a copy where nobody else can read it")


def lists(
    folder: Folder,
    seed: Annotated[int, typer.Option(min=0, help="Other seeds make other words.")],
) -> None:
    """Makes throw-away word lists and shapes, for tests and demos: never for a site that is to show something."""
    from canaryjax.detector.throwaway import make_site_lists

    make_site_lists(folder, seed)
    print(f"wrote throw-away word lists and shapes in {folder}, marked by the file THROWAWAY")


def generate(
    folder: Folder,
    secrets: SecretsFolder,
    site: Annotated[int, typer.Option(min=0, help="Sentences on ordinary pages.")] = 12,
    linked: Annotated[int, typer.Option(min=0, help="On pages that other pages link to.")] = 4,
    sitemap: Annotated[int, typer.Option(min=0, help="On pages that the sitemap alone names.")] = 4,
    honeypot: Annotated[int, typer.Option(min=0, help="On pages that robots.txt forbids.")] = 4,
    per_rung: Annotated[int, typer.Option(min=0, help="At each rung of the ladder, 300, 100, 10 and 1 pages.")] = 5,
    negatives: Annotated[int, typer.Option(min=1, help="Never published.")] = 20,
    throw_away: Annotated[bool, typer.Option("--throw-away", help="Take lists that were made for tests.")] = False,
    write_sentences: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New file for the sentences, as JSON lines; secret.")
    ] = None,
) -> None:
    """Checks the lists, deals sentences to their places by lot, and writes manifest.json and commitment.json."""
    from canaryjax.detector.design import Sizes
    from canaryjax.detector.generation import generate_site
    from canaryjax.detector.manifest import COMMITMENT, MANIFEST
    from canaryjax.detector.new_file import check_creatable
    from canaryjax.detector.publication import placement
    from canaryjax.detector.publication import write_sentences as write

    if write_sentences is not None:
        check_creatable(write_sentences)  # before the manifest, which is made once
    sizes = Sizes(site, linked, sitemap, honeypot, per_rung, negatives)
    generated = generate_site(folder, secrets, sizes, throw_away)
    manifest = generated.manifest
    print(f"wrote {folder / MANIFEST}, which stays secret, and {folder / COMMITMENT}")
    print(f"commitment {manifest.commitment}: show it to others, with its date, before a page is public")
    if manifest.throwaway:
        print("throw-away lists: nothing that is found with them says anything of a model")
    for line in placement(manifest):
        print(f"  {line}")
    words = shlex.join(["canaryjax", "detector", "sentences", str(folder), "--secrets", str(secrets), "--out"])
    if write_sentences is None:
        print(f"for the sentences: {words} FILE")
    else:
        try:
            write(write_sentences, generated)
        except UserError as error:
            raise UserError(f"{error}; the site is made, so for the sentences run {words} FILE") from None
        print(f"wrote the sentences to {write_sentences}; remove it when the site is built")


def sentences(
    folder: Folder,
    secrets: SecretsFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="New file, as JSON lines; secret.")],
) -> None:
    """Writes the sentences to publish, for the site's build: id, tier, rung, cohort, sentence."""
    from canaryjax.detector.generation import read_generated
    from canaryjax.detector.publication import write_sentences

    written = write_sentences(out, read_generated(folder, secrets))
    print(f"wrote {written} sentences to {out}; remove it when the site is built")


def verify(folder: Folder, secrets: SecretsFolder) -> None:
    """Checks that manifest, commitment, secrets and lists belong together and that the nonce dealt the parts."""
    from canaryjax.detector.generation import read_generated

    manifest = read_generated(folder, secrets).manifest
    canaries = sum(entry.part.population == "canary" for entry in manifest.entries)
    print(f"commitment {manifest.commitment} of {manifest.made}: as the manifest's; hold it against what you published")
    print("secrets, word lists and shapes: those that the site was generated with")
    print(
        f"{canaries} canaries, {len(manifest.entries) - canaries} negatives: ids as derived, no two equal, dealt by lot"
    )


def decode(
    site: Annotated[Path, typer.Option(help="The site's folder.")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Texts or pages; none reads standard input.")
    ] = None,
    secrets: Annotated[
        Path | None, typer.Option(help="Folder of the secrets: checks that lists and log are the site's.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="The edge's request log.")] = None,
) -> None:
    """Finds ids in texts and says which manifest entry, or row of the request log, each of them is."""
    from canaryjax.detector.decode import Decoder
    from canaryjax.detector.edge.request_log import read_request_log
    from canaryjax.detector.generation import read_generated, read_lists
    from canaryjax.detector.manifest import read_manifest
    from canaryjax.detector.spec import format_id
    from canaryjax.detector.targets import check_log

    requests = None if log is None else read_request_log(log)
    if secrets is None:
        manifest, vocabulary = read_manifest(site), read_lists(site)[0]
    else:
        generated = read_generated(site, secrets)
        manifest, vocabulary = generated.manifest, generated.vocabulary
        if requests is not None:
            check_log(requests, generated.secrets)
    decoder = Decoder(vocabulary)
    for name, text in _texts(files):
        found = decoder.decode(text)
        for id in found:
            print(f"{name}: {format_id(id)} {_origin(id, manifest, requests)}")
        if not found:
            print(f"{name}: no id")


def _texts(files: list[Path] | None) -> Iterator[tuple[str, str]]:
    sources: list[Path | None] = [*files] if files else [None]
    for file in sources:
        name = "standard input" if file is None else str(file)
        try:
            data = _standard_input() if file is None else _read(file)
        except OSError as error:
            raise UserError(f"expected to read {name}, found: {error.strerror}; check the path") from None
        if len(data) > MOST_BYTES:
            raise UserError(f"expected a text of at most {MOST_BYTES} bytes, found more in {name}; split it")
        yield ("-" if file is None else printable(str(file))), _text(data)


def _standard_input() -> bytes:
    if sys.stdin is None:  # it was closed
        raise UserError("expected a text on standard input, found it closed; name a file, or send one in")
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def _read(file: Path) -> bytes:
    with file.open("rb") as handle:
        return handle.read(MOST_BYTES + 1)


def _text(data: bytes) -> str:
    """A text in the encoding that its first bytes name, or UTF-8; bytes that are none are read as in Windows-1252."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    return data.decode("utf-8", OLD_PAGE)


def _as_windows_1252(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error(OLD_PAGE, _as_windows_1252)


def printable(text: str) -> str:
    """A text that others made, without characters that move a terminal's cursor or that it cannot show.

    >>> printable("a\x1b[2J")
    'a\\\\x1b[2J'
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def _origin(id: int, manifest: "Manifest", log: "RequestLog | None") -> str:
    from canaryjax.detector.edge.request_log import stamp_of

    entry = manifest.by_id.get(id)
    if entry is not None:
        where = entry.part.cohort or f"occurrences {entry.part.occurrences}"
        return f"{entry.key} ({'never published' if entry.part.population == 'negative' else where})"
    rows = log.rows_of(id) if log is not None else ()
    if rows:
        first = min(rows, key=lambda row: row.time)
        return f"{first.tier} (request of {stamp_of(first.time)} for {printable(first.path)}, the first of {len(rows)})"
    return "unknown (not in the manifest" + ("; give --log if an edge stamps pages)" if log is None else " or the log)")
