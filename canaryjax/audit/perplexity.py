"""Perplexity of logged traces under the frozen base, as a provider's filter reads it."""

from collections.abc import Sequence

import numpy as np

from canaryjax.audit.arms import logged_parts
from canaryjax.audit.scoring import Item, score_items
from canaryjax.canaries.instrument import Trace
from canaryjax.canaries.provider import Part
from canaryjax.config import AuditConfig
from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokens import TextTokenizer, encode_joint
from canaryjax.models.transformer import Transformer


def trace_perplexities(
    config: AuditConfig, model: Transformer, tokenizer: TextTokenizer, logs: Sequence[Sequence[Trace]]
) -> list[np.ndarray]:
    """How badly the base predicts each trace: mean of -log p over the tokens of `provider.perplexity_parts`.

    Each part stands where it does in the logged prompt: the document after the template's head, the query after the
    document, the answer after the whole prompt. Texts that trials share are scored once.

    Args:
      config: The study.
      model: The base.
      tokenizer: Its tokenizer.
      logs: Traces, trial by trial.

    Returns:
      float64 `[traces]` for each log, nats a token; not finite where the model's log-probs are not.
    """
    costs = [np.zeros(len(log)) for log in logs]
    tokens = [np.zeros(len(log)) for log in logs]
    for part in config.provider.perplexity_parts:  # apart, as their lengths differ and rows are padded alike
        items = [[_item(part, trace, config, tokenizer) for trace in log] for log in logs]
        places: dict[tuple[bytes, bytes], int] = {}
        unique: list[Item] = []
        for item in (item for own in items for item in own):
            if places.setdefault(_key(item), len(unique)) == len(unique):
                unique.append(item)
        logps = score_items(model, None, [unique], config.evaluation.batch_size)[0]
        for own, cost, count in zip(items, costs, tokens, strict=True):
            cost -= logps[[places[_key(item)] for item in own]]
            count += [len(item.string) for item in own]
    return [cost / count for cost, count in zip(costs, tokens, strict=True)]


def _key(item: Item) -> tuple[bytes, bytes]:
    return item.context.tobytes(), item.string.tobytes()


def _item(part: Part, trace: Trace, config: AuditConfig, tokenizer: TextTokenizer) -> Item:
    """A part of a trace after what stands before it; documents are cut where training cuts them."""
    parts, limit = logged_parts(trace, config, tokenizer), config.policy.max_prompt_length
    if part == "document":
        joint = encode_joint(tokenizer, PromptParts(parts.before, "", ""), "", parts.document)
        return Item(joint.context_ids, joint.continuation_ids[: max(1, limit - len(joint.context_ids))])
    if part == "query":
        head = parts.after[: parts.after.rindex(trace.query)]
        joint = encode_joint(tokenizer, PromptParts(parts.before, parts.document, head), "", trace.query, limit)
    else:
        answer = len(tokenizer.encode(trace.answer).ids)
        joint = encode_joint(tokenizer, parts, "", trace.answer, limit + answer)
    return Item(joint.context_ids, joint.continuation_ids)
