"""A program, not a module: scores, samples and trains a tiny model on given meshes and writes down what came out.

    python cases.py OUT.npz '[["whole", {}, ["scores"]], ["whole", {"policy": 2}, ["scores"]]]'

Each case is a size of the model, a mesh, {} for one device, and what to do: some of `PARTS`. What it found is saved
under "<number>/<what>". XLA_FLAGS must say how many devices to simulate; with PROCESS="rank/count/port" the program is
one of several processes.
"""

import dataclasses
import json
import os
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.scoring import Item, score_items
from canaryjax.inference.logprobs import token_logps
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import HEAD, TARGETS, LoraPair, from_pairs, target_shapes
from canaryjax.models.mesh import make_mesh
from canaryjax.models.sharding import fetch, place_base, place_policies, place_rows
from canaryjax.models.transformer import Transformer, parameter_shapes
from canaryjax.rl.reward_model import RewardRows, init_reward_model
from canaryjax.rl.reward_training import train_reward_models
from canaryjax.rl.rollout import PromptRows, Recipe
from canaryjax.rl.settings import AdapterSettings, GRPOSettings, OptimizerSettings, RewardModelSettings
from canaryjax.rl.train_step import model_reward_step
from canaryjax.rl.trainer import _new_state, train_policies

EOS, POLICIES, GROUP, CONTEXT, ANSWER = 1, 4, 5, 7, 3
# Of `whole` two devices share every axis; of `odd` the query heads alone: three key heads, a prime vocabulary and width
# of the feed-forward layer, three prompts a step.
SIZES = {
    "whole": {"vocab_size": 26, "width": 15, "num_heads": 8, "num_kv_heads": 2, "head_dim": 10, "ff_dim": 22},
    "odd": {"vocab_size": 23, "width": 13, "num_heads": 6, "num_kv_heads": 3, "head_dim": 10, "ff_dim": 17},
}
ROWS = {"whole": 4, "odd": 3}
ADAPTER = AdapterSettings(rank=3, alpha=6.0)
# Of every policy; NumPy's, since nothing may be computed before the processes have met.
KEYS = np.random.default_rng(4).integers(2**32, size=(POLICIES, 2), dtype=np.uint32)


def build(size):
    """The model of a size, on one device: norms and biases far from their start, an untied head, two padding rows."""
    sizes = SIZES[size]
    config = ModelConfig(
        family="qwen2", num_layers=2, norm_eps=1e-5, rope_theta=777.0, rope_theta_local=777.0, rope_scaling=None,
        windows=(None, None), attn_scale=0.4, attn_softcap=None, final_softcap=None, activation="silu",
        scale_embedding=False, unit_offset_norm=False, post_norms=False, qk_norm=True, qkv_bias=True, o_bias=True,
        mlp_bias=True, tied=False, real_vocab_size=sizes["vocab_size"] - 2, **sizes,
    )  # fmt: skip
    rng = np.random.default_rng(0)  # NumPy's: each of JAX's draws would be compiled
    shapes = parameter_shapes(config)
    return Transformer(config, {p: jnp.asarray(0.3 * rng.standard_normal(s), "float32") for p, s in shapes.items()})


def policies_of(model):
    """Adapters far from zero, stacked."""
    rng = np.random.default_rng(1)
    pairs = {}
    for name, (size_in, size_out) in target_shapes(model.config).items():
        front = (POLICIES,) if name == HEAD else (POLICIES, model.config.num_layers)
        draws = (0.3 * rng.standard_normal((*front, *s)) for s in ((size_in, 3), (3, size_out)))
        pairs[name] = LoraPair(*(jnp.asarray(x, "float32") for x in draws))
    return place_policies(model, from_pairs(pairs, 2.0))


def rows_of(rng, shape, vocab):
    """Right-padded ids and their mask."""
    mask = np.arange(shape[-1]) < rng.integers(2, shape[-1] + 1, (*shape[:-1], 1))
    return np.where(mask, rng.integers(2, vocab - 2, shape), 0).astype(np.int32), mask


def scores(model, rows):
    """Every policy's and the base's log-probs of strings, behind a shared beginning and alone."""
    rng, vocab = np.random.default_rng(2), model.config.vocab_size
    start = rng.integers(2, vocab, 4)
    items = [
        [
            Item(np.append(start, rng.integers(2, vocab, 3 + i % 3)), rng.integers(2, vocab, 1 + i % 3))
            for i in range(10)
        ]
        for _ in range(POLICIES)
    ]
    adapters = policies_of(model)
    return {
        "scores": score_items(model, adapters, items, 10),
        "alone": score_items(model, adapters, items, 10, share=False),
        "base": score_items(model, None, items, 5),
    }


def head(model, rows):
    """Log-probs and their gradient from a head that is gone through in chunks: three of each half of 26 entries."""
    rng = np.random.default_rng(3)
    hidden = rng.standard_normal((11, model.config.width)).astype(np.float32)
    logps, gradient = jax.jit(chunked)(model, policies_of(model), hidden, rng.integers(2, 26, 11))
    return {"head": fetch(logps)} | named("head gradient", gradient)


def chunked(model, adapters, hidden, ids):
    """Of all policies, on the same states: log-probs, and the gradients of the states and of the head's updates."""

    def logps(hidden, head, adapter):
        adapter = dataclasses.replace(adapter, head=head)
        found = token_logps(model, adapter, hidden, ids, jnp.ones(len(ids), bool), chunk=5)
        return found.sum(), found

    def one(adapter):
        (_, found), gradients = jax.value_and_grad(logps, (0, 1), has_aux=True)(hidden, adapter.head, adapter)
        return found, gradients

    return jax.vmap(one)(adapters)


def grpo(rows):
    """Two passes an update, where a mesh along `data` could leave the rows of a pass on few devices."""
    passes = 2 if rows % 2 == 0 else 1
    return GRPOSettings(
        generation_batch_size=rows * GROUP, train_batch_size=rows * GROUP // passes, grad_accumulation=passes,
        num_generations=GROUP, max_completion_length=ANSWER, adapter=dataclasses.replace(ADAPTER, targets=TARGETS),
        optimizer=OptimizerSettings(5e-4, "constant"),
    )  # fmt: skip


def prompts_of(model, n):
    return PromptRows(*rows_of(np.random.default_rng(5), (POLICIES, n, CONTEXT), model.config.vocab_size))


def policies(model, rows):
    """Four steps of GRPO with rewards made on the host: what was sampled, and the adapters."""
    sampled, records = [], []

    def rewards(step, index, ids, mask):
        # All different: where a group is flat, its gradient is rounding alone, which Adam makes a step of full size.
        sampled.append(ids)
        return ((ids * mask) @ np.array([1.0, 0.37, 0.11])).astype(np.float32)

    keys = jax.random.wrap_key_data(KEYS)
    prompts = prompts_of(model, 4 * rows)
    adapters, result = train_policies(model, rewards, prompts, grpo(rows), keys, records.append, eos_ids=(EOS,))
    assert result["steps"] == 4
    assert result["valid"].all()
    kl = np.array([[r["kl"] for r in records if r["policy"] == p] for p in range(POLICIES)])
    return {"ids": np.stack(sampled), "kl": kl} | named("policy", adapters)


def reward_models(model, rows):
    """Three updates of reward models, in two passes each, with a held-out evaluation."""
    rng = np.random.default_rng(6)
    n = 3 * 2 * rows + 2 * rows
    context, context_mask = rows_of(rng, (POLICIES, n, CONTEXT), model.config.vocab_size)
    ids, mask = rows_of(rng, (POLICIES, n, 2, ANSWER), model.config.vocab_size)
    labelled = RewardRows(
        context_ids=context, context_mask=context_mask, response_ids=ids, response_mask=mask,
        labels=(ids[..., 0] % 2).astype(np.int32), weights=np.ones(ids.shape[:3], np.float32),
        heldout_mask=np.broadcast_to(np.arange(n) < 2 * rows, (POLICIES, n)),
    )  # fmt: skip
    settings = RewardModelSettings(
        train_batch_size=2 * rows, eval_batch_size=2 * rows, grad_accumulation=2, epochs=1, eval_every=2,
        early_stopping_patience=2, remat=False, adapter=ADAPTER, optimizer=OptimizerSettings(5e-4, "constant"),
    )  # fmt: skip
    trained, result = train_reward_models(model, labelled, settings, jax.random.wrap_key_data(KEYS))
    assert result["updates"].tolist() == [3] * POLICIES
    return {"heldout_loss": result["heldout_loss"]} | named("reward", trained)


def named(prefix, tree):
    """Leaves by path."""
    leaves = jax.tree_util.tree_leaves_with_path(fetch(tree))
    return {prefix + jax.tree_util.keystr(path): x for path, x in leaves}


def collectives(model, rows):
    """Kinds and shapes of what devices send each other: in a step with reward models, and in a chunked head."""
    recipe, keys = Recipe(grpo(rows), (EOS,), 4), jax.random.wrap_key_data(KEYS)
    scorers = jax.vmap(lambda key: init_reward_model(key, model.config, ADAPTER))(keys)
    given = _new_state(recipe, model, None, None, keys), prompts_of(model, 4 * rows), keys, scorers
    state, prompts, keys, scorers = place_policies(model, given)
    index = place_rows(model, np.arange(POLICIES * rows, dtype=np.int32).reshape(POLICIES, rows))
    step = model_reward_step(recipe).lower(model, None, scorers, state, prompts, index, keys)
    hidden, ids = np.zeros((11, model.config.width), np.float32), np.zeros(11, int)
    over_head = jax.jit(chunked).lower(model, policies_of(model), hidden, ids)
    return {"step": sent(step), "over head": sent(over_head)}


def sent(lowered):
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
    found = re.findall(rf"= (.+?) ({kinds})(?:-start)?\(", lowered.compile().as_text())
    return np.array([f"{kind} {shape}" for shape, kind in found], str)


PARTS = {
    "scores": scores,
    "head": head,
    "policies": policies,
    "reward_models": reward_models,
    "collectives": collectives,
}


def main(out, cases):
    if "PROCESS" in os.environ:
        rank, count, port = map(int, os.environ["PROCESS"].split("/"))
        jax.distributed.initialize(f"127.0.0.1:{port}", count, rank, initialization_timeout=60)
    found = {}
    for number, (size, shape, parts) in enumerate(cases):
        model = build(size)
        if shape:
            model = place_base(model, make_mesh(shape))
        for part in parts:
            found |= {f"{number}/{name}": x for name, x in PARTS[part](model, ROWS[size]).items()}
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
