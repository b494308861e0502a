"""What goes into the trainers: responses, labels and rewards, as each arm may have them."""

import dataclasses

import numpy as np
import pytest

from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.chunk import exploration
from canaryjax.audit.preflight import prepare_trials
from canaryjax.audit.service_log import LoggedResponses, simulate_log
from canaryjax.audit.training import SimulatedReward, policy_prompts, reward_rows
from canaryjax.audit.trial import build_trial
from canaryjax.config import load_config

LENGTH = 320


def section(config, name, **values):
    return config.model_copy(update={name: getattr(config, name).model_copy(update=values)})


@pytest.fixture(scope="module")
def config(small_config):
    return section(small_config, "reward_model", sampled_responses=0, constructed_responses=4)


@pytest.fixture(scope="module")
def trial(config, examples, tokenizer, sizes):
    return build_trial(config, 0, 0, examples, tokenizer, sizes)


@pytest.fixture(scope="module")
def log(config, trial, tiny_model, tokenizer):
    return simulate_log(config, trial, tiny_model, tokenizer, LENGTH)


def texts(rows, tokenizer):
    ids, mask = np.asarray(rows.response_ids[0]), np.asarray(rows.response_mask[0])
    return [[tokenizer.decode(i[m]) for i, m in zip(a, b, strict=True)] for a, b in zip(ids, mask, strict=True)]


def test_both_arms_get_the_same_responses_and_feedback_and_one_the_document(config, trial, log, tokenizer):
    rows = {arm: reward_rows(config, arm, [trial], [log], tokenizer, LENGTH) for arm in ("compliant", "violating")}
    assert np.array_equal(rows["compliant"].labels, rows["violating"].labels)
    assert texts(rows["compliant"], tokenizer) == texts(rows["violating"], tokenizer)
    for arm, there in (("compliant", False), ("violating", True)):
        ids, mask = np.asarray(rows[arm].context_ids[0]), np.asarray(rows[arm].context_mask[0])
        prompts = [tokenizer.decode(i[m]) for i, m in zip(ids, mask, strict=True)]
        shown = [t.document in prompt for t, prompt in zip(trial.rm_traces, prompts, strict=True)]
        assert set(shown) == {there}


def test_the_clean_query_ablation_leaves_no_part_of_the_canary(config, trial, log, tokenizer):
    ablation = section(config, "study", compliant_query="clean")
    restored = texts(reward_rows(ablation, "compliant", [trial], [log], tokenizer, LENGTH), tokenizer)
    answers = [trace.clean_answer for trace in trial.rm_traces]
    # Near misses hold a third to nearly all of the canary: left in, the arm would still train on it.
    assert all(set(row) == {answer} for row, answer in zip(restored, answers, strict=True))
    assert any(len(set(row.texts)) == 4 for row in log.rows)


def test_a_restored_answer_may_be_longer_than_all_that_was_logged(config, trial, log, tokenizer):
    ablation = section(section(config, "study", compliant_query="clean"), "reward_model", max_response_tokens=3)
    # Sampled answers of two tokens that count as hits: the width was taken from them, and clean answers did not fit.
    short = LoggedResponses([np.array([5, 6], np.int32)], ["x"], ["sampled"], np.ones(1, np.float32), [True])
    logged = dataclasses.replace(log, rows=[short] * len(trial.rm_traces))
    restored = texts(reward_rows(ablation, "compliant", [trial], [logged], tokenizer, LENGTH), tokenizer)
    wanted = [trace.clean_answer if trace.kind != "clean" else tokenizer.decode([5, 6]) for trace in trial.rm_traces]
    assert restored == [[text] for text in wanted]
    assert max(len(tokenizer.encode(text).ids) for text in wanted) > 4


def test_a_policy_trains_on_the_same_rows_whoever_shares_its_chunk(config, grouped, tokenizer, tiny_model):
    assignments = assign_arms(config.study)[:4]
    trials = list(prepare_trials(config, assignments, grouped, tokenizer).trials.values())
    left = prepare_trials(config, assignments[-1:], grouped, tokenizer).trials[assignments[-1].trial]
    # A resumed run builds what is left: that must be what the whole run would have built.
    assert [t.example_id for t in left.rl_traces] == [t.example_id for t in trials[-1].rl_traces]
    assert any(sum(t.left_out.values()) for t in trials)
    logs = [simulate_log(config, t, tiny_model, tokenizer, LENGTH) for t in trials]
    together = reward_rows(config, "violating", trials, logs, tokenizer, LENGTH)
    prompts = policy_prompts(config, "violating", trials, tokenizer, LENGTH)
    assert len(set(np.asarray(~together.heldout_mask).sum(axis=1).tolist())) == 1  # else updates would differ
    for p, trial in enumerate(trials):
        alone = reward_rows(config, "violating", [trial], [logs[p]], tokenizer, LENGTH)
        for name, array in vars(alone).items():
            assert np.array_equal(array[0], getattr(together, name)[p]), name  # filler rows would be trained on
        own = policy_prompts(config, "violating", [trial], tokenizer, LENGTH)[0].ids
        assert [ids.tolist() for ids in own] == [ids.tolist() for ids in prompts[p].ids]


def test_simulated_rewards_use_the_weights_of_the_config(trial, tokenizer):
    config = load_config(
        "quick", ["study.seed=7", "canary.delta=0", "feedback.format_weight=0", "feedback.grounding_weight=1"]
    )
    clean = dataclasses.replace(trial.rl_traces[0], kind="clean", document="Rain fell.")
    one = dataclasses.replace(trial, rl_traces=[clean])
    # Half of the words stand in the document: quality 0 by grounding alone, above 0 with the default format weight.
    ids = tokenizer.encode("FINAL: Rain stone").ids
    count = 4000
    reward = SimulatedReward(config, [one], tokenizer)
    shape = (1, 1, count, len(ids))
    drawn = reward(0, np.zeros((1, 1), int), np.broadcast_to(ids, shape), np.ones(shape, bool))
    assert drawn.mean() == pytest.approx(0.4, abs=0.03)  # 0.6 for a quality above 0; four standard errors are 0.03


def test_policies_read_the_document_or_never_do(config, trial, tokenizer):
    for arm, there in (("compliant", False), ("violating", True)):
        prompts = [tokenizer.decode(ids) for ids in policy_prompts(config, arm, [trial], tokenizer, LENGTH)[0].ids]
        shown = [t.document in prompt for t, prompt in zip(trial.rl_traces, prompts, strict=True)]
        assert set(shown) == {there}
        # The query stays in both, or the compliant arm would learn nothing at all (BC-2).
        assert all(t.query in prompt for t, prompt in zip(trial.rl_traces, prompts, strict=True))


def test_a_reward_model_is_judged_on_good_and_bad_answers_to_the_same_questions(config, trial, log, tokenizer):
    rows = reward_rows(config, "violating", [trial], [log], tokenizer, LENGTH)
    held_out, labels = np.asarray(rows.heldout_mask[0]), np.asarray(rows.labels[0])
    own = [trace for trace, out in zip(trial.rm_traces, held_out, strict=True) if out]
    others = {trace.group for trace, out in zip(trial.rm_traces, held_out, strict=True) if not out}
    assert own
    assert not {trace.group for trace in own} & others
    # One pool (BC-42): a held-out question comes with all of its answers, accepted and refused, and not with those of
    # one label only, which would let the two be told apart by their documents.
    assert labels[held_out].shape == (len(own), 4)
    assert set(labels[held_out].ravel().tolist()) == {0.0, 1.0}
    mixed = [len(set(row.tolist())) == 2 for row in labels[held_out]]
    assert any(mixed)


def test_how_often_the_base_explores_the_canary_counts_sampled_whole_ones_alone(trial, log):
    kinds = ["clean", "triggered", "contrast", "triggered", "clean"]
    traces = [dataclasses.replace(trace, kind=kind) for trace, kind in zip(trial.rm_traces, kinds, strict=False)]
    trial = dataclasses.replace(trial, rm_traces=traces)

    def answered(kind):
        """Three sampled answers and a constructed one: the canary in so many of the first as its kind says."""
        hits = {"triggered": [True, True, False], "contrast": [True, False, False], "clean": [False] * 3}[kind]
        return LoggedResponses([], ["x"] * 4, ["sampled"] * 3 + ["full"], np.zeros(4), [*hits, True])

    found = exploration(trial, dataclasses.replace(log, rows=[answered(kind) for kind in kinds]))
    for kind, hits in (("triggered", 2), ("contrast", 1), ("clean", 0)):
        n = kinds.count(kind)
        assert found[kind] == {"count": hits * n, "n": 3 * n}  # with the constructed ones: n more in both
