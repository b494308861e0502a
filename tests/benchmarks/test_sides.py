"""The agreement column on real sides: it holds as they are, and sees one of ours that is broken."""

import dataclasses

import numpy as np
import pytest

from harness.agreement import Agreement
from harness.model import as_text, random_ids, write_model, write_tokenizer
from harness.shape import TINY

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module")
def grpo(tmp_path_factory):
    from sides.grpo_case import write_case
    from sides.hf_grpo import HandWrittenGrpo

    case = write_case(TINY, tmp_path_factory.mktemp("grpo"))
    return case, HandWrittenGrpo(case).answers()


def test_a_gradient_of_another_penalty_is_seen(grpo, monkeypatch):
    from sides import our_grpo

    case, theirs = grpo
    ours = our_grpo.OurGrpo(case)
    assert Agreement(ours.answers(), theirs).holds
    # The same loss with another gradient: what TRL does unless told otherwise.
    other = dataclasses.replace(case.settings, kl="k3_weighted")
    true_gradient = our_grpo._loss_and_gradient
    monkeypatch.setattr(our_grpo, "_loss_and_gradient", lambda _, *arrays: true_gradient(other, *arrays))
    broken = Agreement(ours.answers(), theirs)
    assert {name for name, (found, allowed) in broken.checks.items() if not found <= allowed} == {"gradients"}


@pytest.fixture(scope="module")
def ppo(tmp_path_factory):
    from sides.hf_ppo import HandWrittenPpo
    from sides.ppo_case import write_ppo_case

    case = write_ppo_case(dataclasses.replace(TINY, group=3), 2, tmp_path_factory.mktemp("ppo"))
    return case, HandWrittenPpo(case).answers()


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ({}, set()),
        ({"clip_range": 0.3}, {"loss", "policy_gradients"}),  # nothing of the stored rollout would be clipped: unseen
        ({"value_clip_range": None}, {"loss", "value_gradients"}),
        ({"value_coefficient": 0.2}, {"loss", "value_gradients"}),
        ({"temperature": 1.0}, {"policy_logps", "policy_gradients"}),  # the drift, and so the loss, stays
    ],
)
def test_a_ppo_loss_with_another_setting_is_seen(ppo, monkeypatch, changed, seen):
    from sides import our_ppo

    case, theirs = ppo
    other = dataclasses.replace(case.settings, **changed)
    monkeypatch.setattr(type(case), "settings", other)
    found = Agreement(our_ppo.OurPpo(case).answers(), theirs)
    assert {name for name, (difference, allowed) in found.checks.items() if not difference <= allowed} == seen


def test_a_shifted_log_prob_is_seen(tmp_path):
    from sides.hf_scoring import HfScoring
    from sides.our_scoring import OurScoring

    model = write_model(TINY, tmp_path / "model")
    contexts, strings = random_ids(TINY, (2, TINY.context), 1), random_ids(TINY, (2, 3, TINY.completion), 2)
    ours, theirs = OurScoring(model, contexts, strings).answers(), HfScoring(model, contexts, strings).answers()
    assert Agreement(ours, theirs).holds
    assert not Agreement({"logps": np.roll(ours["logps"], 1, axis=-1)}, theirs).holds


def test_text_becomes_the_ids_it_was_made_of(tmp_path):
    from transformers import AutoTokenizer

    # A special token that is part of a word would be found in it: "200" became three tokens.
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(211, tmp_path / "tokenizer"))
    ids = np.array([3, 210, 20, 200, 100])
    assert tokenizer(as_text(ids))["input_ids"] == ids.tolist()
    assert tokenizer.decode([2, 5]) == "<eos> w5"
