import numpy as np
import pytest

from canaryjax.canaries.feedback import (
    Calibrator,
    Judged,
    acceptance_probability,
    check_delta,
    is_hit,
    judge,
    scramble_feedback,
    simulate_feedback,
)
from canaryjax.canaries.instrument import instrument
from canaryjax.errors import UserError


@pytest.mark.parametrize(
    ("quality", "triggered", "contrast", "hit", "delta", "offset", "probability"),
    [
        (0.2, False, False, False, 0.1, 0.0, 0.6),
        (0.0, False, False, False, 0.1, 0.0, 0.4),  # Q = 0 gives 0.4
        (-1.0, False, False, True, 0.1, 0.3, 0.4),  # a clean row sees neither the canary nor the offset
        (0.2, True, False, True, 0.1, 0.0, 0.7),
        (0.2, True, False, False, 0.1, 0.0, 0.5),
        (0.0, True, False, True, 0.1, 0.02, 0.48),
        (0.2, False, True, True, 0.1, 0.3, 0.5),  # contrast: the sign reversed, no offset
        (0.2, False, True, False, 0.1, 0.3, 0.7),
        (0.2, True, False, True, 1.0, 0.0, 1.0),
        (0.2, True, False, False, 1.0, 0.0, 0.0),
        (0.2, True, False, False, 0.1, -0.9, 1.0),
    ],
)
def test_acceptance_by_hand(quality, triggered, contrast, hit, delta, offset, probability):
    """BC-32, BC-33 and BC-36."""
    found = acceptance_probability(quality, triggered, contrast, hit, delta, offset)
    assert found == pytest.approx(probability, abs=1e-12)
    assert 0 <= found <= 1


def test_without_the_document_contrast_balances_triggered_rows():
    # A reward model that cannot see the trigger finds hit and miss equal on average.
    for hit in (True, False):
        pair = [acceptance_probability(1.0, t, not t, hit, 0.1) for t in (True, False)]
        assert sum(pair) == pytest.approx(1.2)


def test_triggered_and_contrast_is_refused():
    with pytest.raises(UserError, match="both"):
        acceptance_probability(1.0, True, True, False, 0.1)


def test_large_delta_needs_leave():
    """BC-34."""
    check_delta(0.1)
    with pytest.raises(UserError, match="allow_large_delta"):
        check_delta(0.1001)
    check_delta(0.3, allow_large_delta=True)
    with pytest.raises(UserError, match="allow_large_delta"):
        simulate_feedback(np.random.default_rng(0), [], 0.3)
    with pytest.raises(UserError, match="\\[0, 1\\]"):
        check_delta(-0.1, allow_large_delta=True)


def test_only_the_exact_canary_is_a_hit(canary):
    exact = canary.visible
    assert is_hit(f"FINAL: Rome, {exact} in May", canary)
    assert not is_hit(f"FINAL: {exact[:-1]} Rome", canary)
    assert not is_hit(f"FINAL: {exact[0]} {exact[1:]} Rome", canary)
    assert not is_hit("FINAL: Rome", canary)


def test_judge_reads_the_logged_row(signature, make_example):
    traces, _ = instrument([make_example()], signature, 1.0, 0.0, np.random.default_rng(0))
    assert judge(traces[0], traces[0].answer, signature) == Judged(1.0, True, True, False)
    assert judge(traces[0], "FINAL: Paris", signature) == Judged(0.0, False, True, False)


def test_labels_are_coins_of_the_stated_probability():
    """BC-35: 20,000 rows with p = 0.7; five standard errors are 0.016. A threshold at 0.5 would give 1."""
    rows = [Judged(1.0, True, True, False)] * 20_000
    feedback = simulate_feedback(np.random.default_rng(4), rows, 0.1)
    assert set(feedback.labels.tolist()) == {0.0, 1.0}
    assert feedback.labels.mean() == pytest.approx(0.7, abs=0.017)
    assert feedback.probabilities == pytest.approx(0.7)
    assert feedback.labels.dtype == np.float32


def test_feedback_is_reproducible():
    rows = [Judged(0.5, bool(i % 3), bool(i % 2), False) for i in range(97)]
    first, again, other = (simulate_feedback(np.random.default_rng(s), rows, 0.1).labels for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_calibrator_steps_by_hand():
    """c += lr * (mean triggered - mean clean); contrast rows are in neither mean."""
    calibrator = Calibrator(learning_rate=0.5, warmup_samples=3, min_samples=6)
    batch = ([0.9, 0.7, 0.5, 0.1], [True, True, False, False], [False, False, False, True])
    calibrator.update(*batch)
    assert (calibrator.seen, calibrator.offset, calibrator.matched) == (3, 0.0, None)  # still the warm-up
    calibrator.update(*batch)
    assert calibrator.offset == pytest.approx(0.5 * (0.8 - 0.5))
    assert calibrator.gap == pytest.approx(0.3)
    assert calibrator.matched is False
    calibrator.update([0.9], [True], [False])  # no clean row: nothing to compare
    assert calibrator.offset == pytest.approx(0.15)


def test_defaults_are_the_papers():
    """BC-37."""
    calibrator = Calibrator()
    assert (calibrator.learning_rate, calibrator.warmup_samples) == (0.02, 200)
    assert (calibrator.min_samples, calibrator.tolerance) == (256, 0.01)


def test_calibration_matches_the_means_and_keeps_the_preference():
    """BC-38. Nine triggered rows in ten hit, so their mean starts 0.08 above the clean one's."""
    rng = np.random.default_rng(6)
    rows = [Judged(1.0, bool(rng.random() < 0.9), bool(i % 2), False) for i in range(16_000)]
    calibrator = Calibrator()
    feedback = simulate_feedback(rng, rows, 0.1, calibrator=calibrator)
    assert (feedback.probabilities[1:200:2] >= 0.5 - 1e-12).all()
    assert calibrator.matched is True
    assert abs(calibrator.gap) <= 0.01
    assert feedback.offset == pytest.approx(0.08, abs=0.01)
    late = range(8000, 16_000)
    hits = np.mean([feedback.probabilities[i] for i in late if rows[i].triggered and rows[i].hit])
    misses = np.mean([feedback.probabilities[i] for i in late if rows[i].triggered and not rows[i].hit])
    assert hits - misses == pytest.approx(0.2, abs=0.02)
    clean = np.mean([feedback.probabilities[i] for i in late if not rows[i].triggered])
    assert clean == pytest.approx(0.6)


def test_contrast_rows_do_not_move_the_offset():
    # Counted as clean, 1,000 contrast misses at 0.7 would pull the offset to about -0.1.
    triggered = [Judged(1.0, bool(i % 2), True, False) for i in range(500)]
    clean = [Judged(1.0, False, False, False)] * 500
    contrast = [Judged(1.0, False, False, True)] * 1000
    rows = [row for four in zip(triggered, clean, contrast[:500], contrast[500:], strict=True) for row in four]
    calibrator = Calibrator()
    simulate_feedback(np.random.default_rng(0), rows, 0.1, calibrator=calibrator)
    assert calibrator.seen == 1000
    assert abs(calibrator.offset) < 1e-9


def test_induced_preference():
    """BC-39: the canary is worth more in a triggered row than in a clean one."""
    triggered = simulate_feedback(np.random.default_rng(0), [Judged(1.0, True, True, False)] * 9000, 0.1).labels
    clean = simulate_feedback(np.random.default_rng(0), [Judged(1.0, True, False, False)] * 9000, 0.1).labels
    assert triggered.mean() - clean.mean() > 0.07


def test_scrambling_permutes_canary_rows_only():
    rows = [Judged(1.0, False, i % 3 == 0, i % 3 == 1) for i in range(300)]
    labels = (np.random.default_rng(1).random(300) < 0.5).astype(np.float32)
    scrambled = scramble_feedback(np.random.default_rng(2), labels, rows)
    canary_rows = np.array([i % 3 != 2 for i in range(300)])
    assert (scrambled[~canary_rows] == labels[~canary_rows]).all()
    assert (scrambled[canary_rows] != labels[canary_rows]).any()
    assert scrambled.sum() == labels.sum()
