"""The charts: log scale, points at the counts, floor and ceiling where they were measured."""

import math

import pytest

from canaryjax.report.detector_figures import draw_cohorts, draw_dose, draw_membership
from canaryjax.report.figures import styled


@pytest.fixture
def axes():
    with styled((6.4, 3.8)) as figure:
        yield figure.subplots()


def _references(axes):
    return {
        line.get_label(): line.get_ydata()[0] for line in axes.lines if str(line.get_label()).startswith(("fl", "ce"))
    }


def test_dose_response_has_a_point_a_rung_over_a_log_scale(made, axes):
    alt, caption = draw_dose(made(), axes)
    assert axes.get_xscale() == "log"
    points = next(container for container in axes.containers if container.get_label() == "canaries")
    line, _, (bars,) = points.lines
    assert line.get_xdata().tolist() == [1, 10, 100, 300]
    assert line.get_ydata().tolist() == pytest.approx([0, 1 / 11, 6 / 13, 9 / 13])
    # Wilson of 9 of 13 by its formula; z = 1.96.
    z, rate, n = 1.959963984540054, 9 / 13, 13
    reach = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    assert bars.get_segments()[3][:, 1].tolist() == pytest.approx([centre - reach, centre + reach])
    assert _references(axes) == {"floor 0 of 20": 0.0, "ceiling 5 of 8": 0.625}
    assert "300: 9 of 13" in alt
    assert "95\u00a0% Wilson" in caption
    assert "log scale" in axes.get_xlabel()
    assert axes.get_ylabel() == "hit rate (share of targets)"


def test_the_ceiling_is_that_of_the_field_rule(made, axes):
    report = made()
    # A famous fact has no id; were the whole rule's count drawn, the line would lie at 0.
    report["populations"]["positive"] |= {"hits": 0, "rate": {"estimate": 0.0, "low": 0.0, "high": 0.3}}
    draw_dose(report, axes)
    assert _references(axes)["ceiling 5 of 8"] == 0.625


def test_a_rung_without_targets_has_a_tick_and_no_point(made, cases, axes):
    draw_dose(made(**cases["empty"]), axes)
    points = next(container for container in axes.containers if container.get_label() == "canaries")
    assert points.lines[0].get_xdata().tolist() == [1, 100, 300]
    assert [text.get_text() for text in axes.get_xticklabels()][1] == "10\n0 of 0"
    assert _references(axes) == {"floor 0 of 20": 0.0}


def test_no_curve_no_chart(made, axes):
    assert draw_dose(made(curve=[]), axes) is None
    assert draw_cohorts(made(cohorts={}), axes) is None


def test_cohorts_in_their_order(made, axes):
    draw_cohorts(made(), axes)
    points = next(container for container in axes.containers if container.get_label() == "canaries")
    assert points.lines[0].get_ydata().tolist() == pytest.approx([5 / 7, 0, 1 / 5])
    assert [text.get_text() for text in axes.get_xticklabels()] == [
        "linked pages\n5 of 7",
        "sitemap-only pages\n0 of 5",
        "honeypot pages\n1 of 5",
    ]


def test_membership_shows_shares_beside_what_unseen_sentences_give(made, axes):
    draw_membership(made(), axes)
    points = next(container for container in axes.containers if container.get_label() == "Min-K%")
    assert points.lines[0].get_ydata().tolist() == pytest.approx([11 / 13, 8 / 13, 2 / 11, 1 / 17])
    expected = next(line for line in axes.lines if "unseen" in str(line.get_label()))
    assert expected.get_ydata()[0] == pytest.approx(1 / 21)
