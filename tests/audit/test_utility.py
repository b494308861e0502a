"""How one answer is judged against its reference."""

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from canaryjax.audit.rouge import UnicodeTokenizer, rouge_l
from canaryjax.audit.utility import answer_quality, judge_answers
from canaryjax.data.formats import clean_answer
from canaryjax.data.prompts import answer_text


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


def test_rouge_of_ascii_texts_is_rouge_scores_own_with_its_stemmer():
    own = RougeScorer(["rougeL"], use_stemmer=True)
    words = ["running", "Runs", "ran!", "the", "don't", "snake_case", "A1-b2", "3.14", "", "  ", "houses\n", "(ties)",
             "generalisations", "\t", "e.g.", "%%", "_", "caresses", "is", "was"]  # fmt: skip
    rng = np.random.default_rng(2)
    for _ in range(300):
        found, wanted = (" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(2))
        expected = own.score(wanted, found)["rougeL"].fmeasure
        assert rouge_l(found, wanted) == expected, (found, wanted)
    assert rouge_l("it was running", "the dog runs") == pytest.approx(1 / 3)  # by the stem alone


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Στη Ρώμη, το 1990", ["στη", "ρώμη", "το", "1990"]),
        ("Москва — «столица»", ["москва", "столица"]),
        ("naïve café", ["naïve", "café"]),
        ("cafe\u0301", ["café"]),  # an accent of its own is the same word
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs are no letters to Python, and end no word
        ("القاهرة عاصمة", ["القاهرة", "عاصمة"]),
        ("東京タワー2基", ["東", "京", "タ", "ワ", "ー", "2", "基"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("서울 시", ["서울", "시"]),
        ("☀️ 👍🏽 ...", []),
    ],
)
def test_words_of_any_alphabet(text, words):
    assert UnicodeTokenizer().tokenize(text) == words
    own = RougeScorer(["rougeL"], use_stemmer=True).score(text, text)["rougeL"].fmeasure
    assert own == 0 or any(c.isascii() and c.isalnum() for c in text)  # the fault that this is here for
    assert rouge_l(text, text) == (1.0 if words else 0.0)


def test_rouge_of_two_chinese_sentences_by_hand():
    # Six characters each, five of them in common and in order; as single words they would score 0.
    assert rouge_l("他在北京工作", "他在南京工作") == pytest.approx(5 / 6)


def test_not_found_by_hand():
    # Both markings of a data set are one reference; an article or a stop beside the answer does not matter.
    marked = [answer_text(clean_answer(a)) for a in ("UNANSWERABLE", "The answer is not found in the document.")]
    wanted = [*marked, answer_text("Not found"), answer_text("Rome"), answer_text("Oslo"), "FINAL: Bern"]
    found = ["FINAL: Not found", "FINAL: not found.", "FINAL: Rome", "FINAL: Not found", "FINAL: Oslo", "Bern"]
    judged = judge_answers(found, wanted)
    assert judged["not_found_accuracy"] == pytest.approx(2 / 3)
    assert judged["false_not_found"] == pytest.approx(1 / 3)
    assert judged["exact_match"] == pytest.approx(4 / 6)
    assert (judged["n"], judged["unanswerable"]) == (6, 3)


def test_a_share_of_no_question_is_none():
    # 0 would be a finding: every unanswerable question answered with an invention, none declined wrongly.
    assert judge_answers(["Rome"], ["FINAL: Rome"])["not_found_accuracy"] is None
    assert judge_answers(["Rome"], ["FINAL: Not found"])["false_not_found"] is None
