"""`canaryjax generate`: sampled or greedy answers, as JSON lines."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from canaryjax.cli.numbers import within
from canaryjax.errors import UserError

MOST_TOKENS = 2**17  # the longest context of the six families
MOST_SAMPLES = 2**16  # all of a prompt are held at once; a larger number is a slip


def generate(
    model: Annotated[str, typer.Argument(help="Hugging Face directory, .gguf file, or embedded.")],
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt; may be repeated.")] = None,
    file: Annotated[Path | None, typer.Option("--input", help='JSONL with "prompt".')] = None,
    max_new_tokens: Annotated[
        int, typer.Option(callback=within(1, MOST_TOKENS), help=f"Tokens at most, 1 to {MOST_TOKENS}.")
    ] = 32,
    temperature: Annotated[
        float, typer.Option(callback=within(0.0, 1e6), help="0 is greedy, 1 the model's own law; at most 1e6.")
    ] = 0.0,
    top_p: Annotated[
        float, typer.Option(callback=within(1e-6, 1.0), help="Mass of the most probable tokens kept, 1e-6 to 1.")
    ] = 1.0,
    num_samples: Annotated[
        int, typer.Option(callback=within(1, MOST_SAMPLES), help=f"Answers per prompt, 1 to {MOST_SAMPLES}.")
    ] = 1,
    seed: Annotated[int, typer.Option(callback=within(0, 2**63 - 1), help="Of sampling, 0 to 2^63 - 1.")] = 0,
    adapter: Annotated[Path | None, typer.Option(help="PEFT adapter directory.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Prints each completion with its token log-probs, one JSON object a line."""
    if bool(prompt) == bool(file):
        raise UserError("expected either --prompt or --input FILE; give one of the two")
    prompts = list(prompt or ())
    if file is not None:
        from canaryjax.cli.score import read_rows

        prompts = [row["prompt"] for row in read_rows(file, ("prompt",))]
    import canaryjax as cj

    loaded = cj.load_model(model, dtype=dtype)
    answers = cj.generate(
        loaded,
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        num_samples=num_samples,
        seed=seed,
        adapter=cj.load_adapter(loaded, adapter) if adapter else None,
    )
    for index, completions in enumerate(answers):
        for number, answer in enumerate(completions):
            row: dict[str, Any] = {
                "prompt": index,
                "sample": number,
                "text": answer.text,
                "finished": bool(answer.finished),
            }
            row |= {"ids": [int(i) for i in answer.ids], "logps": [float(x) for x in answer.logps]}
            print(json.dumps(row, allow_nan=False))
