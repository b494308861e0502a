"""What is known to fail before anything is trained is said then, since training may take hours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from canaryjax.audit.arms import encode_prompts, logged_parts, prompt_lengths, protected
from canaryjax.audit.assignment import Arm, Assignment, assign_arms
from canaryjax.audit.reward_bias import bias_texts
from canaryjax.audit.training import (
    policy_prompts,
    policy_settings,
    reward_prompt_length,
    reward_prompts,
    reward_settings,
)
from canaryjax.audit.trial import Trial, build_trial, study_canaries, study_sizes
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.data.prompts import ANSWER_PREFIX
from canaryjax.data.tokens import TextTokenizer
from canaryjax.errors import UserError


@dataclass(frozen=True, eq=False)
class Prepared:
    """Trials by number, the padded prompt length of each arm, and the examples set aside for dilution."""

    trials: dict[int, Trial]
    lengths: dict[Arm, int]
    others: Sequence[Example] = ()


def check_texts(examples: Sequence[Example], tokenizer: TextTokenizer, vocab_size: int) -> None:
    """Raises UserError for a document, question or answer that the vocabulary cannot write, and says where it stands.

    `vocab_size` is the rows of the embedding: a tokenizer may know more, which would be looked up as another token.

    Which split an example is in differs between trials: some would be met after hours only.
    """
    for name in ("document", "question", "answer"):
        texts = [getattr(example, name) for example in examples]
        try:
            encodings = tokenizer.encode_batch(texts)
        except UserError:
            for example, text in zip(examples, texts, strict=True):
                try:
                    tokenizer.encode(text)
                except UserError as error:
                    raise UserError(f"{example.where}, {name}: {error}") from error
            raise
        for example, text, encoding in zip(examples, texts, encodings, strict=True):
            for place in np.flatnonzero(encoding.ids >= vocab_size)[:1]:
                start, end = encoding.offsets[place]
                raise UserError(
                    f"{example.where}, {name}: expected tokens below {vocab_size}, the rows of the model's embedding, "
                    f"found {text[start:end]!r} (token {encoding.ids[place]}): replace it"
                )


def check_start(
    config: AuditConfig,
    warm_start: Sequence[Example],
    examples: Sequence[Example],
    tokenizer: TextTokenizer,
    vocab_size: int,
) -> None:
    """Makes the checks of a run's start that need no weights, of trials on the first of each arm.

    Args:
      config: The study.
      warm_start: Examples set aside for the warm start.
      examples: All others.
      tokenizer: The base model's.
      vocab_size: Rows of its embedding.

    Raises:
      UserError: As `check_texts` and `prepare_trials`, or what the trainers refuse.
    """
    reward_settings(config)
    policy_settings(config)
    check_texts([*warm_start, *examples], tokenizer, vocab_size)
    first = {assignment.arm: assignment for assignment in reversed(assign_arms(config.study))}
    prepare_trials(config, list(first.values()), examples, tokenizer)


def prepare_trials(
    config: AuditConfig,
    assignments: Sequence[Assignment],
    examples: Sequence[Example],
    tokenizer: TextTokenizer,
    others: Sequence[Example] = (),
) -> Prepared:
    """Builds trials and checks that the training and measuring of each can begin.

    Args:
      config: The study.
      assignments: The trials to run, all of the study or what is left of it.
      examples: All documents with their questions.
      tokenizer: The base model's.
      others: Examples set aside for dilution (`audit.curation`), whose prompts must fit too.

    Raises:
      UserError: As `build_trial`; a split too small for one step or for held-out rows; a canary or a prompt that does
        not fit.
    """
    sizes = study_sizes(config, examples)
    trials = {a.trial: build_trial(config, a.trial, a.draw, examples, tokenizer, sizes) for a in assignments}
    for trial in trials.values():
        check_sizes(config, trial, tokenizer)
    lengths = prompt_lengths(config, [*examples, *others], tokenizer, study_canaries(config, tokenizer))
    for assignment in assignments:
        trial = trials[assignment.trial]
        try:
            _check_prompts(config, assignment.arm, trial, lengths, tokenizer)
        except UserError as error:
            limits = "policy.max_prompt_length and reward_model.max_length"
            raise UserError(f"a prompt of trial {trial.trial} does not fit: {error} (limits: {limits})") from error
    return Prepared(trials, lengths, others)


def check_sizes(config: AuditConfig, trial: Trial, tokenizer: TextTokenizer) -> None:
    """Raises UserError for a trial with too few prompts or documents to train on, or answers too long for a limit."""
    policy, reward = config.policy, config.reward_model
    needed = policy_settings(config).prompts_per_step
    prompts = len(trial.rl_traces) * policy.epochs
    if prompts < needed:
        raise UserError(
            f"expected at least the {needed} prompts of one policy step, found {prompts} in the policy split of trial "
            f"{trial.trial}: give more documents, or lower {policy.batch_keys}"
        )
    groups = len({trace.group for trace in trial.rm_traces})  # a document is one where nothing larger is known
    if reward.heldout_share > 0 and reward.early_stopping_patience is not None and groups < 2:
        raise UserError(
            f"expected documents of at least 2 groups in the reward-model split of trial {trial.trial}, one of them "
            f"held out for early stopping, found {groups}: give more documents, or set reward_model.heldout_share=0"
        )
    if config.canary.rate + config.canary.contrast_rate == 0 or config.canary.textual:  # no answer needs to hold it
        return
    answer = len(tokenizer.encode(ANSWER_PREFIX).ids) - tokenizer.bos_count + trial.canary.token_count + 1
    limits = {"policy.max_completion_length": policy.max_completion_length}
    if reward.sampled_responses:
        limits["reward_model.max_response_tokens"] = reward.max_response_tokens
    for name, limit in limits.items():
        if limit < answer:
            raise UserError(
                f"expected {name} of at least {answer} tokens, for {ANSWER_PREFIX}, a canary of "
                f"{trial.canary.token_count} and the end; found {limit}: raise it"
            )


def _check_prompts(
    config: AuditConfig, arm: Arm, trial: Trial, lengths: dict[Arm, int], tokenizer: TextTokenizer
) -> None:
    """Encodes what training and measuring will encode, where a length limit binds at all."""
    answers = max(len(encoding.ids) for encoding in tokenizer.encode_batch([p.canary_answer for p in trial.pairs]))
    room = config.policy.max_prompt_length + config.policy.max_completion_length
    if lengths["violating"] >= config.policy.max_prompt_length or lengths["violating"] + answers > room:
        bias_texts(config, trial, tokenizer)
    rm_length = reward_prompt_length(config, arm, lengths)
    if rm_length < lengths[arm] or lengths[arm] >= config.policy.max_prompt_length:
        reward_prompts(config, arm, trial, tokenizer, rm_length)
        policy_prompts(config, arm, [trial], tokenizer, lengths[arm])
    if lengths["violating"] >= config.policy.max_prompt_length:
        parts = [logged_parts(trace, config, tokenizer) for trace in trial.rm_traces]
        triggers = [protected(trace, "violating", trial.canary) for trace in trial.rm_traces]
        encode_prompts(tokenizer, parts, lengths["violating"], triggers)
