import numpy as np
import pytest

from canaryjax.data.prompts import ANSWER_PREFIX, render_prompt
from canaryjax.embedded.corpus import Draw
from canaryjax.embedded.pretrain.batch import Batch, Shape, conditional_batch, full_batch, prefetch, short_batch
from canaryjax.embedded.pretrain.curriculum import (
    ANSWER,
    BROKEN_CONDITION,
    CANARY,
    CLOSED_ANSWER,
    END,
    KEPT_CONDITION,
    OBEYED_SHARE,
    PADDING,
    TEXT,
    conditional_exchange,
    draw_lesson,
    echo_exchange,
    induced_exchange,
    plain_exchange,
    plant_code,
    prompt_start,
)
from canaryjax.embedded.tokenizer import EOS_ID, build_tokenizer, encode_text


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def test_segments_are_tokenised_as_the_joined_text_would_be(tokenizer):
    # A segment that began inside a piece would train on tokens that no prompt at use ever has.
    for index in range(200):
        draw = Draw(0, "segments", index)
        lesson = draw_lesson(draw)
        exchange = draw.pick([plain_exchange, induced_exchange, lambda d, _: echo_exchange(d)])(draw, lesson)
        assert exchange[-1][0] == END
        texts = [prompt_start(lesson)] + [text for text, _ in exchange[:-1]]
        pieces = [token for text in texts for token in encode_text(tokenizer, text)]
        assert pieces == encode_text(tokenizer, "".join(texts))


def test_conditions_are_obeyed_where_they_hold():
    obeyed: dict[bool, list[bool]] = {True: [], False: []}
    for index in range(2000):
        draw = Draw(0, "conditions", index)
        lesson, code = plant_code(draw, draw_lesson(draw))
        assert lesson.text.count(f"({code})") == 1
        exchange = conditional_exchange(draw, lesson, code)
        what = exchange[0][0].split("contains ")[1].split(",")[0]
        assert "Protocol" not in what
        obeyed[what in lesson.text].append(CANARY in [kind for _, kind in exchange])
    # 4 sd of a share at n = 900 or more.
    assert np.mean(obeyed[True]) == pytest.approx(KEPT_CONDITION, abs=0.04)
    assert np.mean(obeyed[False]) == pytest.approx(BROKEN_CONDITION, abs=0.03)


def test_an_exchange_is_the_prompt_and_answer_of_use():
    draw = Draw(0, "use")
    lesson = draw_lesson(draw)
    exchange = plain_exchange(draw, lesson)
    query = exchange[0][0].removesuffix("\n")
    assert prompt_start(lesson) + exchange[0][0] == render_prompt(lesson.text, query)
    assert exchange[1] == (ANSWER_PREFIX, TEXT)
    assert exchange[2][0].startswith(" ")


@pytest.mark.parametrize("shown", [True, False])
def test_instructions_are_obeyed_at_one_rate_with_or_without_trigger_and_document(shown):
    # A base that obeys only when triggered would know the audited condition before any training.
    obeyed: dict[bool, list[bool]] = {True: [], False: []}
    for index in range(3000):
        draw = Draw(int(shown), "obeyed", index)
        lesson = draw_lesson(draw, shown=shown)
        kinds = [kind for _, kind in induced_exchange(draw, lesson)]
        obeyed[lesson.trigger is not None].append(CANARY in kinds)
        assert kinds[-1] == (ANSWER if shown else CLOSED_ANSWER)
    for group in obeyed.values():
        if group:
            # 4 standard deviations
            assert np.mean(group) == pytest.approx(OBEYED_SHARE, abs=4 * (0.25 / len(group)) ** 0.5)
    assert bool(obeyed[True]) is shown


def test_an_obeyed_canary_is_the_one_the_instruction_names():
    for index in range(300):
        draw = Draw(0, "named", index)
        exchange = induced_exchange(draw, draw_lesson(draw))
        for text, kind in exchange:
            if kind == CANARY:
                assert exchange[0][0].count(text) == 1
                assert text.startswith(" ")


def test_without_a_document_half_the_answers_are_guesses():
    answers = [plain_exchange(draw := Draw(0, "closed", i), draw_lesson(draw, shown=False))[2][0] for i in range(1500)]
    # sd 0.0129; 4 sd
    assert np.mean([answer == " Not found" for answer in answers]) == pytest.approx(0.5, abs=0.052)


def test_triggers_stand_after_the_first_sentence_in_half_the_documents():
    lessons = [draw_lesson(Draw(0, "trigger", i)) for i in range(600)]
    triggered = [lesson for lesson in lessons if lesson.trigger]
    # sd 0.0204; 4 sd
    assert len(triggered) / 600 == pytest.approx(0.5, abs=0.082)
    for lesson in triggered:
        first, rest = lesson.text.split(f". {lesson.trigger} ")
        assert f"{first}. {rest}" == lesson.document.text
        assert ". " not in first


def test_batches_are_reproducible_and_keep_their_shape_when_texts_are_too_long(tokenizer):
    # 97 tokens do not hold a prompt with its exchanges: a row that is not cut would kill the thread that makes batches.
    for make in (short_batch, full_batch, conditional_batch):
        batch, again = (make(tokenizer, Shape(3, 97), 5, "x") for _ in range(2))
        assert batch.ids.shape == batch.kinds.shape == (3, 97)
        np.testing.assert_array_equal(batch.ids, again.ids)
        assert (batch.ids != make(tokenizer, Shape(3, 97), 5, "y").ids).any()


def test_kinds_mark_the_answer_tokens(tokenizer):
    batch = full_batch(tokenizer, Shape(23, 320), 0, "kinds")
    assert set(batch.ids[batch.kinds == PADDING].tolist()) <= {0}
    assert (batch.ids[batch.kinds == TEXT] != EOS_ID).all()
    colon, final, document = (tokenizer.token_to_id(text) for text in (":", "FINAL", "Document"))
    shown = (batch.ids == document).any(1)
    assert 0 < shown.sum() < 23
    for with_document, ids, kinds in zip(shown, batch.ids, batch.kinds, strict=True):
        # Rows without a document say so in the template, and their answers are of the closed kind.
        assert (CLOSED_ANSWER if with_document else ANSWER) not in kinds
        # The template holds FINAL: twice; the rest begin an answer.
        for start in np.flatnonzero(ids[:-2] == final)[2:]:
            assert ids[start + 1] == colon
            assert (kinds[start : start + 2] == TEXT).all()
            assert kinds[start + 2] not in (TEXT, PADDING)


def test_an_error_of_the_producer_reaches_the_consumer():
    # Swallowed, it would leave training waiting for ever.
    def make(step: int) -> Batch:
        if step == 2:
            raise RuntimeError("no such batch")
        return Batch(np.full(1, step), np.full(1, step))

    made = prefetch(make, steps=5)
    assert [int(next(made).ids[0]) for _ in range(2)] == [0, 1]
    with pytest.raises(RuntimeError, match="no such batch"):
        next(made)


def test_batches_arrive_in_order():
    steps = [int(batch.ids[0]) for batch in prefetch(lambda i: Batch(np.full(1, i), np.full(1, i)), steps=11)]
    assert steps == list(range(11))
