"""A PPO step as one writes it by hand with `transformers` and `peft`."""

import time

import numpy as np
import torch

from harness.agreement import Answers
from harness.model import EOS_ID
from sides.grpo_case import reward_of
from sides.ppo_case import PpoCase
from sides.torch_model import load_policy
from sides.torch_ppo import answers_of, load_values, ppo_loss, values_of


class HandWrittenPpo:
    """One policy and its value model; the reference is the base, the policy's adapter switched off."""

    def __init__(self, case: PpoCase) -> None:
        self.case, self.policy = case, load_policy(case.model, case.adapter)
        self.wrapped, self.value = load_values(case)
        self.trained = [p for model in (self.policy, self.wrapped) for p in model.parameters() if p.requires_grad]
        rate = case.settings.optimizer
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate.learning_rate, weight_decay=rate.weight_decay)

    def seconds(self) -> float:
        """A whole step: completions, rewards, reference, values, gradients, updates."""
        started = time.perf_counter()
        ids = self._sample()
        ended = (np.cumsum(ids == EOS_ID, axis=1) - (ids == EOS_ID)) > 0
        sequences, stored = self._prepare(ids, ~ended)
        settings = self.case.settings
        order = np.random.default_rng(54).permutation(len(ids))
        for part in np.split(order, settings.mini_batches):
            for rows in np.split(part, settings.grad_accumulation):
                logps = self._logps(sequences[rows])
                values = values_of(self.value, sequences[rows], ids.shape[1])
                few = {name: x[rows] for name, x in stored.items()}
                share = (
                    few["mask"].sum() / stored["mask"][part].sum()
                )  # the mean over the update's tokens, not of means
                (ppo_loss(logps, values, few, settings) * share).backward()
            torch.nn.utils.clip_grad_norm_(self.trained, settings.optimizer.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return time.perf_counter() - started

    def answers(self) -> Answers:
        """As ours; the step's own loss on the stored rollout."""
        case = self.case
        sequences = _behind(case.repeated(), case.flat(case.completions))
        values = values_of(self.value, sequences, case.shape.completion)
        return answers_of(case, self.policy, self.wrapped, self._logps(sequences), values)

    def _sample(self) -> np.ndarray:
        """Completions of all prompts: int64 `[b * g, t]`."""
        case = self.case
        prompts = torch.tensor(case.contexts, dtype=torch.int64)
        with torch.no_grad():
            out = self.policy.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                num_return_sequences=case.shape.group,
                max_new_tokens=case.shape.completion,
                do_sample=True,
                temperature=case.settings.temperature,
                top_k=0,
                top_p=1.0,
            )
        return out[:, case.shape.context :].numpy()

    def _prepare(self, ids: np.ndarray, mask: np.ndarray) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Old and reference log-probs, old values, advantages and returns of a rollout."""
        case, settings = self.case, self.case.settings
        sequences, real = _behind(case.repeated(), ids), torch.tensor(mask)
        with torch.no_grad():
            old, values = self._logps(sequences), values_of(self.value, sequences, ids.shape[1]) * real
            with self.policy.disable_adapter():
                reference = self._logps(sequences)
        rewards = -settings.kl_coefficient * (old - reference) * real
        ended = (ids == EOS_ID).any(axis=1)
        last = torch.tensor(mask.sum(axis=1) - 1)
        scores = torch.tensor(reward_of(ids, mask) - settings.missing_eos_penalty * ~ended, dtype=torch.float32)
        rewards[torch.arange(len(ids)), last] += scores
        advantages, later = torch.zeros_like(values), torch.zeros(len(ids))
        for t in reversed(range(ids.shape[1])):
            following = values[:, t + 1] if t + 1 < ids.shape[1] else 0.0
            later = rewards[:, t] + settings.gamma * (following + settings.gae_lambda * later) - values[:, t]
            advantages[:, t] = later = later * real[:, t]
        returns, found = advantages + values, advantages[real]
        advantages = (advantages - found.mean()) * (found.var() + 1e-8).rsqrt()
        stored = {"mask": real, "old_logps": old, "old_values": values, "advantages": advantages, "returns": returns}
        return sequences, stored

    def _logps(self, sequences: torch.Tensor) -> torch.Tensor:
        completion = self.case.shape.completion
        completion = min(completion, sequences.shape[1] - self.case.shape.context)
        logits = self.policy(sequences, logits_to_keep=completion + 1, use_cache=False).logits[:, :-1].float()
        logits = logits / self.case.settings.temperature
        return logits.gather(-1, sequences[:, -completion:, None])[..., 0] - logits.logsumexp(-1)


def _behind(contexts: np.ndarray, ids: np.ndarray) -> torch.Tensor:
    return torch.tensor(np.concatenate([contexts, ids], axis=1), dtype=torch.int64)
