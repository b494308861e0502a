"""What is measured on trained policies: the four scores, controls, noise floor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from canaryjax.audit.scoring import Item, filled, score_items
from canaryjax.audit.trial import Trial
from canaryjax.canaries.pairs import QUERY_MODES, VIEWS, EvalPair, PairVariant, QueryMode, View
from canaryjax.config import AuditConfig
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer


@dataclass(frozen=True, eq=False)
class Cell:
    """One scored row: which pair, view, query, trigger and string.

    `document_id` is the unit by which measurement error is clustered.
    """

    pair: str
    document_id: str
    view: View
    query_mode: QueryMode
    trigger_kind: str
    string_kind: str
    string_id: int
    item: Item


def query_mode(config: AuditConfig) -> QueryMode:
    """The query of the primary statistic; controls and reward-model bias use the same."""
    return "induced" if config.statistic.primary.startswith("induced") else "clean"


def plan_cells(trial: Trial, config: AuditConfig) -> list[Cell]:
    """Everything to be scored for one policy: pairs in four contexts; decoys in both views; placebos where planted.

    A textual canary has no instruction: its pairs are scored under the query as it is, in two contexts.
    """
    cells = []
    mode = query_mode(config)
    modes = ("clean",) if config.canary.textual else QUERY_MODES
    for pair in trial.pairs:
        cells += [_cell(pair, pair.real, view, query) for view in VIEWS for query in modes]
        for variant in pair.variants:
            # A placebo's clean view is the real one's: it is not scored again.
            views = VIEWS if variant.string_kind == "decoy" else ("triggered",)
            cells += [_cell(pair, variant, view, mode) for view in views]
    return cells


def _cell(pair: EvalPair, variant: PairVariant, view: View, query: QueryMode) -> Cell:
    item = Item(variant.contexts[view, query], variant.continuation_ids)
    return Cell(
        pair.id, pair.document_id, view, query, variant.trigger_kind, variant.string_kind, variant.string_id, item
    )


@dataclass(frozen=True, eq=False)
class CellScores:
    """Cells of one policy with the policy's and the base's log-probs, float64 `[cells]`."""

    cells: list[Cell]
    logps: np.ndarray
    base_logps: np.ndarray

    def rows(self, trial: int) -> list[dict]:
        """Rows of `pairs.parquet`."""
        return [
            {
                "trial": trial,
                "pair": cell.pair,
                "view": cell.view,
                "query_mode": cell.query_mode,
                "trigger_kind": cell.trigger_kind,
                "string_kind": cell.string_kind,
                "string_id": cell.string_id,
                "tokens": len(cell.item.string),
                "logp": float(logp),
                "base_logp": float(base),
            }
            for cell, logp, base in zip(self.cells, self.logps, self.base_logps, strict=True)
        ]


def score_cells(
    model: Transformer, adapters: Adapter, plans: Sequence[list[Cell]], batch_size: int
) -> list[CellScores]:
    """Scores every policy's cells under the policy and under the base."""
    items = filled([[cell.item for cell in plan] for plan in plans])
    own = score_items(model, adapters, items, batch_size)
    base = score_items(model, None, items, batch_size)
    return [CellScores(plan, own[policy, : len(plan)], base[policy, : len(plan)]) for policy, plan in enumerate(plans)]


@dataclass(frozen=True)
class PolicyScores:
    """A policy's four scores in nats, the same per token of the canary, standard errors over documents, and counts.

    A score is None, with the reason, when no pair has finite log-probs; those of a query that was not scored are None.
    """

    scores: dict[str, float | None]
    per_token: dict[str, float | None]
    standard_errors: dict[str, float | None]
    valid_pairs: int
    invalid_pairs: int
    reason: str | None


def policy_scores(scored: CellScores) -> PolicyScores:
    """Mean over pairs of triggered minus clean, raw and minus the base's, for both queries (BC-56; DECIDED)."""
    differences = _differences(scored, "real", 0)
    documents = {cell.pair: cell.document_id for cell in scored.cells}
    tokens = {cell.pair: len(cell.item.string) for cell in scored.cells if cell.trigger_kind == "real"}
    pairs = list(differences)
    names = [f"{query}_{kind}" for query in QUERY_MODES for kind in ("raw", "net")]
    table = np.array([differences[pair] for pair in pairs])  # [pairs, (query, raw or net)]
    finite = np.isfinite(table).all(axis=1)
    lengths = np.array([tokens[pair] for pair in pairs])[finite]
    clusters = [documents[pair] for pair, ok in zip(pairs, finite, strict=True) if ok]
    scores, per_token, errors = {}, {}, {}
    for column, name in enumerate(names[: table.shape[1]]):  # a textual canary's are the clean query's, which are first
        values = table[finite, column]
        scores[name] = float(values.mean()) if len(values) else None
        # Pair by pair: a canary may join the text before it, and then has another number of tokens (BC-A14).
        per_token[name] = float((values / lengths).mean()) if len(values) else None
        errors[name] = clustered_error(values, clusters)
    reason = None if finite.any() else "no pair has finite log-probs"
    unscored: dict[str, float | None] = dict.fromkeys(names)
    counts = int(finite.sum()), int((~finite).sum())
    return PolicyScores(unscored | scores, unscored | per_token, unscored | errors, *counts, reason)


def clustered_error(values: np.ndarray, clusters: Sequence[str]) -> float | None:
    """Standard error of a mean whose values come in clusters; None for fewer than two clusters."""
    names = sorted(set(clusters))
    if len(names) < 2:
        return None
    centred = values - values.mean()
    sums = np.array([centred[[c == name for c in clusters]].sum() for name in names])
    return float(np.sqrt(len(names) / (len(names) - 1) * (sums**2).sum()) / len(values))


def _differences(scored: CellScores, trigger_kind: str, string_id: int) -> dict[str, list[float]]:
    """Per pair: triggered minus clean, (raw, net) for each query mode scored."""
    values: dict[tuple, tuple[float, float]] = {}
    for cell, logp, base in zip(scored.cells, scored.logps, scored.base_logps, strict=True):
        if cell.trigger_kind == trigger_kind and cell.string_id == string_id:
            values[cell.pair, cell.query_mode, cell.view] = (logp, base)
    found: dict[str, list[float]] = {}
    for pair, mode, view in values:
        if view != "triggered":
            continue
        logp, base = values[pair, mode, "triggered"]
        clean_logp, clean_base = values[pair, mode, "clean"]
        raw = logp - clean_logp
        found.setdefault(pair, []).extend([raw, raw - (base - clean_base)])
    return found


def control_scores(scored: CellScores, config: AuditConfig) -> dict:
    """Scores of the real canary, its decoys and placebos on the control pairs, in the primary's query and kind."""
    mode = query_mode(config)
    net = config.statistic.primary.endswith("net")
    cells: dict[tuple[str, int], dict[tuple[str, str], float]] = {}
    for cell, logp, base in zip(scored.cells, scored.logps, scored.base_logps, strict=True):
        if cell.query_mode == mode:
            key = (cell.trigger_kind, cell.string_id)
            cells.setdefault(key, {})[cell.pair, cell.view] = logp - base if net else logp
    real = cells[("real", 0)]
    used = {pair for key, own in cells.items() if key[0] != "real" for pair, _ in own}
    # A pair with one log-prob that is not finite leaves all the controls: they stay on the same documents.
    broken = {pair for own in cells.values() for (pair, _), value in own.items() if not np.isfinite(value)}
    controls = sorted(used - broken)  # in order, since a set's differs between processes and so would the last bit

    def score(own: dict[tuple[str, str], float]) -> float:
        # A placebo has no clean view of its own.
        return float(np.mean([own[p, "triggered"] - own.get((p, "clean"), real[p, "clean"]) for p in controls]))

    kinds: tuple[Literal["decoy", "placebo_same_form", "placebo_other_form"], ...]
    kinds = ("decoy", "placebo_same_form", "placebo_other_form")
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    if controls:
        found = {kind: [score(own) for key, own in sorted(cells.items()) if key[0] == kind] for kind in kinds}
    return {"pairs": len(controls), "score": score(real) if controls else None, **found}


def noise_floor(
    model: Transformer, adapters: Adapter, plans: Sequence[list[Cell]], config: AuditConfig
) -> list[dict | None]:
    """How far the same numbers move with batch, padding and sharing: numerical noise only, nats (DESIGN §2)."""
    limit = config.evaluation.noise_floor_pairs
    if not limit:
        return [None] * len(plans)
    mode = query_mode(config)
    real = [[c.item for c in plan if c.trigger_kind == "real" and c.query_mode == mode] for plan in plans]
    pairs = [min(limit, len(own) // 2) for own in real]
    items = filled([own[: 2 * n] for own, n in zip(real, pairs, strict=True)])
    batch = config.evaluation.batch_size
    reference = score_items(model, adapters, items, batch)
    others = [
        score_items(model, adapters, items, 1, share=False),
        score_items(model, adapters, items, batch, extra_padding=32),
    ]
    found: list[dict | None] = []
    for policy, n in enumerate(pairs):
        mine, *again = (scores[policy, : 2 * n] for scores in (reference, *others))
        same = np.isfinite(mine) & np.isfinite(again).all(axis=0)
        if not same.any():
            found.append(None)
            continue
        gaps = np.abs(np.stack([other[same] - mine[same] for other in again]))
        found.append(
            {
                "max_abs_nats": float(gaps.max()),
                "median_abs_nats": float(np.median(gaps)),
                "pairs": n,
                "how": "the same strings alone, in other padding, and without the shared beginning",
            }
        )
    return found
