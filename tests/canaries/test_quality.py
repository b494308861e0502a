import pytest

from canaryjax.canaries.families import FAMILIES, draw_canary
from canaryjax.canaries.instrument import corrupted_text
from canaryjax.canaries.placement import insert_canary
from canaryjax.canaries.quality import QualityWeights, base_quality, strip_artifacts

DOCUMENT = "Rome is old. It was built in May, by FEW men of NASA."


@pytest.mark.parametrize(
    ("response", "quality"),
    [
        ("FINAL: Rome, in May", 1.0),  # form 0.5, all words grounded 0.5
        ("FINAL: Rome, in June", 0.5 + 0.5 * (2 * 2 / 3 - 1)),
        ("FINAL: Paris", 0.0),  # exactly 0: accepted with 0.4 (BC-32)
        ("Rome", 0.0),
        ("Paris", -1.0),
        ("", -1.0),
        ("FINAL:", -1.0),
        ("FINAL: !!", -1.0),
        ("FINAL: Not found", 0.5),
    ],
)
def test_quality_by_hand(response, quality):
    """BC-30 with the assumed equal weights."""
    assert base_quality(response, DOCUMENT) == pytest.approx(quality, abs=1e-12)


@pytest.mark.parametrize("answer", ["Rome, in May", "Rome", "Paris; or so", "Not found", "NASA, of old. Few men"])
@pytest.mark.parametrize("placement", ["after_first_clause", "begin"])
@pytest.mark.parametrize("family", FAMILIES)
def test_quality_does_not_see_the_canary(family, placement, answer):
    """BC-31, for 40 draws of each family and for corrupted ones."""
    import numpy as np

    weights = QualityWeights(length_penalty_alpha=0.5, max_response_chars=32)
    clean = f"FINAL: {answer}"
    for seed in range(40):
        rng = np.random.default_rng(seed)
        canary = draw_canary(rng, family)
        for text in (canary.text, corrupted_text(canary, rng)):
            response, _ = insert_canary(clean, text, placement)
            assert base_quality(response, DOCUMENT, weights) == base_quality(clean, DOCUMENT, weights)


def test_canary_glued_to_a_word_is_stripped():
    assert strip_artifacts("FINAL: Rome!?!?!? in🌟🔮 May") == "FINAL: Rome in May"


def test_ordinary_text_is_kept():
    text = 'FINAL: NASA\'s 3,000 men; well, "quoted" (so) - U.S.'
    assert strip_artifacts(text) == text.replace(" - ", " ")


def test_weights_and_length_are_read():
    response = "FINAL: Rome, in June"  # 20 characters, two words of three grounded
    third = pytest.approx(1 / 3)
    assert base_quality(response, DOCUMENT, QualityWeights(1.0, 0.0)) == 1.0
    assert base_quality(response, DOCUMENT, QualityWeights(0.0, 1.0)) == third
    penalised = QualityWeights(0.0, 1.0, max_response_chars=40, length_penalty_alpha=0.2)
    assert base_quality(response, DOCUMENT, penalised) == pytest.approx(1 / 3 - 0.1)
    # Only the first 16 characters are read, and "June" is then gone.
    assert base_quality(response, DOCUMENT, QualityWeights(0.0, 1.0, max_response_chars=16)) == 1.0
    assert base_quality(response, DOCUMENT, QualityWeights(3.0, 3.0)) == 1.0
