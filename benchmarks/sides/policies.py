"""A GRPO step of several policies of the embedded model: all in one program, one after another, or as a study does."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.training import policy_settings
from canaryjax.config.load import load_config
from canaryjax.models.lora import Adapter, init_adapter
from canaryjax.rl.optimizer import TrainState, init_state, make_optimizer
from canaryjax.rl.settings import GRPOSettings
from canaryjax.rl.train_step import PromptRows, Recipe, host_reward_programs
from canaryjax.weights.checkpoint import load_model
from harness.agreement import Answers
from sides.grpo_case import reward_of

STEPS = 1000


class Policies:
    """Some policies, split into chunks; a chunk is one program, and several can run side by side."""

    def __init__(self, count: int, chunk: int, workers: int, prompt_tokens: int) -> None:
        """Takes how many policies, how many of them a chunk, how many chunks at once, and tokens of a prompt."""
        loaded = load_model("embedded")
        self.model, self.workers = loaded.params, workers
        settings = policy_settings(load_config("quick"))
        assert isinstance(settings, GRPOSettings)  # the quick setting's algorithm; a state below is an adapter's
        self.programs = host_reward_programs(Recipe(settings, loaded.eos_ids, STEPS))
        self.index = np.arange(settings.prompts_per_step, dtype=np.int32)
        ids = np.random.default_rng(30).integers(
            10, loaded.config.real_vocab_size, (count, settings.prompts_per_step, prompt_tokens), dtype=np.int32
        )
        keys = jax.random.split(jax.random.key(31), count)
        adapters = jax.vmap(lambda key: _trained(key, loaded.config, settings))(keys)
        self.chunks = []
        for start in range(0, count, chunk):
            part = slice(start, start + chunk)
            prompts = PromptRows(jnp.asarray(ids[part]), jnp.ones(ids[part].shape, bool))
            own = jax.tree.map(lambda x, part=part: x[part], adapters)
            self.chunks.append((init_state(make_optimizer(settings.optimizer, STEPS), own), prompts, keys[part]))

    def seconds(self) -> float:
        """One step of every policy, all from where they began."""
        started = time.perf_counter()
        self._all()
        return time.perf_counter() - started

    def answers(self) -> Answers:
        """Each policy's completions, their log-probs and its gradient's norm."""
        found = self._all()
        ids, logps, norms = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return {"sampled_ids": ids, "sampled_logps": logps, "gradient_norm": norms}

    def _all(self):
        if self.workers == 1:
            return [self._step(*chunk) for chunk in self.chunks]
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda chunk: self._step(*chunk), self.chunks))

    def _step(self, state: TrainState, prompts: PromptRows, keys: jax.Array):
        roll_out, update = self.programs
        index = np.broadcast_to(self.index, (len(keys), len(self.index)))
        rollout = roll_out(self.model, state, prompts, index, keys)
        ids, mask, logps = jax.device_get((rollout.ids_pbgt, rollout.completion_mask_pbgt, rollout.logps_pbgt))
        copied = jax.tree.map(jnp.array, state)  # the program takes the memory of what it is given
        _, metrics = update(self.model, None, copied, prompts, index, rollout, reward_of(ids, mask), keys)
        return ids, logps, np.asarray(metrics["grad_norm"])


def _trained(key: jax.Array, config, settings: GRPOSettings) -> Adapter:
    """An adapter that is no longer the base's, as after some steps."""
    adapter = init_adapter(key, config, settings.adapter.rank, settings.adapter.alpha)
    leaves, tree = jax.tree.flatten(adapter)
    moved = [x + 0.01 * jax.random.normal(jax.random.fold_in(key, i), x.shape) for i, x in enumerate(leaves)]
    return jax.tree.unflatten(tree, moved)
