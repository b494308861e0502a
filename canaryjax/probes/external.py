"""Reads a score file: per-token log-probs of planted secrets, ours or from elsewhere.

JSONL, one row for each model (cell and seed) and canary:

    cell, seed, canary     which: a text and two whole numbers
    text                   the target
    segments               its spans, in order and without gaps: [{name, start, end}]
    ids, offsets, logps    of each token: id, [start, end), natural log-prob (null or NaN where there is none; what lies
                           below -1e9 is a mask's value and counts as none)
    offset_unit            "characters" (default) or "bytes", of offsets and segments alike
    baseline               the cell that differences are taken to; null or absent for a baseline
    kind, regime, source, steps             of the cell; default sft or baseline, "given", "given", 0
    ranks                  of each token how many are more probable, plus 1
    window_logps           as logps, of the first tokens read alone
    merged_logps           as logps, with the update merged into the weights; of a baseline, its weights rounded alike
    outputs                decoded texts, the greedy one first
    decoys                 {shuffled, wrong, format: [-log p in nats summed over the secret, of each decoy]}
    prompt                 the user's turn; from ranks on, as far as there are any, else null or absent
"""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.probes.records import DECOYS, SPANS, Canary, Cell, Reading, Segment, TargetTokens
from canaryjax.probes.span import byte_offsets, own, refuse_gaps
from canaryjax.runlog.files import numbered_jsonl

KINDS = ("baseline", "sft", "noise", "reexposed")
UNITS = ("characters", "bytes")
MASKED = 1e9  # nats: a sum over tokens reaches no such size, but the lowest float that masks a token does
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which JSON can write and UTF-8 cannot


@dataclass(frozen=True)
class Given:
    """What a score file holds."""

    canaries: tuple[Canary, ...]
    tokens: tuple[TargetTokens, ...]
    cells: tuple[Cell, ...]
    readings: tuple[Reading, ...]


def read_scores(path: Path, owner: str) -> Given:
    """Reads and checks a score file.

    Log-probs that are not finite are kept: whoever weighs them leaves their instances out and names them.

    Args:
      path: The file.
      owner: Which span a token counts for that covers bytes of two.

    Raises:
      UserError: A malformed row, lists of a row whose lengths disagree, a span or character that no token covers, a
        model that lacks a canary, a canary or cell that differs between rows, or a baseline that is not in the file;
        with its line.
    """
    rows = numbered_jsonl(path)
    if not rows:
        raise UserError(f"expected rows of scores in {path}, found none; see canaryjax probes --help")
    canaries: dict[int, tuple[Canary, TargetTokens]] = {}
    cells: dict[str, Cell] = {}
    models: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    ranked: dict[str, int] = {}  # of each cell, how many decoys its secrets are ranked among
    for number, row in rows:
        where = f"line {number} of {path}"
        cell, own_canary = _cell(row, where), _canary(row, owner, where)
        if cells.setdefault(cell.name, cell) != cell:
            raise UserError(
                f"expected one description of cell {cell.name!r}, found another in {where}; make them alike"
            )
        index = own_canary[0].index
        if canaries.setdefault(index, own_canary) != own_canary:
            raise UserError(
                f"expected canary {index} with the same prompt, text, spans and tokens for every model, found others "
                f"in {where}; score one prompt and one tokenisation"
            )
        of_model = models.setdefault((cell.name, _whole(row, "seed", where)), {})
        if index in of_model:
            raise UserError(f"expected canary {index} once for each cell and seed, found it again in {where}; drop one")
        of_model[index] = arrays = _arrays(row, len(own_canary[1].ids), where)
        fresh = (arrays["decoys"] or {}).get("wrong")
        if fresh is not None and ranked.setdefault(cell.name, len(fresh)) != len(fresh):
            raise UserError(
                f"expected {ranked[cell.name]} decoys of kind wrong in every row of cell {cell.name!r}, found "
                f"{len(fresh)} in {where}; a rank among others is another quantity: score as many for each"
            )
    order = sorted(canaries)
    for (name, seed), of_model in models.items():
        missing = [index for index in order if index not in of_model]
        if missing:
            raise UserError(
                f"expected every canary of {path} for cell {name!r}, seed {seed}, found no row for canary "
                f"{missing[0]}; score it too"
            )
    _check_baselines(cells, path)
    readings = [_reading(name, seed, [of_model[i] for i in order]) for (name, seed), of_model in models.items()]
    return Given(
        tuple(canaries[i][0] for i in order),
        tuple(canaries[i][1] for i in order),
        tuple(cells.values()),
        tuple(readings),
    )


def _cell(row: Any, where: str) -> Cell:
    name, baseline = _text(row, "cell", where), row.get("baseline")
    kind = row.get("kind", "baseline" if baseline is None else "sft")
    if kind not in KINDS or (kind == "baseline") != (baseline is None):
        raise UserError(
            f"expected kind among {list(KINDS)} and a baseline for each but `baseline` in {where}, found kind={kind!r} "
            f"and baseline={baseline!r}; correct them"
        )
    if baseline is not None:
        baseline = _text(row, "baseline", where)
    regime = _text(row, "regime", where) if "regime" in row else baseline or name
    source = _text(row, "source", where) if "source" in row else "given"
    return Cell(name, regime, source, kind, _whole(row, "steps", where) if "steps" in row else 0, baseline)


def _canary(row: Any, owner: str, where: str) -> tuple[Canary, TargetTokens]:
    for key in ("ids", "offsets", "logps", "segments"):
        if key not in row:
            raise UserError(f"expected {key!r} in {where}, found no such key; add it")
    index, text, unit = _whole(row, "canary", where), _text(row, "text", where), row.get("offset_unit", UNITS[0])
    if unit not in UNITS:
        raise UserError(f"expected offset_unit among {list(UNITS)} in {where}, found {unit!r}; correct it")
    try:
        ids = tuple(operator.index(i) for i in row["ids"])
        offsets: Sequence[Any] = [(operator.index(start), operator.index(end)) for start, end in row["offsets"]]
        spans = [(str(s["name"]), operator.index(s["start"]), operator.index(s["end"])) for s in row["segments"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"expected ids, offsets ([start, end] each) and segments ({{name, start, end}} each) in {where}, found "
            f"{type(error).__name__}: {error}; correct them"
        ) from None
    if len(ids) != len(offsets):
        raise UserError(
            f"expected as many offsets as ids in {where}, found {len(offsets)} and {len(ids)}; correct them"
        )
    if unit == "characters":
        offsets = byte_offsets(text, offsets, where)
        edges = byte_offsets(text, [(start, end) for _, start, end in spans], where)
        spans = [(name, start, end) for (name, *_), (start, end) in zip(spans, edges, strict=True)]
    segments = tuple(Segment(*span) for span in spans)
    _check_segments(segments, len(text.encode()), where)
    refuse_gaps(text, offsets, where)
    try:
        parts = {s.name: text.encode()[s.start : s.end].decode() for s in segments}
    except UnicodeDecodeError:
        raise UserError(
            f"expected segments that begin and end between characters in {where}, found one inside of a character; "
            "correct it, or offset_unit"
        ) from None
    owners, straddles = own(offsets, segments, owner, where)
    recall = (parts.get("literal", "") + parts["secret"] + parts.get("end", "")).strip()
    prompt = _text(row, "prompt", where) if row.get("prompt") not in (None, "") else ""
    canary = Canary(index, "text", prompt, text, segments, parts["secret"], recall)
    return canary, TargetTokens(index, ids, tuple((int(a), int(b)) for a, b in offsets), owners, straddles)


def _check_segments(segments: Sequence[Segment], size: int, where: str) -> None:
    names = [segment.name for segment in segments]
    ordered = names == [name for name in SPANS if name in names] and "secret" in names
    edges = [0, *(segment.end for segment in segments)]
    touching = [segment.start for segment in segments] == edges[:-1] and edges[-1] == size
    if not ordered or not touching or any(segment.end <= segment.start for segment in segments):
        raise UserError(
            f"expected segments named among {list(SPANS)}, in that order, the secret among them, that cover the {size} "
            f"bytes of the text without gaps in {where}, found {[(s.name, s.start, s.end) for s in segments]}; "
            "correct them"
        )


def _arrays(row: dict[str, Any], length: int, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {"logps": _numbers(row, "logps", where, length)}
    for key in ("ranks", "merged_logps"):
        found[key] = None if row.get(key) is None else _numbers(row, key, where, length)
    ranks = found["ranks"]
    if ranks is not None and not ((ranks >= 1) & (ranks == np.floor(ranks)) & np.isfinite(ranks)).all():
        raise UserError(f"expected ranks as whole numbers, 1 the most probable, in {where}; correct them")
    found["window_logps"] = None if row.get("window_logps") is None else _numbers(row, "window_logps", where)
    if found["window_logps"] is not None and len(found["window_logps"]) > length:
        raise UserError(
            f"expected window_logps of at most the {length} tokens of the text in {where}, found "
            f"{len(found['window_logps'])}; cut them"
        )
    outputs, decoys = row.get("outputs"), row.get("decoys")
    if outputs is not None and not (isinstance(outputs, list) and all(isinstance(o, str) for o in outputs)):
        raise UserError(f"expected outputs as a list of texts, the greedy one first, in {where}; correct them")
    if decoys is not None and not (isinstance(decoys, dict) and set(decoys) <= set(DECOYS)):
        raise UserError(f"expected decoys as lists by kind among {list(DECOYS)} in {where}; correct them")
    found["outputs"] = outputs
    found["decoys"] = None if decoys is None else {kind: _numbers(decoys, kind, where) for kind in decoys}
    if any((sums < 0).any() for sums in (found["decoys"] or {}).values()):
        raise UserError(
            f"expected decoys as sums of -log p, at least 0, in {where}, found one below 0; turn the signs of log-probs"
        )
    return found


def _numbers(row: dict[str, Any], key: str, where: str, length: int | None = None) -> np.ndarray:
    values = row.get(key)
    try:
        given = [float("nan") if value is None else value for value in values or ()]
        if any(isinstance(value, bool | str) for value in given):
            raise TypeError
        array = np.array(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.zeros((0, 0))
    if not isinstance(values, list) or array.ndim != 1:
        raise UserError(f"expected {key} as a list of numbers in {where}, found {str(values)[:60]!r}; correct it")
    if length is not None and len(array) != length:
        raise UserError(f"expected as many {key} as ids in {where}, found {len(array)} and {length}; correct them")
    if key.endswith("logps") and ((array > 0) & np.isfinite(array)).any():
        raise UserError(f"expected natural log-probs, at most 0, in {key} of {where}, found one above 0; correct it")
    # Whoever weighs it leaves out and names what is not finite.
    return np.where(np.abs(array) < MASKED, array, np.nan) if key != "ranks" else array


def _reading(cell: str, seed: int, rows: Sequence[dict[str, Any]]) -> Reading:
    def each(key: str) -> list[Any] | None:
        return None if any(row[key] is None for row in rows) else [row[key] for row in rows]

    def negated(key: str) -> tuple[np.ndarray, ...] | None:
        values = each(key)
        return None if values is None else tuple(0.0 - value for value in values)

    ranks, outputs, decoys = each("ranks"), each("outputs"), each("decoys")
    kinds = [] if decoys is None else [kind for kind in DECOYS if all(kind in row for row in decoys)]
    return Reading(
        cell=cell,
        seed=seed,
        nll=tuple(0.0 - row["logps"] for row in rows),
        ranks=None if ranks is None else tuple(ranks),
        window_nll=negated("window_logps"),
        outputs=None if outputs is None else tuple(tuple(row) for row in outputs),
        decoy_nll=None if decoys is None else {kind: tuple(row[kind] for row in decoys) for kind in kinds},
        merged_nll=negated("merged_logps"),
    )


def _check_baselines(cells: dict[str, Cell], path: Path) -> None:
    for cell in cells.values():
        if cell.baseline is not None and (cell.baseline not in cells or cells[cell.baseline].baseline is not None):
            raise UserError(
                f"expected the baseline {cell.baseline!r} of cell {cell.name!r} in {path}, found no such baseline; "
                "add its rows"
            )


def _text(row: Any, key: str, where: str) -> str:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value or _SURROGATE.search(value):
        raise UserError(f"expected a text under {key!r} in {where}, found {value!r:.60}; correct it")
    return value


def _whole(row: dict[str, Any], key: str, where: str) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"expected a whole number under {key!r} in {where}, found {value!r:.60}; correct it")
    return value
