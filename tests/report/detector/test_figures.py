"""The charts: log scale, points at the counts, floor and ceiling where they were measured."""

import math

import pytest

from canaryjax.report.detector_figures import draw_cohorts, draw_dose, draw_membership
from canaryjax.report.figures import styled


@pytest.fixture
def axes():
    with styled((6.4, 3.8)) as figure:
        yield figure.subplots()


@pytest.fixture
def panels():
    with styled((7.0, 3.6)) as figure:
        yield list(figure.subplots(1, 2))


def _heights(axes):
    """Where the reference lines lie: dashed the floor, dash-dotted the ceiling."""
    names = {"--": "floor", "-.": "ceiling"}
    return {names[line.get_linestyle()]: line.get_ydata()[0] for line in axes.lines if line.get_linestyle() in names}


def _points(axes):
    return next(container for container in axes.containers if container.get_label() == "canaries").lines


def test_dose_response_has_a_point_a_rung_over_a_log_scale(made, panels):
    alt, caption = draw_dose(made(), panels)
    line, _, (bars,) = _points(panels[0])
    assert line.get_xdata().tolist() == [1, 10, 100, 300]
    assert line.get_ydata().tolist() == pytest.approx([0, 1 / 11, 6 / 13, 9 / 13])
    # Wilson of 9 of 13 by its formula; z = 1.96.
    z, rate, n = 1.959963984540054, 9 / 13, 13
    reach = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    assert bars.get_segments()[3][:, 1].tolist() == pytest.approx([centre - reach, centre + reach])
    assert "300: 9 of 13" in alt
    assert "95\u00a0% Wilson" in caption
    assert panels[0].get_ylabel() == "hit rate (share of targets)"
    for axes in panels:
        assert axes.get_xscale() == "log"
        assert "log scale" in axes.get_xlabel()
        assert _heights(axes) == {"floor": 0.0, "ceiling": 0.625}


def test_the_field_rule_has_its_own_points_and_floor(made, panels):
    report = made()
    report["populations"]["negative"]["field_rule"] = {"hits": 3, "rate": {"estimate": 0.15, "low": 0.05, "high": 0.36}}
    draw_dose(report, panels)
    assert _points(panels[1])[0].get_ydata().tolist() == pytest.approx([0, 2 / 11, 7 / 13, 10 / 13])
    assert [_heights(axes)["floor"] for axes in panels] == [0.0, 0.15]


def test_a_rung_without_targets_has_a_tick_and_no_point(made, cases, panels):
    draw_dose(made(**cases["empty"]), panels)
    assert _points(panels[0])[0].get_xdata().tolist() == [1, 100, 300]
    assert [text.get_text() for text in panels[0].get_xticklabels()][1] == "10\n0/0"
    assert _heights(panels[0]) == {"floor": 0.0}


def test_no_curve_no_chart(made, axes, panels):
    assert draw_dose(made(curve=[]), panels) is None
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
