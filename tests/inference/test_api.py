"""The Python interface, with real tokenizers and tiny weights."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from canaryjax.data.tokens import TextTokenizer
from canaryjax.errors import InvalidScore, UserError
from canaryjax.inference import api, packing
from canaryjax.inference.api import _sample, _score, generate, logits, score
from canaryjax.inference.forward import run_context
from canaryjax.inference.logprobs import head_logits
from canaryjax.inference.packing import batches, cut, filled, round_up
from canaryjax.models.transformer import Transformer
from canaryjax.weights.checkpoint import LoadedModel

# Single characters and what merges build of them; fewer than the model's 31 rows.
PIECES = ["<eos>", "<unused>", *"Answer xyz.:bcdfghi", "we", "er", "wer", "An", "Ans", "Answer"]


def tokenizer() -> TextTokenizer:
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(PIECES))}
    merges = [("e", "r"), ("w", "er"), ("A", "n"), ("An", "s"), ("Ans", "wer")]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.decoder = decoders.Fuse()
    return TextTokenizer(backend, eos_ids=(0,))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A model of 31 embedding rows, with a tokenizer."""
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("inference_conftest", Path(__file__).with_name("conftest.py"))
    shared = module_from_spec(spec)
    spec.loader.exec_module(shared)
    text = tokenizer()
    params = shared.make_model("windowed", vocab_size=31, real_vocab_size=text.vocab_size, stddev=0.2)
    return LoadedModel(params, params.config, text, (0,), None, "tiny", tmp_path_factory.mktemp("model"))


def expected(loaded, context, continuation):
    """Oracle: the plain pass over one row, no batch, no bucket."""
    row = jnp.asarray([[*context, *continuation]])
    table = jax.nn.log_softmax(head_logits(loaded.params, None, run_context(loaded.params, None, row)[0]))[0]
    return [float(table[len(context) + i - 1, token]) for i, token in enumerate(continuation)]


def test_score_of_ids_is_the_plain_log_softmax(loaded):
    context, own = [5, 9, 3, 3, 14, 8, 2], [7, 11, 30]  # 30 is a padded row: allowed, as in Hugging Face
    (found,) = score(loaded, [context], [own])
    np.testing.assert_allclose(found.logps, expected(loaded, context, own), rtol=1e-5, atol=1e-5)
    assert found.ids.tolist() == own
    assert found.logps.dtype == np.float32
    assert not found.straddles


def test_any_batch_order_and_bucket_gives_the_same(loaded):
    # Known fault 27. Lengths 2 to 29 fall into several buckets; each pair alone is the reference.
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, 29, n).tolist() for n in (2, 29, 7, 7, 12, 9, 25, 3)]
    own = [rng.integers(2, 29, n).tolist() for n in (9, 1, 3, 3, 14, 2, 5, 8)]
    together = score(loaded, prompts, own)
    order = rng.permutation(8)
    permuted = score(loaded, [prompts[i] for i in order], [own[i] for i in order])
    for place, i in enumerate(order):
        (alone,) = score(loaded, [prompts[i]], [own[i]])
        np.testing.assert_allclose(permuted[place].logps, alone.logps, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(together[i].logps, alone.logps, rtol=1e-5, atol=1e-5)
        assert together[i].ids.tolist() == own[i]


def test_continuations_of_one_prompt_come_back_in_their_places(loaded):
    prompts, own = [[5, 9, 3], [4, 4]], [[[7, 8, 2], [6], [9, 9]], [3, 2]]
    several, one = score(loaded, prompts, own)
    assert [s.ids.tolist() for s in several] == own[0]
    assert one.ids.tolist() == [3, 2]
    for scored, ids in zip(several, own[0], strict=True):
        np.testing.assert_allclose(scored.logps, expected(loaded, prompts[0], ids), rtol=1e-5, atol=1e-5)


def test_text_is_tokenised_with_its_prompt(loaded):
    # Known fault 32: "Ans" + "wer" is one token, "Answer", so scoring starts there, after "x ", and says so. Cut apart,
    # the ids would be those of "Ans" and "wer".
    ids = loaded.tokenizer.backend.token_to_id
    straddling, clean = score(loaded, ["x Ans", "x Answer"], ["wer.", " yz"])
    assert straddling.straddles
    assert straddling.ids.tolist() == [ids("Answer"), ids(".")]
    assert straddling.text == "wer."
    context = [ids("x"), ids(" ")]
    np.testing.assert_allclose(straddling.logps, expected(loaded, context, straddling.ids), rtol=1e-5, atol=1e-5)
    assert not clean.straddles
    assert clean.ids.tolist() == [ids(" "), ids("y"), ids("z")]
    (single,) = score(loaded, "x Answer", " yz")
    np.testing.assert_allclose(single.logps, clean.logps, rtol=1e-5, atol=1e-5)


def test_logits_equal_the_plain_pass(loaded):
    rows = [[5, 9, 3], [4], [7] * 11]
    for row, found in zip(rows, logits(loaded, rows), strict=True):
        wanted = head_logits(loaded.params, None, run_context(loaded.params, None, jnp.asarray([row]))[0])[0]
        assert found.shape == (len(row), 31)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_generate_is_reproducible_and_scores_its_own_ids(loaded):
    # Known fault 6: log-probs belong to the sampled ids; a text encoded again may have other ids.
    prompts = ["x yz", "Answer: ", "b"]
    settings = {"max_new_tokens": 7, "temperature": 0.9, "num_samples": 2}
    found = generate(loaded, prompts, seed=3, **settings)
    assert [len(completions) for completions in found] == [2, 2, 2]
    flat = [completion for completions in found for completion in completions]
    contexts = [loaded.tokenizer.encode(prompt).ids.tolist() for prompt in prompts]
    scores = score(loaded, contexts, [[c.ids.tolist() for c in completions] for completions in found])
    for completion, scored in zip(flat, [s for entry in scores for s in entry], strict=True):
        np.testing.assert_allclose(completion.logps, scored.logps, rtol=1e-5, atol=1e-5)
        assert completion.finished == (completion.ids[-1] == 0)
        assert completion.finished or len(completion.ids) == 7
        assert completion.ids.max() < loaded.config.real_vocab_size
        assert completion.text == loaded.tokenizer.decode(completion.ids)
    again = generate(loaded, prompts, seed=3, **settings)
    other = generate(loaded, prompts, seed=4, **settings)
    assert [c.ids.tolist() for cs in again for c in cs] == [c.ids.tolist() for c in flat]
    assert [c.ids.tolist() for cs in other for c in cs] != [c.ids.tolist() for c in flat]
    # A prompt's draws do not depend on its neighbours: the first alone, and as ids.
    alone = generate(loaded, [contexts[0]], seed=3, **settings)
    assert [c.ids.tolist() for c in alone[0]] == [c.ids.tolist() for c in found[0]]


def test_greedy_is_the_default_and_follows_the_logits(loaded):
    (completion,) = generate(loaded, [[5, 9, 3]], max_new_tokens=5)[0]
    row = [5, 9, 3]
    for token in completion.ids:
        assert token == np.argmax(logits(loaded, [row])[0][-1, : loaded.config.real_vocab_size])
        row.append(int(token))


def test_one_program_a_bucket(loaded):
    # Prompts of 17 to 24 tokens are one bucket: scoring and generating with each compiles one program.
    score(loaded, [[3] * 17], [[4, 5]])
    generate(loaded, [[3] * 17], max_new_tokens=2)
    before = _score._cache_size(), _sample._cache_size()
    for n in range(18, 25):
        score(loaded, [[3] * n], [[4] * (n % 4 + 1)])
        generate(loaded, [[3] * n], max_new_tokens=2)
    assert (_score._cache_size(), _sample._cache_size()) == before


@pytest.mark.parametrize(
    ("prompts", "own", "message"),
    [
        ([[5, 31]], [[3]], r"ids in \[0, 31\) in prompt 0, found 31 at index 1"),
        ([[5]], [[3, -100]], r"ids in \[0, 31\) in a continuation of prompt 0, found -100 at index 1"),
        ([[]], [[3]], "prompt 0 of at least one token, found none"),
        ([[5]], [[]], "at least one continuation for prompt 0, found none"),
        ([[5]], [[[4], []]], "a continuation of prompt 0 of at least one token, found none"),
        ([""], ["x"], "prompt 0 to hold at least one token before its continuation"),
        (["x"], [""], "continuation of prompt 0 with some text, found an empty one"),
        (["Ans"], ["wer"], "prompt 0 to hold at least one token before its continuation"),
        (["x"], ["\u2603"], "text that the vocabulary can write"),
        (["x", "y"], ["z"], "one entry of continuations for each prompt, found 1 for 2"),
        (["x"], [[3]], "both as text or both as ids"),
        (["x", [3]], ["y", [3]], "prompts all as text or all as ids"),
        ([[1.5, 2.5]], [[3]], "flat list of token ids"),
    ],
)
def test_refusals_of_score(loaded, prompts, own, message):
    with pytest.raises(UserError, match=message):
        score(loaded, prompts, own)


def test_other_refusals(loaded):
    # Known fault 26: JAX would clamp 31 to 30 and give a plausible number.
    with pytest.raises(UserError, match=r"\[0, 31\) in row 1, found 31 at index 0"):
        logits(loaded, [[3], [31]])
    with pytest.raises(UserError, match=r"\[0, 31\) in prompt 0, found 99"):
        generate(loaded, [[99]])
    with pytest.raises(UserError, match="temperature of 0 or more"):
        generate(loaded, ["x"], temperature=-1)
    silent = dataclasses.replace(loaded, tokenizer=None)
    with pytest.raises(UserError, match="found text and a model without a tokenizer"):
        score(silent, ["x"], ["y"])
    with pytest.raises(UserError, match="found text and a model without a tokenizer"):
        generate(silent, ["x"])
    assert score(silent, [[3]], [[4]])[0].text is None


def test_a_score_that_is_no_number_is_refused(loaded):
    # Known fault 36.
    arrays = {"embedding": loaded.params.embedding[...], "final_norm": loaded.params.final_norm[...] * jnp.nan}
    blocks = {part: getattr(loaded.params.blocks, part) for part in type(loaded.params.blocks).PARTS}
    arrays |= {f"blocks.{part}": a[...] for part, a in blocks.items() if a is not None}
    broken = dataclasses.replace(loaded, params=Transformer(loaded.config, arrays))
    with pytest.raises(InvalidScore, match=r"finite log-probs, found .*nan.* for a continuation of prompt 0"):
        score(broken, [[3, 4]], [[5]])
    # The prompt that is meant, whatever batch it is in: they have three lengths.
    with pytest.raises(InvalidScore, match=r"finite log-probs, found .*nan.* for a completion of prompt [0-2]:"):
        generate(broken, [[3, 4], [5] * 9, [6] * 20], max_new_tokens=2)


def test_many_continuations_of_one_prompt_are_cut_into_passes(loaded, monkeypatch):
    # 8 tokens of context and continuations of up to 11 (padded 12): two a pass fit into 40 tokens, not 13.
    monkeypatch.setattr(packing, "BATCH_TOKENS", 40)
    rng = np.random.default_rng(5)
    own = [rng.integers(2, 29, n).tolist() for n in (3, 11, 1, 5, 7, 2, 9, 4, 6, 8, 10, 2, 3)]
    passes = []
    monkeypatch.setattr(api, "_score", lambda *args: passes.append(args[4].shape) or _score(*args))
    (found,) = score(loaded, [[5, 9, 3]], [own])
    assert all(b * (8 + g * t) <= 40 for b, g, t in passes)
    assert sum(b * g for b, g, _ in passes) >= 13
    for scored, ids in zip(found, own, strict=True):
        assert scored.ids.tolist() == ids
        np.testing.assert_allclose(scored.logps, expected(loaded, [5, 9, 3], ids), rtol=1e-5, atol=1e-5)


def test_continuations_are_cut_where_their_rounded_number_fits():
    # 64 + g * 512 <= 8192 up to g = 15; the ladder has 12 and 16, and 13 to 15 would be run as 16.
    assert [len(part) for part in cut(range(30), 64, 512)] == [12, 12, 6]
    assert [list(part) for part in cut(range(3), 9000, 8)] == [[0], [1], [2]]  # one is always run


def test_no_rows_give_no_results(loaded):
    assert logits(loaded, []) == []
    assert score(loaded, [], []) == []
    assert generate(loaded, []) == []


def test_batches_hold_every_row_once_and_few_shapes():
    sizes = [((64,), 64)] * 300 + [((8192 * 3,), 8192 * 3)] * 2
    found = list(batches(sizes))
    assert sorted(i for part, _ in found for i in part) == list(range(302))
    assert [rows for _, rows in found] == [128, 128, 64, 1, 1]  # at most 8,192 tokens, or one row
    assert filled([4, 5, 6], 4) == [4, 5, 6, 6]
    assert [round_up(n) for n in (1, 2, 3, 4, 5, 7, 9, 13, 17, 25)] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert [round_up(n) for n in (769, 1024, 1025, 1600, 2048, 2049)] == [1024, 1024, 1152, 1664, 2048, 2304]
    assert [round_up(n, 8) for n in (1, 8, 9)] == [8, 8, 12]


def test_import_starts_without_jax():
    code = (
        "import sys, canaryjax as cj; cj.stats; cj.__version__; assert not {'jax', 'torch'} & set(sys.modules);"
        "assert cj.score.__module__ == 'canaryjax.inference.api'; assert 'score' in dir(cj)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
