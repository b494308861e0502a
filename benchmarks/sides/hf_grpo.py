"""A GRPO step as one writes it by hand with `transformers` and `peft`."""

import time

import numpy as np
import torch

from harness.agreement import Answers
from harness.model import EOS_ID
from sides.grpo_case import GrpoCase, group_advantages, reward_of
from sides.torch_model import completion_logps, gradients_of, load_policy, sample, sequences_of


class HandWrittenGrpo:
    """One policy; the reference is the base, its adapter switched off."""

    def __init__(self, case: GrpoCase) -> None:
        self.case, self.model = case, load_policy(case.model, case.adapter)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        rate = case.settings.optimizer
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate.learning_rate, weight_decay=rate.weight_decay)

    def seconds(self) -> float:
        """A whole step: completions, rewards, reference, gradient, update."""
        started = time.perf_counter()
        ids = sample(self.model, self.case.context, self.case.shape.group, self.case.shape.completion).numpy()
        ended = (np.cumsum(ids == EOS_ID, axis=1) - (ids == EOS_ID)) > 0
        advantages = group_advantages(reward_of(ids, ~ended))
        loss, _ = self._loss(ids, ~ended, advantages)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, self.case.settings.optimizer.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - started

    def answers(self) -> Answers:
        """As ours; the step's own loss on the batch."""
        loss, reference = self._loss(self.case.completions, self.case.mask, self.case.advantages)
        loss.backward()
        found = gradients_of(self.model)
        self.optimizer.zero_grad()
        return {"reference_logps": reference.numpy() * self.case.mask, "loss": loss.item(), "gradients": found}

    def _loss(self, ids: np.ndarray, mask: np.ndarray, advantages: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective with the k3 penalty, mean over tokens, then over completions; and reference log-probs."""
        sequences, real = sequences_of(self.case.context, ids), torch.tensor(mask, dtype=torch.float32)
        with torch.no_grad(), self.model.disable_adapter():
            reference = completion_logps(self.model, sequences, ids.shape[1])
        logps = completion_logps(self.model, sequences, ids.shape[1])
        gap = reference - logps
        penalty = self.case.settings.kl_coefficient * (gap.exp() - 1 - gap)
        gain = (logps - logps.detach()).exp() * torch.tensor(advantages)[:, None]  # on policy: nothing to clip
        per_token = (penalty - gain) * real
        return (per_token.sum(1) / real.sum(1)).mean(), reference
