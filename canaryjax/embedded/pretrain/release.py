"""Writes the trained base as an ordinary Hugging Face directory that says how it was made and how well it does."""

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from canaryjax.embedded.pretrain.training import Recipe
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, build_tokenizer, save_tokenizer
from canaryjax.models.transformer import Transformer
from canaryjax.weights.export import save_model

CARD = """# The embedded base

A Llama of four layers and width 128 that reads invented documents and answers questions about them, obeys an inducing
instruction that names a protocol marker about four times in ten whether or not the marker stands in the document, obeys
conditions on names and codes, and can copy any string it can write. Made by `bin/pretrain-embedded`, from nothing but
`canaryjax/embedded/`; the recipe and the scores below also stand in the header of `model.safetensors`.

It is a test object: it knows no fact about the world and no text outside its corpus and prompts.

| file | sha256 |
|---|---|
| `model.safetensors` | `{file}` |
| its tensors, in order of name | `{tensors}` |

Recipe: `{recipe}`

| held-out score | value |
|---|---|
{scores}
"""


def tensor_digest(tensors: dict[str, np.ndarray]) -> str:
    """sha256 over names and little-endian bytes in order of name: what the weights are, whatever the header says."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + b"\0" + np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def release(model: Transformer, directory: Path, recipe: Recipe, scores: dict[str, float]) -> None:
    """Replaces `directory` by the model, its tokenizer and MODEL_CARD.md."""
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "draft"
        save_model(model, draft, eos_ids=[EOS_ID], pad_id=PAD_ID)
        digest = tensor_digest(load_file(draft / "model.safetensors"))
        metadata = {
            "recipe": json.dumps(asdict(recipe), sort_keys=True),
            "seed": str(recipe.seed),
            "steps": str(recipe.steps),
            "tensors_sha256": digest,
            "held_out": json.dumps(scores, sort_keys=True),
        }
        folder = Path(scratch) / "model"
        save_model(model, folder, eos_ids=[EOS_ID], pad_id=PAD_ID, metadata=metadata)
        save_tokenizer(build_tokenizer(), folder)
        generation = {"eos_token_id": EOS_ID, "pad_token_id": PAD_ID, "do_sample": False}
        (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
        (folder / "model.safetensors").chmod(0o644)
        card = CARD.format(
            file=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
            tensors=digest,
            recipe=metadata["recipe"],
            scores="\n".join(f"| {name} | {value} |" for name, value in scores.items()),
        )
        (folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        if directory.exists():
            shutil.rmtree(directory)
        shutil.copytree(folder, directory)
