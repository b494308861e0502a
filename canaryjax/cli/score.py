"""`canaryjax score`: log-probs of given continuations, as JSON lines."""

import json
import os.path
from pathlib import Path
from typing import Annotated

import typer

from canaryjax.errors import UserError


def score(
    model: Annotated[str, typer.Argument(help="Hugging Face directory, .gguf file, or embedded.")],
    prompt: Annotated[str | None, typer.Option(help="The text before.")] = None,
    continuation: Annotated[list[str] | None, typer.Option(help="The text to score; may be repeated.")] = None,
    file: Annotated[
        Path | None, typer.Option("--input", help='JSONL with "prompt" and "continuation" (a text or a list).')
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="PEFT adapter directory.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Prints ids and natural-log probabilities of each continuation, one JSON object a line."""
    prompts, continuations = _pairs(prompt, continuation, file)
    import canaryjax as cj

    loaded = cj.load_model(model, dtype=dtype)
    found = cj.score(loaded, prompts, continuations, adapter=cj.load_adapter(loaded, adapter) if adapter else None)
    for index, scores in enumerate(found):
        # One continuation per prompt may come back bare, several come back as a list.
        for scored in scores if isinstance(scores, list) else [scores]:
            logps = [float(x) for x in scored.logps]
            row = {"prompt": index, "continuation": scored.text, "ids": [int(i) for i in scored.ids], "logps": logps}
            print(json.dumps(row | {"total": sum(logps), "straddles": bool(scored.straddles)}, allow_nan=False))


def _pairs(prompt: str | None, continuation: list[str] | None, file: Path | None) -> tuple[list[str], list[list[str]]]:
    if file is None:
        if prompt is None or not continuation:
            raise UserError("expected --prompt and --continuation, or --input FILE; give one of the two")
        return [prompt], [continuation]
    if prompt is not None or continuation:
        raise UserError("expected either --input or --prompt and --continuation, found both; leave one out")
    rows = read_rows(file, ("prompt", "continuation"))
    asked = [row["continuation"] for row in rows]
    return [row["prompt"] for row in rows], [[item] if isinstance(item, str) else item for item in asked]


def read_rows(file: Path, keys: tuple[str, ...]) -> list[dict]:
    """Reads a JSONL file whose rows must hold the keys; an error names file and line."""
    from canaryjax.data import rows

    if not os.path.isfile(file):
        raise UserError(f"expected a JSONL file at {file}, found none; check the path")
    found = list(rows.read_rows(file))
    for row in found:
        for key in keys:
            value = row.values.get(key)
            texts = value if key == "continuation" and isinstance(value, list) else [value]
            if not texts or not all(isinstance(text, str) for text in texts):
                raise UserError(f"{row.place}: expected the text {key!r}, found {value!r}; correct the row")
    return [dict(row.values) for row in found]
