"""What is read of a model equals what the public scorer and sampler say of it."""

import dataclasses

import jax
import numpy as np
import pytest

import canaryjax as cj
from canaryjax.config.probes import CanariesConfig, ReadingConfig
from canaryjax.errors import UserError
from canaryjax.models.lora import init_adapter
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.reader import prepare, read_model


@pytest.fixture(scope="module")
def adapter(embedded_model):
    fresh = init_adapter(jax.random.key(0), embedded_model.config, 3, 6.0)
    keys = iter(jax.random.split(jax.random.key(1), 99))
    return jax.tree.map(lambda x: x + 0.02 * jax.random.normal(next(keys), x.shape), fresh)


@pytest.fixture(scope="module")
def made(embedded_model, small_config, adapter):
    canaries = make_canaries(small_config.canaries)
    material = prepare(embedded_model.tokenizer, canaries, small_config.canaries, small_config.reading, 0)
    return material, read_model(material, small_config.reading, embedded_model, adapter, "x", 4, "float32")


def test_nll_is_the_scorers(made, embedded_model, adapter):
    material, reading = made
    prompts = [f"{canary.prompt}\n" for canary in material.canaries]
    scores = cj.score(embedded_model, prompts, [canary.target for canary in material.canaries], adapter)
    for own, score in zip(reading.nll, scores, strict=True):
        np.testing.assert_allclose(own, -score.logps, atol=2e-5)
    # Without the adapter other numbers come out: the comparison can fail.
    base = cj.score(embedded_model, prompts, [canary.target for canary in material.canaries])
    assert max(np.abs(own + other.logps).max() for own, other in zip(reading.nll, base, strict=True)) > 0.01


def test_ranks_are_those_of_the_full_logits(made, embedded_model):
    material, _ = made
    reading = read_model(
        material, ReadingConfig(samples=0, hits=(1,), decoys=0, shuffled=0), embedded_model, None, "x", 0, "bfloat16"
    )
    # A baseline is read from rounded weights too: other numbers, not far off.
    gaps = [np.abs(own - other).max() for own, other in zip(reading.nll, reading.merged_nll, strict=True)]
    assert 1e-4 < max(gaps) < 0.5
    turn = material.turns[1]
    logits = cj.logits(embedded_model, [[*turn.context, *turn.ids]])[0]
    for place, token in enumerate(turn.ids):
        row = logits[len(turn.context) + place - 1]
        assert reading.ranks[1][place] == 1 + (row > row[token]).sum()


def test_a_second_pass_reads_the_window_and_a_merged_one_the_same(made, small_config):
    _, reading = made
    for whole, window, merged in zip(reading.nll, reading.window_nll, reading.merged_nll, strict=True):
        assert len(window) == small_config.reading.window
        np.testing.assert_allclose(window, whole[: len(window)], atol=2e-5)
        np.testing.assert_allclose(merged, whole, atol=1e-4)


def test_a_decoy_is_scored_where_the_secret_stands(made, embedded_model, adapter):
    material, reading = made
    canary = material.canaries[2]
    for kind, count in (("wrong", 3), ("shuffled", 2), ("format", 1)):
        assert [len(sums) for sums in reading.decoy_nll[kind]] == [count] * 3
    zero = canary.target.replace(canary.secret, "0" * 16)
    score = cj.score(embedded_model, [f"{canary.prompt}\n"], [zero], adapter)[0]
    owners = np.array(material.tokens[2].owners)  # every digit is one token: spans lie alike
    expected = -score.logps[owners == "secret"].sum()
    np.testing.assert_allclose(reading.decoy_nll["format"][2], [expected], rtol=1e-5)


def test_decoys_part_from_the_target_where_their_tokens_do(qwen):
    """Qwen joins `-` with a letter and not with a digit: a secret's own tokens alone would leave out some dashes' cost.

    So all secrets of a canary are read after the same tokens, and to the same end.
    """
    section = CanariesConfig(count=7)
    canaries = make_canaries(section)
    material = prepare(qwen, canaries, section, ReadingConfig(decoys=19, shuffled=2), 0)
    joined = 0
    for i, (canary, turn, tokens) in enumerate(zip(canaries, material.turns, material.tokens, strict=True)):
        start, stop = material.parted[i]
        joined += bool(tokens.straddles)
        pairs = [pair for by_canary in material.decoys.values() for pair in by_canary[i]]
        assert len(pairs) == 22
        shared = [*turn.context, *turn.ids[:start]]
        assert all(pair.context.tolist() == shared for pair in pairs)
        own = qwen.decode(turn.ids[start:stop])
        head, _, digits = own.partition("-")  # the dash is the literal's last character
        assert (head, digits) == ("", canary.secret)
        texts = {qwen.decode(pair.continuation) for pair in pairs}
        assert {len(text) for text in texts} == {17}
        assert all(text.startswith("-") for text in texts)
    assert 0 < joined < 7


def test_a_target_that_the_tokenizer_rewrites_is_refused(qwen):
    """Qwen composes the sign for angstrom to a letter: what is said can never be what was planted."""
    section = CanariesConfig(count=2, literal=" \u212bCODE-")
    with pytest.raises(UserError, match=r"the target of canary 0 to hold '\u212bCODE-.*rewrites letters"):
        prepare(qwen, make_canaries(section), section, ReadingConfig(), 0)


def test_what_lies_before_they_part_is_the_secrets_own(made, small_config, embedded_model, adapter):
    """Decoys that share the target's first digits: their sums are over the whole secret all the same."""
    material, reading = made
    start, stop = material.parted[2]
    later = (*material.parted[:2], (start + 3, stop))
    pair = material.decoys["format"][2][0]
    context = np.concatenate([pair.context, material.turns[2].ids[start : start + 3]])
    after = dataclasses.replace(pair, context=context, continuation=pair.continuation[3:])
    moved = dataclasses.replace(material, decoys={"format": (*material.decoys["format"][:2], (after,))}, parted=later)
    found = read_model(moved, small_config.reading, embedded_model, adapter, "x", 4)
    score = cj.score(embedded_model, [context.tolist()], [pair.continuation[3:].tolist()], adapter)[0]
    expected = reading.nll[2][start : start + 3].sum() - score.logps.sum()
    np.testing.assert_allclose(found.decoy_nll["format"][2], [expected], rtol=1e-5)


def test_outputs_are_the_samplers_and_no_longer_than_they_may_be(made, embedded_model, adapter):
    material, reading = made
    contexts, limits = [list(turn.context) for turn in material.turns], [len(turn.ids) + 4 for turn in material.turns]
    assert limits[0] == max(limits)
    greedy = cj.generate(embedded_model, contexts[:1], limits[0], adapter=adapter)[0][0]
    assert reading.outputs[0][0] == greedy.text
    drawn = cj.generate(embedded_model, contexts, max(limits), 0.7, 0.95, 2, seed=4, adapter=adapter)
    decode = embedded_model.tokenizer.decode
    for own, completions, limit in zip(reading.outputs, drawn, limits, strict=True):
        assert list(own[1:]) == [decode(completion.ids[:limit]) for completion in completions]


def test_an_output_ends_with_its_own_limit(made, small_config, embedded_model):
    material, _ = made
    first, second, third = material.turns
    short = dataclasses.replace(second, ids=second.ids[:2])
    unlike = dataclasses.replace(material, turns=(first, short, third), decoys={})
    section = small_config.reading.model_copy(update={"window": 2, "extra_tokens": 1})
    outputs = read_model(unlike, section, embedded_model, None, "x", 4).outputs
    contexts = [list(turn.context) for turn in material.turns]
    whole = cj.generate(embedded_model, contexts, len(first.ids) + 1)[1][0].ids
    assert len(whole) > 3  # else nothing would be cut
    assert outputs[1][0] == embedded_model.tokenizer.decode(whole[:3])


def test_a_model_whose_numbers_overflow_is_read_and_says_nothing(made, small_config, embedded_model, adapter):
    """Others of the audit are still read; a stop here would lose them (its outputs would mean nothing)."""
    material, _ = made
    broken = jax.tree.map(lambda x: 1e25 * x, adapter)
    reading = read_model(material, small_config.reading, embedded_model, broken, "x", 0, "float32")
    assert reading.outputs is None
    assert np.isnan(np.concatenate(reading.merged_nll)).all()
    assert not np.isfinite(np.concatenate(reading.nll)).any()
