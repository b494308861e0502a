"""TRL's GRPOTrainer: its own training loop, generation, reference pass, loss and optimiser."""

import tempfile

import numpy as np
import torch
from datasets import Dataset
from peft import load_peft_weights, set_peft_model_state_dict
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from harness.agreement import Answers
from harness.model import as_text
from harness.stepper import Stepper
from sides.grpo_case import GrpoCase, reward_of
from sides.torch_model import gradients_of, load_base
from sides.trl_turns import Turns, lora, plain_settings


class TrlGrpo:
    """One policy that is trained on one prompt, over and over; the reference is the base, its adapter switched off."""

    def __init__(self, case: GrpoCase) -> None:
        self.case = case
        turns = Turns()
        self.trainer = GRPOTrainer(
            model=load_base(case.model),
            reward_funcs=_reward,
            args=_settings(case),
            train_dataset=Dataset.from_dict({"prompt": [as_text(case.context)]}),
            processing_class=AutoTokenizer.from_pretrained(case.tokenizer),
            callbacks=[turns],
            peft_config=lora(case.shape.rank, "CAUSAL_LM"),
        )
        # Given a model that has an adapter, TRL takes a copy of that adapter as its reference; the base is meant.
        set_peft_model_state_dict(self.trainer.model, load_peft_weights(str(case.adapter), device="cpu"))
        turns.stepper = self.stepper = Stepper(self.trainer.train)

    def seconds(self) -> float:
        """A whole step of the trainer's loop, without its data loader."""
        return self.stepper.seconds()

    def answers(self) -> Answers:
        """As ours: the trainer's reference pass and its loss on the batch."""
        case, model = self.case, self.trainer.model
        completion_mask = torch.tensor(case.mask, dtype=torch.int64)
        prompt = torch.tensor(np.broadcast_to(case.context, (len(case.mask), len(case.context))), dtype=torch.int64)
        inputs = {
            "prompt_ids": prompt,
            "prompt_mask": torch.ones_like(prompt),
            "completion_ids": torch.tensor(case.completions, dtype=torch.int64),
            "completion_mask": completion_mask,
            "advantages": torch.tensor(case.advantages),
            "num_items_in_batch": completion_mask.sum(),
        }
        sequences = torch.cat([prompt, inputs["completion_ids"]], dim=1)
        attended = torch.cat([inputs["prompt_mask"], completion_mask], dim=1)
        with torch.no_grad(), model.disable_adapter():
            reference, *_ = self.trainer._get_per_token_logps_and_entropies(
                model, sequences, attended, completion_mask.shape[1]
            )
        model.train()
        self.trainer.current_gradient_accumulation_steps = 1  # what its loop sets
        loss = self.trainer.compute_loss(model, inputs | {"ref_per_token_logps": reference})
        loss.backward()
        found = gradients_of(model)
        model.zero_grad()
        return {"reference_logps": reference.numpy() * case.mask, "loss": loss.item(), "gradients": found}


def _settings(case: GrpoCase) -> GRPOConfig:
    """The same step as ours."""
    ours, group = case.settings, case.shape.group
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=group,
        num_generations=group,
        max_completion_length=case.shape.completion,
        beta=ours.kl_coefficient,
        epsilon=ours.clip_low,
        epsilon_high=ours.clip_high,
        use_bias_correction_kl=False,  # on, the penalty is what we call k3_weighted
        loss_type="grpo",
        scale_rewards="group",
        temperature=ours.temperature,
        learning_rate=ours.optimizer.learning_rate,
        weight_decay=ours.optimizer.weight_decay,
        max_grad_norm=ours.optimizer.max_grad_norm,
        **plain_settings(),
    )


def _reward(completion_ids: list[list[int]], **_) -> list[float]:
    rows = [np.asarray(ids) for ids in completion_ids]
    return [float(reward_of(ids, np.ones(ids.shape, bool))) for ids in rows]
