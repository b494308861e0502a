"""What crosses the modules of a probe audit: canaries, their tokens, models that were read, and estimates.

Nothing here knows how a target is made of bytes or patches: a probe sees positions, and who owns each.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from canaryjax.stats.result import Interval, Result

# The spans of a target, in their order (PA-17).
SPANS = ("preamble", "literal", "secret", "end", "trailing")
DECOYS = ("shuffled", "wrong", "format")  # kinds, PA-49
Kind = Literal["baseline", "sft", "noise", "reexposed"]
Label = Literal["both", "hb-only", "t-only", "neither"]


@dataclass(frozen=True)
class Segment:
    """A span of a target's text: the bytes `[start, end)` of its UTF-8 form."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Canary:
    """A planted secret and what leads to it.

    Attributes:
      index: Its number, from 0.
      modality: "text"; other kinds have their own loaders.
      prompt: The user's turn.
      target: The assistant's whole turn.
      segments: Its spans, in order and without gaps; a span may be empty and is then left out.
      secret: The text of the secret span.
      recall: What counts as recalled when it stands in an output: literal, secret and end.
    """

    index: int
    modality: str
    prompt: str
    target: str
    segments: tuple[Segment, ...]
    secret: str
    recall: str


@dataclass(frozen=True)
class TargetTokens:
    """One target as a model reads it.

    Attributes:
      canary: Its number.
      ids: Token ids, without the end of the turn.
      offsets: Bytes `[start, end)` of the target that each token covers.
      owners: Of each position the span that it counts for.
      straddles: Positions whose token covers bytes of more than one span.
    """

    canary: int
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    owners: tuple[str, ...]
    straddles: tuple[int, ...]


@dataclass(frozen=True)
class Cell:
    """One line of the matrix: what was done to a model that holds the canaries.

    Attributes:
      name: Unique, for example `saturated/synth/300`.
      regime: How the canaries were planted, for example `saturated`.
      source: What it was tuned on; "none" for a baseline.
      kind: `baseline` (canaries planted, nothing after), `sft`, `noise` (a random update as large as the one of the
        `sft` cell of the same regime, source and steps), `reexposed` (tuned on its source and the canaries themselves).
      steps: Optimiser steps; 0 for a baseline.
      baseline: Name of the cell that its differences are taken to; None for a baseline.
    """

    name: str
    regime: str
    source: str
    kind: Kind
    steps: int
    baseline: str | None


@dataclass(frozen=True, eq=False)
class Reading:
    """One model of a cell (one seed) read on every canary.

    Attributes:
      cell, seed: Which model. A baseline that all seeds share is read once.
      nll: Per canary float64 `[t]`, nats: `-log p(token | tokens before it, prompt)` of every position of its target.
      ranks: Per canary int `[t]`, how many tokens are more probable than the right one, plus 1; None if not read.
      window_nll: Per canary float64 `[<= K]` from a second pass over the first K positions alone; None if not made.
      outputs: Per canary the decoded texts, the greedy one first; None if nothing was generated.
      decoy_nll: By kind, per canary float64 `[decoys]`, nats summed over a decoy's secret span; None if not scored.
      merged_nll: As `nll`, from weights that the update was merged into, of a baseline from weights rounded alike; None
        if not read.
    """

    cell: str
    seed: int
    nll: tuple[np.ndarray, ...]
    ranks: tuple[np.ndarray, ...] | None = None
    window_nll: tuple[np.ndarray, ...] | None = None
    outputs: tuple[tuple[str, ...], ...] | None = None
    decoy_nll: dict[str, tuple[np.ndarray, ...]] | None = None
    merged_nll: tuple[np.ndarray, ...] | None = None


@dataclass(frozen=True)
class Estimate(Result):
    """A mean over canaries and seeds of one quantity, with everything that is said of its uncertainty.

    Attributes:
      value: Mean over seeds of the mean over canaries of instance means (macro); None where a seed has no finite one.
      micro: Pooled over tokens; None where the quantity has no tokens of its own.
      per_seed: Mean of each seed that has a finite instance, in the order of the seeds.
      spread: Largest minus smallest of `per_seed`.
      same_sign: Whether all seeds have one sign, none of them 0; None with fewer than two, or without a value.
      sign_p: Two-sided p of so many equal signs under a fair coin, 2 * 2**-n at n of n: 1/4 at 3 of 3 (PA-27).
      nested, crossed: Hierarchical bootstrap (PA-25, PA-A8).
      student: Student's t over seeds, n - 1 degrees of freedom (PA-26).
      label: Which of `nested` and `student` exclude 0 on the same side (PA-A9).
      direction: -1, 0 or 1: the sign of the excluded side, 0 for "neither".
      instances, excluded: How many (seed, canary) went in, and were left out as not finite or without tokens.
    """

    value: float | None
    micro: float | None
    per_seed: tuple[float, ...]
    spread: float | None
    same_sign: bool | None
    sign_p: float | None
    nested: Interval
    crossed: Interval
    student: Interval
    label: Label
    direction: int
    instances: int
    excluded: int


@dataclass(frozen=True)
class Recalled(Result):
    """hit@k of a cell (PA-21): a canary is hit when one of its first k outputs holds it, so that hits never fall in k.

    Attributes:
      k: Outputs looked at, the greedy one first.
      hits: Instances (seed, canary) that were hit.
      n: Instances.
      per_seed: Hits of each seed.
      rate: hits / n with Wilson's interval.
      unbiased: Mean over instances of 1 - C(n-c, k) / C(n, k) over the sampled outputs alone (Chen et al. 2021):
        another quantity than hit@k; None where fewer than k were sampled.
    """

    k: int
    hits: int
    n: int
    per_seed: tuple[int, ...]
    rate: Interval
    unbiased: float | None
