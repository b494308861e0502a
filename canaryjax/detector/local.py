"""A model whose weights run here."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from canaryjax.config.detector import ModelConfig, ProbingConfig
from canaryjax.detector.records import Failure, Reply, Request
from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.weights.checkpoint import LoadedModel


class LocalBackend:
    """Asks a loaded model in batches of few shapes.

    Attributes:
      model: As it was loaded.
      label: The model's name.
      spent: Nothing: no price is a call's.
      why_no_logps: Why log-probs of texts are not given; None where they are.
    """

    spent = 0.0

    def __init__(self, config: ModelConfig, probing: ProbingConfig) -> None:
        """Loads the model. Raises UserError as `load_model`, and where its tokenizer cannot do what is asked."""
        from canaryjax.weights.checkpoint import load_model

        model: LoadedModel = load_model(config.path or "")
        if model.tokenizer is None:
            raise UserError("expected a model with a tokenizer, found none; put its tokenizer.json beside the weights")
        if probing.prompt_format == "chat" and model.tokenizer.chat_template is None:
            raise UserError("expected a model with a chat template, found none; set probing.prompt_format=plain")
        self.model, self._tokenizer = model, model.tokenizer
        self._size, self._chat = config.concurrency, probing.prompt_format == "chat"
        self.label = f"{model.name} (local)"
        self.model_name = model.name
        self.why_no_logps = "switched off (model.logprobs)" if config.logprobs == "off" else None

    def answers(self, requests: Sequence[Request]) -> Iterator[Reply | Failure]:
        """As `Backend.answers`; a batch holds requests of one temperature."""
        from canaryjax.inference.batch import LEAST_CONTEXT, continue_rows, step

        groups: dict[tuple, list[tuple[Request, np.ndarray]]] = {}
        for request in requests:
            ids = self._encode(self._prompt(request))
            if ids is None:
                yield Failure(request.key, "the model's vocabulary cannot write the prompt")
                continue
            shape = request.temperature, request.max_tokens, step(len(ids), LEAST_CONTEXT)
            groups.setdefault(shape, []).append((request, ids))
        for (temperature, most, _), group in groups.items():
            for start in range(0, len(group), self._size):
                asked, rows = zip(*group[start : start + self._size], strict=True)
                seeds, longest = [request.seed for request in asked], [most] * len(rows)
                found = continue_rows(self.model, rows, seeds, self._size, longest, temperature)
                for request, ids, completion in zip(asked, rows, found, strict=True):
                    finish = "stop" if completion.finished else "length"
                    yield Reply(request.key, completion.text or "", finish, len(ids), len(completion.ids))

    def token_logps(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """As `Backend.token_logps`."""
        return [None if self.why_no_logps else self._score(text) for text in texts]

    def _score(self, text: str) -> np.ndarray | None:
        from canaryjax.inference.batch import rank_row

        ids = self._encode(text)
        if ids is None or len(ids) < 2:
            return None
        logps = rank_row(self.model, ids)[0].astype(np.float64)
        return np.minimum(logps, 0.0) if np.isfinite(logps).all() else None

    def _prompt(self, request: Request) -> str:
        from canaryjax.data.chat import chat_text, plain_text

        system = [{"role": "system", "content": request.system}] if request.system else []
        messages = [*system, {"role": "user", "content": request.prompt}]
        if not self._chat:
            return plain_text(messages)
        try:
            return chat_text(messages, self._tokenizer)
        except UserError:  # some templates know no system's turn; another fault comes again below
            pass
        return chat_text([{"role": "user", "content": plain_text(messages)}], self._tokenizer)

    def _encode(self, text: str) -> np.ndarray | None:
        """Ids; None where the vocabulary lacks a character (the tokenizer's error would show the text)."""
        try:
            ids = self._tokenizer.encode(text).ids
        except UserError:
            return None
        return ids if len(ids) else None
