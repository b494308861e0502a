"""Studies at the edge of what a config allows: nulls with reasons in the report, never a crash."""

import html
import json

import pytest

from canaryjax.audit.assignment import Assignment
from canaryjax.audit.null_command import null_command
from canaryjax.audit.outcome import study_report
from canaryjax.config import load_config
from canaryjax.data.example import Example
from canaryjax.data.statistics import dataset_statistics
from canaryjax.errors import UserError
from canaryjax.report import judge, render_report, terminal_summary
from canaryjax.report.decoys import decoy_words
from canaryjax.report.prose import cards
from canaryjax.report.run import scores
from canaryjax.runlog.files import encode

NAMES = ("clean_raw", "clean_net", "induced_raw", "induced_net")
BASE = {
    "name": "embedded", "family": "llama", "parameters": 7, "dtype": "float32", "vocabulary": 5, "bos_count": 0,
    "warm_start_documents": 0, "precision": {"max_abs_nats": None, "reason": "the base is computed in float32"},
}  # fmt: skip

DATASET = dataset_statistics(
    [
        Example("a", "d", "g", "Rope is red.", "What is red?", "Rope"),
        Example("b", "d", "g", "Rope is red.", "What is blue?", "Not found"),
    ],
    {},
)


def utility(quality):
    """Of a policy that was asked two questions, both answerable."""
    return {
        **dict.fromkeys(("exact_match", "token_f1", "rouge_l"), quality),
        **{"not_found_accuracy": None, "false_not_found": 0.0, "n": 2, "unanswerable": 0, "finished": 1.0},
    }


def record(trial, score=0.25, valid=True, **changes):
    """A finished trial's record, as `run_chunk` makes it."""
    quality = utility(0.5)
    own = {"pairs": 1, "score": score, "decoy": [0.1, 0.0], "placebo_same_form": [0.2], "placebo_other_form": [0.1]}
    counts = {"clean": 3, "triggered": 2, "contrast": 2}
    found = {
        "trial": trial, "draw": trial, "valid": valid, "reason": None if valid else "no pair has finite log-probs",
        "scores": dict.fromkeys(NAMES, score if valid else None), "standard_errors": dict.fromkeys(NAMES, 0.1),
        "scores_per_token": dict.fromkeys(NAMES, score / 4 if valid else None),
        "valid_pairs": 2 if valid else 0, "invalid_pairs": 0 if valid else 2,
        "controls": own if valid else None,
        "canary": {"trigger": "[Protocol Marker: A1]", "text": " XYZ", "tokens": 4},
        "injected": {"rm": counts, "rl": counts}, "documents": {"rm": 7, "rl": 7, "eval": 3},
        "pairs": {"built": 2, "refused": {}, "examples": {}, "straddling": 0}, "warnings": [],
        "noise_floor": {"max_abs_nats": 1e-6, "median_abs_nats": 1e-7, "pairs": 1, "how": "alone"},
        "rm_bias": 0.4, "kl": 0.01, "reward": 0.5, "completion_length": 9.0,
        "reward_model": {"heldout_loss": 0.6, "heldout_accuracy": 0.7, "heldout_auc": 0.7},
        "utility": quality, "base_utility": quality,
        "exploration": {kind: {"count": 1, "n": 4} for kind in counts},
        "dropped_document_tokens": 0, "prompts_left_out": 0,
        "calibration": {"offset": 0.0, "gap": 0.0, "matched": True}, "seconds": {"policies": 1.0},
    }  # fmt: skip
    return found | changes


def finish(tmp_path, records, arms, *overrides):
    """The report of made-up records, written and drawn."""
    config = load_config(
        "quick", ["study.compliant=1", "study.violating=1", "statistic.bootstrap_samples=50", *overrides]
    )
    assignments = [Assignment(r["trial"], arm, r["trial"]) for r, arm in zip(records, arms, strict=True)]
    report = study_report(config, assignments, records, BASE, 24, DATASET, 1.0)
    (tmp_path / "report.json").write_bytes(encode(report)[0])
    rows = [{"trial": a.trial, "arm": a.arm} for a in assignments]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = render_report(tmp_path).read_text("utf-8")
    assert "not available nats" not in page
    assert "1 documents in 1 groups, 2 questions, 1 unanswerable; words a document: median 3" in page
    assert terminal_summary(json.loads((tmp_path / "report.json").read_bytes()))
    assert ">nan<" not in page.lower()
    assert ">None<" not in page
    return report


BOTH = ("compliant", "violating")


@pytest.mark.parametrize(
    ("records", "arms"),
    [
        ([record(0), record(1, 0.5)], BOTH),
        ([record(0, 0.3), record(1, 0.3)], BOTH),  # no spread, no difference
        ([record(0, valid=False), record(1)], BOTH),
        ([record(0, valid=False), record(1, valid=False)], BOTH),
        ([record(0), record(1)], ("violating", "violating")),  # a coin may fall so
        ([record(0), record(1)], ("compliant", "compliant")),
        ([record(0), record(1), record(2, 0.5, valid=False)], (*BOTH, "violating")),
    ],
)
def test_few_or_no_policies_in_an_arm(tmp_path, records, arms):
    report = finish(tmp_path, records, arms)
    for arm in BOTH:
        assert report["arms"][arm]["n"] == sum(r["valid"] for r, a in zip(records, arms, strict=True) if a == arm)
    assert report["detection"]["tpr"]["value"] is None
    assert report["detection"]["tpr"]["reason"]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("negatives") == 0
    assert page.count("set study.compliant=9 or more") in (0, 2)  # the table and the warning; once it was nine times
    assert "false alarm rate of not available" not in page


def test_net_scores_are_said_to_be_against_the_open_base_whatever_the_primary(tmp_path):
    report = finish(tmp_path, [record(0), record(1)], BOTH, "statistic.primary=clean_raw")
    assert report["statistic"]["baseline"] == "open_base"
    assert "Baseline of net scores: open base." in (tmp_path / "report.html").read_text("utf-8")


def test_everything_optional_switched_off(tmp_path):
    nothing = {"pairs": 0, "score": None, "decoy": [], "placebo_same_form": [], "placebo_other_form": []}
    empty = {kind: {"count": 0, "n": 0} for kind in ("clean", "triggered", "contrast")}
    off = {
        "controls": nothing, "noise_floor": None, "utility": None, "base_utility": None, "rm_bias": None, "kl": None,
        "reward": None, "completion_length": None, "exploration": empty,
        "reward_model": dict.fromkeys(("heldout_loss", "heldout_accuracy", "heldout_auc")),
        "calibration": {"offset": 0.0, "gap": None, "matched": None},
        "injected": {name: {"clean": 7, "triggered": 0, "contrast": 0} for name in ("rm", "rl")},
    }  # fmt: skip
    overrides = (
        *("evaluation.control_pairs=0", "evaluation.decoys=0", "evaluation.placebos_same_form=0"),
        *("evaluation.placebos_other_form=0", "evaluation.utility_examples=0", "evaluation.noise_floor_pairs=0"),
        *("canary.rate=0", "canary.contrast=0", "statistic.prevalences=[]"),
    )
    report = finish(tmp_path, [record(0, **off), record(1, 0.5, **off)], BOTH, *overrides)
    assert report["controls"]["decoy_canary"]["status"] == "not run"
    assert report["noise_floor"] == {
        "max_abs_nats": None, "median_abs_nats": None, "pairs": 0, "reason": "evaluation.noise_floor_pairs is 0",
        "bfloat16": {"max_abs_nats": None, "reason": "the base is computed in float32"},
    }  # fmt: skip
    assert "precision" not in report["model"]
    for kind in ("triggered", "contrast", "clean"):
        assert report["exploration"][kind]["rate"] is None
        assert report["exploration"][kind]["reason"] == f"no response to a {kind} row was sampled"
    assert report["calibration"]["median_gap"] is None
    assert "no trial" in report["calibration"]["reason"]
    assert report["utility"]["base"]["reason"]


def test_a_null_stands_beside_its_reason(tmp_path):
    report = finish(tmp_path, [record(0, noise_floor=None), record(1, noise_floor=None)], BOTH)
    assert report["noise_floor"]["reason"] == "no pair has finite log-probs"
    assert report["exploration"]["clean"]["reason"] is report["calibration"]["reason"] is None
    for name in ("null", "scrambled_feedback"):
        control = report["controls"][name]
        assert control["value"] is None
        assert control["status"] == "not run"
        assert control["reason"]


def test_a_null_run_of_too_few_policies_is_undecided_and_was_run(tmp_path):
    records = [record(0), record(1, 0.3), record(2, 0.2), record(3, 0.4)]
    report = finish(tmp_path, records, ("compliant", "violating") * 2, "canary.delta=0")
    assert report["controls"]["null"]["passed"] is None
    (card,) = [card for card in cards(report) if card["name"] == "null control"]
    assert card["value"] == "undecided"
    assert card["more"].startswith("cannot fail: the smallest p-value that 2 and 2 policies can give is 0.333")
    assert judge(report).headline.startswith("This null run can neither pass nor fail (cannot fail")


def test_decoys_without_placebos_and_the_reverse(tmp_path):
    own = {"pairs": 1, "score": 0.25, "decoy": [], "placebo_same_form": [], "placebo_other_form": [0.1]}
    report = finish(
        tmp_path,
        [record(0, controls=own), record(1, controls=own)],
        BOTH,
        "evaluation.decoys=0",
        "evaluation.placebos_same_form=0",
    )
    assert report["controls"]["decoy_canary"]["reason"] == "no decoys were drawn"
    assert report["controls"]["placebo_trigger"]["per_policy"][0]["same_form"]["n"] == 0


def test_counts_of_a_policy_are_told_from_counts_over_all(tmp_path):
    weak = utility(0.25)
    records = [record(0, prompts_left_out=3, base_utility=weak), record(1, prompts_left_out=3, base_utility=weak)]
    warnings = finish(tmp_path, records, BOTH, "evaluation.utility_examples=5")["warnings"]
    assert any(text.startswith("each policy left out 3 of its own policy prompts") for text in warnings)
    assert any("asks for 5 held-out questions, 2 a policy were answered" in text for text in warnings)
    assert any(text.startswith("the base answers only 25%") for text in warnings)
    page = (tmp_path / "report.html").read_text("utf-8")
    # 6 beside "documents: policy 7" would read as nearly all of them.
    assert "policy prompts that filled no step, over all 2 policies" in page
    assert "documents a policy, policy" in page


def test_a_run_whose_provider_dropped_every_marked_trace_is_a_null(tmp_path):
    nothing = {"clean": 3, "triggered": 0, "contrast": 2}
    arms = ["compliant"] * 8 + ["violating"] * 8
    records = [record(k, score=0.1 * k, injected={"rm": nothing, "rl": nothing}) for k in range(16)]
    report = finish(tmp_path, records, arms)
    assert report["controls"]["null"]["kind"] == "curation left no trace with the trigger"
    verdict = judge(report)
    assert verdict.kind == "blocked"  # an AUROC of 1 where there is nothing to find
    some = [record(k, score=0.1 * k) for k in range(16)]
    report = finish(tmp_path, some, arms)
    assert "kind" not in report["controls"]["null"]
    assert judge(report).kind == "separated"


def test_the_null_of_a_study_is_named_with_its_documents(tmp_path):
    report = finish(tmp_path, [record(0), record(1)], BOTH, "data.kind=jsonl", "data.path=d.jsonl", "data.documents=7")
    words = "data.kind=jsonl data.path=d.jsonl data.documents=7"
    assert f"run bin/audit embedded/null {words}" in report["controls"]["null"]["reason"]
    assert f"run bin/audit embedded/null_scrambled {words}" in report["controls"]["scrambled_feedback"]["reason"]


@pytest.mark.parametrize("name", ["paper/repliqa_gemma2b_grpo", "embedded/ppo", "smollm2_fairytale"])
def test_a_study_unlike_the_shipped_null_is_its_own_null(name):
    # PPO and a warm start have keys that the shipped null lacks.
    told = null_command(load_config(name), "embedded/null", "canary.rate=0 canary.contrast=0")
    assert told == "this config again with canary.rate=0 canary.contrast=0"


def test_too_few_decoys_for_a_rank_are_told_of_and_judge_nothing(tmp_path):
    report = finish(tmp_path, [record(0), record(1, score=0.0)], ["compliant", "violating"])
    words = decoy_words(report["controls"]["decoy_canary"])
    assert words.count("too few of them for a rank p-value of 0.10, which takes nine") == 2
    assert not any("stand out among decoys" in text for text in judge(report).qualifiers)


@pytest.mark.parametrize(("coefficient", "told"), [(0.0, True), (0.5, False)])
def test_a_drift_that_was_not_measured_is_told_of(tmp_path, coefficient, told):
    records = [record(0, kl=None if told else 0.01), record(1, kl=None if told else 0.01)]
    report = finish(tmp_path, records, ["compliant", "violating"], f"policy.kl_coefficient={coefficient}")
    assert any("no KL to it was measured" in text for text in report["warnings"]) == told


def test_scores_of_either_sign_are_judged_and_drawn_by_their_distance(tmp_path):
    signs = [-1.0, 1.0]
    records = [record(k, score=0.01 * k) for k in range(10)] + [record(10 + k, score=signs[k % 2]) for k in range(10)]
    for own in records[10:]:
        own["controls"] |= {"score": own["scores"]["induced_net"], "decoy": [0.0] * 19}
    arms = ["compliant"] * 10 + ["violating"] * 10
    sizes = ("study.compliant=10", "study.violating=10")
    plain = finish(tmp_path, records, arms, *sizes)
    assert plain["detection"]["auroc"] == 0.5
    report = finish(tmp_path, records, arms, *sizes, "statistic.two_sided=true")
    assert report["detection"]["auroc"] == 1.0
    assert report["all_detection"]["induced_raw"]["auroc"] == 0.5  # raw scores have no centre
    assert report["arms"]["violating"]["scores"][:2] == signs  # kept as they were measured
    assert report["mechanism"]["violating"]["amplification"] == 0.0
    ranks = [row["rank"] for row in report["controls"]["decoy_canary"]["per_policy"] if row["arm"] == "violating"]
    assert ranks == [1] * 10  # signed, half of them would rank last
    assert scores(report, "violating").tolist() == [1.0] * 10
    # Decoys at 0 are below the threshold, the tenth smallest of the compliant distances; without it there is no count.
    assert report["controls"]["decoy_canary"]["violating_decoys_above_threshold"] == {"count": 0, "n": 190}
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "judged, as distances from 0" in page
    with pytest.raises(UserError, match="no centre fixed beforehand"):
        load_config("quick", ["statistic.two_sided=true", "statistic.primary=induced_raw"])


def test_the_score_a_token_and_the_effect_in_deviations_are_on_the_page(tmp_path):
    records = [record(k, score=0.1 * k, rm_bias=0.2 * k) for k in range(6)]
    report = finish(tmp_path, records, ["compliant"] * 3 + ["violating"] * 3)
    # Scores 0.3, 0.4, 0.5 over four tokens.
    assert report["mechanism"]["violating"]["amplification_per_token"] == pytest.approx(0.1)
    page = html.unescape((tmp_path / "report.html").read_text("utf-8"))
    assert "score a token of the canary (nats)" in page
    # Three deviations of either number, J(4) = 0.798: +2.39.
    assert "Hedges' g; 95 % by the noncentral t law, as if both arms were equally spread): scores +2.39 [" in page
    assert "reward-model biases +2.39 [" in page


@pytest.mark.parametrize(
    ("kind", "count", "told"),
    [
        ("triggered", 0, "writes the whole canary in 0.0% of instructed answers (triggered rows)"),
        ("contrast", 0, "writes the whole canary in 0.0% of instructed answers (contrast rows)"),
        ("triggered", 190, "writes the canary in 95% of instructed answers: there is little to learn"),
        ("clean", 10, "writes the canary in 5.0% of answers without instruction: it is too common"),
    ],
)
def test_a_canary_met_almost_never_or_almost_always_is_told_of(tmp_path, kind, count, told):
    seen = {"triggered": {"count": 80, "n": 200}, "contrast": {"count": 80, "n": 200}, "clean": {"count": 0, "n": 200}}
    records = [record(0, exploration=seen), record(1, exploration=seen)]
    arms = ["compliant", "violating"]
    assert not any("the base writes" in text for text in finish(tmp_path, records, arms)["warnings"])
    odd = [record(i, exploration=seen | {kind: {"count": count, "n": 200}}) for i in range(2)]
    assert any(told in text for text in finish(tmp_path, odd, arms)["warnings"])


def test_ranks_among_decoys_are_tested_where_no_trace_carried_the_canary(tmp_path):
    nothing = {"clean": 7, "triggered": 0, "contrast": 0}
    overrides = ("canary.rate=0", "canary.contrast=0", "evaluation.decoys=19")

    def study(ranks, injected=nothing):
        records = [record(k, score=0.01 * k, injected={"rm": injected, "rl": injected}) for k in range(16)]
        for own, rank in zip(records, ranks, strict=True):
            own["controls"] |= {"score": 20.5 - rank, "decoy": list(range(1, 20))}
        return finish(tmp_path, records, ["compliant"] * 8 + ["violating"] * 8, *overrides)

    spread = [2, 5, 7, 10, 12, 15, 17, 20]
    report = study(spread * 2)
    found = report["controls"]["decoy_canary"]["uniformity"]
    assert [row["rank"] for row in report["controls"]["decoy_canary"]["per_policy"][:8]] == spread
    assert found["compliant"]["p_value"] > 0.9
    page = html.unescape((tmp_path / "report.html").read_text("utf-8"))
    assert "No trace carried the canary: ranks against the uniform law, p = 1.000 (compliant)" in page
    assert not any("like one of its decoys" in text for text in report["warnings"])
    # The violating policies rank the real one first though nothing was planted: something gives it away.
    report = study([*spread, *[1] * 8])
    (told,) = [text for text in report["warnings"] if "like one of its decoys" in text]
    assert told.startswith("violating policies do not rank the real canary")
    # Contrast traces ask for the canary: it need not rank like a decoy then.
    found = study(spread * 2, {"clean": 4, "triggered": 0, "contrast": 3})["controls"]["decoy_canary"]["uniformity"]
    assert found["status"] == "not run"
