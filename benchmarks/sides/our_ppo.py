"""Our side of the PPO benchmark: the trainer's own two programs, with a reward on the host between them."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.inference.logprobs import score_shared
from canaryjax.rl.optimizer import init_state, make_optimizer
from canaryjax.rl.ppo import PPOTargets, ppo_loss
from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.ppo_step import PPOParams
from canaryjax.rl.reward_model import RewardModel
from canaryjax.rl.train_step import PromptRows, Recipe, host_reward_programs
from canaryjax.rl.value_model import score_values
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.peft import load_adapter
from harness.agreement import Answers
from harness.model import EOS_ID
from sides.grpo_case import reward_of
from sides.our_grpo import STEPS, peft_tensors
from sides.ppo_case import PpoCase


class OurPpo:
    """One policy and its value model, trained on the same prompts, over and over."""

    def __init__(self, case: PpoCase) -> None:
        self.case, settings = case, case.settings
        loaded = load_model(case.model)
        adapter = load_adapter(loaded, case.adapter)
        self.model = loaded.params
        self.params = PPOParams(adapter, RewardModel(adapter, jnp.asarray(case.head), jnp.zeros(())))
        stacked = jax.tree.map(lambda x: jnp.array(x[None]), self.params)
        state = init_state(make_optimizer(settings.optimizer, STEPS), stacked)
        coefficient = jnp.full((1,), settings.kl_coefficient, jnp.float32)
        self.state = dataclasses.replace(state, kl_coefficient=coefficient)
        contexts = jnp.asarray(case.contexts)[None]
        self.prompts = PromptRows(contexts, jnp.ones(contexts.shape, bool))
        self.index = jnp.arange(len(case.contexts), dtype=jnp.int32)[None]
        self.keys = jax.random.split(jax.random.key(53), 1)
        self.rollout, self.update = host_reward_programs(Recipe(settings, (EOS_ID,), STEPS))

    def seconds(self) -> float:
        """A whole step: completions, rewards, reference, values, gradients, updates."""
        started = time.perf_counter()
        rollout = self.rollout(self.model, self.state, self.prompts, self.index, self.keys)
        ids, mask = jax.device_get((rollout.ids_pbgt, rollout.completion_mask_pbgt))
        rewards = reward_of(ids, mask)
        self.state, metrics = self.update(
            self.model, None, self.state, self.prompts, self.index, rollout, rewards, self.keys
        )
        jax.block_until_ready((self.state, metrics))
        return time.perf_counter() - started

    def answers(self) -> Answers:
        """Log-probs, values, loss and both adapters' gradients on the stored rollout, under PEFT's names."""
        case = self.case
        batch = (case.contexts, np.ones(case.contexts.shape, bool), case.completions, case.mask)
        stored = tuple(jnp.asarray(x) for x in (case.drift, case.advantages, case.old_values, case.returns))
        loss, logps, values, gradients = _loss_and_gradient(case.settings, self.model, self.params, batch, stored)
        return {
            "policy_logps": case.flat(np.asarray(logps)),
            "values": case.flat(np.where(case.mask, values, 0.0)),
            "loss": float(loss),
            "policy_gradients": peft_tensors(gradients.policy),
            "value_gradients": peft_tensors(gradients.value.adapter),
        }


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_gradient(settings: PPOSettings, model, params: PPOParams, batch, stored):
    drift, advantages, old_values, returns = stored

    def loss(params):
        *_, mask = batch
        logps = score_shared(model, params.policy, *batch, temperature=settings.temperature)
        values = score_values(model, params.value, *batch[:3])
        targets = PPOTargets(jax.lax.stop_gradient(logps) - drift, advantages, old_values, returns)
        return ppo_loss(logps, values, targets, mask, settings)[0], (logps, values)

    (value, (logps, values)), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    return value, logps, values, gradients
