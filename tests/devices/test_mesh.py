"""The mesh, the path table and what a study makes of its devices, on the one device there is."""

import dataclasses
from types import SimpleNamespace

import jax
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from canaryjax.audit import chunk_size
from canaryjax.audit.known_shape import KNOWN_SHAPES
from canaryjax.audit.plan import Material, fitting_chunk, plan_study
from canaryjax.config import load_config
from canaryjax.errors import UserError
from canaryjax.models.lora import LoraPair, from_pairs
from canaryjax.models.mesh import axis_size, make_mesh, mesh_of
from canaryjax.models.sharding import (
    SPLITS,
    base_share,
    parameter_split,
    place_base,
    place_policies,
    place_rows,
    policy_split,
)
from canaryjax.models.transformer import Block, Transformer, parameter_shapes

GEMMA, QWEN = KNOWN_SHAPES["gemma-2b"], KNOWN_SHAPES["qwen2.5-1.5b"]
TINY = dataclasses.replace(
    QWEN, vocab_size=13, width=5, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=2, ff_dim=7, windows=(None, None)
)


def fake_devices(*processes):
    """As many devices as numbers, each in the process of its number."""
    return [SimpleNamespace(process_index=p) for p in processes]


@pytest.mark.parametrize(
    ("shape", "devices", "message"),
    [
        ({"policies": 2}, None, r"mesh axes among \['policy', 'data', 'model'\]; found \['policies'\]"),
        ({"policy": 0}, None, "at least one device along every axis"),
        ({"policy": 1.0}, None, "at least one device along every axis"),
        ({"policy": 2, "model": 2}, fake_devices(0, 0, 0), r"at most the 3 devices .* takes 4; make an axis smaller"),
        ({"policy": 2}, fake_devices(0, 0, 1, 1), "devices of every process .* leaves process 1 without"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(shape, devices, message):
    with pytest.raises(UserError, match=message):
        make_mesh(shape, devices)


def test_every_array_of_a_model_has_a_place():
    assert set(SPLITS) == {"embedding", "head", "final_norm"} | {f"blocks.{part}" for part in Block.PARTS}
    for path, shape in parameter_shapes(dataclasses.replace(QWEN, tied=False)).items():
        assert len(SPLITS[path]) <= len(shape)


@pytest.mark.parametrize(
    ("path", "parts", "split"),
    [
        ("embedding", 8, P("model")),  # 151,936 entries
        ("embedding", 7, P()),
        ("blocks.q", 4, P(None, None, "model")),  # twelve heads
        ("blocks.q", 8, P()),  # 1,536 outputs divide by eight, heads do not
        ("blocks.o", 4, P(None, "model", None)),
        ("blocks.o", 8, P()),
        ("blocks.k", 2, P(None, None, "model")),  # two heads
        ("blocks.v", 4, P()),
        ("blocks.v_bias", 2, P(None, "model")),
        ("blocks.down", 8, P(None, "model", None)),
        ("blocks.pre_mlp_norm", 2, P()),
    ],
)
def test_heads_and_tables_are_cut_into_equal_parts_or_not_at_all(path, parts, split):
    assert parameter_split(path, QWEN, parts) == split


def test_a_pair_is_split_as_its_kernel():
    pairs = {name: LoraPair(a=name + "a", b=name + "b") for name in ("q", "o", "k", "head")}
    tree = {"mu": from_pairs(pairs, 1.0), "count": "count"}
    found = {leaf: policy_split(path, QWEN, 4) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    assert found == {
        "qa": P("policy"),
        "qb": P("policy", None, None, "model"),
        "oa": P("policy", None, "model"),
        "ob": P("policy"),
        "ka": P("policy"),  # two key heads over four devices: the kernel is whole on each, and so is what it takes
        "kb": P("policy"),
        "heada": P("policy"),
        "headb": P("policy", None, "model"),  # no layers: ranks, then the vocabulary
        "count": P("policy"),
    }


def test_a_head_that_devices_cannot_share_is_whole_and_so_is_its_update():
    path = (jax.tree_util.GetAttrKey("head"), jax.tree_util.GetAttrKey("b"))
    assert policy_split(path, QWEN, 7) == P("policy")


def test_an_array_by_itself_is_split_by_policies():
    assert policy_split((), QWEN, 4) == P("policy")


def test_without_a_mesh_everything_stays_where_it_is():
    arrays = {path: jax.numpy.zeros(shape) for path, shape in parameter_shapes(TINY).items()}
    model, tree = Transformer(TINY, arrays), {"x": jax.numpy.zeros((3, 2))}
    assert mesh_of(model) is None
    assert axis_size(model, "model") == 1
    assert place_policies(model, tree) is tree
    assert place_rows(model, tree) is tree
    placed = place_base(model, make_mesh({}))
    assert mesh_of(placed).shape == {"policy": 1, "data": 1, "model": 1}
    assert place_policies(placed, tree)["x"].sharding.mesh == mesh_of(placed)


def test_policies_that_the_mesh_does_not_divide_are_refused(monkeypatch):
    monkeypatch.setattr(
        "canaryjax.models.sharding.mesh_of", lambda model: AbstractMesh((2, 1, 1), ("policy", "data", "model"))
    )
    with pytest.raises(UserError, match="policy axis of 2 divides; found 3; train more together"):
        place_policies(None, {"x": jax.numpy.zeros((3, 2))})


def test_a_config_whose_chunk_the_policy_axis_does_not_divide_is_refused():
    with pytest.raises(UserError, match=r"policies_per_chunk to be a multiple of mesh\.policy = 4, found 6"):
        load_config("quick", ["study.mesh.policy=4", "study.policies_per_chunk=6"])
    with pytest.raises(UserError, match=r"did you mean 'study\.mesh\.policy'"):
        load_config("quick", ["study.mesh.policies=4"])


@pytest.mark.parametrize(
    ("backend", "there", "words", "mesh"),
    [
        ("cpu", 8, [], (1, 1, 1)),  # a simulated device is no device
        ("gpu", 1, [], (1, 1, 1)),
        ("gpu", 8, [], (8, 1, 1)),
        ("gpu", 8, ["study.compliant=3", "study.violating=5"], (5, 1, 1)),  # a sixth would train a copy
        ("gpu", 8, ["study.mesh.model=2", "study.mesh.data=2"], (2, 2, 2)),
        ("gpu", 8, ["study.policies_per_chunk=6"], (6, 1, 1)),
        ("gpu", 4, ["study.policies_per_chunk=6"], (3, 1, 1)),
        ("gpu", 2, ["study.mesh.model=4"], (1, 1, 4)),  # which make_mesh then refuses
        ("cpu", 8, ["study.mesh.policy=4"], (4, 1, 1)),
    ],
)
def test_policies_take_the_accelerators_that_are_left(monkeypatch, backend, there, words, mesh):
    monkeypatch.setattr(chunk_size.jax, "default_backend", lambda: backend)
    monkeypatch.setattr(chunk_size.jax, "local_device_count", lambda: there)
    config = load_config("quick", ["study.compliant=10", "study.violating=10", *words])
    found = chunk_size.choose_mesh(config, config.study.policies_per_chunk)
    assert found == dict(zip(("policy", "data", "model"), mesh, strict=True))


@pytest.mark.parametrize(
    ("begun", "chunk", "there", "mesh"),
    [
        ((4, 1, 1), 4, 2, (2, 1, 1)),
        ((4, 1, 1), 6, 3, (3, 1, 1)),
        ((6, 1, 1), 6, 5, (3, 1, 1)),  # five do not divide a program of six policies
        ((2, 2, 2), 4, 7, (1, 2, 2)),
        ((2, 2, 2), 4, 3, (1, 1, 2)),
        ((1, 1, 4), 4, 3, (1, 1, 3)),
        ((4, 1, 1), 4, 9, (4, 1, 1)),
    ],
)
def test_a_run_goes_on_with_fewer_devices(begun, chunk, there, mesh):
    def named(sizes):
        return dict(zip(("policy", "data", "model"), sizes, strict=True))

    assert chunk_size.shrink_mesh(named(begun), chunk, there) == named(mesh)


def test_a_device_holds_what_the_axis_does_not_divide_whole():
    # Gemma-2B has one key head: k and v are whole on each of two devices, the norms too; nothing is in three parts.
    width, layers = GEMMA.width, GEMMA.num_layers
    whole = layers * (2 * width * GEMMA.head_dim + 2 * width) + width
    total = whole + GEMMA.vocab_size * width
    total += layers * (2 * width * GEMMA.num_heads * GEMMA.head_dim + 3 * width * GEMMA.ff_dim)
    assert base_share(GEMMA, 1) == 1.0
    assert base_share(GEMMA, 2) == pytest.approx((whole + (total - whole) / 2) / total, rel=1e-12)


def test_chunks_are_even_and_every_device_has_as_many_policies():
    config = load_config("quick", ["study.compliant=10", "study.violating=10"])
    sizes = {
        (most, devices): fitting_chunk(config, GEMMA, 1e15, most, devices) for most in (1, 2, 32) for devices in (1, 4)
    }
    # Four devices of two policies: ten are eight and two, not four, four and two.
    assert sizes == {(1, 1): 1, (2, 1): 2, (32, 1): 10, (1, 4): 4, (2, 4): 8, (32, 4): 12}


def test_a_plan_says_what_each_device_of_the_mesh_does():
    def plan(*words):
        fixed = ["study.policies_per_chunk=8", "evaluation.utility_examples=0"]
        return plan_study(load_config("paper/repliqa_gemma2b_grpo", [*fixed, *words]), GEMMA, Material(1000, 1000))

    one, many = plan(), plan("study.mesh.policy=4", "study.mesh.model=2")
    assert one["mesh"] == {"policy": 1, "data": 1, "model": 1}
    assert (many["devices"], many["mesh"]) == (8, {"policy": 4, "data": 1, "model": 2})
    assert many["policies_per_chunk"] == 8
    share = base_share(GEMMA, 2)  # 0.504: one key head cannot be halved
    assert many["memory_bytes"]["base"] == pytest.approx(one["memory_bytes"]["base"] * share, rel=1e-12)
    assert many["memory_bytes"]["adapters_and_optimiser"] == one["memory_bytes"]["adapters_and_optimiser"] / 4
    assert one["hours"] / 8 < many["hours"] < one["hours"] / 2
