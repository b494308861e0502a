"""One random model and adapter, saved once in the formats that every stack reads."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import Adapter, init_adapter
from canaryjax.models.transformer import Transformer, parameter_shapes
from canaryjax.weights.export import save_model
from canaryjax.weights.peft import save_adapter
from harness.shape import Shape

EOS_ID = 2  # a random model draws it once in a vocabulary's worth of tokens: completions run to their full length
PAD_ID = 0
FIRST_ID = 3  # of ordinary tokens


def write_model(shape: Shape, directory: Path) -> Path:
    """Writes a random Qwen2 as a Hugging Face directory and returns the directory.

    Kernels keep the scale of what passes through them, biases and norms are random too: attention then depends on
    positions and contents, and a fault anywhere shows in the log-probs.
    """
    config, draws = shape.config(), np.random.default_rng(20)
    arrays = {}
    for name, size in parameter_shapes(config).items():
        noise = draws.standard_normal(size, np.float32)
        if name.endswith("norm"):
            noise = 1.0 + 0.1 * noise
        elif name.endswith("bias"):
            noise = 0.1 * noise
        else:
            noise = noise * (config.width if name == "embedding" else size[-2]) ** -0.5
        arrays[name] = jnp.asarray(noise, jnp.float32)
    save_model(Transformer(config, arrays), directory, eos_ids=[EOS_ID], pad_id=PAD_ID)
    return directory


def write_adapter(config: ModelConfig, rank: int, directory: Path) -> Path:
    """Writes a LoRA adapter on all seven projections in PEFT's format and returns the directory.

    B is not zero, as it would be in a new one: the gradient of A would be zero and agree with anything.
    """
    adapter = init_adapter(jax.random.key(1), config, rank, 2.0 * rank)
    save_adapter(_with_random_b(adapter), directory)
    return directory


def _with_random_b(adapter: Adapter) -> Adapter:
    draws = np.random.default_rng(21)
    return jax.tree.map(
        lambda x: x if x.any() else jnp.asarray(0.01 * draws.standard_normal(x.shape), jnp.float32), adapter
    )


def random_ids(shape: Shape, size: tuple[int, ...], seed: int) -> np.ndarray:
    """Ordinary token ids, int32 of the given size."""
    return np.random.default_rng(seed).integers(FIRST_ID, shape.vocab, size, dtype=np.int32)


def write_tokenizer(vocab: int, directory: Path) -> Path:
    """Writes a tokenizer with one word for each id, for trainers that take nothing but text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # A special token is found inside of words too, so that none may be part of one: hence the brackets and the w.
    words = {"<pad>": PAD_ID, "<unk>": 1, "<eos>": EOS_ID} | {f"w{i}": i for i in range(FIRST_ID, vocab)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    fast.save_pretrained(directory)
    every = np.arange(FIRST_ID, vocab)
    assert fast(as_text(every))["input_ids"] == every.tolist()  # every side must be given the same ids
    return directory


def as_text(ids: np.ndarray) -> str:
    """The text that the tokenizer of `write_tokenizer` turns into these ordinary ids."""
    return " ".join(f"w{i}" for i in ids.tolist())
