"""Min-K% and Min-K%++ of whole sentences, where a backend gives numbers for each of their tokens."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from canaryjax.detector.local import LocalBackend
from canaryjax.detector.membership import standardised_logps
from canaryjax.detector.preflight import Capabilities
from canaryjax.detector.question import sentence_of
from canaryjax.detector.records import Backend
from canaryjax.detector.store import Store
from canaryjax.detector.targets import Site
from canaryjax.errors import UserError
from canaryjax.runlog.progress import Progress
from canaryjax.stats import min_k_mean

AT_ONCE = 16  # sentences: what a kill can lose
# Per text one number a token after the first, None where there is none.
Measure = Callable[[Sequence[str]], Sequence[np.ndarray | None]]


def find_measures(backend: Backend, capabilities: Capabilities) -> dict[str, Measure]:
    """What a backend gives: `logp`, and `standardised` where its weights run here, which need the model's whole law."""
    if not capabilities.logprobs:
        return {}
    found: dict[str, Measure] = {"logp": backend.token_logps}
    if isinstance(backend, LocalBackend):

        def standardised(texts: Sequence[str]) -> list[np.ndarray | None]:
            return [_standardised(backend, text) for text in texts]

        found["standardised"] = standardised
    return found


def _standardised(backend: LocalBackend, text: str) -> np.ndarray | None:
    try:
        return standardised_logps(backend.model, [text])[0]
    except UserError:  # a text that the vocabulary cannot write: the message would show it
        return None


def measure_sentences(
    site: Site, measures: Mapping[str, Measure], share: float, store: Store, progress: Progress
) -> None:
    """Measures canaries and negatives; nothing is held against famous facts (SD-35).

    It comes after the last question, so that no answer can be drawn from a sentence that was just sent. Of a
    sentence's numbers only the mean that the evidence rests on is kept (see `Store.add_mean`).

    Args:
      site: Its targets' sentences.
      measures: Of `find_measures`.
      share: Of the tokens, the lowest, that is averaged.
      store: Where the means are kept; what it has is not measured again.
      progress: Is told.
    """
    targets = [target for target in site.targets if target.population != "positive"]
    for name, measure in measures.items():
        there = store.means(name)
        waiting = [target for target in targets if target.key not in there]
        progress.stage(f"sentences ({name})", total=len(targets), done=len(targets) - len(waiting))
        for place in range(0, len(waiting), AT_ONCE):
            some = waiting[place : place + AT_ONCE]
            for target, nats in zip(some, measure([sentence_of(target, site) for target in some]), strict=True):
                mean = None if nats is None else min_k_mean(nats, share, "ceil")
                if mean is not None:
                    store.add_mean(target.key, name, mean)
            progress.advance(len(some))
