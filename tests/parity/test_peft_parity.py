"""Adapters exchanged with the real PEFT, both ways, on square kernels, where a transpose has the right shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from canaryjax.inference.forward import forward_shared  # noqa: E402
from canaryjax.models.lora import PROJECTIONS, Adapter, LoraPair, init_adapter  # noqa: E402
from canaryjax.weights.checkpoint import load_model  # noqa: E402
from canaryjax.weights.peft import load_adapter, save_adapter  # noqa: E402

# PEFT asks transformers an old question; neither's fault is ours.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

# 42 wide with 3 heads of 14, 42 feed-forward: q, k, v, o, gate, up and down are all 42 x 42.
SQUARE = {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 14, "intermediate_size": 42}


def our_logits(model, adapter, ids):
    hidden = forward_shared(
        model, adapter, jnp.array(ids[:, :1]), jnp.ones((len(ids), 1), bool), jnp.array(ids[:, None, 1:])
    )
    return np.asarray(hidden.continuation_bgtd)[:, 0] @ np.asarray(model.head[...]).T


@pytest.fixture
def base(build_model, tmp_path):
    theirs = build_model("llama-biases", **SQUARE)
    theirs.save_pretrained(tmp_path / "base")
    return theirs, load_model(tmp_path / "base")


@pytest.fixture
def ids():
    return np.random.default_rng(3).integers(0, 101, (2, 13))


@pytest.mark.parametrize("stabilised", [False, True])
def test_peft_reads_ours(base, ids, tmp_path, stabilised):
    theirs, ours = base
    adapter = init_adapter(jax.random.key(0), ours.config, 8, 16.0, rank_stabilised=stabilised)
    layers = {
        name: LoraPair(a=pair.a, b=0.1 * jax.random.normal(jax.random.key(i), pair.b.shape))
        for i, (name, pair) in enumerate(adapter.layers.items())
    }
    adapter = Adapter(layers=layers, scale=adapter.scale)
    save_adapter(adapter, tmp_path / "adapter", rank_stabilised=stabilised)
    loaded = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    with torch.no_grad():
        expected = loaded(torch.tensor(ids)).logits.numpy()[:, 1:]
    got, plain = our_logits(ours.params, adapter, ids), our_logits(ours.params, None, ids)
    scale = np.abs(expected).max()
    assert np.abs(got - plain).max() > 0.05 * scale  # the adapter does something
    assert np.abs(got - expected).max() < 2e-4 * scale


@pytest.mark.parametrize("stabilised", [False, True])
def test_we_read_pefts(base, ids, tmp_path, stabilised):
    theirs, ours = base
    names = [f"{name}_proj" for name in PROJECTIONS]
    settings = peft.LoraConfig(
        r=8, lora_alpha=16, target_modules=names, use_rslora=stabilised, task_type="CAUSAL_LM", lora_dropout=0.1
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
    assert adapter.scale == (16 / 8**0.5 if stabilised else 2.0)
    got = our_logits(ours.params, adapter, ids)
    assert np.abs(got - expected).max() < 2e-4 * np.abs(expected).max()
