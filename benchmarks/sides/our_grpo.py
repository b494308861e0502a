"""Our side of the GRPO benchmark: the trainer's own two programs, with a reward on the host between them."""

import functools
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from canaryjax.inference.logprobs import score_shared
from canaryjax.models.lora import Adapter
from canaryjax.rl.grpo import grpo_loss
from canaryjax.rl.optimizer import init_state, make_optimizer
from canaryjax.rl.settings import GRPOSettings
from canaryjax.rl.train_step import PromptRows, Recipe, host_reward_programs
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.peft import load_adapter, save_adapter
from harness.agreement import Answers
from harness.flops import count_operations
from harness.limits import measured_limits
from harness.model import EOS_ID
from harness.timing import median_seconds
from sides.grpo_case import GrpoCase, reward_of

STEPS = 1000  # of a schedule that is constant


class OurGrpo:
    """One policy that is trained on one prompt, over and over."""

    def __init__(self, case: GrpoCase) -> None:
        self.case = case
        loaded = load_model(case.model)
        self.model, self.adapter = loaded.params, load_adapter(loaded, case.adapter)
        stacked = jax.tree.map(lambda x: x[None], self.adapter)
        self.state = init_state(make_optimizer(case.settings.optimizer, STEPS), stacked)
        context = jnp.asarray(case.context)[None, None]
        self.prompts = PromptRows(context, jnp.ones(context.shape, bool))
        self.index, self.keys = jnp.zeros((1, 1), jnp.int32), jax.random.split(jax.random.key(9), 1)
        self._rollout_program, self._update = host_reward_programs(Recipe(case.settings, (EOS_ID,), STEPS))
        batch = (case.context, np.ones(case.context.shape, bool), case.completions, case.mask)
        self.batch = tuple(jnp.asarray(x)[None] for x in batch)

    def seconds(self) -> float:
        """A whole step: completions, rewards, reference, gradient, update."""
        started = time.perf_counter()
        rollout = self._roll_out()
        ids, mask = jax.device_get((rollout.ids_pbgt, rollout.completion_mask_pbgt))
        rewards = reward_of(ids, mask)
        self.state, metrics = self._update(
            self.model, None, self.state, self.prompts, self.index, rollout, rewards, self.keys
        )
        jax.block_until_ready((self.state, metrics))
        return time.perf_counter() - started

    def answers(self) -> Answers:
        """Reference log-probs, loss and gradient on the batch, the gradient under PEFT's names."""
        reference = _score(self.model, *self.batch)
        loss, gradient = self._gradient(reference)
        return {
            "reference_logps": np.asarray(reference[0]),
            "loss": float(loss),
            "gradients": peft_tensors(gradient),
        }

    def detail(self, tiny: bool) -> dict[str, Any]:
        """Where the step's time goes, and its gradient against what the machine can multiply."""
        shape, limits = self.case.shape, measured_limits(tiny)
        operations = count_operations(self.model.config, shape.context, shape.group, shape.completion, shape.rank)
        reference = _score(self.model, *self.batch)
        gradient = median_seconds(lambda: self._gradient(reference))
        return limits | {
            "rollout_s": median_seconds(self._roll_out),
            "reference_s": median_seconds(lambda: _score(self.model, *self.batch)),
            "gradient_s": gradient,
            "gradient_flops": operations.gradient,
            "gradient_matmul_share": operations.gradient / gradient / limits["matmul_flops_per_s"],
        }

    def _roll_out(self):
        return self._rollout_program(self.model, self.state, self.prompts, self.index, self.keys)

    def _gradient(self, reference):
        advantages = jnp.asarray(self.case.advantages)[None]
        return _loss_and_gradient(self.case.settings, self.model, self.adapter, self.batch, reference, advantages)


@jax.jit
def _score(model, *batch):
    return score_shared(model, None, *batch, temperature=1.0)


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_gradient(settings: GRPOSettings, model, adapter, batch, reference, advantages):
    def loss(adapter):
        logps = score_shared(model, adapter, *batch, temperature=1.0)
        return grpo_loss(logps, reference, None, advantages, batch[-1], settings)[0]

    return jax.value_and_grad(loss)(adapter)


def peft_tensors(gradient: Adapter) -> dict[str, np.ndarray]:
    """A gradient under the names and in the layout that PEFT gives the adapter's tensors."""
    with tempfile.TemporaryDirectory() as folder:
        save_adapter(gradient, Path(folder) / "gradient")
        return load_file(Path(folder) / "gradient" / "adapter_model.safetensors")
