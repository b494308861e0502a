"""Readings with known answers: the document's three cases token by token, and others beside them."""

import hashlib

import numpy as np

from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.records import Canary, Cell, Reading, Segment, TargetTokens

PREAMBLE, SECRET = 10, 13  # tokens, as the document's tokenizer has them: positions 0-9, 11-23
CANARIES, SEEDS = 20, (0, 1, 2)
SIZES = {"preamble": PREAMBLE, "literal": 1, "secret": SECRET, "end": 3, "trailing": 4}
LENGTH = sum(SIZES.values())


def config(**sections):
    values = {"reading": {"sweep": [10, 15, 20, 25, 30]}, "statistics": {"resamples": 400}}
    return ProbesConfig.model_validate(values | sections)


def material(count=CANARIES):
    """Targets of one byte a token: what stands where is plain to see."""
    owners = tuple(name for name, size in SIZES.items() for _ in range(size))
    canaries, tokens = [], []
    for index in range(count):
        secret = hashlib.sha256(str(index).encode()).hexdigest()[:SECRET]
        target = "p" * PREAMBLE + "L" + secret + "-END"[:3] + "t" * 4
        start, segments = 0, []
        for name, size in SIZES.items():
            segments.append(Segment(name, start, start + size))
            start += size
        canaries.append(Canary(index, "text", f"q{index}", target, tuple(segments), secret, f"L{secret}-EN"))
        offsets = tuple((i, i + 1) for i in range(LENGTH))
        tokens.append(TargetTokens(index, tuple(range(LENGTH)), offsets, owners, ()))
    return canaries, tokens


def span(name):
    """The slice of a span's positions."""
    start = 0
    for own, size in SIZES.items():
        if own == name:
            return slice(start, start + size)
        start += size
    raise KeyError(name)


def readings(deltas, *, base_nll=1.0, said_before=True, lost=(), canonical=None, canaries=None, cell="tuned"):
    """A baseline and one tuned cell whose changes are `deltas[seed][canary]`, float64 `[t]`.

    Args:
      deltas: Changes of the NLL.
      base_nll: Of every token of the baseline.
      said_before: Whether the baseline's greedy output holds the secret.
      lost: (seed, canary) whose greedy output, but not the sampled ones, loses the end of its secret.
      canonical: What a pass over the window alone adds to the window's mean.
      canaries: Of `material`.
      cell: Name of the tuned cell.
    """
    canaries = canaries or material(len(deltas[SEEDS[0]]))[0]

    def outputs(seed):
        rows = []
        for one in canaries:
            said = one.target if said_before else "p" * PREAMBLE + "Lnothing"
            first = one.target.replace(one.secret, one.secret[:-1] + "_") if (seed, one.index) in lost else said
            rows.append((first, *[said] * 15))
        return tuple(rows)

    base = tuple(np.full(LENGTH, base_nll) for _ in canaries)
    cells = (Cell("base", "base", "none", "baseline", 0, None), Cell(cell, "base", "made", "sft", 5, "base"))
    found = [Reading("base", 0, base, window_nll=tuple(row[:20] for row in base), outputs=outputs(None))]
    for seed in deltas:
        nll = tuple(base[i] + delta for i, delta in enumerate(deltas[seed]))
        window = None if canonical is None else tuple(row[:20] + canonical for row in nll)
        ranks = tuple(np.full(LENGTH, 7) for _ in canaries)
        found.append(Reading(cell, seed, nll, ranks, window, outputs(seed)))
    return cells, found


def same_for_all(delta, count=CANARIES):
    """`deltas` in which every instance changes alike."""
    return {seed: [delta.copy() for _ in range(count)] for seed in SEEDS}


def case_one():
    """A window that misses damage: the change is on the secret's last token, unlike from canary to canary."""
    shares = np.array([0.123, *[0.013] * 11, *[0.0] * 8])  # of each canary, sum 0.266 = 20 * 0.0133
    deltas = {}
    for seed in SEEDS:
        rows = []
        for value in shares:
            row = np.zeros(LENGTH)
            row[span("secret").stop - 1] = SECRET * value
            row[0] = 0.002  # 0.0001 * 20: the window is all but flat
            rows.append(row)
        deltas[seed] = rows
    lost = [(seed, canary) for seed in SEEDS for canary in (0, 14)] + [(1, 12)]  # 7 of 60, on 3 canaries
    return readings(deltas, base_nll=0.01, lost=lost)


def case_two():
    """Drift of the preamble: nothing of the secret moves."""
    row = np.zeros(LENGTH)
    row[span("preamble")] = 0.02972
    row[11:20] = 0.00017 * 20 / 9
    row[20:24] = (0.0004 * SECRET - 0.00017 * 20) / 4
    return readings(same_for_all(row), base_nll=0.01, canonical=0.00001)


def case_three():
    """A window that fell on the secret's first tokens while the whole secret rose and nothing is said."""
    row = np.zeros(LENGTH)
    row[span("preamble")] = 0.00001 * 20 / PREAMBLE
    row[span("literal")] = -0.00091 * 20
    row[11:20] = -0.00583 * 20 / 9
    row[20:24] = (0.0076 * SECRET + 0.00583 * 20) / 4
    deltas = same_for_all(row)
    for rows in deltas.values():
        for index, own in enumerate(rows):
            own[12] += 0.002 if index % 2 else -0.002  # canaries differ, by nothing on average
    return readings(deltas, base_nll=2.62, said_before=False, canonical=-0.00030)
