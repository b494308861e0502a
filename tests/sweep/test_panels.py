"""Panels of made-up reports on real cells: which cells stand together, and every test against an independent oracle."""

import itertools

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax.audit.provider_summary import provider_summary
from canaryjax.config import load_config
from canaryjax.config.load import SHIPPED_CONFIGS, SWEEPS
from canaryjax.sweep.panel_groups import differences
from canaryjax.sweep.survival import survival_rows

OWN = "seeds: own\nset: {canary.contrast: null}\nbase: quick\n"
SHARED = OWN.replace("own", "shared")
FAMILIES = "factors: {canary.family: [signature, emoji, punctuation]}"
RATES = "factors: {canary.rate: [0.5, 0, 0.1]}"  # not in rising order, and the base's rate among them


@pytest.fixture
def panels(summary):
    """Makes the panels of a sweep whose cells have these reports, in the order of its cells."""
    return lambda text, reports: summary(text, reports)["panels"]


def test_the_papers_panels_of_the_shipped_sweep(panels, report):
    found = panels((SHIPPED_CONFIGS / SWEEPS / "figure3.yaml").read_text(), [report([0.1, 0.2])] * 8)
    assert [(panel["letter"], panel["key"]) for panel in found] == [
        *(("A", "canary.family"), ("B", "canary.rate"), ("C", "policy.algorithm")),
    ]
    assert [[(level["label"], level["cell"]) for level in panel["levels"]] for panel in found] == [
        [("signature", "base"), ("emoji", "family-emoji"), ("punctuation", "family-punctuation")],
        [("0\u00a0%", "rate-0"), ("1\u00a0%", "rate-0.01"), ("10\u00a0%", "rate-0.1"), ("30\u00a0%", "rate-0.3"),
         ("50\u00a0%", "base")],
        [("grpo", "base"), ("ppo", "embedded-ppo")],
    ]  # fmt: skip
    # Families differ in nothing else; contrast rows are as many as canaries; an algorithm has settings of its own.
    assert found[0]["also_differs"] == []
    assert found[1]["also_differs"] == [
        {"key": "canary.contrast", "shared": True, "values": [0.0, 0.01, 0.1, 0.3, 0.5]},
    ]
    other = {own["key"]: own for own in found[2]["also_differs"]}
    assert other["policy.kl"] == {"key": "policy.kl", "shared": True, "values": ["k3", "k1"]}
    assert not other["policy.clip_range"]["shared"]
    assert all(key.startswith("policy.") for key in other)


def test_families_by_kruskal_wallis_and_dunn(panels, report):
    groups = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    (panel,) = panels(OWN + FAMILIES, [report(own) for own in groups])
    test = panel["test"]
    assert (test["kind"], test["independent"], test["refused"]) == ("kruskal_wallis", True, None)
    # Ranks 1 to 9: mean ranks 2, 5, 8, H = 12/90 x 3 x (9 + 0 + 9) = 7.2.
    assert test["result"]["statistic"] == pytest.approx(7.2)
    assert test["result"]["p_value"] == pytest.approx(sps.kruskal(*groups).pvalue)
    # z = 3 and 6 over sqrt(7.5 x 2/3); Holm multiplies the smallest by 3 and the others by 2.
    raw = [2 * sps.norm.sf(d / np.sqrt(5)) for d in (3, 6, 3)]
    assert [p["adjusted_p"] for p in test["result"]["pairs"]] == pytest.approx([2 * raw[0], 3 * raw[1], 2 * raw[2]])
    assert [(p["first"], p["second"]) for p in test["result"]["pairs"]][1] == ("signature", "punctuation")
    assert [level["arms"]["violating"]["mean"] for level in panel["levels"]] == [2.0, 5.0, 8.0]
    reach = sps.t.ppf(0.975, 2) / np.sqrt(3)
    bounds = panel["levels"][1]["arms"]["violating"]["interval"]
    assert (bounds["low"], bounds["high"]) == pytest.approx((5 - reach, 5 + reach))


def concordant(labels, scores):
    """J of Jonckheere and Terpstra, by the definition."""
    pairs = itertools.combinations(range(len(scores)), 2)
    return sum(
        0.5 if scores[a] == scores[b] else float((scores[a] < scores[b]) == (labels[a] < labels[b]))
        for a, b in pairs
        if labels[a] != labels[b]
    )


def test_rates_by_a_trend_with_ties_in_rising_order_of_dose(panels, report):
    # Cells stand as in the file, 0.5 first: taken in that order the trend would fall.
    (panel,) = panels(OWN + RATES, [report(own) for own in ([3.0, 4.0], [1.0, 2.0], [2.0, 3.0])])
    assert [level["value"] for level in panel["levels"]] == [0.0, 0.1, 0.5]
    test, scores, labels = panel["test"], [1.0, 2.0, 2.0, 3.0, 3.0, 4.0], (0, 0, 1, 1, 2, 2)
    assert test["kind"] == "jonckheere_terpstra"
    laws = np.array([concordant(own, scores) for own in set(itertools.permutations(labels))])
    observed = concordant(labels, scores)
    assert test["result"]["statistic"] == observed == 11.0
    assert test["rising"] == pytest.approx(11 / 12)
    assert test["result"]["variance"] == pytest.approx(laws.var())  # without the ties it would be 6.33
    assert test["result"]["p_value"] == pytest.approx(2 * sps.norm.sf(5 / laws.std()))
    exact = np.mean(np.abs(laws - 6) >= 5)
    assert test["permuted"]["p_value"] == pytest.approx(exact, abs=4 * np.sqrt(exact / 10_000))


def test_two_settings_by_welch(panels, report):
    first, second = [1.0, 2.0, 4.0], [2.0, 3.0, 9.0, 12.0]
    (panel,) = panels(
        OWN.replace("quick", "embedded/ppo") + "factors: {base: [quick]}", [report(first), report(second)]
    )
    assert (panel["letter"], [level["label"] for level in panel["levels"]]) == ("C", ["ppo", "grpo"])
    test, oracle = panel["test"], sps.ttest_ind(first, second, equal_var=False)
    assert test["kind"] == "welch"
    assert (test["result"]["statistic"], test["result"]["p_value"]) == pytest.approx((oracle.statistic, oracle.pvalue))
    assert test["result"]["difference"] == pytest.approx(7 / 3 - 6.5)
    assert panel["unlike_sizes"] == {"compliant": False, "violating": True}


@pytest.mark.parametrize(
    ("factor", "letter", "kind", "labels"),
    [
        ("canary.delta: [0.0, 0.5, 1.0]", None, "jonckheere_terpstra", ["0", "0.5", "1"]),
        ("canary.delta: [0.5, 1.0]", None, "welch", ["0.5", "1"]),
        ("canary.rate: [0.1, 0.5]", "B", "jonckheere_terpstra", ["10\u00a0%", "50\u00a0%"]),
        ("canary.family: [signature, emoji]", "A", "kruskal_wallis", ["signature", "emoji"]),
        ("model.path: [embedded, here/one, there/two]", "D", "kruskal_wallis", ["embedded", "one", "two"]),
        ("model.path: [embedded, here/one]", "D", "welch", ["embedded", "one"]),
        ("model.path: [embedded, here/one, there/one]", "D", "kruskal_wallis", ["embedded", "here/one", "there/one"]),
        ("canary.contrast: [null, 0.2, 0.3]", None, "kruskal_wallis", ["none", "0.2", "0.3"]),
    ],
)
def test_which_test_a_panel_has(panels, report, factor, letter, kind, labels):
    (panel,) = panels(f"{OWN}factors: {{{factor}}}", [report([k + 0.1, k + 0.2, k + 0.4]) for k in range(len(labels))])
    assert (panel["letter"], panel["test"]["kind"]) == (letter, kind)
    assert [level["label"] for level in panel["levels"]] == labels


def test_seeds_are_no_doses(panels, report):
    text = SHARED + "grid: {study.seed: [1, 2, 3]}"
    (panel,) = panels(text, [report([1.0, 2.0]), report([2.0, 3.0]), report([3.0, 4.0])])
    assert (panel["ordered"], panel["test"]["kind"], panel["test"]["independent"]) == (False, "kruskal_wallis", True)


def test_configs_that_differ_in_more_than_one_thing_are_no_lettered_panel(panels, report, tmp_path):
    (tmp_path / "other.yaml").write_text(
        f"extends: {SHIPPED_CONFIGS / 'embedded' / 'ppo.yaml'}\ncanary: {{delta: 0.5}}"
    )
    text = SHARED + "factors: {base: [quick, other.yaml]}"
    (panel,) = panels(text, [report([1.0, 2.0]), report([3.0, 4.0])])
    assert (panel["letter"], panel["title"]) == (None, "config")


def test_shared_trials_are_paired_and_the_tests_of_independent_groups_refused(panels, report):
    doses = [
        report([0.5, 0.9, 0.2], trials=[3, 1, 2], invalid=[8]),  # 0.5
        report([0.3, 0.1, 9.0, 0.0], trials=[1, 2, 8, 3]),  # 0
        report([0.1, 0.6, 0.4, 7.0], trials=[2, 3, 1, 8]),  # 0.1
    ]
    (panel,) = panels(SHARED + RATES, doses)
    test = panel["test"]
    assert (test["kind"], test["independent"], test["refused"]["kind"]) == ("page", False, "jonckheere_terpstra")
    assert "found trial 1 of seed" in test["refused"]["reason"]
    assert "in both 0\u00a0% and 10\u00a0%" in test["refused"]["reason"]
    # Trial 8 is not valid at 0.5. Ranks of the others: 1 2 3; 1.5 1.5 3; 1 3 2. L = 14 + 13.5 + 13.
    assert (test["trials"], test["left_out"]) == ([1, 2, 3], [8])
    assert test["result"]["statistic"] == 40.5


def test_pairs_of_cells_that_share_trials_by_sign_flips(panels, report):
    made = [report([3.0, 5.0, 9.0]), report([2.0, 3.0, 6.0]), report([3.0, 5.0, 9.0])]
    (panel,) = panels(SHARED + FAMILIES, made)
    test = panel["test"]
    assert (test["kind"], test["refused"]["kind"]) == ("sign_flips", "kruskal_wallis")
    # Differences 1, 2, 3: two of eight patterns of signs reach 6. Holm: three times the smallest, then no less.
    assert [(p["statistic"], p["p_value"], p["adjusted_p"]) for p in test["pairs"]] == [
        *((2.0, 0.25, 0.75), (0.0, 1.0, 1.0), (-2.0, 0.25, 0.75)),
    ]


def test_two_rates_that_share_trials_are_flipped(panels, report):
    made = [report([3.0, 5.0]), report([2.0, 3.0])]
    (panel,) = panels(SHARED + "grid: {canary.rate: [0, 0.5]}", made)
    assert (panel["test"]["kind"], panel["test"]["pairs"][0]["statistic"]) == ("sign_flips", 1.5)


def test_trials_of_unlike_arms_are_not_paired(panels, report):
    made = [report([3.0, 5.0], compliant=[0.0]), report([2.0, 3.0])]
    (panel,) = panels(SHARED + "grid: {canary.rate: [0, 0.5]}", made)
    assert panel["test"]["kind"] is None
    assert "unlike trials in their arms" in panel["test"]["reason"]
    assert panel["test"]["refused"]["kind"] == "jonckheere_terpstra"


def test_no_trial_in_common(panels, report):
    made = [report([1.0, 2.0], trials=[0, 1], invalid=[2, 3]), report([1.0, 2.0], trials=[2, 3], invalid=[0, 1])]
    (panel,) = panels(SHARED + "grid: {canary.rate: [0, 0.5]}", made)
    assert "2 trials that are valid in every cell, found 0" in panel["test"]["reason"]


def test_cells_without_a_report_are_named_and_left_out(panels, report):
    made = [report([1.0, 2.0]), "expected memory, found none", report([2.0, 3.0])]
    (panel,) = panels(OWN + RATES, made)
    assert panel["missing"] == [
        {"label": "0\u00a0%", "cell": "rate-0", "status": "failed", "error": "expected memory, found none"}
    ]
    assert panel["test"]["kind"] == "jonckheere_terpstra"
    assert len(panel["levels"]) == 3
    (panel,) = panels(OWN + RATES, [None, None, report([2.0, 3.0])])
    assert panel["test"]["reason"] == "a panel needs 2 finished cells, found 1"
    assert [own["status"] for own in panel["missing"]] == ["not run", "not run"]


def test_one_policy_a_cell_gives_a_reason(panels, report):
    (panel,) = panels(OWN + FAMILIES, [report([1.0]), report([1.0, 2.0]), report([])])
    assert panel["test"]["kind"] is None
    assert panel["test"]["reason"].endswith("in each cell, found signature 1, punctuation 0")
    assert panel["levels"][0]["arms"]["violating"]["interval"]["low"] is None


def test_equal_scores_give_a_reason(panels, report):
    (panel,) = panels(OWN + FAMILIES, [report([1.0, 1.0])] * 3)
    assert (panel["test"]["result"]["p_value"], panel["test"]["result"]["reason"]) == (None, "all scores are equal")


def test_unlike_primary_scores_are_not_compared(panels, report):
    other = report([1.0, 2.0], statistic={"primary": "clean_raw"})
    (panel,) = panels(OWN + FAMILIES, [report([1.0, 2.0]), other, other])
    assert (panel["test"]["kind"], panel["primary"]) == (None, None)
    assert panel["test"]["reason"] == "cells have unlike primary scores: clean_raw, induced_net"


def test_a_grid_has_a_panel_at_each_value_of_the_other_keys(panels, report):
    text = SHARED + "grid: {canary.rate: [0, 0.1], canary.family: [emoji, signature], canary.delta: [1.0]}"
    found = panels(text, [report([k + 1.0, k + 2.0]) for k in range(4)])
    assert [(panel["letter"], panel["at"]) for panel in found] == [
        ("A", {"canary.rate": 0}),
        ("A", {"canary.rate": 0.1}),
        ("B", {"canary.family": "emoji"}),
        ("B", {"canary.family": "signature"}),
    ]
    # Cells in order: (0, emoji), (0, signature), (0.1, emoji), (0.1, signature). Pooled, means would be 2 and 3.
    means = [[level["arms"]["violating"]["mean"] for level in panel["levels"]] for panel in found]
    assert means == [[1.5, 2.5], [3.5, 4.5], [1.5, 3.5], [2.5, 4.5]]
    assert all({own["key"] for own in panel["also_differs"]} <= {"canary.contrast"} for panel in found)


def test_score_a_token_stands_beside_the_score(panels, report):
    listed = report([4.0, 8.0], tokens=(2, 4))
    made = [report([11.0, 22.0]), listed, report([8.0, 4.0], tokens=(4,))]
    given = ([1.0, 2.0], [2.0, 2.5], [2.0, 1.0])
    for one, scores in zip(made, given, strict=True):
        one["arms"]["violating"]["scores_per_token"] = scores
    (panel,) = panels(OWN + FAMILIES, made)
    assert tuple(level["arms"]["violating"]["scores_per_token"] for level in panel["levels"]) == given
    oracle = sps.kruskal([1.0, 2.0], [2.0, 2.5], [2.0, 1.0])
    assert panel["test_per_token"]["result"]["p_value"] == pytest.approx(oracle.pvalue)
    del listed["arms"]["violating"]["scores_per_token"]
    (panel,) = panels(OWN + FAMILIES, made)
    assert panel["test_per_token"]["reason"] == "no score a token in the report of emoji"
    assert panel["levels"][1]["arms"]["violating"]["per_token_reason"].startswith(
        "the report does not say what each policy"
    )
    # Where all strings of a panel are alike in length nothing is gained by it; base models may cut them differently.
    alike = [report([1.0, 2.0])] * 3
    assert panels(OWN + RATES, alike)[0]["test_per_token"] is None
    models = OWN + "factors: {model.path: [embedded, here/one, there/two]}"
    assert panels(models, made)[0]["test_per_token"]["kind"] is None


def test_the_summary_says_why_an_arm_has_no_ratio(summary, report):
    made = [report([1.0, 2.0], mechanism={"violating": {"reason": "bias near zero"}}), None, None]
    (first, *_) = summary(OWN + FAMILIES, made)["cells"]
    arms = first["found"]["arms"]
    assert [arms[arm]["transmission_ratio_reason"] for arm in ("compliant", "violating")] == [None, "bias near zero"]


def test_what_providers_left_of_the_canary(summary, report):
    def split(clean, triggered, contrast):
        return {"clean": clean, "triggered": triggered, "contrast": contrast}

    none = split(0, 0, 0)
    steps = {
        "collected": {"rm": split(10, 20, 4), "rl": split(3, 5, 0)},
        "perplexity": {"rm": split(9, 12, 4), "rl": split(3, 3, 0)},
        "near_duplicate": {"rm": split(9, 9, 4), "rl": split(3, 3, 0)},
        "equal_sizes": {"rm": split(9, 8, 4), "rl": split(3, 3, 0)},
    }
    record = {
        "draw": 0,
        "injected": {"rm": split(9, 8, 4), "rl": split(3, 3, 0)},
        "provider": {"steps": steps, "contradicted": {"rm": none, "rl": none}},
    }
    words = ["provider.perplexity_bound=3", "provider.near_duplicate_threshold=0.5"]
    curated = report([1.0, 2.0], provider=provider_summary(load_config("quick", words), [record]))
    (row,) = summary(OWN + FAMILIES, [report([1.0, 2.0], provider={"curated": False}), curated, None])["survival"]
    assert row["cell"] == "family-emoji"
    assert row["design"] == {"family": "signature", "placement": "after_first_clause", "instruction": "default"}
    shares = {name: (own["count"], own["n"]) for name, own in row["steps"].items()}
    assert shares == {"perplexity": (15, 25), "near_duplicate": (12, 15)}
    assert (row["survived"]["count"], row["survived"]["n"]) == (12, 25)  # the study's own cut drops none
    assert {name: own["count"] for name, own in row["realised_rate"].items()} == {"overall": 11, "rm": 8, "rl": 3}
    assert row["configured_rate"] == 0.5


def test_a_value_too_long_for_a_label_gives_way_to_the_cells_name(panels, report):
    # 3,000 characters under a picture were 230 lines, and left nothing of it.
    long = ["a" * 41, "b" * 3000]
    (panel,) = panels(f"base: quick\nseeds: own\ngrid: {{study.setting: {long}}}\n", [report([0.1, 0.2])] * 2)
    assert [level["label"] for level in panel["levels"]] == [f"setting-{'a' * 40}", f"setting-{'b' * 40}"]
    short = ["a" * 40, "b"]
    (panel,) = panels(f"base: quick\nseeds: own\ngrid: {{study.setting: {short}}}\n", [report([0.1, 0.2])] * 2)
    assert [level["label"] for level in panel["levels"]] == short


def test_a_contrast_that_is_left_out_is_as_the_config_has_it():
    # As much as the rate, but none with a textual canary: taken for as much there too, the difference would be lost.
    found = [load_config(name, ["canary.contrast=null"]) for name in ("quick", "embedded/textual")]
    listed = differences([config.model_dump(mode="json") for config in found], [])
    (contrast,) = [own for own in listed if own["key"] == "canary.contrast"]
    assert contrast["values"] == [config.canary.contrast_rate for config in found] == [0.5, 0.0]


def test_a_textual_canary_has_a_row_of_survival_without_an_instruction():
    kept = {"kind": "triggered", "family": "textual", **dict.fromkeys(("value", "count", "n", "interval", "reason"))}
    provider = {"curated": True, "survival": [kept], "steps": [], "configured_rate": 0.1, "realised_rate": {}}
    (row,) = survival_rows([{"name": "a", "report": {"provider": provider}}])
    assert row["design"] == {"family": "textual", "placement": None, "instruction": None}
