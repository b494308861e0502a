"""What each arm's training sees of a logged trace (BC-2, BC-A4): the only place where the arms differ."""

from collections.abc import Sequence

import numpy as np

from canaryjax.audit.assignment import ARMS, Arm
from canaryjax.canaries.families import Canary
from canaryjax.canaries.instrument import Trace, instrument
from canaryjax.canaries.placement import inducing_instruction
from canaryjax.config import AuditConfig
from canaryjax.data.chat import format_parts
from canaryjax.data.example import Example
from canaryjax.data.prompts import PromptParts, prompt_parts
from canaryjax.data.tokens import JointText, TextTokenizer, encode_joint_batch
from canaryjax.keys import host_rng

LENGTH_STEP = 8  # prompts are padded to a multiple of this
PROBE_CANARIES = 4  # the study's longest; tokens where it meets a text may differ, so one alone would not do
LENGTH_SLACK = 4  # tokens, for the same reason


def arm_parts(trace: Trace, arm: Arm, config: AuditConfig, tokenizer: TextTokenizer) -> PromptParts:
    """The prompt of a trace as an arm's training sees it.

    The violating arm sees document and query. The compliant arm loses the document, takes the other template, and keeps
    the query as it was logged, instruction included, unless `study.compliant_query` restores it.
    """
    if arm == "violating":
        parts = prompt_parts(trace.document, trace.query)
    else:
        parts = prompt_parts(None, trace.query if config.study.compliant_query == "induced" else trace.clean_query)
    return format_parts(parts, tokenizer, config.data.prompt_format)


def logged_parts(trace: Trace, config: AuditConfig, tokenizer: TextTokenizer) -> PromptParts:
    """The prompt that the service answered when the trace was logged: always with the document."""
    return arm_parts(trace, "violating", config, tokenizer)


def encode_prompts(
    tokenizer: TextTokenizer, parts: Sequence[PromptParts], max_tokens: int, triggers: Sequence[str]
) -> tuple[list[np.ndarray], int]:
    """Prompt ids, each with its own document's tail dropped where needed, and how many tokens were dropped in all."""
    encoded = [
        encode_joint_batch(tokenizer, [JointText(part, protect=trigger)], max_tokens)[0]
        for part, trigger in zip(parts, triggers, strict=True)
    ]
    return [joint.context_ids for joint in encoded], sum(joint.dropped_document_tokens for joint in encoded)


def protected(trace: Trace, arm: Arm, canary: Canary) -> str:
    """The text of the prompt's document that truncation may not reach."""
    return canary.trigger if arm == "violating" and trace.triggered else ""


def prompt_lengths(
    config: AuditConfig, examples: Sequence[Example], tokenizer: TextTokenizer, canaries: Sequence[Canary]
) -> dict[Arm, int]:
    """One padded prompt length for each arm and the whole study, so that each program compiles once.

    Every example is encoded under the canaries that take the most tokens: a document can give way to a longer one, but
    a compliant prompt has none to give. At most `policy.max_prompt_length`.
    """
    rng = host_rng(config.study.seed, "prompt lengths")
    longest = dict.fromkeys(ARMS, 1)
    asked = [
        canary.trigger if canary.textual else inducing_instruction(canary, config.canary.instruction)
        for canary in canaries
    ]
    sizes = [len(encoding.ids) for encoding in tokenizer.encode_batch(asked)]
    for index in np.argsort(sizes, kind="stable")[::-1][:PROBE_CANARIES]:
        canary = canaries[index]
        instrumented = float(config.canary.rate > 0 or config.canary.contrast_rate > 0)
        traces, _ = instrument(examples, canary, instrumented, 0.0, rng, variant=config.canary.instruction)
        for arm in ARMS:
            texts = [arm_parts(trace, arm, config, tokenizer).text for trace in traces]
            longest[arm] = max(longest[arm], *(len(e.ids) for e in tokenizer.encode_batch(texts)))
    padded = {arm: -(-(n + LENGTH_SLACK) // LENGTH_STEP) * LENGTH_STEP for arm, n in longest.items()}
    return {arm: min(n, config.policy.max_prompt_length) for arm, n in padded.items()}
