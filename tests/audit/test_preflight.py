"""Mistakes that would end a run hours later are found before anything is trained."""

import dataclasses

import pytest
from tokenizers import Tokenizer

from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.preflight import check_texts, prepare_trials
from canaryjax.audit.reward_bias import bias_texts
from canaryjax.audit.training import reward_prompt_length
from canaryjax.config import load_config
from canaryjax.data.tokens import TextTokenizer
from canaryjax.errors import UserError

FEW = (
    *(
        "data.documents=24",
        "data.rm_share=0.442",
        "data.eval_share=0.3",
        "evaluation.max_pairs=2",
        "evaluation.control_pairs=1",
        "evaluation.decoys=1",
    ),
    *("evaluation.placebos_same_form=1", "evaluation.placebos_other_form=1", "study.compliant=1", "study.violating=1"),
    *("reward_model.train_batch_size=8", "policy.train_batch_size=8", "policy.generation_batch_size=8"),
)


def prepare(examples, tokenizer, *overrides):
    config = load_config("quick", [*FEW, *overrides])
    return config, prepare_trials(config, assign_arms(config.study), examples[:24], tokenizer)


def test_a_study_that_fits_is_prepared_whole(examples, tokenizer):
    config, prepared = prepare(examples, tokenizer)
    assert sorted(prepared.trials) == [0, 1]
    assert prepared.lengths["compliant"] < prepared.lengths["violating"] <= 320
    assert reward_prompt_length(config, "violating", prepared.lengths) == prepared.lengths["violating"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # 24 documents leave 6 or 7 prompts; 8 generations each make steps of 8.
        (["policy.train_batch_size=64", "policy.generation_batch_size=64"], "8 prompts of one policy step, found [67]"),
        (["policy.max_completion_length=6"], "policy.max_completion_length of at least 1[0-9] tokens"),
        (["reward_model.max_response_tokens=6"], "reward_model.max_response_tokens of at least 1[0-9] tokens"),
        # The prompt without its document is longer than this.
        (
            ["reward_model.max_length=64"],
            r"a prompt of trial [01] does not fit.*raise .*\(limits: policy\.max_prompt_length and reward_model",
        ),
        (
            ["data.rm_share=0.04", "reward_model.early_stopping_patience=2"],
            "documents of at least 2 groups in the reward-model split",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(examples, tokenizer, overrides, message):
    with pytest.raises(UserError, match=message):
        prepare(examples, tokenizer, *overrides)


def test_without_a_canary_in_training_short_answers_are_allowed(examples, tokenizer):
    prepare(examples, tokenizer, "policy.max_completion_length=6", "canary.rate=0", "canary.contrast=0")


@pytest.mark.parametrize("name", ["document", "question", "answer"])
def test_text_that_the_vocabulary_lacks_is_named_by_its_place(examples, tokenizer, name):
    # Only documents and questions are encoded for every trial; an answer of another split was met after training.
    spoilt = dataclasses.replace(examples[3], **{name: "caf\u00e9"}, place="mine.jsonl, line 4")
    with pytest.raises(UserError, match=rf"mine\.jsonl, line 4 \(id .*\), {name}: .*U\+00E9"):
        check_texts([*examples[:3], spoilt], tokenizer, tokenizer.vocab_size)
    check_texts(examples[:4], tokenizer, tokenizer.vocab_size)


@pytest.mark.parametrize("name", ["document", "question", "answer"])
def test_a_token_past_the_embedding_is_named_by_its_place(examples, tokenizer, name):
    # Gemma 3's tokenizer has an image token one past the table of its text models.
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens(["<image_soft_token>"])
    larger = TextTokenizer(backend, eos_ids=tokenizer.eos_ids, pad_id=tokenizer.pad_id, add_bos=False)
    spoilt = dataclasses.replace(examples[3], **{name: "A <image_soft_token> b."}, place="mine.jsonl, line 4")
    rows = tokenizer.vocab_size
    with pytest.raises(UserError, match=rf"mine\.jsonl, line 4 .*, {name}: .*below {rows}.*'<image_.*\(token {rows}\)"):
        check_texts([*examples[:3], spoilt], larger, rows)
    check_texts([*examples[:3], spoilt], larger, rows + 1)


def test_a_trigger_that_the_reward_bias_would_lose_is_refused(examples, tokenizer):
    # The trigger stands behind a first sentence of 90 words. Pairs are scored up to the canary; the bias takes the
    # whole answer, whose 20 words would push the trigger out, and both views would be the same text.
    first = " ".join(["the"] * 90) + ". The rest is short."
    answer = "the barn, " + " ".join(["the"] * 20)
    long = [dataclasses.replace(e, document=first, answer=answer) for e in examples]
    config, prepared = prepare(long, tokenizer)
    trial = prepared.trials[0]
    triggered = trial.pairs[0].real.contexts["triggered", "induced"]
    tight = len(triggered) + len(trial.pairs[0].continuation_ids)
    policy = config.policy.model_copy(update={"max_prompt_length": tight - 30, "max_completion_length": 30})
    with pytest.raises(UserError, match="found that it would be cut"):
        bias_texts(config.model_copy(update={"policy": policy}), trial, tokenizer)
