"""Readings made up to have the intervals, spreads and ratios that the document prints (PA-28, PA-29, PA-46).

It prints summaries and no readings, and many readings would have them: these are some. Student's intervals fix how far
seeds lie apart; the bootstrap's, how far canaries do.
"""

import dataclasses
from statistics import NormalDist

import numpy as np

from tests.probes import constructed as c

_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / c.CANARIES) for i in range(c.CANARIES)])
# Mean 0 and variance 1: how canaries differ from each other, and a second way unlike the first.
SCORES = (_NORMAL / _NORMAL.std())[np.arange(c.CANARIES) * 7 % c.CANARIES]
OTHER_SCORES = (_NORMAL / _NORMAL.std())[np.arange(c.CANARIES) * 3 % c.CANARIES]
INSIDE, BEYOND = slice(11, 20), slice(20, 24)  # the secret's tokens in the window of 20, and after it


def of_seeds(mean, low, high, turn=0.0):
    """Three seeds' means with Student's interval `low` to `high` at 95 %, whose half is 4.3027 s / sqrt(3).

    `turn`, an angle, goes through all triples with that mean and that deviation.
    """
    deviation = (high - low) / 2 * 3**0.5 / 4.302653
    # The sines of three angles a third of a circle apart have mean 0 and, over n - 1, variance 3/4.
    return mean + deviation * np.sin(turn + 2 * np.pi * np.arange(3) / 3) / 0.75**0.5


def case_one():
    """The secret's change is canary 0's above all, and unlike from seed to seed; the largest difference is 0.0049."""
    alike = np.full(c.CANARIES, (0.1425 - 11 * 0.01292) / 8)
    alike[[1, 3, 4, 6, 8, 9, 11, 12, 14, 17, 19]] = 0.01292
    alike[0] = 0.266 - 0.1425
    deltas = {}
    for seed, mean, shift in zip(c.SEEDS, (0.0115011, 0.0119978, 0.0164011), (-1.0, 0.9, 0.1), strict=True):
        means = alike * mean / 0.0133 + 0.086 * shift * np.where(np.arange(c.CANARIES) == 0, 1, -1 / 19)
        rows = np.zeros((c.CANARIES, c.LENGTH))
        rows[:, c.span("secret").stop - 1] = 13 * means
        deltas[seed] = list(rows)
    return deltas


def case_two():
    """Nearly all of the window's change is the preamble's."""
    deltas = {}
    for seed, mean in zip(c.SEEDS, of_seeds(0.01503, 0.0106, 0.0195, 0.585), strict=True):
        rows = np.zeros((c.CANARIES, c.LENGTH))
        rows[:, c.span("preamble")] = 0.02972
        rows[:, INSIDE], rows[:, BEYOND] = 0.0034 / 9, 0.0018 / 4
        deltas[seed] = list(rows * mean / 0.01503 * (1 + 0.3063 * SCORES)[:, None])
    return deltas


def case_three():
    """The window falls on the literal and on the secret's tokens that it holds; those after it rise by more."""
    # The window's mean as the pass over all tokens has it: what that over the window alone adds is -0.00030.
    windows = of_seeds(-0.00703, -0.0096, -0.0045) + 0.00030
    secrets = of_seeds(0.00755, 0.0027, 0.0124)
    deltas = {}
    for seed, window, of_secret in zip(c.SEEDS, windows, secrets, strict=True):
        literal = 20 * -0.00091 + (seed - 1) * 0.0255 / 2
        inside = 20 * (window + 0.01884 * SCORES) - literal - 20 * 0.00001
        secret = 13 * (of_secret + 0.0293 * SCORES + 0.0345 * OTHER_SCORES)
        rows = np.zeros((c.CANARIES, c.LENGTH))
        rows[:, c.span("preamble")], rows[:, c.span("literal")] = 0.00002, literal
        rows[:, INSIDE] = inside[:, None] / 9
        rows[:, BEYOND] = (secret - inside)[:, None] / 4
        deltas[seed] = list(rows)
    return deltas


def merged(made, left):
    """The same readings with `merged_nll`: of a span's change what `left[span]` says, by token `[n]` or for all."""
    cells, readings = made
    kept = np.ones(c.LENGTH)
    for name, share in left.items():
        kept[c.span(name)] = share
    base = readings[0].nll
    found = []
    for one in readings:
        rows = tuple(start + (own - start) * kept for own, start in zip(one.nll, base, strict=True))
        found.append(dataclasses.replace(one, merged_nll=rows if one.cell == "tuned" else None))
    return cells, found
