"""Our side of the rollout benchmark: the public interface."""

from pathlib import Path

import numpy as np

import canaryjax as cj
from harness.agreement import Answers
from harness.timing import timed


class OurRollout:
    """Sampled completions of one prompt, from ids to ids."""

    def __init__(self, model: Path, context: np.ndarray, group: int, completion: int) -> None:
        """Takes a Hugging Face directory, the prompt int32 `[s]`, how many completions, and their tokens."""
        self.model, self.context = cj.load_model(model), context.tolist()
        self.group, self.completion, self.seed = group, completion, 0

    def _sample(self, seed: int, **settings):
        chosen = {"temperature": 1.0, "num_samples": self.group} | settings
        return cj.generate(self.model, [self.context], max_new_tokens=self.completion, seed=seed, **chosen)[0]

    def seconds(self) -> float:
        """Samples anew."""
        self.seed += 1
        return timed(lambda: self._sample(self.seed))()

    def sampled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Completions for both sides to score: ids int32, the sampler's log-probs, and which are real, `[g, t]`."""
        ids, logps = (np.zeros((self.group, self.completion), kind) for kind in (np.int32, np.float32))
        real = np.zeros(ids.shape, bool)
        for row, one in enumerate(self._sample(0)):
            length = len(one.ids)
            ids[row, :length], logps[row, :length], real[row, :length] = one.ids, one.logps, True
        return ids, logps, real

    def answers(self) -> Answers:
        """What the sampler says its own tokens' log-probs are, and the most probable tokens in turn."""
        greedy = self._sample(0, temperature=0.0, num_samples=1)[0].ids
        return {"sampled_logps": self.sampled()[1], "greedy_ids": greedy}
