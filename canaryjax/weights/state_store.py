"""Step checkpoints on disk, by orbax: the newest whole state of one stage of training, and what it belongs to."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from canaryjax.errors import UserError
from canaryjax.runlog.seal import SEAL, sealed

FORMAT = "canaryjax.checkpoint/1"
State = TypeVar("State")
# Orbax numbers what is under way for the whole process: two saves at a time take each other's folders for made.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Saved(Generic[State]):
    """A checkpoint that was read: steps done, the state as NumPy arrays, and the notes saved with it."""

    step: int
    state: State
    notes: dict[str, Any]


class StateStore:
    """Keeps the newest state of one stage of training under `folder`, as `<step>/state` and `<step>/about`.

    A state is written by a thread while training goes on, under a temporary name that orbax changes when all is there:
    whatever a kill leaves half written has no number for a name and is never read.
    """

    def __init__(self, folder: Path, belongs: Mapping[str, str]) -> None:
        """Takes the folder, made when first written to, and what its states belong to: only such are read again."""
        self._folder = folder.resolve()  # orbax wants absolute paths
        self._belongs = {"format": FORMAT, **belongs}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, step: int, state: Any, notes: Mapping[str, Any]) -> None:
        """Begins to write a state; it takes the place of the older one once it is whole.

        Args:
          step: Steps done.
          state: Any pytree of NumPy arrays of at least one value each; not to be changed afterwards.
          notes: What JSON can hold; not to be changed afterwards.

        Raises:
          UserError: The state before could not be written.
        """
        self.wait()
        self._pending = self._writer.submit(self._write, step, _leaves(state), dict(notes))

    def newest(self, form: State, tell: Callable[[str], None]) -> Saved[State] | None:
        """The newest whole state, or None where there is none.

        Args:
          form: A state like the one to be read: its structure, and the shape and type of each array.
          tell: Called with a line about a checkpoint that is damaged and left out.

        Raises:
          UserError: It belongs to another config, version or stage, or holds other arrays; the message says which.
        """
        self.wait()
        for step in sorted(self._steps(), reverse=True):
            path = self._folder / str(step)
            try:
                about = _unsealed(_read(path, "about", None), step)
                self._check(path, about, form)
                leaves = _read(path, "state", _leaves(form))
                if _digest(leaves) != about["arrays_sha256"]:
                    raise ValueError("its arrays are not those that were written")
            except UserError:
                raise
            except (ValueError, OSError, KeyError) as error:  # what orbax raises for files that are cut off or gone
                tell(f"the step checkpoint {path} is damaged and left out: {' '.join(str(error).split())[:200]}")
                continue
            state = jax.tree.unflatten(jax.tree.structure(form), [leaves[name] for name in _leaves(form)])
            return Saved(step, state, about["notes"])
        return None

    def wait(self) -> None:
        """Waits for what is being written, and raises what went wrong with it."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """As `wait`, for good."""
        self._writer.shutdown()
        self.wait()

    def _steps(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return [int(entry.name) for entry in self._folder.iterdir() if entry.name.isdecimal() and entry.is_dir()]

    def _write(self, step: int, leaves: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
        import orbax.checkpoint as ocp

        shapes = {name: _shape(x) for name, x in leaves.items()}
        about = {"belongs": self._belongs, "arrays": shapes, "arrays_sha256": _digest(leaves), "notes": notes}
        about_args = ocp.args.JsonSave(sealed(about, str(step)))
        saved = ocp.args.Composite(state=ocp.args.PyTreeSave(leaves), about=about_args)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time, ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
                # `force`: a stage that is trained again, since a checkpoint was damaged, comes by the same numbers.
                checkpointer.save(self._folder / str(step), args=saved, force=True)
            self._clear(keep={str(step)})
        except (OSError, ValueError) as error:  # the latter from below orbax, for a full disk too
            raise UserError(
                f"expected room and access to write the step checkpoints in {self._folder}, found: {error}; make room, "
                "then give --resume, or set checkpoint_every to 0"
            ) from error

    def _clear(self, keep: set[str]) -> None:
        for entry in self._folder.iterdir():
            if entry.name not in keep:
                shutil.rmtree(entry, ignore_errors=True)

    def _check(self, path: Path, about: dict[str, Any], form: Any) -> None:
        remedy = f"take {path.parent} away to train that from its beginning, or go on with what it belongs to"
        found = about["belongs"]
        for name, wanted in self._belongs.items():
            if found.get(name) != wanted:
                raise UserError(
                    f"expected the step checkpoint {path} of {name} {wanted}, found {name} {found.get(name)}; {remedy}"
                )
        wanted_shapes, shapes = {name: _shape(x) for name, x in _leaves(form).items()}, about["arrays"]
        for name in [*wanted_shapes, *shapes]:
            wanted, there = wanted_shapes.get(name, "no such array"), shapes.get(name, "no such array")
            if wanted != there:
                raise UserError(
                    f"expected {name} in the step checkpoint {path} to be {wanted}, found {there}: it is of another "
                    f"model or another version; {remedy}"
                )


def _leaves(tree: Any) -> dict[str, Any]:
    """The arrays of a pytree by name, in its own order; kept flat, since orbax knows fewer kinds of node than JAX."""
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in jax.tree.leaves_with_path(tree)}


def _digest(leaves: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(leaves):
        digest.update(f"{name} {_shape(leaves[name])}".encode())
        digest.update(np.ascontiguousarray(leaves[name]).tobytes())
    return digest.hexdigest()


def _unsealed(about: dict[str, Any], step: int) -> dict[str, Any]:
    """What was sealed as of a step; ValueError where it is no longer that."""
    seal = about.pop(SEAL)
    if sealed(about, str(step))[SEAL] != seal:
        raise ValueError("it was changed, or is a copy of another")
    return about


def _shape(x: Any) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def _read(path: Path, item: str, form: dict[str, Any] | None) -> Any:
    """One item of a checkpoint: JSON, or arrays of the given form as NumPy arrays whatever they were saved from."""
    import orbax.checkpoint as ocp

    args: Any
    if form is None:
        args = ocp.args.JsonRestore()
    else:
        kinds = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in form}
        args = ocp.args.PyTreeRestore(form, restore_args=kinds)
    with _one_at_a_time, ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(path, args=ocp.args.Composite(**{item: args}))[item]
