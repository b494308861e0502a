"""Policies of a large model with random weights, their GRPO step taken apart."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.inference.logprobs import score_shared
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import init_adapter
from canaryjax.models.transformer import init_transformer
from canaryjax.rl.optimizer import init_state, make_optimizer
from canaryjax.rl.settings import AdapterSettings, GRPOSettings, OptimizerSettings
from canaryjax.rl.train_step import PromptRows, Recipe, host_reward_programs
from harness.flops import count_operations
from harness.limits import MATMUL_SIDE, copy_rate, matmul_rate
from harness.shape import Shape
from harness.timing import median_seconds
from sides.grpo_case import reward_of

STEPS = 1000  # of a schedule that is constant
ROLLOUTS = 100  # of a policy, for policies an hour
NEVER = (2**30,)  # no end-of-sequence token: every completion runs to its full length
COMPILED = "/jax/core/compile/backend_compile_duration"
# Dense bfloat16 products without sparsity, operations a second, as NVIDIA states them.
PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}


class LargePolicy:
    """Some policies on one base, each with a prompt of its own."""

    def __init__(self, shape: Shape, config: ModelConfig, policies: int) -> None:
        self.shape, self.config, self.compile_s = shape, config, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        self.model = jax.jit(init_transformer, static_argnums=1)(jax.random.key(70), config)
        self.adapters = jax.vmap(lambda key: init_adapter(key, config, shape.rank, 2.0 * shape.rank))(
            jax.random.split(jax.random.key(71), policies)
        )
        ids = np.random.default_rng(72).integers(3, shape.vocab, (policies, 1, shape.context), dtype=np.int32)
        self.prompts = PromptRows(jnp.asarray(ids), jnp.ones(ids.shape, bool))

    def _hear(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            self.compile_s += duration_secs

    def detail(self, repeats: int, tiny: bool) -> dict[str, Any]:
        """Seconds of each part, and what they mean against the device's own limits."""
        shape = self.shape
        whole = self._parts(1, shape.completion, repeats)
        first = self._parts(1, 1, repeats, rollout_only=True)
        together = self._parts(len(self.prompts.context_ids), shape.completion, repeats)
        score_s = median_seconds(self._score, repeats)
        sizes = shape.context, shape.group, shape.completion
        forward, gradient = (
            count_operations(self.config, *sizes, 0).forward,
            count_operations(self.config, *sizes, shape.rank).gradient,
        )
        side = 64 if tiny else 2 * MATMUL_SIDE
        rate, peak = matmul_rate(side, jnp.bfloat16), self._peak()
        decode_s = max(whole["rollout_s"] - first["rollout_s"], 1e-9)
        reached = {"score": forward / score_s, "update": (forward + gradient) / whole["update_s"]}
        memory = jax.local_devices()[0].memory_stats() or {}  # None on a CPU
        return whole | {
            "step_s": whole["rollout_s"] + whole["update_s"],
            "prefill_s": first["rollout_s"],
            "score_s": score_s,
            "score_flops": forward,
            "update_flops": forward + gradient,
            "matmul_flops_per_s": rate,
            "peak_flops_per_s": peak,
            **{f"{name}_matmul_share": flops / rate for name, flops in reached.items()},
            **{f"{name}_mfu": flops / peak if peak else None for name, flops in reached.items()},
            "copy_bytes_per_s": copy_rate(2**16) if tiny else copy_rate(),
            "decode_bytes_per_s": (shape.completion - 1) * self._bytes_a_step() / decode_s,
            "decode_tokens_per_s": (shape.completion - 1) * shape.group / decode_s,
            "policies_per_hour": together["policies"] * 3600 / (ROLLOUTS * together["seconds"]),
            "rollouts_a_policy": ROLLOUTS,
            "peak_memory_bytes": memory.get("peak_bytes_in_use"),
            "compile_s": self.compile_s,
        }

    def _parts(self, policies: int, completion: int, repeats: int, *, rollout_only: bool = False) -> dict[str, Any]:
        """Seconds of rollout and update of some of the policies."""
        settings = self._settings(completion)
        roll_out, update = host_reward_programs(Recipe(settings, NEVER, STEPS))
        adapters, prompts = jax.tree.map(lambda x: jnp.array(x[:policies]), (self.adapters, self.prompts))
        state = init_state(make_optimizer(settings.optimizer, STEPS), adapters)
        index, keys = jnp.zeros((policies, 1), jnp.int32), jax.random.split(jax.random.key(73), policies)

        def rolled():
            return roll_out(self.model, state, prompts, index, keys)

        rollout_s = median_seconds(rolled, repeats)
        if rollout_only:
            return {"rollout_s": rollout_s}
        rollout = rolled()
        rewards = reward_of(*jax.device_get((rollout.ids_pbgt, rollout.completion_mask_pbgt)))
        taken = []
        for _ in range(repeats + 1):  # the update takes its state's memory, so each goes on from the one before
            started = time.perf_counter()
            state, metrics = update(self.model, None, state, prompts, index, rollout, rewards, keys)
            jax.block_until_ready((state, metrics))
            taken.append(time.perf_counter() - started)
        update_s = sorted(taken[1:])[(len(taken) - 1) // 2]
        valid = bool(np.asarray(metrics["valid"]).all())
        if not valid:
            raise RuntimeError("a policy's loss or gradient was not finite")
        if policies == 1:
            return {"rollout_s": rollout_s, "update_s": update_s}
        return {"policies": policies, "seconds": rollout_s + update_s}

    def _settings(self, completion: int) -> GRPOSettings:
        group = self.shape.group
        return GRPOSettings(
            generation_batch_size=group,
            train_batch_size=group,
            num_generations=group,
            max_completion_length=completion,
            adapter=AdapterSettings(self.shape.rank, 2.0 * self.shape.rank),
            optimizer=OptimizerSettings(1e-5, "constant"),
        )

    def _score(self) -> jax.Array:
        """The base's log-probs of the prompt's own tokens again, as continuations."""
        shape, ids = self.shape, self.prompts.context_ids[0]
        own = jnp.resize(ids, (1, shape.group, shape.completion))
        return _scored(self.model, None, ids, self.prompts.context_mask[0], own, jnp.ones(own.shape, bool))

    def _bytes_a_step(self) -> int:
        """What one step of decoding must read: all weights, and keys and values of the context."""
        weights = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(self.model))
        cache = 2 * self.config.num_layers * self.config.num_kv_heads * self.config.head_dim * self.shape.context
        return weights + cache * jnp.dtype(self.config.dtype).itemsize

    def _peak(self) -> float | None:
        words = f" {jax.devices()[0].device_kind} ".replace("-", " ")
        return next((peak for name, peak in PEAKS.items() if f" {name} " in words), None)


_scored = jax.jit(score_shared)
