"""`bin/pretrain-embedded`: make the embedded base again."""

import argparse
from dataclasses import replace
from pathlib import Path

import jax

import canaryjax.embedded
from canaryjax.embedded.pretrain.held_out import evaluate
from canaryjax.embedded.pretrain.release import release
from canaryjax.embedded.pretrain.training import Recipe, pretrain
from canaryjax.embedded.tokenizer import build_tokenizer


def main() -> None:
    """Trains, scores on held-out documents and writes the model directory."""
    parser = argparse.ArgumentParser(description="Makes the embedded base model from nothing (about 25 minutes).")
    shipped = Path(canaryjax.embedded.__file__).parent / "model"
    parser.add_argument("--out", type=Path, default=shipped, help="directory to replace; default: the shipped model")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    options = parser.parse_args()
    recipe = replace(Recipe(), seed=options.seed)

    def report(step: int, metrics: dict[str, float], _: dict[str, jax.Array]) -> None:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name != "padding")
        print(f"step {step} of {recipe.steps}  {shown}", flush=True)

    model = pretrain(recipe, report)
    scores = evaluate(model, build_tokenizer())
    for name, value in scores.items():
        print(f"{name:32} {value:.4f}")
    release(model, options.out, recipe, scores)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
