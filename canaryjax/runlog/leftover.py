"""What a run directory holds that it should not: half-written things of a killed process, a file for a folder."""

import shutil
from pathlib import Path

from canaryjax.errors import UserError

TEMPORARY = ".*.tmp"  # what `replacing` and `weights.atomic.new_directory` write before it is whole
FOLDERS = {"trials", "data", "figures", "adapters", "warm_start", "checkpoints", "tensorboard", "wandb"}
FILES = {".json", ".jsonl", ".parquet", ".yaml", ".html"}  # suffixes


def clear_temporaries(path: Path, pattern: str = TEMPORARY) -> None:
    """Takes away what killed processes had not finished writing, files and folders, at any depth."""
    for temporary in list(path.rglob(pattern)):
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def check_kinds(path: Path) -> None:
    """Raises UserError where a folder stands for a file of the run or the reverse: hours later it would end the run."""
    for entry in [*path.iterdir(), *(path / "trials").glob("*")]:
        if entry.name in FOLDERS and not entry.is_dir():
            raise UserError(f"expected a folder at {entry}, found a file; move it away")
        if entry.suffix in FILES and entry.is_dir():
            raise UserError(f"expected a file at {entry}, found a folder; move it away")
