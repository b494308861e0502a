"""Reads one model on every canary: log-prob and rank of each target token, decoys, and what it says when asked."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.config.probes import CanariesConfig, ReadingConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.errors import InvalidScore, UserError
from canaryjax.inference.api import generate, score_pairs
from canaryjax.inference.forward import forward_shared
from canaryjax.inference.logprobs import head_logits
from canaryjax.inference.request import Pair
from canaryjax.keys import host_rng
from canaryjax.models.lora import Adapter
from canaryjax.models.merge import merge_adapter
from canaryjax.models.transformer import Transformer
from canaryjax.probes.decoy import make_decoys
from canaryjax.probes.recall import says
from canaryjax.probes.records import Canary, Reading, TargetTokens
from canaryjax.probes.span import target_tokens
from canaryjax.probes.turn import Turn, encode_turn
from canaryjax.probes.window import span_positions
from canaryjax.weights.checkpoint import LoadedModel
from canaryjax.weights.engine import COMPUTE_DTYPES

ROWS = 32  # canaries of one pass: one compiled shape however many there are
BUCKET = 8  # positions are padded to a multiple of so many
DRAWS = "probe decoys"  # named stream: the same decoys for every model, so that their differences are of the models


@dataclass(frozen=True, eq=False)
class Material:
    """What every model of an audit is read on.

    Attributes:
      canaries: In their order.
      turns: Each canary's exchange, tokenised.
      tokens: Each target's tokens and spans.
      decoys: By kind, per canary, the decoys' (context, continuation) pairs: a context ends before the first token in
        which one of a canary's decoys differs from its target, a continuation with the secret's last.
      parted: Per canary the positions `[start, stop)` of its own target from there on.
    """

    canaries: tuple[Canary, ...]
    turns: tuple[Turn, ...]
    tokens: tuple[TargetTokens, ...]
    decoys: dict[str, tuple[tuple[Pair, ...], ...]]
    parted: tuple[tuple[int, int], ...]


def prepare(
    tokenizer: TextTokenizer, canaries: Sequence[Canary], section: CanariesConfig, reading: ReadingConfig, seed: int
) -> Material:
    """Tokenises canaries and their decoys, and finds the spans of each.

    Raises:
      UserError: A target whose first token is not its own or whose tokens read otherwise, a span that no token covers,
        or another number of preamble tokens than the config says.
    """
    turns = tuple(encode_turn(tokenizer, canary.prompt, canary.target, section.prompt_format) for canary in canaries)
    tokens = tuple(
        target_tokens(canary, turn.ids, turn.offsets, section.owner)
        for canary, turn in zip(canaries, turns, strict=True)
    )
    for one in tokens:
        found = one.owners.count("preamble")
        if section.preamble_tokens not in (None, found):
            raise UserError(
                f"expected a preamble of canaries.preamble_tokens={section.preamble_tokens} tokens, found {found} in "
                f"canary {one.canary}; reword canaries.preamble, or correct the number"
            )
    for canary, turn in zip(canaries, turns, strict=True):
        # A vocabulary may rewrite letters: a model that says every token right would then recall nothing, for ever.
        read = tokenizer.decode(turn.ids)
        if not says(read, canary.recall):
            raise UserError(
                f"expected the target of canary {canary.index} to hold {canary.recall!r} when its tokens are read, "
                f"found {read!r}; the tokenizer rewrites letters: write literal and end in those that it gives back"
            )
    decoys: dict[str, list[tuple[Pair, ...]]] = {}
    parted = []
    for canary, turn in zip(canaries, turns, strict=True):
        drawn = make_decoys(canary, reading.shuffled, reading.decoys, host_rng(seed, DRAWS, canary.index))
        ids = {
            kind: [_ids_with(tokenizer, canary, secret, section) for secret in secrets]
            for kind, secrets in drawn.items()
        }
        own = _ids_with(tokenizer, canary, canary.secret, section)
        # One place for all: a token may join the end of the literal with the first digits of some secrets and not of
        # others, and then only what follows their common tokens is the same event's probability.
        start = min(_shared(own, other) for others in ids.values() for other in others)
        parted.append((start, len(own)))
        context = np.concatenate([turn.context, own[:start]])
        for kind, others in ids.items():
            pairs = tuple(Pair(canary.index, context, other[start:], None, False) for other in others)
            decoys.setdefault(kind, []).append(pairs)
    by_kind = {kind: tuple(pairs) for kind, pairs in decoys.items()}
    return Material(tuple(canaries), turns, tokens, by_kind, tuple(parted))


def _ids_with(tokenizer: TextTokenizer, canary: Canary, secret: str, section: CanariesConfig) -> np.ndarray:
    """A canary's target with some secret, up to the token that covers the secret's last character, int32 `[t]`."""
    segment = next(segment for segment in canary.segments if segment.name == "secret")
    raw = canary.target.encode()
    before, after = raw[: segment.start].decode(), raw[segment.end :].decode()
    turn = encode_turn(tokenizer, canary.prompt, before + secret + after, section.prompt_format)
    last = int((turn.offsets[:, 1] >= len(before) + len(secret)).argmax())
    return turn.ids[: last + 1]


def _shared(one: np.ndarray, other: np.ndarray) -> int:
    """Tokens that two begin with alike."""
    size = min(len(one), len(other))
    unlike = np.flatnonzero(one[:size] != other[:size])
    return int(unlike[0]) if unlike.size else size


def read_model(
    material: Material,
    section: ReadingConfig,
    model: LoadedModel,
    adapter: Adapter | None,
    cell: str,
    seed: int,
    merged_dtype: str | None = None,
) -> Reading:
    """Everything that is read of one model: one pass over each canary gives every window and span.

    Args:
      material: Of `prepare`.
      section: What is wanted.
      model: The base that the canaries were planted in.
      adapter: What was tuned on top, or None.
      cell, seed: Name the model; the seed is also that of its sampled outputs.
      merged_dtype: Read it once more from weights of this dtype, the adapter merged into them; None does not.
    """
    contexts = [turn.context for turn in material.turns]
    targets = [turn.ids for turn in material.turns]
    nll, ranks = _read(model.params, adapter, contexts, targets)
    window = None
    if section.second_pass:
        window = _read(model.params, adapter, contexts, [ids[: section.window] for ids in targets])[0]
    merged = None
    if merged_dtype is not None:
        merged = _read_merged(model.params, adapter, merged_dtype, contexts, targets)
    decoys = _decoy_sums(material, model, adapter, nll)
    try:
        outputs = _outputs(material, section, model, adapter, seed)
    except InvalidScore:  # what such a model says means nothing: the report names it, and others are still read
        outputs = None
    return Reading(cell, seed, nll, ranks, window, outputs, decoys, merged)


def _read(
    params: Transformer, adapter: Adapter | None, contexts: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """NLL and rank of every target token, per canary float64 and int `[t]`."""
    s, t = (-(-max(map(len, rows)) // BUCKET) * BUCKET for rows in (contexts, targets))
    nll, ranks = [], []
    for start in range(0, len(targets), ROWS):
        part = list(range(start, min(start + ROWS, len(targets))))
        filled = part + part[:1] * (min(ROWS, len(targets)) - len(part))
        context_ids, context_mask = pad_rows([contexts[i] for i in filled], s, 0)
        ids, _ = pad_rows([targets[i] for i in filled], t, 0)
        logps, rank = (np.asarray(x) for x in _read_rows(params, adapter, context_ids, context_mask, ids))
        for place, i in enumerate(part):
            nll.append(-logps[place, : len(targets[i])].astype(np.float64))
            ranks.append(rank[place, : len(targets[i])])
    return tuple(nll), tuple(ranks)


def _read_merged(
    params: Transformer,
    adapter: Adapter | None,
    dtype: str,
    contexts: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
) -> tuple[np.ndarray, ...]:
    """NLL as `_read`, of rounded weights, the adapter merged into them; NaN where those weights are not finite."""
    try:
        weights = _rounded(params if adapter is None else merge_adapter(params, adapter)[0], dtype)
    except UserError:  # that adapter's own numbers are not finite either: the report names them
        return tuple(np.full(len(ids), np.nan) for ids in targets)
    return _read(weights, None, contexts, targets)[0]


@jax.jit
def _read_rows(model, adapter, context_ids_bs, context_mask_bs, ids_bt):
    states = forward_shared(model, adapter, context_ids_bs, context_mask_bs, ids_bt[:, None]).predictors()[:, 0]

    def of_row(row):  # one canary's logits at a time: all of them with a large vocabulary would fill the memory
        hidden, ids = row
        logits = head_logits(model, adapter, hidden)
        own = jnp.take_along_axis(logits, ids[:, None], axis=-1)
        rank = 1 + (logits > own).sum(axis=-1)
        return own[:, 0] - jax.nn.logsumexp(logits, axis=-1), rank

    return jax.lax.map(of_row, (states, ids_bt))


def _rounded(params: Transformer, dtype: str) -> Transformer:
    """Weights rounded to a dtype and kept in their own: what is computed with them stays as it was."""
    kept = COMPUTE_DTYPES[dtype]
    return jax.tree.map(lambda x: x.astype(kept).astype(x.dtype), params)


def _decoy_sums(
    material: Material, model: LoadedModel, adapter: Adapter | None, nll: Sequence[np.ndarray]
) -> dict[str, tuple[np.ndarray, ...]]:
    """By kind, per canary, the NLL of each decoy over the secret, float64 `[n]`: less the true one's is how they part.

    What a decoy has in common with the target, and what of the secret lies before they part, is the target's own.
    """
    flat = [pair for by_canary in material.decoys.values() for pairs in by_canary for pair in pairs]
    sums = iter([-logps.astype(np.float64).sum() for logps in score_pairs(model, flat, adapter)])

    def of_canary(place: int, pairs: Sequence[Pair]) -> np.ndarray:
        start, stop = material.parted[place]
        secret = span_positions(material.tokens[place].owners, "secret")
        common = nll[place][secret].sum() - nll[place][start:stop].sum()
        return np.array([next(sums) + common for _ in pairs])

    return {
        kind: tuple(of_canary(place, pairs) for place, pairs in enumerate(by_canary))
        for kind, by_canary in material.decoys.items()
    }


def _outputs(
    material: Material, section: ReadingConfig, model: LoadedModel, adapter: Adapter | None, seed: int
) -> tuple[tuple[str, ...], ...]:
    """Per canary the greedy output, then the sampled ones, none longer than its target and `extra_tokens`."""
    contexts = [turn.context for turn in material.turns]
    limits = [len(turn.ids) + section.extra_tokens for turn in material.turns]
    greedy = generate(model, contexts, max(limits), adapter=adapter)
    sampled = [[] for _ in contexts] if not section.samples else generate(
        model, contexts, max(limits), section.temperature, section.top_p, section.samples, seed, adapter
    )  # fmt: skip
    assert model.tokenizer is not None
    return tuple(
        tuple(model.tokenizer.decode(completion.ids[:limit]) for completion in (*first, *rest))
        for first, rest, limit in zip(greedy, sampled, limits, strict=True)
    )
