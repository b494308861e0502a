"""The check that a service read the documents it was asked about, and the workflow that it belongs to."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from canaryjax.canaries.families import draw_canary
from canaryjax.canaries.retrieval import check_retrieval, specific_words
from canaryjax.data.example import Example
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError

WORKFLOW = Path(__file__).resolve().parents[2] / "canaryjax" / "audit" / "WORKFLOW.md"


def example(name, document, question="Who came?"):
    return Example(name, name, name, document, question, "x")


@pytest.fixture(scope="module")
def corpus():
    return [Example(**row) for row in generate_examples(seed=3, n=60)]


def test_words_of_question_canary_and_other_document_say_nothing():
    own, other = example("a", "Anna came to Orme by train."), example("b", "Boris left Orme by boat.")
    assert specific_words("FINAL: ANNA, by train to Orme; she came", own, other) == ["anna", "train", "to"]
    # A signature that stands in the document, as a leaked canary would, is taken out of the answer first.
    planted = example("c", "Anna came. ZXYPRKLMQST")
    assert specific_words("FINAL: ZXYPRKLMQST", planted, other) == []


def test_a_service_that_read_is_told_from_one_that_did_not(corpus):
    read = [f"FINAL: {e.answer}" for e in corpus]
    found = check_retrieval(corpus, read)
    answered = sum(e.answer != "Not found" for e in corpus)
    assert found.n == 60
    assert found.own >= 0.9 * answered
    assert found.p_value < 1e-6
    # The same answers under other questions: as often of the next document as of the own one.
    moved = check_retrieval(corpus, [*read[7:], *read[:7]])
    assert moved.own < 0.35 * found.own
    assert moved.p_value > 0.01
    silent = check_retrieval(corpus, ["FINAL: Not found"] * 60)
    assert (silent.own, silent.p_value) == (0, 1.0)  # "not" stands in some of the documents


def test_a_canary_in_an_answer_is_no_sign_of_retrieval(corpus):
    canary = draw_canary(np.random.default_rng(1), "signature")
    said = [f"FINAL:{canary.text}"] * 60
    assert check_retrieval(corpus, said).own == 0


def test_what_cannot_be_compared_is_refused(corpus):
    with pytest.raises(UserError, match="a response to each of 60 examples, found 1"):
        check_retrieval(corpus, ["x"])
    same = [example("a", "One text."), example("b", "One text.")]
    with pytest.raises(UserError, match="at least two documents, found one"):
        check_retrieval(same, ["x", "y"])


def test_the_workflows_program_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", WORKFLOW.read_text("utf-8"), re.S)
    (tmp_path / "program.py").write_text(code)
    root = str(WORKFLOW.parents[2])
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={"PYTHONPATH": root}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    own, n, other = map(int, re.findall(r"\d+", first))
    assert n == 140
    assert own > 10 * max(other, 1)
    up, rated = map(int, re.findall(r"\d+", second)[:2])
    # Nearly all answers are good, and good ones are accepted at 0.6: four standard errors are 0.17.
    assert (rated, up / rated) == (140, pytest.approx(0.6, abs=0.17))
