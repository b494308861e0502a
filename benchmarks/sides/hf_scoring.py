"""Scoring with `transformers`: each string behind its context is a sequence, a context's sequences are a batch."""

from pathlib import Path

import numpy as np
import torch

from harness.agreement import Answers
from harness.timing import timed
from sides.torch_model import completion_logps, load_base, sequences_of


class HfScoring:
    """Strings after contexts, from ids to log-probs."""

    def __init__(self, model: Path, contexts: np.ndarray, strings: np.ndarray) -> None:
        """Takes a Hugging Face directory, contexts int32 `[b, s]` and strings int32 `[b, g, t]`."""
        self.model = load_base(model)
        self.contexts, self.strings = contexts, strings

    def _score(self) -> np.ndarray:
        with torch.inference_mode():
            found = [
                completion_logps(self.model, sequences_of(context, strings), strings.shape[1]).numpy()
                for context, strings in zip(self.contexts, self.strings, strict=True)
            ]
        return np.stack(found)

    def seconds(self) -> float:
        """Scores everything once."""
        return timed(self._score)()

    def answers(self) -> Answers:
        """The log-prob of each token: `[b, g, t]`."""
        return {"logps": self._score()}
