"""What TensorBoard, Weights & Biases and trackio need to be called with; each library is imported only when asked for.

Only numbers leave the run: no config, no text, nothing about the machine.
"""

import contextlib
import contextvars
import importlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from canaryjax.errors import UserError

MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}  # by extra
PROJECT = "canaryjax"  # where the user's environment names none
FLUSH_SECONDS = 10  # a kill loses what TensorBoard's file has not been given; a resumed run writes it anew
QUIET = {  # of W&B's settings, those that its version has
    "console": "off",
    "silent": True,
    "disable_git": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "host": "unnamed",
}


class Place(NamedTuple):
    """Whose rows they are.

    Attributes:
      folder: The run directory.
      token: Names this run among all runs of the world; a resumed run has it again.
    """

    folder: Path
    token: str

    @property
    def name(self) -> str:
        """The run, for people."""
        return f"{self.folder.resolve().name}-{self.token}"


class Tracker(Protocol):
    """Takes numbers: one run a policy, in which a series is `stage/metric` over updates."""

    def add(self, policy: str, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Logs the values of one update."""

    def finish(self, policy: str) -> None:
        """Ends a policy's run, where there is one."""


class TensorBoard:
    """Event files under `tensorboard/` in the run directory, a folder a policy."""

    FOLDER = "tensorboard"

    def __init__(self, place: Place) -> None:
        self._folder = place.folder / self.FOLDER
        self._writers: dict[str, Any] = {}

    def add(self, policy: str, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Adds one scalar a metric."""
        if policy not in self._writers:
            writer = importlib.import_module(MODULES["tensorboard"]).SummaryWriter
            self._writers[policy] = writer(str(self._folder / policy), flush_secs=FLUSH_SECONDS)
        for name, value in values.items():
            self._writers[policy].add_scalar(f"{stage}/{name}", value, step)

    def finish(self, policy: str) -> None:
        """Writes what waits, and closes the file."""
        if policy in self._writers:
            self._writers.pop(policy).close()


class Wandb:
    """Runs in one group of the project that WANDB_PROJECT names; local files under `wandb/` in the run directory."""

    def __init__(self, place: Place) -> None:
        self._place, self._runs = place, {}  # type: tuple[Place, dict[str, Any]]
        self._stages: set[tuple[str, str]] = set()

    def add(self, policy: str, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Logs one row over an axis of the stage's own: stages count their updates from 0 each."""
        axis = f"{stage}/step"
        if policy not in self._runs:
            self._runs[policy] = self._begin(policy)
        if (policy, stage) not in self._stages:
            self._stages.add((policy, stage))
            self._runs[policy].define_metric(axis, hidden=True)
            self._runs[policy].define_metric(f"{stage}/*", step_metric=axis)
        self._runs[policy].log({axis: step} | {f"{stage}/{name}": value for name, value in values.items()})

    def finish(self, policy: str) -> None:
        """Sends what waits."""
        if policy in self._runs:
            self._runs.pop(policy).finish()

    def _begin(self, policy: str) -> Any:
        wandb = importlib.import_module(MODULES["wandb"])
        quiet = {name: value for name, value in QUIET.items() if name in wandb.Settings.model_fields}
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=self._place.name,
            name=policy,
            id=f"{self._place.token}-{policy}",
            resume="allow",
            reinit="create_new",  # policies are trained side by side
            dir=str(self._place.folder),
            settings=wandb.Settings(**quiet),
        )


class Trackio:
    """Runs in one group of the project `canaryjax`, where trackio keeps its own: TRACKIO_DIR, or a Space."""

    def __init__(self, place: Place) -> None:
        self._place, self._runs = place, {}  # type: tuple[Place, dict[str, Any]]

    def add(self, policy: str, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Logs one row at its update."""
        if policy not in self._runs:
            # In a context of its own: trackio ends the run that a context had before.
            self._runs[policy] = contextvars.Context().run(self._begin, policy)
        self._runs[policy].log({f"{stage}/{name}": value for name, value in values.items()}, step=step)

    def finish(self, policy: str) -> None:
        """Writes what waits."""
        if policy in self._runs:
            with contextlib.redirect_stdout(io.StringIO()):
                self._runs.pop(policy).finish()

    def _begin(self, policy: str) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):  # five lines a policy
            return importlib.import_module(MODULES["trackio"]).init(
                project=PROJECT,
                name=f"{self._place.name}-{policy}",
                group=self._place.name,
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )


TRACKERS: dict[str, type[TensorBoard] | type[Wandb] | type[Trackio]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
}


def check_trackers(names: tuple[str, ...]) -> None:
    """Raises UserError where a library of `output.report_to` is missing, or has nobody to send to.

    To be called before anything is trained.
    """
    find_trackers(names)
    if "wandb" in names:
        _check_credentials(importlib.import_module(MODULES["wandb"]))


def find_trackers(names: tuple[str, ...]) -> None:
    """Raises UserError where a library of `output.report_to` is missing; asks no service anything."""
    for name in names:
        try:
            importlib.import_module(MODULES[name])
        except ImportError as error:
            raise UserError(
                f"expected the package {MODULES[name]} for output.report_to={name}, found none ({error}); install it "
                f"with: .venv/bin/python -m pip install -e '.[{name}]'"
            ) from error
        except Exception as error:  # a library that does not suit one of its own, for one
            raise UserError(
                f"expected the package {MODULES[name]} for output.report_to={name} to load, found {_told(error)}; "
                "mend its installation, or leave it out"
            ) from error


def _check_credentials(wandb: Any) -> None:
    """W&B asks for its key in a terminal, and fails elsewhere: better now than behind the warm start."""
    try:
        if wandb.setup().settings.mode in ("offline", "disabled", "dryrun"):
            return
        known, why = wandb.login(), "no credentials"
    except Exception as error:  # what it raises changes from version to version
        known, why = False, _told(error)
    if not known:
        raise UserError(
            f"expected credentials for output.report_to=wandb, found: {why}; run `wandb login`, set WANDB_API_KEY, or "
            "set WANDB_MODE=offline to keep its files in the run directory"
        )


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
