"""Adapters exchanged with the real PEFT, both ways, on square kernels, where a transpose has the right shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from canaryjax.inference.forward import forward_shared  # noqa: E402
from canaryjax.inference.logprobs import head_logits  # noqa: E402
from canaryjax.models.lora import (  # noqa: E402
    PROJECTIONS,
    TARGETS,
    LoraPair,
    adapter_pairs,
    from_pairs,
    init_adapter,
)
from canaryjax.weights.checkpoint import load_model  # noqa: E402
from canaryjax.weights.merged import save_merged  # noqa: E402
from canaryjax.weights.peft import load_adapter, save_adapter  # noqa: E402

# PEFT asks transformers an old question; neither's fault is ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
    # What PEFT says of an adapter on a head: that it saves the head too, and that a tied one is not merged into both.
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Model (has|with) `tie_word_embeddings=True`:UserWarning"),
]

# 42 wide with 3 heads of 14, 42 feed-forward: q, k, v, o, gate, up and down are all 42 x 42.
SQUARE = {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 14, "intermediate_size": 42}


def our_logits(model, adapter, ids):
    hidden = forward_shared(
        model, adapter, jnp.array(ids[:, :1]), jnp.ones((len(ids), 1), bool), jnp.array(ids[:, None, 1:])
    )
    return np.asarray(head_logits(model, adapter, hidden.continuation_bgtd))[:, 0]


@pytest.fixture(params=["llama-biases", "gemma2"])
def base(request, build_model, tmp_path):
    """An untied model, and a tied one with a soft cap on its logits; the kernels of both are square."""
    theirs = build_model(request.param, **SQUARE)
    theirs.save_pretrained(tmp_path / "base")
    return theirs, load_model(tmp_path / "base")


@pytest.fixture
def ids():
    return np.random.default_rng(3).integers(0, 101, (2, 13))


def random_adapter(config, stabilised=False):
    adapter = init_adapter(jax.random.key(0), config, 8, 11.0, TARGETS, rank_stabilised=stabilised)
    pairs = {
        name: LoraPair(a=pair.a, b=0.1 * jax.random.normal(jax.random.key(i), pair.b.shape))
        for i, (name, pair) in enumerate(adapter_pairs(adapter).items())
    }
    return from_pairs(pairs, adapter.scale)


def assert_close(got, expected, plain):
    scale = np.abs(expected).max()
    assert np.abs(expected - plain).max() > 0.05 * scale  # the adapter does something
    assert np.abs(got - expected).max() < 2e-4 * scale


@pytest.mark.parametrize("stabilised", [False, True])
def test_peft_reads_ours(base, ids, tmp_path, stabilised):
    theirs, ours = base
    adapter = random_adapter(ours.config, stabilised)
    save_adapter(adapter, tmp_path / "adapter", rank_stabilised=stabilised)
    loaded = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    with torch.no_grad():
        expected = loaded(torch.tensor(ids)).logits.numpy()[:, 1:]
    assert_close(our_logits(ours.params, adapter, ids), expected, our_logits(ours.params, None, ids))


@pytest.mark.parametrize("stabilised", [False, True])
def test_we_read_pefts(base, ids, tmp_path, stabilised):
    theirs, ours = base
    names = [*(f"{name}_proj" for name in PROJECTIONS), "lm_head"]
    settings = peft.LoraConfig(
        r=8, lora_alpha=11, target_modules=names, use_rslora=stabilised, task_type="CAUSAL_LM", lora_dropout=0.1
    )
    trained = peft.get_peft_model(theirs, settings).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in trained.named_parameters():
            if "lora_B" in key:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        expected = trained(torch.tensor(ids)).logits.numpy()[:, 1:]
    trained.save_pretrained(tmp_path / "adapter")
    adapter = load_adapter(ours, tmp_path / "adapter")
    assert adapter.scale == (11 / 8**0.5 if stabilised else 11 / 8)
    assert adapter.head is not None
    assert_close(our_logits(ours.params, adapter, ids), expected, our_logits(ours.params, None, ids))


def test_transformers_reads_a_merged_model_as_an_ordinary_one(base, ids, tmp_path):
    # Tied and with a head of its own in the adapter: written as tied, the export would lose that head.
    _, ours = base
    adapter = random_adapter(ours.config)
    assert save_merged(ours, adapter, tmp_path / "merged") == 0.0
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(torch.tensor(ids)).logits.numpy()[:, 1:]
    assert model.config.max_position_embeddings == 211
    unmerged = our_logits(ours.params, adapter, ids)
    assert_close(unmerged, expected, our_logits(ours.params, None, ids))
    assert_close(our_logits(load_model(tmp_path / "merged").params, None, ids), unmerged, 0.0)
