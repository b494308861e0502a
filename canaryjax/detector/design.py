"""Which sentence plays which part: dealt by a random permutation that is committed to before anything is published.

A site has a pool of n positions. A 32-byte nonce from the system deals them to parts: so many canaries on ordinary
pages, so many in each cohort, so many at each rung of the ladder, and so many negatives that are never published. The
position alone gives the id: `static_id(seed, position)` where the part is a published one, and
`negative_id(control_seed, position)` where it is not. The hash of the deal is written down before publication.

Why two comparisons are then exact permutation tests. Let y_p be what the model's answers show of position p, a hit
or any score, found by probing that does not look at the part.

1. Rungs against each other (and published parts against each other). The id of a published position, and with it the
   sentence and every probe, is the same at whichever rung it stands. Under the null hypothesis that the number of
   occurrences changes no answer, y_p is therefore what it would have been under any other deal of the published
   positions to the published parts. All such deals were equally likely, so the statistic over all relabellings of the
   y_p that were seen, these held fixed, has exactly its null distribution. Nothing is assumed of the model, of how
   frequent the words are, of how the answers depend on each other, or of the size of the groups.
2. Published against never published (the floor). Here another part is also another id, so y_p is not fixed. But both
   ids are values of HMAC-SHA256 under keys that no model's maker holds. Under the null hypothesis that the model took
   up nothing of what was published, it does not depend on either key: the ids are then 48 fair bits at every position,
   the y_p are exchangeable whatever part was dealt, and each relabelling is again equally likely. It is exact as far as
   HMAC-SHA256 cannot be told from random. Two keys instead of one cost this much, and are worth it: a leak of the seed
   does not publish the negatives.

The edge tiers are not dealt, as their sentences come to be with the requests; their ids are values under a third key,
so the second argument, not the first, holds for them.

What the arguments need of other modules: which targets of a part are asked, and in which order all are, is drawn by
position (`ticket`) and depends on no answer; each target gets the same probes; and no test looks at y_p before its
statistic is declared. What they need of the user: no negative is ever published, and each sentence stands where its
part says. The commitment shows that the deal was not chosen after the answers were known.
"""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields

from canaryjax.detector.records import RUNGS, Cohort, Population, Tier
from canaryjax.errors import UserError

NONCE_BYTES = 32
MOST_POSITIONS = 100_000  # a larger pool is a slip
_WORD = 2**64  # values of one draw


@dataclass(frozen=True)
class Part:
    """What a position is for; `occurrences` is the number of pages that its sentence stands on."""

    population: Population
    tier: Tier | None
    cohort: Cohort | None
    occurrences: int

    @property
    def name(self) -> str:
        """The first half of a target's key: its tier, or `negative`."""
        return self.tier or self.population


@dataclass(frozen=True)
class Sizes:
    """How many positions each part gets; the defaults are a few dozen canaries and twenty negatives (SD-5).

    Attributes:
      site: On ordinary pages, each on one.
      linked: On pages that other pages link to, each on one.
      sitemap: On pages that the sitemap alone names, each on one.
      honeypot: On pages that robots.txt forbids and only an invisible link leads to, each on one (SD-4).
      per_rung: At each of the rungs 300, 100, 10 and 1 of the ladder (SD-3).
      negatives: Never published.
    """

    site: int = 12
    linked: int = 4
    sitemap: int = 4
    honeypot: int = 4
    per_rung: int = 5
    negatives: int = 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UserError(f"expected {field.name} to be a count of at least 0, found {value!r:.40}; correct it")
        if self.negatives == 0:
            raise UserError("expected one or more negatives, found 0; without them there is no floor to compare with")
        published = self.site + self.linked + self.sitemap + self.honeypot + len(RUNGS) * self.per_rung
        if published == 0:
            raise UserError("expected one or more sentences to publish, found 0; raise one of the sizes")
        if published + self.negatives > MOST_POSITIONS:
            raise UserError(
                f"expected at most {MOST_POSITIONS} sentences in all, found {published + self.negatives}; lower a size"
            )


def parts_of(sizes: Sizes) -> tuple[Part, ...]:
    """The parts to deal, in their fixed order: site, cohorts, rungs from many occurrences to few, negatives."""
    groups = [
        (sizes.site, Part("canary", "site", None, 1)),
        (sizes.linked, Part("canary", "cohort", "linked", 1)),
        (sizes.sitemap, Part("canary", "cohort", "sitemap", 1)),
        (sizes.honeypot, Part("canary", "cohort", "honeypot", 1)),
        *((sizes.per_rung, Part("canary", "ladder", None, rung)) for rung in RUNGS),
        (sizes.negatives, Part("negative", None, None, 0)),
    ]
    return tuple(part for count, part in groups for _ in range(count))


def deal(sizes: Sizes, nonce: bytes) -> tuple[Part, ...]:
    """The part of each position, by the permutation that the nonce draws.

    Args:
      sizes: How many of each part.
      nonce: 32 random bytes, secret until the deal may be known.

    Returns:
      One part a position, in the order of the positions.
    """
    parts = parts_of(sizes)
    return tuple(parts[place] for place in permutation(len(parts), nonce))


def permutation(size: int, nonce: bytes) -> list[int]:
    """A uniform permutation of range(size), the same for a nonce on every machine and under every version of NumPy.

    Fisher and Yates's shuffle, from the last place down; a draw is 8 bytes, big-endian, of SHA-256 over the nonce and a
    counter, and one that would favour small numbers is thrown away.
    """
    order, words = list(range(size)), _words(nonce)
    for last in range(size - 1, 0, -1):
        choices = last + 1
        fair = _WORD - _WORD % choices
        chosen = next(word for word in words if word < fair) % choices
        order[last], order[chosen] = order[chosen], order[last]
    return order


def _words(nonce: bytes) -> Iterator[int]:
    for counter in itertools.count():
        digest = hashlib.sha256(b"canaryjax-deal/1/" + nonce + counter.to_bytes(8, "big")).digest()
        yield from (int.from_bytes(digest[start : start + 8], "big") for start in range(0, 32, 8))


def ticket(nonce: bytes, draw: str, name: str) -> bytes:
    """A lottery ticket: the smallest ones are drawn, and nothing but the nonce and the name decides.

    Args:
      nonce: The manifest's.
      draw: Which draw; tickets of two draws have nothing in common.
      name: What takes part. Of a dealt position it must not hold the part, or the order would depend on it.
    """
    return hashlib.sha256(f"canaryjax-ticket/1/{draw}/{name}/".encode() + nonce).digest()
