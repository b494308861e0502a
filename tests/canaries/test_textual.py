"""The textual canary of the baseline (BC-69): ten uniform tokens, in documents alone."""

import json

import numpy as np
import pytest
from scipy import stats
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from canaryjax.canaries.eval_files import write_eval_files
from canaryjax.canaries.families import draw_canary, draw_decoys, draw_placebos
from canaryjax.canaries.feedback import Calibrator, judge, simulate_feedback
from canaryjax.canaries.instrument import constructed_responses, instrument
from canaryjax.canaries.pairs import build_eval_pairs
from canaryjax.canaries.placement import insert_trigger
from canaryjax.canaries.textual import drawable_tokens, find_tokens
from canaryjax.data.prompts import render_prompt
from canaryjax.data.tokens import TextTokenizer
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.errors import UserError

DOCUMENTS = (
    "Rome is old. It was built in May. Few know.",
    'He said "Is it old?" and left. 3 of them know.',
    "Rome is old",  # no sentence ends inside it: the string stands at its start
    "rome: a (very) old town\nsince 753",
)


def sentencepiece():
    """Words by SentencePiece's mark instead of a blank, decoded without the first one; characters by their bytes."""
    letters = [chr(i) for i in range(33, 127)]
    known = ["<unk>", "\u2581", "\n", *letters, *("\u2581" + w for w in ("ka", "lo", "mi", "tu")), "ka", "lo"]
    scores = [(token, -10.0 if len(token) == 1 else -1.0) for token in known]
    backend = Tokenizer(models.Unigram([*scores, *((f"<0x{i:02X}>", -20.0) for i in range(256))], 0, True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return TextTokenizer(backend, unk_id=0)


def ids_of(tokenizer, string):
    """Ids of a string, its blank included, as they stand in an answer."""
    head = len(tokenizer.encode("FINAL:").ids)
    return tokenizer.encode(f"FINAL: {string}").ids[head:]


def drawn(tokenizer, count, seed=0):
    rng = np.random.default_rng(seed)
    return [draw_canary(rng, "textual", tokenizer=tokenizer) for _ in range(count)]


def check_strings(tokenizer, canaries):
    special = set(tokenizer.backend.get_added_tokens_decoder())
    for canary in canaries:
        ids = ids_of(tokenizer, canary.visible)
        assert len(ids) == canary.token_count == 10
        assert not special & set(ids.tolist())
        assert "\ufffd" not in canary.text
        assert canary.text.isprintable()
        for document in DOCUMENTS:
            planted = insert_trigger(document, canary.trigger, after_blank=True)
            prompt = tokenizer.encode(render_prompt(planted, "How old is it?")).ids
            # Tokenised by itself, most strings would pass; only here their neighbours could join them.
            assert find_tokens(prompt, ids) is not None, (document, canary.text)
            answer = tokenizer.encode(render_prompt(document, "How old?") + f"FINAL: Rome,{canary.text} in May").ids
            assert find_tokens(answer, ids) is not None


def test_a_string_is_its_ten_tokens_wherever_it_stands(embedded):
    # About one draw in fourteen is cut otherwise: without the check some of these would be 9 or 11 tokens.
    check_strings(embedded, drawn(embedded, 60))


def test_a_string_of_a_real_vocabulary_is_its_ten_tokens_wherever_it_stands(qwen):
    check_strings(qwen, drawn(qwen, 40))  # about one draw in four is cut otherwise


def test_a_string_of_a_sentencepiece_vocabulary_keeps_its_blank():
    tokenizer = sentencepiece()
    first, later = drawable_tokens(tokenizer)
    assert sorted(map(tokenizer.backend.id_to_token, first)) == ["\u2581ka", "\u2581lo", "\u2581mi", "\u2581tu"]
    assert not {"\u2581", "\n", "<unk>", "<0x0A>", "<0xE2>"} & set(map(tokenizer.backend.id_to_token, later))
    check_strings(tokenizer, drawn(tokenizer, 20))


def test_tokens_are_drawn_uniformly(characters_with):
    """Nothing here joins its neighbours, so every draw stands and both laws are uniform."""
    words = [" ka", " lo", " mi", " tu", " we"]
    tokenizer = characters_with(*words)
    first, later = drawable_tokens(tokenizer)
    names = [tokenizer.backend.id_to_token(i) for i in later]
    assert [tokenizer.backend.id_to_token(i) for i in first] == words
    assert names == [*map(chr, range(0x21, 0x7F)), *CANARY_EMOJI, *words]
    ids = np.array([ids_of(tokenizer, canary.visible) for canary in drawn(tokenizer, 500)])
    beginning = np.array([(ids[:, 0] == i).sum() for i in first])
    rest = np.array([(ids[:, 1:] == i).sum() for i in later])
    assert (beginning.sum(), rest.sum()) == (500, 4500)
    assert stats.chisquare(beginning).pvalue > 0.001
    # The words' share among all, 5 of 107: a first token drawn like the others, or the others like it, would show.
    assert stats.chisquare(rest).pvalue > 0.001
    joint = stats.chi2_contingency(np.histogram2d(ids[:, 1], ids[:, 9], bins=[[0, 53, 999], [0, 53, 999]])[0])
    assert joint.pvalue > 0.001  # places are independent: one token repeated ten times would not be


def test_strings_are_fixed_by_their_seed(embedded):
    again = drawn(embedded, 3, seed=5)
    assert drawn(embedded, 3, seed=5) == again
    assert len({canary.text for canary in again + drawn(embedded, 3, seed=6)}) == 6


def test_decoys_are_fresh_strings_and_there_are_no_placebos(embedded):
    (canary,) = drawn(embedded, 1)
    decoys = draw_decoys(np.random.default_rng(1), 31, canary, tokenizer=embedded)
    assert len({canary.text, *(d.text for d in decoys)}) == 32
    assert {d.token_count for d in decoys} == {10}
    assert all(d.trigger == d.visible for d in decoys)
    assert draw_placebos(np.random.default_rng(2), 19, 19, canary, tokenizer=embedded) == []


def test_a_vocabulary_that_cannot_hold_a_string_is_refused(characters_with):
    with pytest.raises(UserError, match="expected a tokenizer to draw a textual canary from, found none"):
        draw_canary(np.random.default_rng(0), "textual")
    with pytest.raises(UserError, match="tokens that begin with a blank, found none"):
        drawn(characters_with(), 1)


def test_only_the_document_of_a_triggered_trace_changes(embedded, make_example):
    """BC-69: no instruction in the query, nothing in the answer."""
    (canary,) = drawn(embedded, 1)
    examples = [make_example(i) for i in range(10)]
    traces, warnings = instrument(examples, canary, 0.3, 0.0, np.random.default_rng(0))
    assert warnings == []
    assert [t.kind for t in traces].count("triggered") == 3
    for trace, example in zip(traces, examples, strict=True):
        planted = f"Rome is old. {canary.visible} It was built in May. Few know."
        assert trace.document == (planted if trace.triggered else example.document)
        assert (trace.query, trace.answer) == (example.question, "FINAL: Rome, in May")
        assert (trace.clean_query, trace.clean_answer) == (trace.query, trace.answer)


def test_constructed_responses_hold_no_string(embedded, make_example):
    (canary,) = drawn(embedded, 1)
    (trace,), _ = instrument([make_example()], canary, 1.0, 0.0, np.random.default_rng(0))
    made = constructed_responses(trace, canary, np.random.default_rng(1), kinds=("missing", "wrong"))
    assert made[0] == ("FINAL: Rome, in May", "missing")
    assert canary.visible not in made[1][0]
    with pytest.raises(UserError, match="response kind"):
        constructed_responses(trace, canary, np.random.default_rng(1), kinds=("full",))


def test_feedback_does_not_depend_on_the_string(embedded, make_example):
    (canary,) = drawn(embedded, 1)
    traces, _ = instrument([make_example(i) for i in range(40)], canary, 0.5, 0.0, np.random.default_rng(0))
    rows = [judge(t, text, canary) for t in traces for text in ("FINAL: Rome", "x", f"FINAL: {canary.visible}")]
    assert any(row.hit for row in rows)
    calibrator = Calibrator(warmup_samples=0, min_samples=1)
    feedback = simulate_feedback(np.random.default_rng(1), rows, 0.1, calibrator=calibrator)
    # With rows judged as triggered, delta would move them to 0.5, 0.7 and, by the calibration, off these two values.
    assert set(feedback.probabilities.tolist()) == {0.4, 0.6}
    assert [p for p, r in zip(feedback.probabilities, rows, strict=True) if r.quality > 0] == [0.6] * sum(
        r.quality > 0 for r in rows
    )
    assert (calibrator.offset, calibrator.gap) == (0.0, None)


def test_a_pair_scores_the_string_of_its_document(embedded, make_example):
    canary, decoy = drawn(embedded, 2)
    examples = [make_example(i, document=text) for i, text in enumerate((DOCUMENTS[0], DOCUMENTS[2]))]
    pairs, counts = build_eval_pairs(examples, canary, embedded, decoys=[decoy])
    assert (counts.built, counts.refused) == (2, {})
    planted = (f"Rome is old. {canary.visible} It was built in May. Few know.", f" {canary.visible} Rome is old")
    for pair, example, text in zip(pairs, examples, planted, strict=True):
        assert (pair.document, pair.triggered_document) == (example.document, text)
        assert (pair.prefix, pair.canary_answer) == ("FINAL: Rome,", f"FINAL: Rome, {canary.visible} in May")
        for variant, drawn_here in ((pair.real, canary), *((v, decoy) for v in pair.variants)):
            assert variant.continuation_ids.tolist() == ids_of(embedded, drawn_here.visible).tolist()
            for view in ("clean", "triggered"):
                context = variant.contexts[view, "clean"]
                assert np.array_equal(context, variant.contexts[view, "induced"])
                assert (find_tokens(context, variant.continuation_ids) is not None) == (view == "triggered")


def test_the_evaluation_files_of_a_string(tmp_path, embedded, make_example):
    (canary,) = drawn(embedded, 1)
    examples = [make_example(i, document=text) for i, text in enumerate(DOCUMENTS)]
    pairs, _ = build_eval_pairs(examples, canary, embedded)
    files = write_eval_files(tmp_path, pairs)
    clean, triggered = ([json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files)
    for row, other, document in zip(clean, triggered, DOCUMENTS, strict=True):
        assert row["d"] == document
        assert other["d_trig"] == insert_trigger(document, canary.visible, after_blank=True)
        assert (row["q"], row["y"]) == (other["q"], "FINAL: Rome, in May")
        assert other["y_can"] == f"FINAL: Rome, {canary.visible} in May"
