"""The run directory: whole files appear at once or not at all, rows are appended, and a run can be taken up again."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from canaryjax.config import OBSERVING, UNREADABLE
from canaryjax.errors import UserError
from canaryjax.runlog.files import cut_half_line, disk_is_full, encode, read_json, read_jsonl, replacing
from canaryjax.runlog.leftover import check_kinds, clear_temporaries
from canaryjax.runlog.seal import read_sealed, sealed

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes in one directory are then not noticed
    fcntl = None  # type: ignore[assignment]

CONFIG_FILE, RUN_FILE, OPENING_FILE = "config.yaml", "run.json", "opening.json"
MANIFEST_FILE = "manifest.json"  # of a probe audit's canaries
SCHEMA = "canaryjax.run/4"
OPENING = {CONFIG_FILE, RUN_FILE, OPENING_FILE, MANIFEST_FILE}  # written before anything is trained
MOST_SECONDS = 1e12  # 30,000 years; a larger whole number may not even be added to
RUNS = Path("runs")
UNBORN = f".{RUN_FILE}.*.tmp"  # all that a process leaves which was killed while it began a run
_held: dict[Path, int] = {}  # directories that this process holds, by resolved path


class RunDirectory:
    """One run's directory, held by one process.

    Make it with `create` or `resume`. Attributes: `path`, `resumed`.
    """

    def __init__(self, path: Path, resumed: bool, made: list[Path]) -> None:
        self.path, self.resumed = path, resumed
        self._made = made  # folders that were made for it, innermost first
        self._about: dict[str, Any] = {}  # what run.json says
        self._appending, self._since = threading.Lock(), time.perf_counter()
        _lock(path)

    @classmethod
    def create(cls, out: str | Path | None, config_name: str, config_hash: str, config_yaml: str) -> "RunDirectory":
        """Makes a fresh run directory and writes its config first.

        Args:
          out: Where; None gives `runs/<config name>-<short hash>-<n>` with the first free n.
          config_name, config_hash: The config's `name`, and the hex digest of the resolved config.
          config_yaml: The resolved config, every value.

        Raises:
          UserError: The directory holds anything already, or cannot be written.
        """
        path, made = _numbered(f"{config_name}-{config_hash[:8]}") if out is None else _empty(Path(out))
        run = cls(path, resumed=False, made=made)
        clear_temporaries(path, UNBORN)
        run._about = {"schema": SCHEMA, "name": config_name, "config_hash": config_hash, "seconds": 0.0}
        run._about["started"] = datetime.now(UTC).isoformat(timespec="seconds")  # of the first call
        run.write_json(RUN_FILE, run._about)
        run.write_text(CONFIG_FILE, config_yaml)
        return run

    @classmethod
    def resume(cls, out: str | Path, config_hash: str, config_yaml: str | None = None) -> "RunDirectory":
        """Takes up an unfinished run; a half-written last line of a `*.jsonl` file is cut off.

        Args:
          out: The run directory.
          config_hash: Hex digest of the config that is asked for now; what only observes (`OBSERVING`) may be another.
          config_yaml: The same config as YAML, so that an error can name what differs; it is kept in place of the old.

        Raises:
          UserError: No run there, another process writes to it, or it was begun with another config.
        """
        path = Path(out)
        if not (path / RUN_FILE).is_file():
            found = f"no {RUN_FILE} there" if path.is_dir() else "no such directory"
            raise UserError(f"expected a run to resume in {path}, found {found}; check --out, or leave out --resume")
        run = cls(path, resumed=True, made=[])
        check_kinds(path)
        run._about = _read_about(path / RUN_FILE)
        old, new = _read_yaml(path / CONFIG_FILE), yaml.safe_load(config_yaml) if config_yaml else None
        found = run._about["config_hash"]
        if found != config_hash:
            keys = [key for key in _differing(old, new) if key and key not in OBSERVING]  # "": one is no mapping
            raise UserError(
                f"expected the config that {path} was begun with ({found[:8]}), found {config_hash[:8]}; "
                f"{'differing keys: ' + ', '.join(keys) + '; ' if keys else ''}"
                "give the same config to resume, or another --out"
            )
        for log in sorted(path.glob("*.jsonl")):
            cut_half_line(log)
        clear_temporaries(path)
        # Lost or damaged, its digest says what it was; or what only observes is another now.
        if config_yaml is not None and old != new:
            run.write_text(CONFIG_FILE, config_yaml)
        return run

    @property
    def begun(self) -> list[str]:
        """Names of what it holds beyond what says which run it is: none before anything is trained."""
        return sorted(e.name for e in self.path.iterdir() if e.name not in OPENING and not e.name.startswith("."))

    def discard_unused(self) -> None:
        """Takes away what was made here, the folder too if it is new, where nothing was begun.

        A mistake that is found before any training then leaves nothing behind that would refuse the corrected run.
        """
        if self.resumed or self.begun:
            return
        self.close()
        for name in OPENING:
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something of others in it
            for folder in self._made:
                folder.rmdir()

    def keep_time(self) -> float:
        """Wall seconds of all calls on this run, kept in it too: a kill loses those since the last time."""
        total = self._about["seconds"] + time.perf_counter() - self._since
        self.write_json(RUN_FILE, self._about | {"seconds": total})
        return total

    def close(self) -> None:
        """Lets another process have the directory."""
        descriptor = _held.pop(self.path.resolve(), None)
        if descriptor is not None:
            os.close(descriptor)

    def file(self, name: str) -> Path:
        """The path of a file in the run, its folder made."""
        path = self.path / name
        with self.telling():
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Writes a whole file: afterwards it is there complete, or (full disk, kill) as it was before."""
        path = self.file(name)
        with self.telling(), replacing(path) as handle:
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

    def write_sealed(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a JSON object that `read_sealed` takes back only whole, under this name and in this run."""
        self.write_json(name, sealed(value, self._about["config_hash"], name))

    def read_sealed(self, name: str, remedy: str) -> dict[str, Any]:
        """What `write_sealed` wrote; a missing, damaged or copied file is a `UserError` that ends with the remedy."""
        return read_sealed(self.path / name, remedy, self._about["config_hash"], name)

    def append_jsonl(self, name: str, row: Mapping[str, Any]) -> list[str]:
        """Adds one flushed line; returns where numbers were not finite (null in the row, listed as `non_finite`)."""
        data, lost = encode(row)
        path = self.file(name)
        # One row at a time: after a failed write the file is cut back to where the row began.
        with self._appending, self.telling(), path.open("ab", buffering=0) as handle:
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
    def telling(self) -> Iterator[None]:
        """Turns what the disk refuses inside the block into a `UserError` that says how the run goes on."""
        try:
            yield
        except OSError as error:
            raise _storage_error(self.path, error) from error
        except UserError as error:
            if isinstance(error.__cause__, OSError):  # a library's writer that has told of its own path
                raise _storage_error(self.path, error.__cause__) from error.__cause__
            raise


def _storage_error(path: Path, error: OSError) -> UserError:
    begun = os.path.isfile(path / RUN_FILE)  # False, not an error, for a name that is too long
    again = f"give --resume --out {path}"
    if disk_is_full(error):
        advice = f"free some, then {again}" if begun else "free some, or choose another --out"
        return UserError(f"expected room on the disk of {path}, found it full; {advice}")
    advice = f"put that right, then {again}" if begun else "choose another --out"
    return UserError(f"expected to write in {path}; {error.strerror or error}; {advice}")


def _read_about(file: Path) -> dict[str, Any]:
    about = read_json(file)
    if not isinstance(about, dict):
        raise UserError(f"expected an object in {file}, found {type(about).__name__}; give another --out")
    if about.get("schema") != SCHEMA:
        raise UserError(
            f"expected a run of this version ({SCHEMA}) in {file}, found {about.get('schema')!r}; finish it with the "
            "version it was begun with, or give another --out"
        )
    seconds = about.get("seconds")
    counted = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < MOST_SECONDS
    if not (counted and isinstance(about.get("config_hash"), str)):
        raise UserError(
            f"expected config_hash and seconds in {file}, found {about!s:.200}; restore it, or give another --out"
        )
    return about


def _numbered(stem: str) -> tuple[Path, list[Path]]:
    for number in range(1, 100_000):
        path = RUNS / f"{stem}-{number}"
        try:
            return path, _make(path, exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise _storage_error(path, error) from error
    raise UserError(f"expected a free number for {RUNS / stem}, found none; clear old runs or give --out")


def _make(path: Path, exist_ok: bool) -> list[Path]:
    """Makes a folder and says which were made, innermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=exist_ok)
    return missing


def _empty(path: Path) -> tuple[Path, list[Path]]:
    try:
        made = _make(path, exist_ok=True)
        names = sorted(entry.name for entry in path.iterdir() if not entry.match(UNBORN))
    except OSError as error:
        raise _storage_error(path, error) from error
    if names:
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        what = "another run" if RUN_FILE in names else "other files"
        resumable = RUN_FILE in names and "report.json" not in names
        advice = "give --resume to go on, or another --out" if resumable else "give another --out"
        raise UserError(f"expected {path} to be new or empty, found {what} ({shown}); {advice}")
    return path, made


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
    except (OSError, *UNREADABLE):  # a tag may make errors of its own
        return None


def _differing(old: Any, new: Any, prefix: str = "") -> list[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [prefix]
    keys = list(old) + [key for key in new if key not in old]
    return [
        found
        for key in keys
        for found in _differing(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
    ]
