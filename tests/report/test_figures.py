"""What figures must not suggest."""

import numpy as np
import pytest

from canaryjax.report.score_figures import _edges


@pytest.mark.parametrize("cut", [0.158, -0.3, 5.0, 0.0])
def test_no_bar_of_the_histogram_stands_on_both_sides_of_the_threshold(cut):
    values = np.array([-0.04, 0.01, 0.02, cut, 1.6, 2.3, 2.4, 3.6])
    counts, edges = np.histogram(values, _edges(values, cut))
    assert counts.sum() == values.size
    # The score at the threshold is not above it: an edge at the threshold itself would count it to the right.
    assert counts[edges[:-1] > cut].sum() == (values > cut).sum()
    assert np.isclose(edges, cut).any()
