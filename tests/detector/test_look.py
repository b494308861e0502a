"""Alpha spending over scheduled looks."""

import math

import pytest

from canaryjax.detector.look import look_alpha, spent_before
from canaryjax.errors import UserError


def test_levels_by_hand():
    assert look_alpha(1, 0.05) == pytest.approx(0.0303963, abs=1e-7)  # 0.3/pi^2
    assert look_alpha(4, 0.05) == pytest.approx(look_alpha(1, 0.05) / 16)
    assert look_alpha(3, 0.2) == pytest.approx(1.2 / (9 * math.pi**2))


def test_all_looks_together_spend_alpha_and_no_more():
    # The tail after t looks is less than alpha * 6/(pi^2 t).
    spent = spent_before(2001, 0.05)
    assert 0.05 * (1 - 6 / (math.pi**2 * 2000)) < spent < 0.05
    assert spent_before(2, 0.05) == look_alpha(1, 0.05)
    assert spent_before(1, 0.05) == 0.0


@pytest.mark.parametrize("call", [look_alpha, spent_before])
def test_a_look_before_the_first_is_refused(call):
    with pytest.raises(UserError, match="from 1, found 0"):
        call(0, 0.05)
