"""Directories that are written whole: where they may be, and who may read them."""

import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from canaryjax.errors import UserError
from canaryjax.weights.atomic import new_directory


def fill(path):
    with new_directory(path) as partial:
        save_file({"x": np.zeros(3, np.float32)}, partial / "x.safetensors")
        (partial / "y.json").write_text("{}")


@pytest.mark.parametrize("mask", [0o027, 0o002, 0o077])
def test_the_permissions_are_those_of_any_new_file(tmp_path, mask):
    # safetensors makes files that no one else may read, and a temporary directory is nobody else's.
    before = os.umask(mask)
    try:
        fill(tmp_path / "out")
    finally:
        os.umask(before)
    out = tmp_path / "out"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (out, *out.iterdir())}
    assert modes == {"out": 0o777 & ~mask, "x.safetensors": 0o666 & ~mask, "y.json": 0o666 & ~mask}


@pytest.mark.parametrize("name", ["file/out", "file/deep/out", "n" * 300, "a\0b", "\ud800", "loop", "/proc/out"])
def test_a_place_that_the_system_refuses_is_the_users_mistake(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match=r"^expected room and access to write '.*, found: .*choose another p") as caught:
        fill(tmp_path / name)
    assert isinstance(caught.value.__cause__, OSError)  # which a run takes to say how it goes on
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


def test_what_a_link_points_to_is_made(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        (tmp_path / f"to {name}").symlink_to(name)
        fill(tmp_path / f"to {name}")
        assert (tmp_path / f"to {name}").is_symlink()
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["x.safetensors", "y.json"]
        with pytest.raises(UserError, match="in use"):
            fill(tmp_path / f"to {name}")


@pytest.mark.parametrize("name", ["n" * 255, "\u00e9" * 127])
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path, name):
    fill(tmp_path / name)  # the temporary one beside it is no longer
    assert [path.name for path in tmp_path.iterdir()] == [name]
