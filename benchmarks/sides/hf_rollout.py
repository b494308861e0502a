"""Completions with `transformers`' own `generate`."""

from pathlib import Path

import numpy as np
import torch

from harness.agreement import Answers
from harness.timing import timed
from sides.torch_model import completion_logps, load_base, sample, sequences_of


class HfRollout:
    """Sampled completions of one prompt, from ids to ids."""

    def __init__(self, model: Path, context: np.ndarray, ids: np.ndarray, real: np.ndarray) -> None:
        """Takes a Hugging Face directory, the prompt int32 `[s]`, and completions `[g, t]` that ours sampled."""
        self.model, self.context, self.ids, self.real = load_base(model), context, ids, real

    def seconds(self) -> float:
        """Samples as many completions as ours."""
        return timed(lambda: sample(self.model, self.context, *self.ids.shape))()

    def answers(self) -> Answers:
        """Log-probs of the tokens that ours sampled, and the most probable tokens in turn."""
        with torch.inference_mode():
            logps = completion_logps(self.model, sequences_of(self.context, self.ids), self.ids.shape[1])
        greedy = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
        best = sample(self.model, self.context, 1, self.ids.shape[1], **greedy)[0]
        return {"sampled_logps": logps.numpy() * self.real, "greedy_ids": best.numpy()}
