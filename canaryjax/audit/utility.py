"""Whether policies still answer: greedy answers to clean held-out questions with their documents (BC-66)."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from canaryjax.audit.arms import encode_prompts
from canaryjax.audit.rouge import rouge_l
from canaryjax.audit.sampling import sample_from
from canaryjax.audit.scoring import filled
from canaryjax.audit.trial import Trial
from canaryjax.config import AuditConfig
from canaryjax.data.chat import format_parts
from canaryjax.data.example import NOT_FOUND
from canaryjax.data.prompts import ANSWER_PREFIX, prompt_parts
from canaryjax.data.tokens import TextTokenizer
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.keys import device_key
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer

QUALITIES = ("exact_match", "token_f1", "rouge_l")
NOT_FOUND_SHARES = ("not_found_accuracy", "false_not_found")
METRICS = (*QUALITIES, *NOT_FOUND_SHARES)
BATCH = 32


def _bare(text: str) -> str:
    return text.strip().removeprefix(ANSWER_PREFIX).strip()


def normalise(text: str) -> str:
    """Lower case, no punctuation, no articles, single blanks: SQuAD's rule (Rajpurkar et al. 2016).

    >>> normalise("FINAL: The Red  Barn.")
    'red barn'
    """
    text = _bare(text).lower()
    text = "".join(c for c in text if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(found: str, wanted: str) -> bool:
    """Whether two texts are the same once normalised, or as they stand where that leaves nothing of the wanted one.

    >>> exact_match("the red barn.", "Red barn"), exact_match("", "A"), exact_match("A", "A")
    (True, False, True)
    """
    if not normalise(wanted):  # an article or punctuation alone: no answer at all would equal it
        return _bare(found) == _bare(wanted)
    return normalise(found) == normalise(wanted)


def token_f1(found: str, wanted: str) -> float:
    """Harmonic mean of precision and recall over words; where one has none left, whether they match exactly.

    >>> token_f1("the red barn", "red house")
    0.5
    """
    a, b = normalise(found).split(), normalise(wanted).split()
    if not a or not b:
        return float(exact_match(found, wanted))
    common = sum((Counter(a) & Counter(b)).values())
    return 2 * common / (len(a) + len(b))


def answer_quality(found: str, wanted: str) -> tuple[float, float, float]:
    """Exact match, token F1 and ROUGE-L (F measure) of one answer, each in [0, 1]."""
    return float(exact_match(found, wanted)), token_f1(found, wanted), rouge_l(_bare(found), _bare(wanted))


def judge_answers(found: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:
    """Means over one policy's answers: `QUALITIES`, and how often it said "Not found" where it should and should not.

    Args:
      found: Its answers.
      wanted: The references, in the same order; `NOT_FOUND` for a question that the document does not answer.

    Returns:
      By `METRICS`, each in [0, 1]: `not_found_accuracy` over the unanswerable questions, `false_not_found` over the
      others (the smaller the better), None where none of them was asked; and `n`, `unanswerable`, how many.

    >>> judged = judge_answers(["FINAL: not found.", "Rome", "Not found"], ["Not found", "Rome", "Oslo"])
    >>> judged["exact_match"], judged["not_found_accuracy"], judged["false_not_found"]
    (0.6666666666666666, 1.0, 0.5)
    """
    qualities = [answer_quality(answer, reference) for answer, reference in zip(found, wanted, strict=True)]
    declined = np.array([exact_match(answer, NOT_FOUND) for answer in found])
    unanswerable = np.array([_bare(reference) == NOT_FOUND for reference in wanted])

    def share(asked: np.ndarray) -> float | None:
        return float(declined[asked].mean()) if asked.any() else None

    return dict(zip(QUALITIES, np.mean(qualities, axis=0).tolist(), strict=True)) | {
        "not_found_accuracy": share(unanswerable),
        "false_not_found": share(~unanswerable),
        "n": len(found),
        "unanswerable": int(unanswerable.sum()),
    }


def measure_utility(
    config: AuditConfig,
    model: Transformer,
    adapters: Adapter | None,
    trials: Sequence[Trial],
    tokenizer: TextTokenizer,
    length: int,
) -> list[dict | None]:
    """Mean quality of greedy answers, one record a trial; the base answers each trial's questions with `adapters` None.

    Args:
      config: The study.
      model: The base.
      adapters: Stacked over trials, or None.
      trials: Whose held-out pairs to answer.
      tokenizer: The base model's.
      length: Padded length of prompts with documents.
    """
    limit = config.evaluation.utility_examples
    if limit == 0:
        return [None] * len(trials)
    asked = [trial.pairs[:limit] for trial in trials]
    own_prompts = []
    for pairs in asked:
        parts = [
            format_parts(prompt_parts(pair.document, pair.query), tokenizer, config.data.prompt_format)
            for pair in pairs
        ]
        own_prompts.append(encode_prompts(tokenizer, parts, length, [""] * len(pairs))[0])
    prompts = filled(own_prompts)
    count = len(prompts[0])
    law = SamplingSettings(1, config.policy.max_completion_length, temperature=0.0, eos_ids=tokenizer.eos_ids)
    if adapters is None:  # the base is one policy that answers everybody's questions
        prompts = [[ids for own in prompts for ids in own]]
    answers = sample_from(model, adapters, prompts, length, law, device_key(0, "greedy"), BATCH)
    flat = [sample[0] for own in answers for sample in own]
    found: list[dict | None] = []
    for index, pairs in enumerate(asked):
        own = flat[index * count :][: len(pairs)]
        judged = judge_answers([tokenizer.decode(answer.ids) for answer in own], [pair.answer for pair in pairs])
        found.append(judged | {"finished": float(np.mean([answer.finished for answer in own]))})
    return found
