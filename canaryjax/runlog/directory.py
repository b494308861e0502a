"""The run directory: whole files appear at once or not at all, rows are appended, and a run can be taken up again."""

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from canaryjax.errors import UserError
from canaryjax.runlog.files import cut_half_line, encode, read_json, read_jsonl, replacing

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes in one directory are then not noticed
    fcntl = None  # type: ignore[assignment]

CONFIG_FILE, RUN_FILE, OPENING_FILE = "config.yaml", "run.json", "opening.json"
OPENING = {CONFIG_FILE, RUN_FILE, OPENING_FILE}  # written before anything is trained
RUNS = Path("runs")
_held: dict[Path, int] = {}  # directories that this process holds, by resolved path


class RunDirectory:
    """One run's directory, held by one process.

    Make it with `create` or `resume`. Attributes: `path`, `resumed`.
    """

    def __init__(self, path: Path, resumed: bool) -> None:
        self.path, self.resumed = path, resumed
        self._appending = threading.Lock()
        _lock(path)

    @classmethod
    def create(cls, out: str | Path | None, config_name: str, config_hash: str, config_yaml: str) -> "RunDirectory":
        """Makes a fresh run directory and writes its config first.

        Args:
          out: Where; None gives `runs/<config name>-<short hash>-<n>` with the first free n.
          config_name: The config's `name`.
          config_hash: Hex digest of the resolved config.
          config_yaml: The resolved config, every value.

        Raises:
          UserError: The directory holds anything already, or cannot be written.
        """
        path = _numbered(f"{config_name}-{config_hash[:8]}") if out is None else _empty(Path(out))
        run = cls(path, resumed=False)
        run.write_json(RUN_FILE, {"schema": "canaryjax.run/1", "name": config_name, "config_hash": config_hash})
        run.write_text(CONFIG_FILE, config_yaml)
        return run

    @classmethod
    def resume(cls, out: str | Path, config_hash: str, config_yaml: str | None = None) -> "RunDirectory":
        """Takes up an unfinished run; a half-written last line of a `*.jsonl` file is cut off.

        Args:
          out: The run directory.
          config_hash: Hex digest of the config that is asked for now.
          config_yaml: The same config as YAML, so that an error can name what differs.

        Raises:
          UserError: No run there, another process writes to it, or it was begun with another config.
        """
        path = Path(out)
        if not (path / RUN_FILE).is_file():
            found = f"no {RUN_FILE} there" if path.is_dir() else "no such directory"
            raise UserError(f"expected a run to resume in {path}, found {found}; check --out, or leave out --resume")
        run = cls(path, resumed=True)
        opening = run.read_json(RUN_FILE)
        if not isinstance(opening, dict):
            raise UserError(
                f"expected an object in {path / RUN_FILE}, found {type(opening).__name__}; give another --out"
            )
        found = opening.get("config_hash")
        if found != config_hash:
            keys = _differing(_read_yaml(path / CONFIG_FILE), yaml.safe_load(config_yaml) if config_yaml else {})
            raise UserError(
                f"expected the config that {path} was begun with ({str(found)[:8]}), found {config_hash[:8]}; "
                f"{'differing keys: ' + ', '.join(keys) + '; ' if keys and config_yaml else ''}"
                "give the same config to resume, or another --out"
            )
        for log in sorted(path.glob("*.jsonl")):
            cut_half_line(log)
        for temporary in path.rglob(".*.tmp"):
            temporary.unlink(missing_ok=True)
        return run

    def discard_unused(self) -> None:
        """Takes the directory away again if it was made here and holds nothing but what says which run it is.

        A mistake that is found before any training then leaves nothing behind that would refuse the corrected run.
        """
        if self.resumed or not {entry.name for entry in self.path.iterdir()} <= OPENING:
            return
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Lets another process have the directory."""
        descriptor = _held.pop(self.path.resolve(), None)
        if descriptor is not None:
            os.close(descriptor)

    def file(self, name: str) -> Path:
        """The path of a file in the run, its folder made."""
        path = self.path / name
        with self._telling():
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Writes a whole file: afterwards it is there complete, or (full disk, kill) as it was before."""
        path = self.file(name)
        with self._telling(), replacing(path) as handle:
            handle.write(data)
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Writes a whole UTF-8 text file, as `write_bytes`."""
        return self.write_bytes(name, text.encode("utf-8", "backslashreplace"))

    def write_json(self, name: str, value: Any) -> list[str]:
        """Writes a whole JSON file, as `write_bytes`; returns where numbers were not finite (written as null)."""
        data, lost = encode(value, indent=1)
        self.write_bytes(name, data + b"\n")
        return lost

    def append_jsonl(self, name: str, row: Mapping[str, Any]) -> list[str]:
        """Adds one flushed line; returns where numbers were not finite (null in the row, listed as `non_finite`)."""
        data, lost = encode(row)
        path = self.file(name)
        # One row at a time: after a failed write the file is cut back to where the row began.
        with self._appending, self._telling(), path.open("ab", buffering=0) as handle:
            before = handle.tell()
            try:
                rest = memoryview(data + b"\n")
                while rest:  # a raw write may take only a part, at a nearly full disk for one
                    rest = rest[handle.write(rest) :]
            except OSError:
                handle.truncate(before)
                raise
        return lost

    def read_jsonl(self, name: str) -> list[dict[str, Any]]:
        """The rows of a log, [] where there is none; a malformed line is a `UserError` that names file and line."""
        return read_jsonl(self.path / name)

    def read_json(self, name: str) -> Any:
        """A JSON file of the run; a missing or malformed one is a `UserError` that names it."""
        return read_json(self.path / name)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _storage_error(self.path, error) from error


def _storage_error(path: Path, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(
            f"expected room on the disk of {path}, found it full; free some, then give --resume --out {path}"
        )
    return UserError(f"expected to write in {path}; {error.strerror or error}; choose another --out")


def _numbered(stem: str) -> Path:
    for number in range(1, 100_000):
        path = RUNS / f"{stem}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise _storage_error(path, error) from error
    raise UserError(f"expected a free number for {RUNS / stem}, found none; clear old runs or give --out")


def _empty(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise _storage_error(path, error) from error
    if names:
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        what = "another run" if RUN_FILE in names else "other files"
        finished = "report.json" in names
        advice = (
            "give another --out" if finished or what != "another run" else "give --resume to go on, or another --out"
        )
        raise UserError(f"expected {path} to be new or empty, found {what} ({shown}); {advice}")
    return path


def _lock(path: Path) -> None:
    """Takes the directory for this process; freed by the system when the process ends, however it ends."""
    key = path.resolve()
    if fcntl is None or key in _held:
        return
    descriptor = os.open(key, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"expected {path} to be free, found another process writing to it; wait, or stop it") from None
    except OSError:  # a file system without locks
        os.close(descriptor)
    else:
        _held[key] = descriptor


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError):
        return {}


def _differing(old: Any, new: Any, prefix: str = "") -> list[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [prefix]
    keys = list(old) + [key for key in new if key not in old]
    return [
        found
        for key in keys
        for found in _differing(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
    ]
