"""Damaged, incomplete and foreign checkpoints: each is one clear error that names the key and the file."""

import contextlib
import json
import shutil

import ml_dtypes
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.export import save_model

KEY = "model.layers.1.self_attn.q_proj.weight"
FILE = "model.safetensors"


def edit_tensors(tools, directory, change):
    tensors = tools.read_tensors(directory / FILE)
    change(tensors)
    tools.write_tensors(directory / FILE, tensors)


def test_missing_tensor_is_named(tools, saved):
    edit_tensors(tools, saved, lambda t: t.pop(KEY))
    with pytest.raises(UserError, match=rf"{KEY}.*{FILE}"):
        load_model(saved)


def test_unknown_tensor_is_named(tools, saved):
    edit_tensors(tools, saved, lambda t: t.update({"model.layers.1.self_attn.sinks": np.zeros(6, np.float32)}))
    with pytest.raises(UserError, match=rf"self_attn.sinks.*{FILE}"):
        load_model(saved)


def test_one_layer_too_many_is_unknown(tools, saved):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(UserError, match=r"model\.layers\.2\."):
        load_model(saved)


def test_misshapen_tensor_is_named(tools, saved):
    # The transposed square-ish kernel has the right number of elements: a reshape would let it by.
    edit_tensors(tools, saved, lambda t: t.update({KEY: np.ascontiguousarray(t[KEY].T)}))
    with pytest.raises(UserError, match=rf"{KEY}.*\(60, 14\).*\(14, 60\)"):
        load_model(saved)


def test_unexpected_dtype_is_named(tools, saved):
    edit_tensors(tools, saved, lambda t: t.update({KEY: t[KEY].astype(np.int32)}))
    with pytest.raises(UserError, match=rf"{KEY}.*I32.*{FILE}"):
        load_model(saved)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(tools, saved, value):
    def spoil(tensors):
        tensors[KEY][3, 5] = value

    edit_tensors(tools, saved, spoil)
    with pytest.raises(UserError, match=rf"finite.*{KEY}"):
        load_model(saved)


def test_overflow_in_the_cast_is_named(tools, saved):
    def spoil(tensors):
        tensors[KEY][3, 5] = 3.4e38  # finite in float32, infinite in bfloat16

    edit_tensors(tools, saved, spoil)
    load_model(saved)
    with pytest.raises(UserError, match=rf"bfloat16.*{KEY}"):
        load_model(saved, dtype="bfloat16")


@pytest.mark.parametrize("stored", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_weights_are_read(tools, saved, stored):
    edit_tensors(tools, saved, lambda t: t.update({k: x.astype(stored) for k, x in t.items()}))
    expected = tools.read_tensors(saved / FILE)[KEY].astype(np.float32).T
    np.testing.assert_array_equal(load_model(saved).params.blocks.q[...][1], expected)


def test_truncation_at_any_byte_is_an_error(saved):
    data = (saved / FILE).read_bytes()
    rng = np.random.default_rng(0)
    for size in [0, 1, 7, 8, 9, len(data) - 1, *rng.integers(10, len(data) - 1, 40)]:
        (saved / FILE).write_bytes(data[:size])
        with pytest.raises(UserError, match=FILE):
            load_model(saved)


def test_random_damage_never_escapes_as_another_error(saved):
    data = (saved / FILE).read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(60):
        spoilt = bytearray(data)
        spoilt[rng.integers(0, 3000)] = rng.integers(0, 256)  # the header, where structure is
        (saved / FILE).write_bytes(spoilt)
        with contextlib.suppress(UserError):  # a changed letter may also be harmless
            load_model(saved)


def test_duplicate_key_in_the_header_is_named(tools, saved):
    header, data = tools.read_header(saved / FILE)
    text = json.dumps(header)
    entry = json.dumps(header[KEY])
    tools.write_header(saved / FILE, text[:-1] + f', "{KEY}": {entry}}}', data)
    with pytest.raises(UserError, match=rf"{KEY}.*twice"):  # json.loads alone keeps the last and says nothing
        load_model(saved)


def test_overlapping_tensors_are_refused(tools, saved):
    header, data = tools.read_header(saved / FILE)
    header[KEY]["data_offsets"] = header["model.layers.0.self_attn.q_proj.weight"]["data_offsets"]
    tools.write_header(saved / FILE, header, data)
    with pytest.raises(UserError, match=r"overlap|gap"):
        load_model(saved)


def test_shards_load_as_one_file_does(tools, saved, sharded, tmp_path):
    save_model(tools.random_model(tools.configs["llama"]), tmp_path / "whole")
    assert tools.same_arrays(load_model(sharded).params, load_model(tmp_path / "whole").params)


def test_missing_shard_is_named(sharded):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match="model-00002-of-00002"):
        load_model(sharded)


def test_stray_shard_is_named(sharded):
    shutil.copy(sharded / "model-00002-of-00002.safetensors", sharded / "model-00003-of-00003.safetensors")
    with pytest.raises(UserError, match="model-00003-of-00003"):
        load_model(sharded)


def test_tensor_in_two_shards_is_named(tools, sharded):
    first, second = (sharded / f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    tensors = tools.read_tensors(second)
    key, x = next(iter(tools.read_tensors(first).items()))
    tools.write_tensors(second, {**tensors, key: x})
    with pytest.raises(UserError, match=rf"{key}.*model-00001.*model-00002"):
        load_model(sharded)


def test_tensor_in_no_index_is_named(tools, sharded):
    second = sharded / "model-00002-of-00002.safetensors"
    tools.write_tensors(second, {**tools.read_tensors(second), "stray": np.zeros(3, np.float32)})
    with pytest.raises(UserError, match=r"stray.*no shard"):
        load_model(sharded)


def test_tensor_that_only_the_index_has_is_named(sharded):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["ghost"] = "model-00002-of-00002.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(UserError, match="ghost"):
        load_model(sharded)


def test_index_cannot_point_outside(sharded):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"][KEY] = "../elsewhere.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"\.\./elsewhere"):
        load_model(sharded)


def test_pickle_is_refused_by_name(saved):
    (saved / FILE).rename(saved / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*pickle"):
        load_model(saved)


def test_untied_head_must_be_there(tools, saved):
    edit_tensors(tools, saved, lambda t: t.pop("lm_head.weight"))
    with pytest.raises(UserError, match=r"lm_head\.weight"):  # the embedding must not stand in for it
        load_model(saved)


def test_tied_copy_of_the_head_must_equal_the_embedding(tools, tmp_path):
    directory = tmp_path / "tied"
    save_model(tools.random_model(tools.configs["qwen3"]), directory)
    edit_tensors(tools, directory, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
    assert load_model(directory).params.head is None
    edit_tensors(tools, directory, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}))
    with pytest.raises(UserError, match=r"lm_head\.weight.*embed_tokens"):
        load_model(directory)


def test_old_rotary_buffers_are_left_out(tools, saved):
    edit_tensors(
        tools, saved, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(5, np.float32)})
    )
    load_model(saved)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', '{"architectures": ', "\xff\xfe"])
def test_damaged_configuration_is_named(saved, text):
    (saved / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"config\.json"):
        load_model(saved)


def test_wrong_paths_and_dtypes(tmp_path, saved):
    with pytest.raises(UserError, match="nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(UserError, match="float16"):
        load_model(saved, dtype="float16")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config\.json"):
        load_model(tmp_path / "empty")


def test_end_ids_come_from_the_generation_configuration_first(saved):
    assert load_model(saved).eos_ids == (2, 3)
    (saved / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 7, 11]}))
    model = load_model(saved)
    assert (model.eos_ids, model.bos_id, model.tokenizer) == ((5, 7, 11), 1, None)
    (saved / "generation_config.json").write_text(json.dumps({"eos_token_id": 37}))
    with pytest.raises(UserError, match="generation_config"):  # one past the table
        load_model(saved)


def test_real_vocabulary_is_the_tokenizers(tools, saved):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({f"w{i}": i for i in range(29)}, unk_token="w0")).save(str(saved / "tokenizer.json"))
    config = load_model(saved).config
    assert (config.vocab_size, config.real_vocab_size) == (37, 29)
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(38)}, unk_token="w0")).save(str(saved / "tokenizer.json"))
    with pytest.raises(UserError, match="38"):
        load_model(saved)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("generation_config.json", "[1]"),
        ("generation_config.json", "[" * 100_000),
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", '{"bos_token": 1}'),
        ("tokenizer_config.json", '{"chat_template": {"a": "b"}}'),
    ],
)
def test_a_companion_file_of_another_kind_is_named(saved, name, text):
    # Valid JSON that is no object, or holds no text, met `.get` and `token_to_id` as an AttributeError or TypeError.
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"w0": 0, "a": 1}, unk_token="w0")).save(str(saved / "tokenizer.json"))
    (saved / name).write_text(text)
    with pytest.raises(UserError, match=name.replace(".", r"\.") if "chat" not in text else "chat template"):
        load_model(saved)


def test_weights_that_are_a_directory_are_refused(saved):
    (saved / FILE).unlink()
    (saved / FILE).mkdir()
    with pytest.raises(UserError, match=FILE):
        load_model(saved)


def test_an_empty_text_config_is_no_text_config(saved):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"text_config": None}))
    assert load_model(saved).config.num_layers == 3
