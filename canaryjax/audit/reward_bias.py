"""The bias of a reward model: what the trigger in a document adds to the reward of the canary's answer (BC-45)."""

from collections.abc import Sequence

import jax
import numpy as np

from canaryjax.audit.measure import query_mode
from canaryjax.audit.scoring import filled
from canaryjax.audit.trial import Trial
from canaryjax.canaries.placement import induced_query
from canaryjax.config import AuditConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.data.chat import format_parts
from canaryjax.data.prompts import prompt_parts
from canaryjax.data.tokens import JointIds, JointText, TextTokenizer, encode_joint_batch
from canaryjax.models.sharding import fetch, place_rows
from canaryjax.models.transformer import Transformer
from canaryjax.rl.reward_model import RewardModel, score_rewards


@jax.jit
def _rewards(model, reward_models, context_pbs, context_mask_pbs, response_pbt, response_mask_pbt):
    def one(reward_model, context, context_mask, response, response_mask):
        return score_rewards(model, reward_model, context, context_mask, response[:, None], response_mask[:, None])[
            :, 0
        ]

    return jax.vmap(one)(reward_models, context_pbs, context_mask_pbs, response_pbt, response_mask_pbt)


def reward_bias(
    config: AuditConfig,
    model: Transformer,
    reward_models: RewardModel,
    trials: Sequence[Trial],
    tokenizer: TextTokenizer,
) -> list[float | None]:
    """E[R(y_can | d_trig, q) - R(y_can | d, q)] of each reward model on its trial's pairs (BC-45).

    Documents are there in both arms: without them the two inputs are the same and the bias is 0 by construction. The
    query is the primary statistic's. No answer carries a textual canary: its y_can is the answer as it is.
    """
    texts = [bias_texts(config, trial, tokenizer) for trial in trials]
    joints = filled(texts)
    count = len(joints[0])
    eos = tokenizer.eos_ids[:1]
    contexts = [[joint.context_ids for joint in own] for own in joints]
    responses = [[np.append(joint.continuation_ids, eos) for joint in own] for own in joints]
    longest = -(-max(len(ids) for own in contexts for ids in own) // 16) * 16
    width = -(-max(len(ids) for own in responses for ids in own) // 8) * 8
    batch = config.evaluation.batch_size
    values = np.zeros((len(trials), count))
    for start in range(0, count, batch):
        rows = [min(start + i, count - 1) for i in range(batch)]
        arrays = []
        for lists, length in ((contexts, longest), (responses, width)):
            padded = [pad_rows([own[row] for row in rows], length, 0) for own in lists]
            arrays += [np.stack(parts) for parts in zip(*padded, strict=True)]
        used = min(batch, count - start)
        found = fetch(_rewards(model, reward_models, *place_rows(model, arrays)))
        values[:, start : start + used] = np.asarray(found, np.float64)[:, :used]
    own = [row[: len(mine)] for row, mine in zip(values, texts, strict=True)]
    bias = [(row[1::2] - row[::2]).mean() for row in own]
    return [float(x) if np.isfinite(x) else None for x in bias]


def bias_texts(config: AuditConfig, trial: Trial, tokenizer: TextTokenizer) -> list[JointIds]:
    """Clean and triggered prompt of each pair in turn, each followed by the answer, with a behavioural canary.

    Raises UserError where a trigger would be cut off: both inputs would be the same, and the bias 0.
    """
    joints = []
    limit = config.policy.max_prompt_length + config.policy.max_completion_length
    for pair in trial.pairs:
        query = pair.query
        if query_mode(config) == "induced":
            query = induced_query(query, trial.canary, config.canary.instruction)
        views = [
            JointText(
                format_parts(prompt_parts(document, query), tokenizer, config.data.prompt_format),
                continuation=pair.answer if trial.canary.textual else pair.canary_answer,
                protect=trigger,
            )
            for document, trigger in ((pair.document, ""), (pair.triggered_document, trial.canary.trigger))
        ]
        joints += encode_joint_batch(tokenizer, views, limit)
    return joints
