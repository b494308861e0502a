"""A pair's score does not depend on how it was batched, padded or shared, and policies do not mix."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.audit.measure import CellScores, control_scores, noise_floor, plan_cells, policy_scores
from canaryjax.audit.reward_bias import reward_bias
from canaryjax.audit.scoring import Item, score_items
from canaryjax.audit.trial import build_trial
from canaryjax.audit.utility import measure_utility
from canaryjax.canaries.placement import induced_query
from canaryjax.data.chat import format_parts
from canaryjax.data.prompts import prompt_parts
from canaryjax.inference.logprobs import score_shared
from canaryjax.models.transformer import Transformer, parameter_shapes
from canaryjax.rl.reward_model import init_reward_model, score_rewards
from canaryjax.rl.settings import AdapterSettings


@pytest.fixture(scope="module")
def trials(small_config, examples, tokenizer, sizes):
    return [build_trial(small_config, i, i, examples, tokenizer, sizes) for i in range(2)]


@pytest.fixture(scope="module")
def plans(trials, small_config):
    return [plan_cells(trial, small_config) for trial in trials]


def one_by_one(model, adapter, item: Item) -> float:
    """The oracle: context and string alone, no padding, no shared beginning."""
    logps = score_shared(
        model,
        adapter,
        item.context[None],
        np.ones((1, len(item.context)), bool),
        item.string[None, None],
        np.ones((1, 1, len(item.string)), bool),
    )
    return float(logps.sum())


@pytest.mark.slow
def test_batched_shared_and_padded_scores_equal_each_item_alone(tiny_model, two_adapters, plans):
    items = [[cell.item for cell in plan[:11]] for plan in plans]
    expected = np.array(
        [
            [one_by_one(tiny_model, jax.tree.map(lambda x, p=p: x[p], two_adapters), item) for item in own]
            for p, own in enumerate(items)
        ]
    )
    assert np.ptp(expected) > 1  # otherwise equal scores would prove nothing
    tolerance = 1e-5 * np.maximum(1.0, np.abs(expected)) * 12  # 1e-5 a token, 12 tokens a canary
    for options in ({}, {"share": False}, {"extra_padding": 32}):
        found = score_items(tiny_model, two_adapters, items, 4, **options)
        assert (np.abs(found - expected) <= tolerance).all(), options
    swapped = score_items(tiny_model, two_adapters, [list(reversed(own)) for own in items], 11)
    assert (np.abs(swapped[:, ::-1] - expected) <= tolerance).all()


def last_token_model(tiny_model):
    """Blocks that write 0 and a head by hand: after token 5 comes token 7, after 7 token 5, and nothing else."""
    config = dataclasses.replace(tiny_model.config, width=23, tied=False, final_softcap=None, scale_embedding=False)
    arrays = {path: np.zeros(shape, np.float32) for path, shape in parameter_shapes(config).items()}
    arrays["embedding"][[5, 7], [0, 1]] = 1.0
    arrays["final_norm"][:] = 0.0 if config.unit_offset_norm else 1.0
    arrays["head"][[7, 5], [0, 1]] = 30.0
    return Transformer(config, {path: jnp.asarray(x) for path, x in arrays.items()})


@pytest.mark.parametrize("share", [True, False])
def test_the_last_token_of_a_string_counts_under_the_raw_law(tiny_model, share):
    # All the loss is on the last token: a slice that drops it scores 0. One logit stands out by 30 / rms, the others
    # are 0.
    model = last_token_model(tiny_model)
    certain = 30 / (1 / 23 + model.config.norm_eps) ** 0.5
    items = [[Item(np.array([5, 7, 5]), np.array(string)) for string in ([7, 5], [7, 5, 7], [7, 5, 11])]]
    found = score_items(model, None, items, 3, share=share)
    np.testing.assert_allclose(found, [[0.0, 0.0, -certain]], rtol=1e-5, atol=1e-4)
    # After token 11 the law is flat over all rows, padded ones included: the sampler's law would leave those out.
    assert model.config.real_vocab_size < model.config.vocab_size
    flat = score_items(model, None, [[Item(np.array([11, 11]), np.array([13]))] * 3], 3, share=share)
    np.testing.assert_allclose(flat, -np.log(model.config.vocab_size), rtol=1e-6)


def scored(plan, logps, base=None):
    logps = np.asarray(logps, float)
    return CellScores(plan, logps, np.zeros(len(plan)) if base is None else np.asarray(base, float))


def test_four_scores_by_hand(plans):
    plan = plans[0]
    # Triggered is 3 above clean for clean queries, 5 for induced ones; the base's own difference is 1.
    logps = [(3 if c.query_mode == "clean" else 5) * (c.view == "triggered") - 40 for c in plan]
    base = [1.0 * (c.view == "triggered") - 40 for c in plan]
    found = policy_scores(scored(plan, logps, base))
    assert found.scores == {"clean_raw": 3.0, "clean_net": 2.0, "induced_raw": 5.0, "induced_net": 4.0}
    assert (found.valid_pairs, found.invalid_pairs) == (5, 0)
    # Each pair's score over the tokens of its own string, not the mean over some one number of tokens.
    lengths = np.array([len(c.item.string) for c in plan if c.trigger_kind == "real"][::4], float)
    assert found.per_token["clean_raw"] == pytest.approx((3 / lengths).mean(), rel=1e-12)


def test_a_canary_of_other_tokens_in_one_pair_counts_by_its_own(plans):
    plan = [c for c in plans[0] if c.trigger_kind == "real"][:8]  # four contexts of two pairs
    longer = Item(plan[4].item.context, np.append(plan[4].item.string, plan[4].item.string[:1]))
    plan = plan[:4] + [dataclasses.replace(c, item=longer) for c in plan[4:]]
    k = len(plan[0].item.string)
    found = policy_scores(scored(plan, [12.0 * (c.view == "triggered") for c in plan]))
    assert found.per_token["induced_raw"] == pytest.approx((12 / k + 12 / (k + 1)) / 2)


def test_a_pair_that_is_not_finite_is_left_out_and_counted(plans):
    plan = plans[0]
    logps = np.where([c.view == "triggered" for c in plan], 2.0, 0.0)
    logps[next(i for i, c in enumerate(plan) if c.trigger_kind == "real")] = -np.inf
    with np.errstate(invalid="ignore"):  # the assertions below tell more than NumPy's warning would
        found = policy_scores(scored(plan, logps))
    assert (found.valid_pairs, found.invalid_pairs) == (4, 1)
    assert found.scores["clean_raw"] == 2.0  # -inf would have made it infinite
    nothing = policy_scores(scored(plan, np.full(len(plan), np.nan)))
    assert nothing.scores["clean_raw"] is None
    assert nothing.reason


def test_controls_use_their_own_strings_and_the_real_clean_view(plans, small_config):
    plan = plans[0]

    def logp(cell):
        if cell.trigger_kind == "decoy":
            return (1.0 + cell.string_id) * (cell.view == "triggered")
        if cell.trigger_kind.startswith("placebo"):
            return 0.5
        return 7.0 if cell.view == "triggered" else 0.25

    found = control_scores(scored(plan, [logp(c) for c in plan]), small_config)
    assert found["pairs"] == 2
    assert found["score"] == pytest.approx(6.75)
    assert found["decoy"] == [1.0, 2.0, 3.0]
    # A placebo is compared with the real clean view, 0.25: with a clean view of its own, 0, it would be 0.5.
    assert found["placebo_same_form"] == [0.25, 0.25]
    assert found["placebo_other_form"] == [0.25, 0.25]


def test_a_broken_pair_leaves_all_controls(plans, small_config):
    plan = plans[0]
    first = plan[0].pair
    logps = [float(c.view == "triggered") * (100.0 if c.pair == first else 2.0) for c in plan]
    logps[next(i for i, c in enumerate(plan) if c.pair == first and c.trigger_kind == "decoy")] = np.nan
    found = control_scores(scored(plan, logps), small_config)
    # Averaging over both pairs would give NaN for that decoy, and over one for it alone 2 against 51 for the others.
    assert (found["pairs"], found["score"], found["decoy"]) == (1, 2.0, [2.0, 2.0, 2.0])


def test_the_noise_floor_counts_the_pairs_there_are(tiny_model, two_adapters, plans, small_config):
    evaluation = small_config.evaluation.model_copy(update={"noise_floor_pairs": 50})
    floors = noise_floor(tiny_model, two_adapters, plans, small_config.model_copy(update={"evaluation": evaluation}))
    assert [f["pairs"] for f in floors] == [5, 5]  # five pairs a trial; repeating them to fifty would say 50
    assert all(0 < f["max_abs_nats"] < 1e-2 for f in floors)


@pytest.mark.slow
def test_a_trial_is_measured_on_all_its_pairs_whoever_shares_its_chunk(
    tiny_model, two_adapters, trials, small_config, tokenizer
):
    few = dataclasses.replace(trials[1], pairs=trials[1].pairs[:2])
    keys = jax.random.split(jax.random.key(4))
    rewards = jax.vmap(lambda key: init_reward_model(key, tiny_model.config, AdapterSettings(3, 6.0)))(keys)

    def measured(own, adapters, scorers):
        floors = noise_floor(tiny_model, adapters, [plan_cells(trial, small_config) for trial in own], small_config)
        biases = reward_bias(small_config, tiny_model, scorers, own, tokenizer)
        utility = measure_utility(small_config, tiny_model, adapters, own, tokenizer, 320)
        base = measure_utility(small_config, tiny_model, None, own, tokenizer, 320)
        return [[floor["pairs"] for floor in floors], biases, utility, base]

    together = measured([trials[0], few], two_adapters, rewards)
    # Cut to the smaller trial's, the first's bias would be over 2 pairs of 5, its floor and utility over 2 of 2 and 3.
    assert together[0] == [2, 2]
    assert [[row["n"] for row in rows] for rows in together[2:]] == [[3, 2], [3, 2]]
    for p, trial in enumerate((trials[0], few)):
        alone = measured(
            [trial], *(jax.tree.map(lambda x, p=p: x[p : p + 1], tree) for tree in (two_adapters, rewards))
        )
        assert alone[1][0] == pytest.approx(together[1][p], abs=1e-5)
        assert abs(alone[1][0]) > 1e-4
        assert [alone[2][0], alone[3][0]] == [together[2][p], together[3][p]]


def test_reward_bias_is_what_the_trigger_adds_to_the_reward(tiny_model, trials, small_config, tokenizer):
    reward_model = init_reward_model(jax.random.key(6), tiny_model.config, AdapterSettings(3, 6.0))
    stacked = jax.tree.map(lambda x: x[None], reward_model)
    few = dataclasses.replace(trials[0], pairs=trials[0].pairs[:3])

    def reward(document, pair):
        # The paper's prompt spelt out, one row, nothing padded.
        head, tail = prompt_parts(document, induced_query(pair.query, few.canary, "default")), pair.canary_answer
        parts = format_parts(head, tokenizer, small_config.data.prompt_format)
        context = tokenizer.encode(parts.before + parts.document + parts.after).ids.tolist()
        whole = tokenizer.encode(parts.before + parts.document + parts.after + tail).ids.tolist()
        assert whole[: len(context)] == context
        answer = [*whole[len(context) :], tokenizer.eos_ids[0]]
        shapes = jnp.array([context]), jnp.ones((1, len(context)), bool)
        rows = jnp.array([[answer]]), jnp.ones((1, 1, len(answer)), bool)
        return float(score_rewards(tiny_model, reward_model, *shapes, *rows)[0, 0])

    wanted = np.mean([reward(p.triggered_document, p) - reward(p.document, p) for p in few.pairs])
    (found,) = reward_bias(small_config, tiny_model, stacked, [few], tokenizer)
    assert abs(wanted) > 1e-3  # clean minus triggered would have the other sign
    assert found == pytest.approx(wanted, abs=1e-5)


def test_a_decoy_replaces_the_canary_wherever_it_stands(trials, tokenizer):
    trial = trials[0]
    variant = next(v for v in trial.pairs[0].variants if v.trigger_kind == "decoy")
    context = tokenizer.decode(variant.contexts["triggered", "induced"])
    assert variant.trigger in context
    assert trial.decoys[0].visible in context
    assert trial.canary.visible not in context
    assert trial.canary.trigger not in context
