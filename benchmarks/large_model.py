"""One large model with random weights in bfloat16: `large_model.py gemma_2b | qwen2_5_1_5b [--tiny] [--json FILE]`.

Ours alone: a GRPO step by its parts, against what the device can multiply and read; for `bin/gpu-check`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from harness.command import parse, run_script
from harness.record import environment, finish, result
from harness.shape import TINY, Shape

SHAPES = {
    "gemma_2b": Shape(width=2048, layers=18, heads=8, kv_heads=1, head=256, ff=16384, vocab=256_000),
    "qwen2_5_1_5b": Shape(width=1536, layers=28, heads=12, kv_heads=2, head=128, ff=8960, vocab=151_936),
}
GEMMA: dict[str, Any] = {  # what its family does otherwise than the Qwen2 of a shape
    "family": "gemma",
    "rope_theta": 1e4,
    "rope_theta_local": 1e4,
    "activation": "gelu_tanh",
    "scale_embedding": True,
    "unit_offset_norm": True,
    "qkv_bias": False,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the model and returns the exit status."""
    options = parse(__doc__, (), arguments, sizes=(), models=tuple(SHAPES))
    from sides.large_policy import LargePolicy

    name = options.model
    assert name is not None  # one of them had to be given
    shape = dataclasses.replace(TINY, heads=6, kv_heads=1) if options.tiny else SHAPES[name]
    family = GEMMA if name == "gemma_2b" else {}
    config = dataclasses.replace(shape.config(), dtype="bfloat16", **family)
    policies = 2 if options.tiny else 4
    found = LargePolicy(shape, config, policies).detail(options.repeats, options.tiny)
    surroundings = environment() | {"dtype": "bfloat16"}
    sizes = {"model": name, "policies": policies} | shape.record()
    return finish([result("large_model", sizes, surroundings, [found["step_s"]], found)], options.json)


if __name__ == "__main__":
    run_script(main)
