"""TRL's PPOTrainer: its own training loop, generation, reference and value passes, losses and optimiser.

TRL removed it in 2026; 1.0.0 has it as `trl.experimental.ppo`. Its loss stands inside of its loop and cannot be called:
what is compared is the log-probs and values of its model by its own forward pass, under the loss of `torch_ppo`.
A step is Table 4's but for the update: accelerate counts the trainer's accumulation of a whole rollout, so that two
mini-batches end in one optimiser step.
"""

import tempfile
from types import SimpleNamespace

import numpy as np
import torch
from datasets import Dataset
from peft import load_peft_weights, set_peft_model_state_dict
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl.experimental.ppo import PPOConfig, PPOTrainer
from trl.experimental.ppo.ppo_trainer import forward

from harness.agreement import Answers
from harness.model import PAD_ID
from harness.stepper import Stepper
from sides.ppo_case import PpoCase
from sides.torch_model import load_base
from sides.torch_ppo import answers_of, load_values
from sides.trl_turns import STEPS, lora, plain_settings


class TrlPpo:
    """One policy and its value model; the reference is the base, the policy's adapter switched off."""

    def __init__(self, case: PpoCase) -> None:
        self.case, turns = case, _Turns()
        self.wrapped, value_model = load_values(case)
        self.trainer = PPOTrainer(
            args=_settings(case),
            processing_class=AutoTokenizer.from_pretrained(case.tokenizer),
            model=load_base(case.model),
            ref_model=None,
            reward_model=_EvenShare(case.shape.context),
            train_dataset=Dataset.from_dict({"input_ids": case.repeated().tolist()}),
            value_model=value_model,
            eval_dataset=Dataset.from_dict({"input_ids": case.repeated()[:1].tolist()}),  # it must be given one
            callbacks=[turns],
            peft_config=lora(case.shape.rank, "CAUSAL_LM"),
        )
        # Whatever it prints would stand between the results.
        self.trainer.remove_callback(PrinterCallback)
        self.trainer.accelerator.print = lambda *_, **__: None
        stored = load_peft_weights(str(case.adapter), device="cpu")
        set_peft_model_state_dict(self.trainer.policy_model, stored)
        turns.stepper = self.stepper = Stepper(self.trainer.train)

    def seconds(self) -> float:
        """A whole step of the trainer's loop."""
        return self.stepper.seconds()

    def answers(self) -> Answers:
        """As ours."""
        case, size = self.case, self.case.shape.completion
        ids = case.flat(case.completions)
        sequences = torch.tensor(np.concatenate([case.repeated(), ids], axis=1), dtype=torch.int64)
        output, values = forward(self.trainer.model, sequences, PAD_ID)
        logits = output.logits[:, -size - 1 : -1] / case.settings.temperature
        logps = logits.gather(-1, sequences[:, -size:, None])[..., 0] - logits.logsumexp(-1)
        return answers_of(case, self.trainer.policy_model, self.wrapped, logps, values[:, -size - 1 : -1, 0])


class _Turns(TrainerCallback):
    """Holds the trainer between steps; it tells of a step's end, not of its beginning."""

    stepper: Stepper

    def on_train_begin(self, *_, **__):
        self.stepper.step_begins()

    def on_step_end(self, *_, **__):
        self.stepper.step_ends()
        self.stepper.step_begins()


class _EvenShare(torch.nn.Module):
    """A reward that costs nothing, in the form of a reward model: the share of even ids so far in the completion."""

    base_model_prefix = "backbone"

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context

    def backbone(self, input_ids: torch.Tensor, **_) -> SimpleNamespace:
        even = (input_ids % 2 == 0).float()
        even[:, : self.context] = 0.0
        counted = torch.arange(input_ids.shape[1]).sub(self.context - 1).clamp(min=1)
        return SimpleNamespace(hidden_states=[(even.cumsum(1) / counted)[..., None]])

    def score(self, states: torch.Tensor) -> torch.Tensor:
        return states


def _settings(case: PpoCase) -> PPOConfig:
    """The same step as ours."""
    ours, completions = case.settings, len(case.repeated())
    return PPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=ours.train_batch_size,
        num_mini_batches=ours.mini_batches,
        num_ppo_epochs=ours.ppo_epochs,
        total_episodes=STEPS * completions,
        local_rollout_forward_batch_size=completions,
        num_sample_generations=0,
        response_length=case.shape.completion,
        stop_token="eos",
        temperature=ours.temperature,
        missing_eos_penalty=ours.missing_eos_penalty,
        kl_coef=ours.kl_coefficient,
        kl_estimator="k1",
        cliprange=ours.clip_range,
        vf_coef=ours.value_coefficient,
        cliprange_value=ours.value_clip_range,
        gamma=ours.gamma,
        lam=ours.gae_lambda,
        learning_rate=ours.optimizer.learning_rate,
        weight_decay=ours.optimizer.weight_decay,
        max_grad_norm=ours.optimizer.max_grad_norm,
        **plain_settings() | {"gradient_accumulation_steps": completions // ours.train_batch_size},
    )
