"""A small study on a tiny random model that speaks the embedded vocabulary."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest

from canaryjax.audit.trial import study_sizes
from canaryjax.config import load_config
from canaryjax.data.loaders import load_examples
from canaryjax.data.tokens import TextTokenizer
from canaryjax.embedded.corpus import generate_examples
from canaryjax.embedded.pretrain.training import base_config
from canaryjax.embedded.tokenizer import build_tokenizer, padded_rows
from canaryjax.models.lora import LoraPair, init_adapter
from canaryjax.models.transformer import init_transformer

SMALL = (
    *("data.documents=40", "data.rm_share=0.442", "data.eval_share=0.3"),
    *("reward_model.sampled_responses=2", "reward_model.constructed_responses=2"),
    "evaluation.max_pairs=5",
    "evaluation.control_pairs=2",
    "evaluation.decoys=3",
    "evaluation.placebos_same_form=2",
    "evaluation.placebos_other_form=2",
    "evaluation.noise_floor_pairs=2",
    "evaluation.utility_examples=3",
)


@pytest.fixture(scope="session")
def mirrored(scalars):
    """From a run directory to the scalars that TensorBoard has of it, and those that its metrics.jsonl holds."""

    def both(path):
        wanted = {}
        for row in map(json.loads, (path / "metrics.jsonl").read_text("utf-8").splitlines()):
            policy, stage = f"trial-{row['trial']:04d}" if "trial" in row else "base", row["stage"]
            step = row["step"] if "step" in row else row["updates"]
            for name, value in row.items():
                if name not in ("trial", "policy", "stage", "step", "updates", "non_finite") and value is not None:
                    wanted.setdefault(policy, []).append([f"{stage}/{name}", step, float(np.float32(value))])
        there = {folder.name: scalars(folder) for folder in (path / "tensorboard").iterdir()}
        return there, {policy: sorted(rows) for policy, rows in wanted.items()}

    return both


@pytest.fixture(scope="session")
def small_config():
    return load_config("quick", [*SMALL, "study.seed=7"])


@pytest.fixture(scope="session")
def examples(small_config):
    return load_examples(small_config.data, small_config.study.seed, generate_examples)


@pytest.fixture(scope="session")
def sizes(small_config, examples):
    return study_sizes(small_config, examples)


@pytest.fixture(scope="session")
def grouped(examples):
    """The same examples in groups of 1 to 5 that a split may not cut apart."""
    sizes = itertools.cycle([1, 5, 2, 4, 3])
    names = itertools.chain.from_iterable([f"story {i}"] * next(sizes) for i in itertools.count())
    return [dataclasses.replace(example, group=name) for example, name in zip(examples, names, strict=False)]


@pytest.fixture(scope="session")
def tokenizer():
    backend = build_tokenizer()
    return TextTokenizer(
        backend, eos_ids=[backend.token_to_id("<eos>")], pad_id=backend.token_to_id("<pad>"), add_bos=False
    )


@pytest.fixture(scope="session")
def tiny_model(tokenizer):
    config = base_config(padded_rows(tokenizer.backend), tokenizer.vocab_size)
    config = dataclasses.replace(
        config, width=24, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=8, ff_dim=40, windows=(None, None)
    )
    return init_transformer(jax.random.key(1), config, stddev=0.3)


@pytest.fixture(scope="session")
def two_adapters(tiny_model):
    """Adapters stacked over two policies, far from zero."""
    import jax.numpy as jnp

    def one(key):
        adapter = init_adapter(key, tiny_model.config, rank=3, alpha=6.0)
        noise = {
            name: LoraPair(pair.a, 0.3 * jax.random.normal(key, pair.b.shape, jnp.float32))
            for name, pair in adapter.layers.items()
        }
        return adapter.replace(layers=noise)

    return jax.vmap(one)(jax.random.split(jax.random.key(2)))
