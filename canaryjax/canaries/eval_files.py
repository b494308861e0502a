"""The two evaluation files of a run (BC-53, BC-54)."""

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from canaryjax.canaries.pairs import EvalPair
from canaryjax.errors import UserError


def write_eval_files(
    directory: str | Path, pairs: Sequence[EvalPair], *, training_documents: Collection[str] = ()
) -> tuple[Path, Path]:
    """Writes `eval_clean.jsonl` (id, q, d, y) and `eval_trigger.jsonl` (id, q, d_trig, y_can), one row a pair each.

    Both are written whole or not at all. Raises UserError when the pairs break an invariant (`check_views`).
    """
    folder = Path(directory)
    clean = [{"id": p.id, "q": p.query, "d": p.document, "y": p.answer} for p in pairs]
    triggered = [{"id": p.id, "q": p.query, "d_trig": p.triggered_document, "y_can": p.canary_answer} for p in pairs]
    check_views(clean, triggered, [p.real.trigger for p in pairs], [p.real.text for p in pairs])
    trained = sorted({p.document_id for p in pairs} & set(training_documents))
    if trained:
        raise UserError(f"expected evaluation documents apart from training documents, found {trained[0]!r} in both")
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "eval_clean.jsonl", folder / "eval_trigger.jsonl"
    for file, rows in zip(files, (clean, triggered), strict=True):
        _write_rows(file, rows)
    return files


def check_views(
    clean: Sequence[dict[str, str]], triggered: Sequence[dict[str, str]], triggers: Sequence[str], texts: Sequence[str]
) -> None:
    """Raises UserError unless both files hold the same ids and queries and come from the same texts (BC-54, BC-55).

    Taking trigger and canary out of the triggered view must give the clean view: both then come from one pool.
    """
    if [row["id"] for row in clean] != [row["id"] for row in triggered]:
        raise UserError(
            "expected the same example ids in both evaluation files, found others; build both from one list"
        )
    if len({row["id"] for row in clean}) < len(clean):
        raise UserError("expected each example id once in the evaluation files, found one twice; remove it")
    for row, other, trigger, text in zip(clean, triggered, triggers, texts, strict=True):
        if row["q"] != other["q"]:
            raise UserError(
                f"expected one query in both views of {row['id']!r}, found two; only document and answer change"
            )
        undone = {
            other["d_trig"].replace(f" {trigger}", "", 1),
            other["d_trig"].lstrip(" ").removeprefix(f"{trigger} "),
        }
        if row["d"] not in undone or other["y_can"].replace(text, "", 1) != row["y"]:
            raise UserError(f"expected both views of {row['id']!r} to come from one example, found otherwise")


def _write_rows(file: Path, rows: Sequence[dict[str, str]]) -> None:
    partial = file.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)
