"""The trained adapters of a run, each with a digest: one that is not whole is trained again."""

import shutil
from pathlib import Path

from canaryjax.errors import UserError
from canaryjax.models.lora import Adapter
from canaryjax.runlog import Progress, file_digests
from canaryjax.runlog.directory import RunDirectory
from canaryjax.weights.checkpoint import LoadedModel
from canaryjax.weights.peft import load_adapter, save_adapter

FOLDER = "adapters"


class AdapterStore:
    """Adapters by name under `adapters/` of a run, for one base."""

    def __init__(self, run: RunDirectory, model: LoadedModel, base: str, progress: Progress) -> None:
        """Takes the run, the base and its path, and who is told of an adapter that is left out."""
        self._run, self._model, self._base, self._progress = run, model, base, progress

    def get(self, name: str) -> Adapter | None:
        """The adapter of a name, or None where there is none or it is not as it was kept."""
        folder = self._run.path / FOLDER / name
        if not folder.is_dir():
            return None
        try:
            kept = self._run.read_sealed(_seal(name), "")
            if kept["files"] != _files(folder):
                raise UserError("its files are not those that were written")
            return load_adapter(self._model, folder)
        except (UserError, OSError) as error:
            self._progress.note(f"the adapter {folder} is damaged and trained again: {str(error).rstrip('; ')[:200]}")
            return None

    def keep(self, adapter: Adapter, name: str) -> None:
        """Writes an adapter, in the place of one that was left out."""
        with self._run.telling():
            folder = self._run.file(f"{FOLDER}/{name}")
            if folder.is_dir():
                shutil.rmtree(folder)
            save_adapter(adapter, folder, self._base)
            files = _files(folder)
        self._run.write_sealed(_seal(name), {"files": files})


def _seal(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _files(folder: Path) -> dict[str, str]:
    return file_digests(sorted(folder.iterdir()))
