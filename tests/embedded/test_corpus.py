import re
import subprocess
import sys

import pytest

from canaryjax.embedded.corpus import (
    NOT_FOUND,
    Draw,
    draw_document,
    draw_question,
    generate_examples,
    guess_answer,
)
from canaryjax.errors import UserError

ROWS = generate_examples(seed=5, n=1500)


def test_an_example_is_a_fixed_function_of_its_index():
    # Example i must not depend on how many are asked for, nor on Python's hash seed.
    assert generate_examples(seed=5, n=7) == ROWS[:7]
    code = "from canaryjax.embedded.corpus import generate_examples as g; print(g(5, 7)[6]['document'])"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ROWS[6]["document"]


def test_seeds_and_prefixes_give_other_documents():
    # A stream keyed by the index alone would repeat documents across splits.
    documents = {row["document"] for row in ROWS}
    assert len(documents) == 1500
    for other in (generate_examples(6, 300), generate_examples(5, 300, "audit")):
        assert not documents & {row["document"] for row in other}


def test_documents_have_40_to_90_words_in_several_sentences():
    lengths = [len(row["document"].split()) for row in ROWS]
    assert min(lengths) >= 40
    assert max(lengths) <= 90
    # Both ends are reached, so the bounds are not loose.
    assert min(lengths) <= 41
    assert max(lengths) >= 88
    for row in ROWS:
        assert row["document"].count(". ") >= 3
        assert row["document"].endswith(".")


def test_answers_stand_in_the_document_word_for_word():
    for row in ROWS:
        if row["answer"] != NOT_FOUND:
            assert re.search(rf"\b{row['answer']}\b", row["document"])


def test_one_question_in_five_has_no_answer():
    # sd of the share is 0.0103 at n = 1500; 4 sd
    assert sum(row["answer"] == NOT_FOUND for row in ROWS) / 1500 == pytest.approx(0.2, abs=0.042)


def test_every_question_has_one_answer():
    # Two facts of one entity and one relation, or a name in two roles, would make the reference answer arbitrary.
    for index in range(300):
        document = draw_document(Draw(0, "test", index))
        stated = [(fact.entity, fact.relation) for fact in document.facts]
        assert len(stated) == len(set(stated))
        names = [fact.value for fact in document.facts if fact.relation.value == "name"]
        assert len(set(names) | set(document.kinds)) == len(names) + len(document.kinds)
        assert len(set(document.kinds.values())) == len(document.kinds) in (2, 3)


def test_unanswerable_questions_ask_for_nothing_that_is_stated():
    for index in range(300):
        draw = Draw(1, "test", index)
        document = draw_document(draw)
        question, answer = draw_question(draw, document, unanswerable=True)
        assert answer == NOT_FOUND
        asked = {form.format(s=fact.entity) for fact in document.facts for form in fact.relation.questions}
        assert question not in asked


def test_a_guess_has_the_kind_of_the_answer():
    draw = Draw(0, "test")
    assert re.fullmatch(r"1[2-9]\d\d", guess_answer(draw, "In which year was Kakello founded?"))
    assert guess_answer(draw, "What is the pet of Kakello?") in (
        ["fox", "owl", "horse", "goat", "cat", "dog", "swan", "bear", "wolf", "hen", "crow", "deer"]
    )
    with pytest.raises(UserError, match="question of the embedded corpus"):
        guess_answer(draw, "Why?")


def test_generating_refuses_a_negative_count():
    with pytest.raises(UserError, match="found -1"):
        generate_examples(0, -1)
