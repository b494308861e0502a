"""Eight simulated devices give what one device gives, whatever the mesh splits."""

import re

import numpy as np
import pytest

pytestmark = pytest.mark.slow
ALL = ["scores", "head", "policies", "reward_models"]
MESHES = {
    "policy": {"policy": 4},
    "data": {"data": 2},
    "model": {"model": 2},
    "all three": {"policy": 2, "data": 2, "model": 2},
}
CASES = [
    ["whole", {}, ALL],
    ["odd", {}, ["scores", "policies"]],
    ["whole", MESHES["policy"], [*ALL, "collectives"]],
    ["whole", MESHES["data"], ALL],
    ["whole", MESHES["model"], ALL],
    ["whole", MESHES["all three"], [*ALL, "collectives"]],
    # Key heads, vocabulary, feed-forward width and rows that two devices cannot share: whole on each.
    ["odd", MESHES["all three"], ["scores", "policies"]],
]
NUMBERS = {name: 2 + index for index, name in enumerate(MESHES)}


@pytest.fixture(scope="module")
def found(programs, simulated, tmp_path_factory):
    out = tmp_path_factory.mktemp("devices") / "found.npz"
    programs.finish([programs.start(simulated(8), out, CASES)], 900)
    return programs.Found(out)


@pytest.fixture(params=MESHES)
def pair(request, found):
    """What one mesh found, and what one device did."""
    return found[NUMBERS[request.param]], found[0]


@pytest.mark.parametrize("what", ["scores", "alone", "base", "head", "policy", "reward", "heldout_loss"])
def test_a_mesh_gives_what_one_device_gives(programs, pair, what):
    assert programs.largest_difference(*pair, what) < programs.tolerance


def test_a_mesh_samples_what_one_device_samples(pair):
    on_mesh, on_one = pair
    assert np.array_equal(on_mesh["ids"], on_one["ids"])
    assert len(np.unique(on_one["ids"])) > 10  # not all ended, nor all alike


def test_parts_that_devices_cannot_share_are_whole_on_each(programs, found):
    on_mesh, on_one = found[6], found[1]
    assert np.array_equal(on_mesh["ids"], on_one["ids"])
    for what in ("scores", "alone", "base", "policy"):
        assert programs.largest_difference(on_mesh, on_one, what) < programs.tolerance


def test_policies_apart_tell_each_other_only_whether_all_are_done(found):
    # An array that the map over policies moved in front, or a custom rule that forgot it, shows as a gathered adapter.
    assert found[NUMBERS["policy"]]["step"].tolist() == ["all-reduce pred[]"]
    assert found[NUMBERS["policy"]]["over head"].tolist() == []


def test_no_device_is_sent_kernels_or_policies_of_another(found):
    on_mesh = found[NUMBERS["all three"]]
    step = on_mesh["step"].tolist()
    assert {line.split()[0] for line in step} == {"all-reduce", "all-to-all"}
    # What changes places is a rollout, `[device, policies, pass, rows, ...]`: passes are cut out of what devices hold.
    moved = {shape for line in step if line.startswith("all-to-all") for shape in re.findall(r"\[([\d,]+)\]", line)}
    assert moved == {"1,2,1,1,7", "1,2,1,1,5", "1,2,1,1,5,3"}
    # Cut in chunks of the whole table, each of the head's chunks would be sent to all.
    assert {line.split()[0] for line in on_mesh["over head"].tolist()} == {"all-reduce"}
