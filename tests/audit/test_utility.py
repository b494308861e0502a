"""How one answer is judged against its reference."""

import pytest

from canaryjax.audit.utility import answer_quality


@pytest.mark.parametrize(
    ("found", "wanted", "exact", "f1"),
    [
        ("FINAL: the red barn.", "Red barn", 1.0, 1.0),
        ("the red barn", "red house", 0.0, 0.5),
        # SQuAD's rule leaves nothing of these references: a policy that says nothing would be always right.
        ("", "A", 0.0, 0.0),
        ("FINAL:", "The", 0.0, 0.0),
        ("The", "A", 0.0, 0.0),
        ("...", "?!", 0.0, 0.0),
        ("FINAL: A", "A", 1.0, 1.0),
        ("A barn", "A", 0.0, 0.0),
        ("", "", 1.0, 1.0),
        ("", "Rome", 0.0, 0.0),
    ],
)
def test_exact_match_and_token_f1(found, wanted, exact, f1):
    assert answer_quality(found, wanted)[:2] == (exact, pytest.approx(f1))


def test_rouge_is_of_the_answer_without_its_prefix():
    # With the prefix left in, "FINAL" would be a fourth word of the answer: 2 * 2 / (2 + 4) = 0.667.
    assert answer_quality("FINAL: the red barn", "red barn")[2] == pytest.approx(2 * 2 / (2 + 3))
