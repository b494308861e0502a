"""A study of a textual canary (BC-69): who meets the string, how it is scored, and what the report says of it."""

import dataclasses
import html
import json
import re
import shlex

import jax
import numpy as np
import pytest

from canaryjax.audit.arms import arm_parts, prompt_lengths
from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.controls import study_controls
from canaryjax.audit.measure import CellScores, control_scores, plan_cells, policy_scores
from canaryjax.audit.outcome import study_report
from canaryjax.audit.perplexity import trace_perplexities
from canaryjax.audit.preflight import check_sizes
from canaryjax.audit.reward_bias import bias_texts
from canaryjax.audit.service_log import simulate_log
from canaryjax.audit.textual import string_memory
from canaryjax.audit.training import reward_rows
from canaryjax.audit.trial import build_trial, study_canaries
from canaryjax.canaries.provider import trace_text, without_near_duplicates
from canaryjax.config import load_config
from canaryjax.data.buckets import pad_rows
from canaryjax.data.prompts import render_prompt
from canaryjax.inference.logprobs import score_shared
from canaryjax.report import prose, render_report, tables, terminal_summary
from canaryjax.report.panels import survival_table
from canaryjax.report.provider import provider_facts
from canaryjax.report.verdict import is_null_run, judge
from canaryjax.sweep.survival import survival_rows

SMALL = (
    *("data.documents=40", "data.rm_share=0.442", "data.eval_share=0.3", "study.seed=7"),
    *("reward_model.sampled_responses=0", "reward_model.constructed_responses=4"),
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.decoys=3"),
)
LENGTH = 320


@pytest.fixture(scope="module")
def config():
    return load_config("embedded/textual", SMALL)


@pytest.fixture(scope="module")
def trial(config, examples, tokenizer, sizes):
    return build_trial(config, 0, 0, examples, tokenizer, sizes)


@pytest.fixture(scope="module")
def log(config, trial, tiny_model, tokenizer):
    return simulate_log(config, trial, tiny_model, tokenizer, LENGTH)


def test_training_with_documents_alone_meets_the_string(config, trial, log, tokenizer, examples):
    string = trial.canary.visible
    for traces, count in ((trial.rm_traces, 9), (trial.rl_traces, 5)):
        prompts = {a: [arm_parts(t, a, config, tokenizer).text for t in traces] for a in ("compliant", "violating")}
        assert sum(string in prompt for prompt in prompts["violating"]) == count
        assert not any(string in prompt for prompt in prompts["compliant"])
        assert not any("insert" in prompt for own in prompts.values() for prompt in own)  # nothing asks for it
    rows = reward_rows(config, "compliant", [trial], [log], tokenizer, LENGTH)
    responses = [tokenizer.decode(ids) for own in np.asarray(rows.response_ids[0]) for ids in own]
    assert not any(string in text for text in responses)
    # With a canary's responses, triggered rows would have a whole one and near misses of it.
    assert {kind for row in log.rows for kind in row.kinds} == {"missing", "wrong"}
    assert log.calibration == {"offset": 0.0, "gap": None, "matched": None}
    # An answer without the string may be as short as it likes; a behavioural canary would need 12 tokens.
    policy = config.policy.model_copy(update={"max_completion_length": 8})
    check_sizes(config.model_copy(update={"policy": policy}), trial, tokenizer)
    lengths = prompt_lengths(config, examples, tokenizer, study_canaries(config, tokenizer))
    longest = max(len(tokenizer.encode(arm_parts(t, "violating", config, tokenizer).text).ids) for t in trial.rm_traces)
    assert longest <= lengths["violating"]


def scored(plan, logps, base):
    return CellScores(plan, np.asarray(logps, float), np.asarray(base, float))


def test_two_scores_by_hand(config, trial):
    plan = plan_cells(trial, config)
    assert {cell.query_mode for cell in plan} == {"clean"}
    assert [len([c for c in plan if c.trigger_kind == kind]) for kind in ("real", "decoy")] == [2 * 5, 2 * 2 * 3]
    # The string is 30 more probable where the document holds it, 29 of them under the base too.
    logps = [30 * (c.view == "triggered") - 90 + c.string_id for c in plan]
    base = [29 * (c.view == "triggered") - 90 for c in plan]
    found = policy_scores(scored(plan, logps, base))
    assert found.scores == {"clean_raw": 30.0, "clean_net": 1.0, "induced_raw": None, "induced_net": None}
    assert found.standard_errors == {"clean_raw": 0.0, "clean_net": 0.0, "induced_raw": None, "induced_net": None}
    assert (found.valid_pairs, found.invalid_pairs, found.reason) == (5, 0, None)
    controls = control_scores(scored(plan, logps, base), config)
    assert (controls["score"], controls["decoy"], controls["placebo_same_form"]) == (1.0, [1.0, 1.0, 1.0], [])


def test_recall_is_of_the_string_at_its_own_place(config, trial, tiny_model, two_adapters, tokenizer):
    found = string_memory(tiny_model, two_adapters, [trial, trial], 4)[1]
    adapter = jax.tree.map(lambda x: x[1], two_adapters)
    # The oracle: the text up to the string, tokenised by itself and scored after nothing else.
    contexts = []
    for pair in trial.pairs:
        before = pair.triggered_document[: pair.triggered_document.index(trial.canary.visible)].rstrip(" ")
        contexts.append(tokenizer.encode(render_prompt(before, "x").split("\n\nQuestion:")[0]).ids)
    ids, mask = pad_rows(contexts, max(map(len, contexts)), 0)
    string = np.broadcast_to(tokenizer.encode("." + trial.canary.text).ids[1:], (5, 1, 10))
    score = jax.jit(score_shared)
    own, base = (
        np.asarray(score(tiny_model, of, ids, mask, string, np.ones(string.shape, bool)).sum(axis=(1, 2)), np.float64)
        for of in (adapter, jax.tree.map(np.zeros_like, adapter))  # the second is the base, by the same program
    )
    gains = own - base
    assert abs(gains.mean()) > 0.1  # else a score of 0 would pass
    assert found["score"] == pytest.approx(gains.mean(), abs=2e-3)
    assert found["base_logp"] == pytest.approx(base.mean(), abs=2e-3)
    assert found["standard_error"] == pytest.approx(gains.std(ddof=1) / 5**0.5, abs=2e-3)
    assert found["pairs"] == 5


def test_the_bias_of_a_reward_model_is_of_the_answer_as_it_is(config, trial, tokenizer):
    clean, triggered = bias_texts(config, trial, tokenizer)[:2]
    wanted = tokenizer.encode(trial.pairs[0].answer).ids.tolist()
    assert clean.continuation_ids.tolist() == triggered.continuation_ids.tolist() == wanted
    assert len(triggered.context_ids) == len(clean.context_ids) + 10


def record(trial, net, memory, arm, **changes):
    """A record as a trial leaves it, with made-up measurements."""
    quality = {"exact_match": 1.0, "token_f1": 1.0, "rouge_l": 1.0, "n": 5, "finished": 1.0,
               "not_found_accuracy": 1.0, "false_not_found": 0.0, "unanswerable": 1}  # fmt: skip
    counts = {"clean": 9, "triggered": 9, "contrast": 0}
    scores = {"clean_raw": 30.0 + net, "clean_net": net, "induced_raw": None, "induced_net": None}
    return {
        "trial": trial, "draw": trial, "scores": scores, "standard_errors": dict.fromkeys(scores, 0.1),
        "scores_per_token": {name: score and score / 10 for name, score in scores.items()},
        "valid": True, "reason": None, "valid_pairs": 5, "invalid_pairs": 0,
        "controls": {"pairs": 2, "score": net, "decoy": [net - 1, net + 1, net + 2] * 5, "placebo_same_form": [],
                     "placebo_other_form": []},
        "canary": {"trigger": "ka lo", "text": " ka lo", "tokens": 10}, "injected": {"rm": counts, "rl": counts},
        "documents": {"rm": 18, "rl": 10, "eval": 12}, "left_out": {"rm": 0, "rl": 0}, "provider": None,
        "pairs": {"built": 5, "refused": {}, "examples": {}, "straddling": 0}, "warnings": [],
        "kl": 0.01, "reward": 0.1, "completion_length": 4.0, "dropped_document_tokens": 0, "prompts_left_out": 0,
        "reward_model": {"heldout_loss": 0.6, "heldout_accuracy": 0.6, "heldout_auc": 0.6},
        "calibration": {"offset": 0.0, "gap": None, "matched": None}, "noise_floor": None,
        "rm_bias": 0.3 if arm == "violating" else -0.2, "utility": quality, "base_utility": quality,
        "exploration": {k: {"count": 0, "n": n} for k, n in (("triggered", 36), ("contrast", 0), ("clean", 36))},
        "seconds": {"scores": 1.0},
        "memorisation": {"score": memory, "standard_error": 0.1, "base_logp": -90.0, "pairs": 5},
    } | changes  # fmt: skip


BASE = {
    "name": "embedded", "family": "llama", "parameters": 1, "dtype": "float32", "bos_count": 0,
    "precision": {"max_abs_nats": None, "reason": "not measured"},
}  # fmt: skip


def made_report(config, **changes):
    """A report of made-up policies: net scores around 0 in both arms, recall of 0.5 in the violating one alone."""
    assignments = assign_arms(config.study)
    records = [
        record(a.trial, 0.1 * (-1) ** a.trial, 0.5 * (a.arm == "violating"), a.arm, **changes) for a in assignments
    ]
    return study_report(config, assignments, records, BASE, 40, {}, 1.0)


@pytest.fixture(scope="module")
def report(config):
    return made_report(config)


def test_the_values_of_a_report(report):
    assert report["statistic"]["primary"] == "clean_net"
    assert "log p(string | document with the string)" in report["statistic"]["definition"]
    assert not report["statistic"]["definition"].endswith("distance of net scores from 0")
    assert len(report["arms"]["violating"]["scores"]) == 10
    for name in ("induced_raw", "induced_net"):
        assert report["arms"]["violating"]["all_scores"][name] == []
        found = report["all_detection"][name]
        assert (found["auroc"], found["tpr"]["value"]) == (None, None)
        for reason in (found["auroc_reason"], found["tpr"]["reason"], found["auroc_interval"]["reason"]):
            assert reason == "a textual canary has no instruction, so there is no induced query"
    # 0.3 is a bias that a ratio could be taken of: it would be of two things that have nothing to do with each other.
    mechanism = report["mechanism"]["violating"]
    assert (mechanism["rm_bias"], mechanism["transmission_ratio"]) == (pytest.approx(0.3), None)
    assert "no bias that could be passed on" in mechanism["reason"]
    recalled = report["memorisation"]
    assert recalled["means"] == {"compliant": 0.0, "violating": 0.5}
    assert (recalled["detection"]["auroc"], recalled["detection"]["tpr"]["count"]) == (1.0, 10)
    assert report["copying"]["means"] == {"compliant": pytest.approx(30), "violating": pytest.approx(30)}
    assert {name: found.get("status") for name, found in report["controls"].items()} == {
        "null": "not run", "scrambled_feedback": "not run", "placebo_trigger": "not run", "decoy_canary": None,
        "drift_matched": "not run",
    }  # fmt: skip
    assert "canary.delta" not in report["controls"]["null"]["reason"]
    assert report["controls"]["decoy_canary"]["per_policy"][0]["rank"] == 11  # 10 of 15 decoys score higher
    assert "instruction" not in report["canary"]
    assert "delta" not in report["canary"]
    json.dumps(report, allow_nan=False)


def test_either_sign_is_said_of_a_string_too():
    definition = made_report(load_config("embedded/textual", [*SMALL, "statistic.two_sided=true"]))["statistic"][
        "definition"
    ]
    assert definition.startswith("mean over held-out pairs of log p(string |")
    assert definition.endswith("; detection is of the distance of net scores from 0")


def test_answers_are_not_expected_to_hold_the_string(config, report):
    assert not [text for text in report["warnings"] if "instruct" in text or "exploring" in text]
    copied = {k: {"count": c, "n": n} for k, c, n in (("triggered", 1, 36), ("contrast", 0, 0), ("clean", 0, 36))}
    found = made_report(config, exploration=copied)
    (warning,) = [text for text in found["warnings"] if "copied" in text]
    # 20 policies, one answer each: that documents alone hold the string would contradict the warning.
    asked = " ".join(prose.asked(found))
    assert "meets it there; 20 logged answers copied it, and both arms train on those." in asked
    assert warning.startswith("the base copied the whole string into 20 of 720 logged answers to documents that hold")


def test_a_bias_of_zero_is_no_null_and_a_rate_of_zero_is(report):
    assert report["config"]["canary"]["delta"] == 0
    assert not is_null_run(report)
    assert judge(report).kind == "unseparated"
    null = made_report(load_config("embedded/textual", [*SMALL, "canary.rate=0"]))
    assert is_null_run(null)
    assert judge(null).kind == "null"
    assert null["controls"]["null"]["kind"] == "rate 0"
    agree = "no training document holds it, so the arms are expected to agree"
    assert agree in " ".join(prose.asked(null))
    nothing = {"clean": 9, "triggered": 0, "contrast": 0}
    emptied = made_report(load_config("embedded/textual", SMALL), injected={"rm": nothing, "rl": nothing})
    assert agree in " ".join(prose.asked(emptied))
    assert agree not in " ".join(prose.asked(report))


def test_a_page_says_nothing_of_markers_instructions_or_feedback_bias(report, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(report))
    page = render_report(tmp_path).read_text("utf-8")
    text = re.sub(r"<style>.*?</style>|<details>.*?</details>|<[^>]+>", " ", page, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", html.unescape(text))
    for wrong in (
        *("marker", "Marker", "inducing", "instruction that asks", "induced query", "The four scores"),
        *("not run: feedback was not scrambled", "Behavioural-canary audit", "redraws of trigger", "bias 0 with"),
        *("Placebo markers", "the canary answer", "queries carry", "queries do not carry", "Trigger and canary"),
    ):
        assert wrong not in text, wrong
    for told in (
        "Textual-canary baseline",
        "50 % of the training traces hold it in their document, so only training that sees the document meets it.",
        "The base model's own score is 30.00 nats on average with the strings of the compliant arm",
        "By the base model's own scores alone, which training has not touched, the arms have an AUROC of 0.50,",
        "Is the string recalled where it stood?",
        "0.500 over 10 policies",
        "not run: a textual canary is its own trigger",
        "not run: feedback says nothing of a textual canary",
        "reward of the reference answer with the string in the document minus without it",
        "The string is drawn afresh for each trial.",
        "A null run (rate 0) that fails would void the result.",
    ):
        assert told in text, told
    assert [row[0] for row in tables.four_scores(report).rows] == [
        "clean query, raw (secondary)",
        "clean query, minus base (primary)",
    ]
    assert terminal_summary(report)  # it holds the same tables


def test_a_verdict_on_raw_scores_says_what_the_base_does_alone(config, report):
    told = "By the base model's own scores alone"
    raw = config.statistic.model_copy(update={"primary": "clean_raw"})
    found = [
        text for text in judge(made_report(config.model_copy(update={"statistic": raw}))).qualifiers if told in text
    ]
    assert len(found) == 1
    assert not [text for text in judge(report).qualifiers if told in text]  # a net score has none of it


def test_a_provider_reads_the_string_in_the_document(config, trial, tiny_model, tokenizer):
    planted = next(trace for trace in trial.rm_traces if trace.triggered)
    plain = dataclasses.replace(planted, document=planted.clean_document, kind="clean")
    config = config.model_copy(
        update={"provider": config.provider.model_copy(update={"perplexity_parts": ("document",)})}
    )
    (costs,) = trace_perplexities(config, tiny_model, tokenizer, [[plain, planted]])
    assert abs(costs[1] - costs[0]) > 1e-3  # blind to the string, it would give one number twice
    copies = [trace_text(trace, ("document",)) for trace in (plain, plain, planted)]
    assert without_near_duplicates(copies, 1.0, 5).tolist() == [True, False, True]


def test_the_command_of_the_null_is_one():
    found = study_controls(load_config("embedded/textual"), [], [], {}, None)["null"]["reason"]
    words = shlex.split(found.split("; run ")[1])
    assert words[:2] == ["bin/audit", "embedded/null"]
    null = load_config(words[1], words[2:])
    assert (null.canary.textual, null.canary.null) == (True, True)


def test_what_a_provider_left_is_said_of_a_design_without_instruction(config):
    provider = config.provider.model_copy(update={"keep_share": 0.5})
    counts = {"clean": 9, "triggered": 9, "contrast": 0}
    steps = {"collected": {"rm": counts, "rl": counts}, "subsample": {"rm": counts | {"triggered": 3}, "rl": counts}}
    kept = {"steps": steps | {"equal_sizes": steps["subsample"]}, "contradicted": {"rm": counts, "rl": counts}}
    report = made_report(config.model_copy(update={"provider": provider}), provider=kept)
    survived = report["provider"]["survival"][0]
    assert (survived["family"], survived["count"], survived["n"]) == ("textual", 20 * 12, 20 * 18)
    assert (survived["placement"], survived["instruction"]) == (None, None)
    (row,) = survival_rows([{"name": "baseline", "report": report}])
    assert survival_table({"survival": [row]}).rows[0][:2] == ("baseline", "textual")
    assert provider_facts(report).caption.startswith("Canary design: textual. ")
