"""Our side of the scoring benchmark: the public interface."""

from pathlib import Path

import numpy as np

import canaryjax as cj
from harness.agreement import Answers
from harness.timing import timed


class OurScoring:
    """Strings after contexts, from ids to log-probs."""

    def __init__(self, model: Path, contexts: np.ndarray, strings: np.ndarray) -> None:
        """Takes a Hugging Face directory, contexts int32 `[b, s]` and strings int32 `[b, g, t]`."""
        self.model = cj.load_model(model)
        self.contexts, self.strings = contexts.tolist(), strings.tolist()

    def _score(self):
        return cj.score(self.model, self.contexts, self.strings)

    def seconds(self) -> float:
        """Scores everything once."""
        return timed(self._score)()

    def answers(self) -> Answers:
        """The log-prob of each token: `[b, g, t]`."""
        return {"logps": np.array([[one.logps for one in row] for row in self._score()])}
