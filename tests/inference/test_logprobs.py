"""Chunked log-probs: values, gradients, laws, precision and memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.inference.logprobs import head_logits, score_shared, token_logps, token_statistics
from canaryjax.models.lora import Adapter, LoraPair
from canaryjax.models.transformer import Transformer


@pytest.fixture
def states():
    """Hidden states, targets with -100 where masked, the mask."""
    keys = jax.random.split(jax.random.key(0), 2)
    mask = jnp.ones((3, 5), bool).at[1, 2:].set(False)
    ids = jnp.where(mask, jax.random.randint(keys[1], (3, 5), 0, 47), -100)
    return jax.random.normal(keys[0], (3, 5, 26)), ids, mask


def plain(model, hidden, ids, mask, temperature):
    """Oracle: full log-softmax, ordinary autodiff."""
    logits = head_logits(model, None, hidden) / (1.0 if temperature is None else temperature)
    if temperature is not None:
        logits = logits[..., : model.config.real_vocab_size]
    logps = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logps, jnp.where(mask, ids, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(mask, chosen, 0), jnp.where(mask, -(jnp.exp(logps) * logps).sum(-1), 0)


@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("chunk", [None, 53, 20, 7])
def test_equals_plain_log_softmax_values_and_gradients(tiny_model, states, temperature, chunk):
    # 53 entries in chunks of 20 and 7: the last chunk overlaps the one before. Catches a doubly counted overlap, a
    # forgotten derivative of the soft cap or of the temperature, padded rows in the wrong law, a read of label -100.
    model = tiny_model("windowed", stddev=0.7, real_vocab_size=47)
    hidden, ids, mask = states
    weights = jax.random.normal(jax.random.key(3), (2, 3, 5))

    def ours(model, hidden):
        out = token_statistics(model, None, hidden, ids, mask, temperature=temperature, chunk=chunk)
        return (weights[0] * out.logps + weights[1] * out.entropy).sum(), (out.logps, out.entropy)

    def theirs(model, hidden):
        out = plain(model, hidden, ids, mask, temperature)
        return (weights[0] * out[0] + weights[1] * out[1]).sum(), out

    (_, found), (model_grad, grad) = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True))(model, hidden)
    (_, wanted), (plain_model_grad, plain_grad) = jax.jit(jax.value_and_grad(theirs, (0, 1), has_aux=True))(
        model, hidden
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grad, plain_grad, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(
        model_grad.embedding[...], plain_model_grad.embedding[...], rtol=1e-4, atol=2e-6
    )  # pretraining differentiates the head; a frozen one costs nothing
    assert float(jnp.abs(found[0]).max()) > 1
    assert not grad[1, 2:].any()


def with_updated_head(model, adapter):
    """Oracle for an adapter's head: the sum of weights that stands in its place."""
    table = (model.embedding if model.head is None else model.head)[...]
    return table + adapter.scale * (adapter.head.a @ adapter.head.b).T


@pytest.mark.parametrize(("temperature", "chunk"), [(None, None), (0.7, 20), (None, 7)])
def test_an_adapter_on_the_head_equals_a_plain_product(tiny_model, tiny_adapter, states, temperature, chunk):
    # 53 entries in chunks of 20 and 7: the last overlaps. Catches a scale left out of one of the three gradients, an
    # update added after the soft cap, columns of the second factor that do not belong to the chunk's rows.
    model = tiny_model("windowed", stddev=0.7, real_vocab_size=47)
    adapter = tiny_adapter(model.config, 11, size=0.6)
    hidden, ids, mask = states
    weights = jax.random.normal(jax.random.key(3), (2, 3, 5))

    def ours(adapter, hidden):
        out = token_statistics(model, adapter, hidden, ids, mask, temperature=temperature, chunk=chunk)
        return (weights[0] * out.logps + weights[1] * out.entropy).sum(), (out.logps, out.entropy)

    def theirs(adapter, hidden):
        logits = 4.0 * jnp.tanh(hidden @ with_updated_head(model, adapter).T / 4.0)
        if temperature is not None:
            logits = (logits / temperature)[..., :47]
        logps = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(logps, jnp.where(mask, ids, 0)[..., None], axis=-1)[..., 0]
        out = jnp.where(mask, chosen, 0), jnp.where(mask, -(jnp.exp(logps) * logps).sum(-1), 0)
        return (weights[0] * out[0] + weights[1] * out[1]).sum(), out

    (_, found), (grads, grad) = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True))(adapter, hidden)
    (_, wanted), (plain_grads, plain_grad) = jax.jit(jax.value_and_grad(theirs, (0, 1), has_aux=True))(adapter, hidden)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grad, plain_grad, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(grads.head.a, plain_grads.head.a, rtol=1e-4, atol=5e-6)
    np.testing.assert_allclose(grads.head.b, plain_grads.head.b, rtol=1e-4, atol=5e-6)
    without = token_logps(model, None, hidden, ids, mask, temperature=temperature, chunk=chunk)
    assert float(jnp.abs(found[0] - without).max()) > 0.1  # the update does something


def test_logps_under_vmap_over_policies(tiny_model, states):
    model = tiny_model("plain", stddev=0.7)
    hidden, ids, mask = states
    stacked = jnp.stack([hidden, 2 * hidden])
    one = jax.value_and_grad(lambda h: token_logps(model, None, h, ids, mask, chunk=20).sum())
    values, grads = jax.jit(jax.vmap(one))(stacked)
    for row in range(2):
        value, grad = jax.jit(one)(stacked[row])
        np.testing.assert_allclose(values[row], value, rtol=1e-5)
        # float32 knows a logit of 22, the largest here, to 1e-6, and so a gradient: against float64 each is 2e-6 off.
        np.testing.assert_allclose(grads[row], grad, rtol=1e-5, atol=2.1e-6)


def shift_model(tiny_model):
    """Token i is followed by i + 1, by hand: blocks write 0, the embedding is the identity, the head its shift."""
    model = tiny_model("plain", tied=False, width=53)
    zero = jax.tree.map(jnp.zeros_like, model.blocks)
    arrays = {"embedding": jnp.eye(53), "final_norm": jnp.ones(53), "head": 60 * jnp.roll(jnp.eye(53), 1, axis=0)}
    blocks = {
        part: getattr(zero, part)[...] for part in type(model.blocks).PARTS if getattr(model.blocks, part) is not None
    }
    return Transformer(model.config, arrays | {f"blocks.{part}": a for part, a in blocks.items()})


def test_each_token_is_scored_by_the_one_before_it(tiny_model):
    # Known fault 1: after A comes B, after B C, after C D. Scored at its own place or one later, the certain text is
    # impossible and `wrong`, which repeats the context's token, begins well.
    model = shift_model(tiny_model)
    context, mask = jnp.array([[7, 0]]), jnp.array([[True, False]])
    follows, wrong = [8, 9, 10], [7, 8, 9]
    ids = jnp.array([[follows, wrong]])
    logps = score_shared(model, None, context, mask, ids, jnp.ones(ids.shape, bool))
    np.testing.assert_allclose(logps[0, 0], [0.0, 0.0, 0.0], atol=1e-4)
    assert float(logps[0, 1, 0]) < -100
    np.testing.assert_allclose(logps[0, 1, 1:], [0.0, 0.0], atol=1e-4)


def test_padded_rows_stay_in_the_raw_normaliser_only(tiny_model):
    # Known fault 23: three of 53 rows are padding, all logits 0 but one padded row's, +10.
    model = tiny_model("plain", tied=False, real_vocab_size=50)
    head = jnp.zeros((53, 26)).at[51, 0].set(10.0)
    model = with_head(model, head)
    hidden = jnp.zeros((1, 26)).at[0, 0].set(1.0)
    ids, mask = jnp.array([4]), jnp.array([True])
    raw = token_logps(model, None, hidden, ids, mask)
    np.testing.assert_allclose(raw, [-np.log(52 + np.exp(10.0))], rtol=1e-6)
    np.testing.assert_allclose(token_logps(model, None, hidden, ids, mask, temperature=1.0), [-np.log(50)], rtol=1e-6)


def with_head(model, head):
    arrays = {"embedding": model.embedding[...], "final_norm": model.final_norm[...], "head": head}
    blocks = {part: getattr(model.blocks, part) for part in type(model.blocks).PARTS}
    return Transformer(model.config, arrays | {f"blocks.{k}": a[...] for k, a in blocks.items() if a is not None})


def test_bfloat16_model_has_no_positive_logp_and_no_kl_to_itself(tiny_model, tiny_adapter, shared_batch):
    # Known fault 25: log-softmax in bfloat16 gives log-probs above 0, and two fusions of it a KL that is not 0.
    model = tiny_model("plain", dtype="bfloat16", stddev=0.5)
    batch = shared_batch(1, 53)

    @jax.jit
    def both(model):
        first = score_shared(model, None, *batch)
        again = jax.lax.stop_gradient(score_shared(model, None, *batch))
        return first, jnp.exp(again - first) - (again - first) - 1

    logps, kl = both(model)
    assert logps.dtype == jnp.float32
    assert float(logps.max()) <= 0
    assert not kl.any()
    # The certain token: exactly 0, never above.
    hidden = jnp.full((64, 26), 3.0, jnp.bfloat16)
    best = jnp.argmax(head_logits(model, None, hidden[:1]))
    out = token_logps(model, None, hidden, jnp.full(64, best), jnp.ones(64, bool))
    assert float(out.max()) <= 0


def test_float32_head_for_bfloat16_states(tiny_model, tiny_adapter):
    # Products of bfloat16 are exact in float32: the head must not round its sums back to bfloat16.
    model = tiny_model("plain", dtype="bfloat16", stddev=0.5)
    hidden = jax.random.normal(jax.random.key(0), (4, 26), jnp.bfloat16)
    wide = np.asarray(hidden, np.float64) @ np.asarray(model.embedding[...], np.float64).T
    np.testing.assert_allclose(head_logits(model, None, hidden), wide, rtol=1e-5, atol=1e-5)
    # An update of 2^-12 of a logit is below bfloat16's steps: added in float32, the head keeps it.
    adapter = tiny_adapter(model.config, 5, size=0.01)
    assert adapter.head.a.dtype == jnp.float32
    update = np.asarray(hidden, np.float64) @ np.asarray(adapter.head.a, np.float64) @ np.asarray(adapter.head.b)
    logits = np.asarray(head_logits(model, adapter, hidden))
    np.testing.assert_allclose(logits, wide + 1.7 * update, rtol=1e-5, atol=1e-5)
    assert np.abs(1.7 * update).max() > 1e-3


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("rank", [0, 3])
def test_memory_is_one_chunk_whatever_the_vocabulary_and_the_rows(tiny_model, backward, rank):
    # Known fault 24, from the compiler's memory analysis; full logits would be 4 * rows * v bytes. With an adapter on
    # the head the gradient of its second factor is a result, and nothing else may grow with the vocabulary.
    def temporary(rows, v):
        config = dataclasses.replace(tiny_model().config, vocab_size=v, real_vocab_size=v)
        shapes = jax.eval_shape(
            lambda: Transformer(config, {"embedding": jnp.zeros((v, 26)), "final_norm": jnp.ones(26)})
        )
        shape = (jax.ShapeDtypeStruct((rows, 26), jnp.float32), jax.ShapeDtypeStruct((rows,), jnp.int32))

        pair = LoraPair(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((26, rank), (rank, v))))
        adapter = Adapter(layers={}, head=pair) if rank else None

        def score(trained, model, ids):
            hidden, adapter = trained
            return token_logps(model, adapter, hidden, ids, ids >= 0).sum()

        run = jax.jit(jax.grad(score) if backward else score)
        return run.lower((shape[0], adapter), shapes, shape[1]).compile().memory_analysis().temp_size_in_bytes

    small, large = temporary(512, 32_768), temporary(512, 262_144)
    assert large < 1.05 * small
    assert large < 4 * 2**22 * 4  # a few arrays of one chunk (2**22 floats), not 4 * 512 * 262144 = 512 MiB
    many = temporary(4096, 32_768)
    assert many < 1.2 * small


def test_temperature_of_zero_has_no_logp(tiny_model, states):
    hidden, ids, mask = states
    with pytest.raises(UserError, match="temperature above 0, found 0"):
        token_logps(tiny_model(), None, hidden, ids, mask, temperature=0.0)
