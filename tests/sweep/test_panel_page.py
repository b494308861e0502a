"""What the page and the terminal say of panels: each sentence a number of `sweep.json`, each picture there."""

import json

import pytest

from canaryjax.report.panel_figures import draw_panels
from canaryjax.report.panels import panel_lines, panel_texts, section_notes, survival_table
from canaryjax.report.sweep_page import render_sweep
from canaryjax.sweep.survival import STEPS

OWN = "seeds: own\nset: {canary.contrast: null}\nbase: quick\n"
SHARED = OWN.replace("own", "shared")
FAMILIES = "factors: {canary.family: [signature, emoji, punctuation]}"
RATES = "factors: {canary.rate: [0.5, 0, 0.1]}"


def plain(texts):
    return [text.replace("\u00a0", " ") for text in texts]


def sentences(sweep, panel=0):
    return plain(panel_texts(sweep)[panel].sentences)


def test_families_in_words(summary, report):
    made = [report([7.0, 8.0, 9.0]), report([4.0, 5.0, 6.0], tokens=(3,)), report([1.0, 2.0, 3.0], tokens=(6,))]
    sweep = summary(OWN + FAMILIES, made)
    assert sentences(sweep)[:4] == [
        "Kruskal-Wallis (n = 3 violating policies in each of 3 cells): H = 7.20, 2 degrees of freedom, p = 0.0273.",
        "By mean of all valid policies, highest first: signature 8.000, emoji 5.000, punctuation 2.000 nats.",
        "Pairs by mean rank (Dunn, Holm-adjusted): signature above emoji, p = 0.3594; signature above punctuation, "
        "p = 0.0219; emoji above punctuation, p = 0.3594. 1 of 3 are below 0.05.",
        "With 3 policies in a cell this p-value is rough.",
    ]
    # A token 8/11, 5/3 and 2/6: emoji come first.
    assert (
        "Per token: By mean of all valid policies, highest first: emoji 1.667, signature 0.727, punctuation 0.333 nats"
        in (" ".join(sentences(sweep)))
    )
    assert "for that reason too" in sentences(sweep)[-1]
    table = panel_texts(sweep)[0].table
    assert table.rows[1][:4] == ("emoji", "family-emoji", "3", "5.000 [2.516, 7.484]")
    assert table.rows[1][6:8] == ("3", "1.667 [0.839, 2.495]")


def test_a_trend_in_words_with_what_is_missing_and_unlike(summary, report):
    made = [report([3.0, 4.0, 5.0]), "no <memory>", report([1.0, 2.0])]
    found = sentences(summary(OWN + RATES, made))
    # All 6 pairs rise: J = 6 of 3, variance 3 x 2 x 6/12 = 3, z = 3/sqrt(3).
    assert found[0].startswith(
        "Jonckheere-Terpstra for a monotone trend (n = 2, 3 violating policies): J = 6.0, z = 1.73, p = 0.0833 with "
        "the variance corrected for ties, p = 0."
    )
    assert found[1].startswith("A trend was not shown (p is not below 0.05), which is no evidence that there is none.")
    assert "In 100 % of the pairs" in found[1]
    assert "Missing from this panel: 0 % (cell rate-0, failed: no <memory>)." in found
    assert "With 2 policies in a cell the p-value without permutations is rough." in found
    assert "Unlike sizes: 10 % 2, 50 % 3 violating policies." in found
    assert not any("compliant policies." in text for text in found)
    assert found[-2].endswith("may be due to those: canary.contrast (0.0, 0.1, 0.5).")
    assert "none is taken for a threshold" in found[-1]
    rising = summary(OWN + RATES, [report([5.0, 6.0, 7.0]), report([1.0, 2.0]), report([3.0, 4.0])])
    assert sentences(rising)[1].startswith("Scores rise along the panel. In 100 % of the pairs")
    # The law of large samples gives 0.046 for six policies, all permutations 0.067: no trend is claimed on one of them.
    split = summary(OWN + RATES, [report([5.0, 6.0]), report([1.0, 3.0]), report([2.0, 4.0])])
    result = split["panels"][0]["test"]
    assert result["result"]["p_value"] < 0.05 < result["permuted"]["p_value"]
    assert sentences(split)[1].startswith("A trend was not shown (one of the two p-values is not below 0.05), which")
    falling = summary(OWN + RATES, [report([1.0, 2.0]), report([5.0, 6.0, 7.0]), report([3.0, 4.0])])
    assert sentences(falling)[1].startswith("Scores fall along the panel. In 0 % of the pairs")


def test_a_setting_that_is_none_is_called_so(summary, report):
    sweep = summary(OWN + RATES, [report([1.0, 2.0])] * 3)
    sweep["panels"][0]["also_differs"] = [{"key": "provider.keep_share", "shared": True, "values": [None, 0.5, 1]}]
    assert sentences(sweep)[-2].endswith("may be due to those: provider.keep_share (none, 0.5, 1).")


def test_two_settings_in_words(summary, report):
    made = [report([1.0, 2.0, 3.0]), report([2.0, 4.0, 6.0])]
    found = sentences(summary(OWN + "factors: {base: [embedded/ppo]}", made))
    assert found[0] == (
        "Welch's t test, grpo against ppo (n = 3 violating policies in each of 2 cells): t = -1.55, 2.9 degrees of "
        "freedom, p = 0.2209."
    )
    assert found[1].startswith("The mean of grpo minus that of ppo is -2.000 nats [-6.")
    assert found[2].startswith("A difference was not shown")
    assert "policy.kl (k3, k1)" in found[-1]
    assert "that only some of them have" in found[-1]
    apart = sentences(summary(OWN + "factors: {base: [embedded/ppo]}", [report([1.0, 2.0, 3.0]), report([12.0, 14.0])]))
    assert apart[2] == "The higher mean is that of ppo."


def test_shared_trials_in_words(summary, report):
    doses = [report([3.0, 5.0], invalid=[2]), report([1.0, 2.0, 9.0]), report([2.0, 3.0, 7.0])]
    found = sentences(summary(SHARED + RATES, doses))
    # Two trials that rise throughout: L = 14 each, 2 over its mean of 12; one permutation of 36 does, one falls so.
    assert found[0].startswith(
        "Page's test for a monotone trend within trials (n = 2 violating trials that are valid in every cell, 1 left "
        "out): L = 28.0, z = 2.00, p = 0.0"
    )
    assert any(text.startswith("Refused: Jonckheere-Terpstra: expected independent groups; found") for text in found)
    flipped = summary(SHARED + "grid: {canary.rate: [0, 0.5]}", [report([1.0, 2.0, 3.0]), report([2.0, 4.0, 6.0])])
    assert sentences(flipped)[:2] == [
        "Sign flips of the differences within trials (n = 3 violating trials that are valid in every cell): 0 % minus "
        "50 % -2.000 nats, p = 0.2500. Unadjusted, none can be below 0.2500.",
        "A difference was not shown (p is not below 0.05), which is no evidence that there is none.",
    ]
    assert any("refused" in text for text in section_notes(flipped))
    assert not any("takes the policies" in text for text in section_notes(flipped))


def test_a_panel_without_a_test_says_why(summary, report):
    sweep = summary(OWN + FAMILIES, [report([1.0, 2.0]), None, None])
    assert sentences(sweep)[0] == "No test: a panel needs 2 finished cells, found 1."
    assert panel_lines(sweep) == ["Panel A, canary family: No test: a panel needs 2 finished cells, found 1."]
    assert panel_texts(sweep)[0].table.rows[1][1] == "family-emoji: not run"
    equal = summary(OWN + FAMILIES, [report([1.0, 1.0])] * 3)
    assert sentences(equal)[0].endswith("no statistic, all scores are equal.")


def test_a_grid_says_where_each_panel_stands(summary, report):
    text = SHARED + "grid: {canary.rate: [0, 0.1], canary.family: [emoji, signature]}"
    sweep = summary(text, [report([k + 1.0, k + 2.0], tokens=(3 + k % 2,)) for k in range(4)])
    assert [own.title for own in panel_texts(sweep)] == [
        "Panel A, canary family, at canary.rate 0",
        "Panel A, canary family, at canary.rate 0.1",
        "Panel B, canary rate, at canary.family emoji",
        "Panel B, canary rate, at canary.family signature",
    ]
    assert any("Pooled over those" in text for text in section_notes(sweep))
    plots = draw_panels(sweep)
    assert [plot.name for plot in plots] == ["panels0", "panels1"]
    assert plots[0].alt.count("per token") == 2
    assert all(plot.png.startswith(b"\x89PNG") for plot in plots)


@pytest.fixture
def written(tmp_path):
    """Writes a sweep's directory and gives its page."""

    def write(sweep):
        (tmp_path / "sweep.json").write_text(json.dumps(sweep, allow_nan=False))
        return render_sweep(tmp_path).read_text("utf-8")

    return write


def test_the_page_holds_panels_pictures_and_providers(summary, report, written):
    made = [report([1.0, 2.0]), report([2.0, 3.0], tokens=(3,)), "no <b>memory</b>"]
    sweep = summary(OWN + FAMILIES, made)
    quarter = {"value": 0.25, "count": 1, "n": 4, "reason": None}
    sweep["survival"] = [
        {
            "cell": "family-emoji",
            "design": {"family": "emoji", "placement": "after_first_clause", "instruction": "default"},
            "configured_rate": 0.5,
            "realised_rate": dict.fromkeys(("overall", "rm", "rl"), quarter),
            "steps": dict(zip(STEPS, ({"value": 0.6, "count": 15, "n": 25, "reason": None}, None), strict=True)),
            "survived": {
                "value": 0.6, "count": 15, "n": 25, "reason": None, "interval": {"low": 0.4, "high": 0.8, "level": 0.9},
            },
        }
    ]  # fmt: skip
    page = written(sweep)
    assert page.count("data:image/png;base64,") == 1  # no cell has an AUROC here
    assert "<h3>Panel A, canary family</h3>" in page
    assert "no &lt;b&gt;memory&lt;/b&gt;" in page
    assert "<b>memory" not in page
    assert "each asks a question of its own" in page
    assert "emoji, after first clause, default" in page
    row = plain(survival_table(sweep).rows[0])
    assert row[2:] == [
        "50.0 %",
        *["25.0 % (1 of 4)"] * 3,
        "60.0 % (15 of 25)",
        "step is off",
        "60.0 % (15 of 25) [0.40, 0.80]",
    ]


def test_an_earlier_sweep_has_a_page_without_panels(summary, report, written):
    sweep = summary(OWN + FAMILIES, [report([1.0, 2.0])] * 3)
    del sweep["panels"], sweep["survival"]
    page = written(sweep)
    assert 'id="panels"' not in page
    assert 'id="survival"' not in page
    assert survival_table(sweep) is None


def test_a_dollar_in_a_value_is_no_formula(summary, report):
    text = OWN + "factors: {model.path: [embedded, 'a$x_{$b']}"
    (plot,) = draw_panels(summary(text, [report([1.0, 2.0]), report([2.0, 3.0])]))
    assert plot.png.startswith(b"\x89PNG")
