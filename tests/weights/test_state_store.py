"""Step checkpoints: every bit comes back, only the newest whole one counts, and another study's is refused by name."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from flax import struct

from canaryjax.errors import UserError
from canaryjax.weights.state_store import StateStore

BELONGS = {"canaryjax": "0.1.0", "config": "abc", "chunk": "trial 4", "stage": "policies"}
NOTES = {"rows": [{"loss": 0.1 + 0.2, "kl": None, "valid": True, "stage": "grpö"}], "seconds": 1e-7}


@struct.dataclass
class Part:
    """A node that orbax does not know, with a value that is no array."""

    weights: dict[str, np.ndarray]
    stopping: object
    scale: float = struct.field(pytree_node=False, default=2.0)


def state(seed=0):
    rng = np.random.default_rng(seed)
    odd = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    odd[:1].view(np.uint32)[0] = 0x7FC12345  # a NaN that says more than that it is one
    return (
        Part({"a": rng.normal(size=(3, 41, 7)).astype(np.float32), "odd": odd}, None),
        Part({"zero": np.full((2, 5), -0.0, np.float32)}, {"lowest": np.array([np.inf, 0.1 + 0.2])}),
        (np.arange(3, dtype=np.int32), np.array([True, False]), np.array(7)),
    )


def bits(tree):
    import jax

    return [(x.dtype, x.shape, x.tobytes()) for x in jax.tree.leaves(tree)]


def silent(text):
    raise AssertionError(f"expected nothing to be said, found {text!r}")


@pytest.fixture
def store(tmp_path):
    store = StateStore(tmp_path / "policies", BELONGS)
    yield store
    store.close()


def test_every_bit_comes_back_in_the_form_asked_for(store):
    assert store.newest(state(), silent) is None
    store.save(25, state(), NOTES)
    found = store.newest(state(seed=1), silent)
    assert (found.step, found.notes) == (25, NOTES)
    assert bits(found.state) == bits(state())  # minus zero as zero would be one bit, float64 as float32 half of them
    assert found.state[0].scale == 2.0
    assert found.state[0].stopping is None


def test_the_newest_is_kept_alone(store, tmp_path):
    for step in (5, 10, 105):  # as text, 5 would be the newest
        store.save(step, state(seed=step), NOTES)
    store.wait()
    assert [path.name for path in (tmp_path / "policies").iterdir()] == ["105"]
    assert bits(store.newest(state(), silent).state) == bits(state(seed=105))


def test_of_two_whole_ones_the_newer_counts(store, tmp_path):
    # As a kill leaves them between the new one's last byte and the old one's end.
    store.save(9, state(seed=9), NOTES)
    store.wait()
    shutil.copytree(tmp_path / "policies" / "9", tmp_path / "aside")
    store.save(10, state(seed=10), NOTES)
    store.wait()
    (tmp_path / "aside").rename(tmp_path / "policies" / "9")
    assert store.newest(state(), silent).step == 10


def test_what_a_kill_leaves_half_written_is_not_read(store, tmp_path):
    store.save(9, state(seed=9), NOTES)
    store.wait()
    half = tmp_path / "policies" / "10.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "policies" / "9" / "state", half / "state.orbax-checkpoint-tmp")
    assert store.newest(state(), silent).step == 9
    store.save(10, state(seed=10), NOTES)  # under the name that the half one stands in the way of
    assert bits(store.newest(state(), silent).state) == bits(state(seed=10))
    assert not half.exists()


def cut(file):
    file.write_bytes(b"")


def halve(file):
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


# A read that fails leaves others in flight, which end after their event loop: a line from asyncio, no error of ours.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_one_is_told_of_and_left_out(store, tmp_path):
    store.save(9, state(seed=9), NOTES)
    store.wait()
    other = StateStore(tmp_path / "other", BELONGS)
    other.save(12, state(seed=12), NOTES)
    other.close()
    damaged, told = tmp_path / "policies" / "12", 0
    for file in sorted(path for path in (tmp_path / "other" / "12").rglob("*") if path.is_file()):
        for change in (cut, halve, flip, Path.unlink):
            shutil.copytree(tmp_path / "other" / "12", damaged)
            change(damaged / file.relative_to(tmp_path / "other" / "12"))
            said = []
            found = store.newest(state(), said.append)
            # Some files are not needed to read it. Whatever happens, nothing but a whole state is ever given.
            assert found.step == (9 if said else 12)
            assert bits(found.state) == bits(state(seed=found.step))
            assert found.notes == NOTES
            assert all(f"the step checkpoint {damaged} is damaged and left out" in text for text in said)
            told += len(said)
            shutil.rmtree(damaged)
    assert told >= 16
    shutil.rmtree(tmp_path / "policies" / "9" / "about")
    assert store.newest(state(), lambda text: None) is None


def test_a_copy_under_another_number_is_not_believed(store, tmp_path):
    store.save(9, state(seed=9), NOTES)
    store.wait()
    shutil.copytree(tmp_path / "policies" / "9", tmp_path / "policies" / "12")
    said = []
    assert store.newest(state(), said.append).step == 9
    assert "it was changed, or is a copy of another" in said[0]


def test_stores_of_several_threads_write_side_by_side(tmp_path):
    # As chunks do. Orbax has one count of what is under way: without a lock one save waits for another's folders.
    stores = [StateStore(tmp_path / str(number), BELONGS) for number in range(4)]
    for step in range(1, 8):
        for number, store in enumerate(stores):
            store.save(step, state(seed=number), NOTES)
    for number, store in enumerate(stores):
        found = store.newest(state(), silent)
        assert (found.step, bits(found.state)) == (7, bits(state(seed=number)))
        store.close()


@pytest.mark.parametrize(
    ("name", "other"),
    [("canaryjax", "0.2.0"), ("config", "def"), ("chunk", "trial 5"), ("stage", "updates"), ("format", "x/2")],
)
def test_another_studys_is_refused(store, tmp_path, name, other):
    store.save(9, state(), NOTES)
    store.wait()
    with pytest.raises(UserError) as raised:
        StateStore(tmp_path / "policies", BELONGS | {name: other}).newest(state(), silent)
    mine = {"format": "canaryjax.checkpoint/1", **BELONGS}[name]
    path = tmp_path / "policies" / "9"
    assert str(raised.value).startswith(
        f"expected the step checkpoint {path} of {name} {other}, found {name} {mine}; take {tmp_path / 'policies'} away"
    )


def test_other_arrays_are_named(store):
    def refused(form, pattern):
        with pytest.raises(UserError, match=pattern):
            store.newest(form, silent)

    store.save(9, state(), NOTES)
    first, second, rest = state()
    wider = Part(first.weights | {"a": np.zeros((3, 41, 8), np.float32)}, None)
    refused((wider, second, rest), r"expected 0\.weights\.a .* to be float32\[3,41,8\], found float32\[3,41,7\]")
    halved = Part(second.weights, {"lowest": np.zeros(2, np.float32)})
    refused((first, halved, rest), r"1\.stopping\.lowest .* to be float32\[2\], found float64\[2\]")
    more = Part(first.weights | {"new": np.zeros(1)}, None)
    refused((more, second, rest), r"0\.weights\.new .* to be float64\[1\], found no such array: it is of another model")
    refused((first, second, rest[:2]), r"2\.2 .* to be no such array, found int64\[\]")


def test_a_failed_write_is_the_users_to_mend(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = StateStore(tmp_path / "file" / "policies", BELONGS)
    store.save(9, state(), NOTES)
    with pytest.raises(
        UserError, match=r"room and access to write the step checkpoints in .*set checkpoint_every to 0"
    ):
        store.close()
