"""A tiny random model and rows for it; every dimension prime where it can be, and different from the others."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import Transformer, init_transformer
from canaryjax.rl.reward_model import RewardRows
from canaryjax.rl.rollout import PromptRows

EOS = 1
VOCAB = 23
POLICIES = 3


def tiny_model(seed: int = 0) -> Transformer:
    """Two layers, width 14, vocabulary 23 (two padding rows)."""
    config = ModelConfig(
        family="llama", vocab_size=VOCAB, width=14, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=6, ff_dim=17,
        norm_eps=1e-5, rope_theta=777.0, rope_theta_local=777.0, rope_scaling=None, windows=(None, None),
        attn_scale=0.4, attn_softcap=None, final_softcap=None, activation="silu", scale_embedding=False,
        unit_offset_norm=False, post_norms=False, qk_norm=False, qkv_bias=False, o_bias=False, mlp_bias=False,
        tied=True, real_vocab_size=VOCAB - 2,
    )  # fmt: skip
    return init_transformer(jax.random.key(seed), config, stddev=0.3)


def tiny_prompts(n: int = 13, s: int = 7, policies: int = POLICIES) -> PromptRows:
    """Different prompts for each policy, of different lengths."""
    rng = np.random.default_rng(5)
    mask = np.arange(s) < rng.integers(2, s + 1, (policies, n, 1))
    ids = np.where(mask, rng.integers(2, VOCAB - 2, (policies, n, s)), 0)
    return PromptRows(context_ids=jnp.asarray(ids, jnp.int32), context_mask=jnp.asarray(mask))


def tiny_rows(n: int = 20, g: int = 2, t: int = 5, heldout: int = 4) -> RewardRows:
    """Responses that feedback likes when they hold token 7."""
    rng = np.random.default_rng(6)
    prompts = tiny_prompts(n)
    mask = np.arange(t) < rng.integers(1, t + 1, (POLICIES, n, g, 1))
    ids = np.where(mask, rng.integers(2, VOCAB - 2, (POLICIES, n, g, t)), 0)
    ids[:, :, 0, 0] = np.where(rng.random((POLICIES, n)) < 0.7, 7, ids[:, :, 0, 0])
    return RewardRows(
        context_ids=prompts.context_ids,
        context_mask=prompts.context_mask,
        response_ids=jnp.asarray(ids, jnp.int32),
        response_mask=jnp.asarray(mask),
        labels=jnp.asarray((ids == 7).any(axis=-1).astype(np.int32)),
        weights=jnp.ones((POLICIES, n, g), jnp.float32),
        heldout_mask=jnp.asarray(np.arange(n)[None] < np.full((POLICIES, 1), heldout)),
    )


class Kept:
    """Step checkpoints in memory: every `every` steps into `saved`, by step; training goes on from `start`."""

    def __init__(self, every, start=None):
        self.every, self.start, self.saved, self.of = every, start, {}, None

    def restore(self, fresh, steps):
        self.of = steps
        return fresh if self.start is None else self.start

    def due(self, step, steps):
        return step % self.every == 0 or step == steps

    def save(self, state, step, steps):
        assert steps == self.of
        self.saved[step] = state


def policy_slice(tree, policy):
    """One policy of a stacked pytree, the axis kept."""
    return jax.tree.map(lambda x: x[policy : policy + 1], tree)


def largest_difference(a, b) -> float:
    """Over all leaves."""
    return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """The helpers of this file."""
    return SimpleNamespace(
        eos=EOS,
        vocab=VOCAB,
        policies=POLICIES,
        model=tiny_model(),
        prompts=tiny_prompts,
        rows=tiny_rows,
        kept=Kept,
        policy_slice=policy_slice,
        largest_difference=largest_difference,
    )
