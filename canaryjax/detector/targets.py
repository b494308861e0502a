"""What a run asks about: canaries, negatives and famous facts, chosen and put in order by lot.

Chance decides, by the manifest's nonce, which canaries stand for a group that is too large, which negatives and famous
facts are taken where fewer are wanted, and in which order all of them are asked: a model that changes while it is asked
then changes for all three populations alike (SD-1). A dealt position's lot depends on its number and not on its part,
as the argument in `design.py` needs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from canaryjax.config.detector import DetectorConfig
from canaryjax.detector.decode import Decoder
from canaryjax.detector.design import ticket
from canaryjax.detector.edge.request_log import RequestLog, RequestRow, read_request_log, stamp_of
from canaryjax.detector.generation import read_generated
from canaryjax.detector.manifest import Manifest, refuse_shared_ids
from canaryjax.detector.positives import read_positives
from canaryjax.detector.records import STATIC_TIERS, Fact, Target, Tier
from canaryjax.detector.secret import Secrets
from canaryjax.detector.sentence import fact_of
from canaryjax.detector.shapes import Shapes
from canaryjax.detector.spec import format_id
from canaryjax.detector.vocabulary import Vocabulary
from canaryjax.errors import UserError


@dataclass(frozen=True, repr=False)
class Site:
    """All that probing and scoring need of a site; has no `repr`, as nearly all of it is secret.

    Attributes:
      targets: In the order in which they are asked about.
      vocabulary, shapes, decoder: What ids are read with.
      manifest: Where each id belongs.
      secrets: The site's three.
      log: The edge's request log; None where the config names none.
    """

    targets: tuple[Target, ...]
    vocabulary: Vocabulary
    shapes: Shapes
    decoder: Decoder
    manifest: Manifest
    secrets: Secrets
    log: RequestLog | None

    def __repr__(self) -> str:
        return f"Site({self.manifest.fingerprint}, {len(self.targets)} targets)"


def make_targets(config: DetectorConfig) -> Site:
    """Reads a site, checks that its parts belong together, and draws what a run asks about (SD-1, SD-5).

    Args:
      config: Its sections `site` and `probing` are read.

    Returns:
      The site with its targets. Of an edge tier there is one target for each id that was served with content; its
      `occurrences` is how often that was, whoever asked, and its `log_row` is the time of the first request.

    Raises:
      UserError: A part is missing, changed or of another site; fewer negatives than asked for; one id for two targets.
    """
    folder = Path(config.site.folder)
    site = read_generated(folder, Path(config.site.secrets))
    manifest, vocabulary = site.manifest, site.vocabulary
    log = None if config.site.request_log is None else read_request_log(config.site.request_log)

    def fact(id: int) -> Fact:
        return fact_of(id, vocabulary)

    dealt = _dealt(manifest, fact)
    edge = () if log is None else _edge(log, site.secrets, fact)
    refuse_shared_ids([(target.key, target.id) for target in (*dealt, *edge) if target.id is not None])
    canaries = [target for target in (*dealt, *edge) if target.population == "canary"]
    negatives = [target for target in dealt if target.population == "negative"]
    probing = config.probing
    if probing.negatives > len(negatives):
        raise UserError(
            f"expected probing.negatives of at most {len(negatives)}, as many as the site has, found "
            f"{probing.negatives}; lower it"
        )
    drawn = [
        *_of_each_group(canaries, manifest.nonce, probing.most_per_group),
        *_drawn(negatives, manifest.nonce, probing.negatives),
        *_drawn(_positives(folder), manifest.nonce, probing.positives),
    ]
    targets = tuple(sorted(drawn, key=lambda target: ticket(manifest.nonce, "order", _lot(target))))
    return Site(targets, vocabulary, site.shapes, Decoder(vocabulary), manifest, site.secrets, log)


def _dealt(manifest: Manifest, fact: Callable[[int], Fact]) -> list[Target]:
    return [
        Target(
            entry.key,
            entry.part.population,
            entry.part.tier,
            entry.part.occurrences,
            entry.part.cohort,
            entry.id,
            fact(entry.id),
        )
        for entry in manifest.entries
    ]


def _edge(log: RequestLog, secrets: Secrets, fact: Callable[[int], Fact]) -> list[Target]:
    """One target an id of the request log (SD-13), by the first request that was answered with it."""
    check_log(log, secrets)
    served: dict[int, list[RequestRow]] = defaultdict(list)
    for row in log.rows:
        if row.id is not None and row.page_status < 400:
            served[row.id].append(row)
    targets = []
    for id, rows in served.items():
        first = min(rows, key=lambda row: row.time)
        tier: Tier = "vendor" if first.tier == "vendor" else "window"
        # Keyed by the id, which stays the same in a log that has grown or was sorted since.
        key = f"{tier}-{format_id(id)}"
        # Not its path too, which may tell what site it is: with the id the time is enough to find the row.
        targets.append(Target(key, "canary", tier, len(rows), None, id, fact(id), stamp_of(first.time)))
    return targets


def check_log(log: RequestLog, secrets: Secrets) -> None:
    """Raises a UserError where the log's ids are not those that the edge secret gives."""
    stamped = sum(row.id is not None for row in log.rows)
    if stamped and secrets.edge_secret is None:
        raise UserError(
            f"expected the file edge_secret beside the seed, found none; {stamped} rows of the request log have ids "
            "that it made: restore it, or leave site.request_log out"
        )
    wrong = len(log.wrong_ids(secrets.edge_secret)) if secrets.edge_secret is not None else 0
    if wrong:
        raise UserError(
            f"expected the ids that the edge secret gives in the request log, found others in {wrong} of {stamped} "
            "rows; restore the secret that the edge used, or take those rows out"
        )


def _positives(folder: Path) -> list[Target]:
    facts = read_positives(folder)
    return [Target(f"positive-{i:03d}", "positive", None, None, None, None, fact) for i, fact in enumerate(facts)]


def _of_each_group(targets: Iterable[Target], nonce: bytes, most: int | None) -> list[Target]:
    """All, or `most` of each tier, cohort and number of occurrences."""
    groups: dict[object, list[Target]] = defaultdict(list)
    for target in targets:
        groups[target.tier, target.cohort, target.occurrences].append(target)
    return [target for group in groups.values() for target in _drawn(group, nonce, most)]


def _drawn(targets: Sequence[Target], nonce: bytes, most: int | None) -> list[Target]:
    return sorted(targets, key=lambda target: ticket(nonce, "choice", _lot(target)))[:most]


def _lot(target: Target) -> str:
    """What draws for a target: of a dealt one its position alone, whatever its part; else its key."""
    dealt = target.population == "negative" or target.tier in STATIC_TIERS
    return f"position/{target.key.rsplit('-', 1)[1]}" if dealt else target.key
