"""Entries of an index or a header that are of another kind than the format's, and paths that are none."""

import json

import pytest

from canaryjax.errors import UserError
from canaryjax.weights.checkpoint import load_model

KEY = "model.layers.1.self_attn.q_proj.weight"
FILE = "model.safetensors"


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "", ".", "../x", 5, None, ["x"]])
def test_a_shard_whose_name_is_none_is_named(sharded, name):
    # Asking the system about a name of 300 bytes is an error of its own.
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"][KEY] = name
    index.write_text(json.dumps(content))
    with pytest.raises(UserError, match="index"):
        load_model(sharded)


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
@pytest.mark.parametrize("value", [["F32"], [["F32"]], {}, None, 5, "ab", True, [10**400, 1], [[1], 2], [1.5, 2]])
def test_a_header_entry_of_another_kind_is_named(tools, saved, field, value):
    header, data = tools.read_header(saved / FILE)
    header[KEY][field] = value
    tools.write_header(saved / FILE, header, data)
    with pytest.raises(UserError, match=KEY):
        load_model(saved)


def test_a_number_of_too_many_digits_in_the_header_is_named(tools, saved):
    header, data = tools.read_header(saved / FILE)
    tools.write_header(saved / FILE, json.dumps(header)[:-1] + ', "x": ' + "9" * 5000 + "}", data)
    with pytest.raises(UserError, match="JSON header"):
        load_model(saved)


@pytest.mark.parametrize("path", [None, 5, ["model"], "a" * 5000, "~nobody-by-this-name/x"])
def test_what_is_no_path_is_named(path):
    with pytest.raises(UserError, match=r"expected a (path|home directory)"):
        load_model(path)
