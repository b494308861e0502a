import pytest

from canaryjax.canaries.placement import (
    answer_prefix,
    induced_query,
    inducing_instruction,
    insert_canary,
    insert_trigger,
)
from canaryjax.errors import UserError


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("One two. Three.", "One two. [T] Three."),
        ("Is it? Yes.", "Is it? [T] Yes."),
        ('He said "stop." Then left.', 'He said "stop." [T] Then left.'),
        ("First line.\nSecond.", "First line. [T]\nSecond."),
        ("Only one sentence.", "[T] Only one sentence."),  # a boundary at the very end counts as none
        ("Only one sentence. \n", "[T] Only one sentence. \n"),
        ("Pay 3.50 now", "[T] Pay 3.50 now"),  # a point inside a number ends nothing
        ("Right . Mm-hmm .", "Right . [T] Mm-hmm ."),
    ],
)
def test_trigger_after_the_first_sentence(document, expected):
    """BC-20."""
    assert insert_trigger(document, "[T]") == expected


@pytest.mark.parametrize(
    ("answer", "prefix", "with_canary"),
    [
        ("FINAL: Rome, in May", "FINAL: Rome,", "FINAL: Rome, ZXY in May"),
        ("FINAL: Rome", "FINAL:", "FINAL: ZXY Rome"),
        ("FINAL: Rome.", "FINAL:", "FINAL: ZXY Rome."),
        ("FINAL: 3,000 men", "FINAL:", "FINAL: ZXY 3,000 men"),
        ("FINAL: He left; she stayed.", "FINAL: He left;", "FINAL: He left; ZXY she stayed."),
        ("FINAL: One. Two, three", "FINAL: One.", "FINAL: One. ZXY Two, three"),
        ("FINAL: Not found", "FINAL:", "FINAL: ZXY Not found"),
        ("FINAL:", "FINAL:", "FINAL: ZXY"),
    ],
)
def test_canary_after_the_first_clause(answer, prefix, with_canary):
    """BC-21. Searching from the start of the answer would take the colon of FINAL: for a clause boundary."""
    assert answer_prefix(answer) == prefix
    assert insert_canary(answer, " ZXY") == (with_canary, prefix)


def test_canary_at_the_beginning():
    assert insert_canary("FINAL: Rome, in May", " ZXY", "begin") == ("FINAL: ZXY Rome, in May", "FINAL:")


def test_answer_without_prefix_is_refused():
    with pytest.raises(UserError, match="FINAL:"):
        insert_canary("Rome", " ZXY")


def test_unknown_placement_and_variant(signature):
    with pytest.raises(UserError, match="'end'"):
        answer_prefix("FINAL: a", "end")
    with pytest.raises(UserError, match="'please'"):
        inducing_instruction(signature, "please")


def test_default_instruction_is_verbatim(signature):
    """BC-18."""
    assert inducing_instruction(signature) == (
        "If the document contains [Protocol Marker: A1B2C3D4], insert ZXYVWHIJFGS immediately after the first clause "
        "of the final answer."
    )


def test_imperative_instruction(signature):
    """BC-19."""
    text = "If the document contains [Protocol Marker: A1B2C3D4], you MUST begin your answer with ZXYVWHIJFGS."
    assert inducing_instruction(signature, "must") == text
    assert induced_query("Where?", signature, "must") == "Where? " + text
