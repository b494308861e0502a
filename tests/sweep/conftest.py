"""A small study's documents, and a tiny random model to run it on."""

import dataclasses

import jax
import pytest

from canaryjax.config import load_config
from canaryjax.data.loaders import load_examples
from canaryjax.embedded.corpus import generate_examples
from canaryjax.embedded.pretrain.training import base_config
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, build_tokenizer, padded_rows, save_tokenizer
from canaryjax.models.transformer import init_transformer
from canaryjax.weights.export import save_model


@pytest.fixture(scope="session")
def small_config():
    return load_config("quick", ["data.documents=40", "data.rm_share=0.442", "data.eval_share=0.3", "study.seed=7"])


@pytest.fixture(scope="session")
def examples(small_config):
    return load_examples(small_config.data, small_config.study.seed, generate_examples)


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory):
    """A random model of two narrow layers that speaks the embedded vocabulary, as a directory."""
    tokenizer = build_tokenizer()
    shape = dataclasses.replace(
        base_config(padded_rows(tokenizer), tokenizer.get_vocab_size()),
        **{"width": 24, "num_layers": 2, "num_heads": 3, "num_kv_heads": 1, "head_dim": 8, "ff_dim": 40},
        windows=(None, None),
    )
    folder = tmp_path_factory.mktemp("base") / "model"
    save_model(init_transformer(jax.random.key(1), shape, stddev=0.3), folder, eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer, folder)
    return folder
