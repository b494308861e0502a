"""Log-probs that are not those of the text are found out (known faults 34, 37, 38)."""

from types import SimpleNamespace as Thing

import pytest

from canaryjax.detector.echo import EchoFault, read_echo

TEXT = "Zoë met Al."


def _answer(tokens, logps, text=TEXT, written=0):
    return Thing(choices=[Thing(text=text, logprobs=Thing(tokens=tokens, token_logprobs=logps))],
                 usage=Thing(completion_tokens=written))  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "logps", "written", "expected"),
    [
        (["Zo", "ë", " met", " Al", "."], [None, -1, -2, -3, -4], 0, [-1, -2, -3, -4]),
        # The first log-prob as 0 is a certainty that nobody measured: it is left out as a missing one is.
        (["Zo", "ë", " met", " Al", "."], [0.0, -1, -2, -3, -4], 0, [-1, -2, -3, -4]),
        # A beginning-of-sequence token stands in the first place, and a generated one in the last.
        (["<s>", "Zo", "ë", " met", " Al.", " He"],
         [None, -1, -2, -3, -4, -5], 1, [-1, -2, -3, -4]),
        # Parts of a character, as OpenAI writes them, and as others do.
        (["Zo", "bytes:\\xc3", "bytes:\\xab", " met", " Al", "."], [None, -1, -2, -3, -4, -5], 0, [-1, -2, -3, -4, -5]),
        (["Zo", "\ufffd", "\ufffd", "\u2581met", "\u2581Al", "."], [None, -1, -2, -3, -4, -5], 0, [-1, -2, -3, -4, -5]),
        # A generated full stop is not the text's last token, and an end of text is counted and not listed.
        (["Zo", "ë", " met", " Al", ".", "."], [None, -1, -2, -3, -4, -5], 1, [-1, -2, -3, -4]),
        (["Zo", "ë", " met", " Al", "."], [None, -1, -2, -3, -4], 1, [-1, -2, -3, -4]),
    ],
)  # fmt: skip
def test_what_covers_the_text_is_read(tokens, logps, written, expected):
    assert read_echo(_answer(tokens, logps, TEXT + " He" * written, written), TEXT, 1).tolist() == expected


WHOLE = ["Zo", "ë", " met", " Al", "."]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_answer([" She", " left"], [-1.0, -2.0], " She left", 2), "ignores echo"),
        (
            _answer(["She", " left"], [-1.0, -2.0], TEXT + "She left", 2),
            "do not cover",
        ),  # echoed, and only its own scored
        (_answer(WHOLE[1:], [-1, -2, -3, -4]), "do not cover"),
        (_answer(WHOLE[:3], [None, -2, -3]), "do not cover"),
        (_answer(WHOLE, [None, -1, None, -3, -4]), "leaves log-probs out"),
        (_answer(WHOLE, [None, -1, -9999.0, -3, -4]), "bounds in place"),
        (_answer(WHOLE, [None, -1, float("-inf"), -3, -4]), "bounds in place"),
        (_answer(WHOLE, [None, -1, float("nan"), -3, -4]), "bounds in place"),
        (_answer(WHOLE, [None, -1, 0.5, -3, -4]), "above 0"),
        (_answer(WHOLE, [None, -1, -1, -1, -1]), "one log-prob for all"),
        (_answer(WHOLE, [None, -1]), "no log-probs"),
        (_answer([], []), "no log-probs"),
        (Thing(choices=[Thing(text=TEXT, logprobs=None)]), "no log-probs"),
        (Thing(choices=[]), "no completion"),
        (Thing(choices={"a": 1}), "no completion"),
        (Thing(choices=7), "no completion"),
        (_answer(7, [None]), "no log-probs"),
        (_answer({"Zo": 1}, {"Zo": 1}), "no log-probs"),
        (_answer([1, 2], [None, -1]), "no log-probs"),
        (_answer(WHOLE, [None, -1, "-2", -3, -4]), "no log-probs"),
        (_answer(WHOLE, [None, -1, True, -3, -4]), "no log-probs"),
        (_answer(WHOLE, [None, -1, -(10**400), -3, -4]), "bounds in place"),
        (_answer(WHOLE, [None, -1, -2, -3, -4], text=7), "ignores echo"),
    ],
)
def test_what_does_not_is_refused_and_says_nothing_of_the_text(answer, why):
    with pytest.raises(EchoFault, match=why) as caught:
        read_echo(answer, TEXT, 0)
    assert not any(word in str(caught.value) for word in ("Zo", "met", "Al", "left"))


def test_an_uncounted_answer_is_as_long_as_it_was_asked_for():
    assert read_echo(_answer(WHOLE, [None, -1, -2, -3, -4], written=None), TEXT, 0).tolist() == [-1, -2, -3, -4]


def test_rounding_above_zero_is_zero():
    assert read_echo(_answer(WHOLE, [None, -1, 2e-4, -3, -4]), TEXT, 0).tolist() == [-1, 0, -3, -4]


@pytest.mark.parametrize("written", [None, "1", True, [1], -1, 1.0])
def test_a_count_that_is_none_is_as_many_as_were_asked_for(written):
    answer = _answer([*WHOLE, " He"], [None, -1, -2, -3, -4, -5], TEXT + " He", written)
    assert read_echo(answer, TEXT, 1).tolist() == [-1, -2, -3, -4]
