"""A probe audit from its config to report.json: plant, tune, read, weigh.

Adapters are kept as soon as they are trained and readings as soon as they are made, so that a run that was stopped goes
on where it was: `scores.jsonl` holds all that the report is made from, in the form in which scores from elsewhere come.
"""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from canaryjax.config.probes import ProbesConfig, RegimeConfig
from canaryjax.config.probes_file import probes_hash, probes_yaml
from canaryjax.errors import UserError
from canaryjax.keys import device_key
from canaryjax.models.lora import Adapter
from canaryjax.models.merge import merge_adapter
from canaryjax.probes.adapter_store import AdapterStore
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.checkpoint import TrainingCheckpoints
from canaryjax.probes.external import read_scores
from canaryjax.probes.findings import analyse
from canaryjax.probes.manifest import manifest_of, pin
from canaryjax.probes.matrix import counterpart, is_merged, make_cells, regime_steps, seeds_of
from canaryjax.probes.noise import matched_noise
from canaryjax.probes.opening import open_audit
from canaryjax.probes.reader import Material, prepare, read_model
from canaryjax.probes.records import Cell
from canaryjax.probes.score_row import score_rows
from canaryjax.probes.training import Tuned, encode_rows, plant, tune, tuning_rows, updates_per_epoch
from canaryjax.runlog.directory import MANIFEST_FILE, RUN_FILE, RunDirectory
from canaryjax.runlog.progress import Progress
from canaryjax.runlog.provenance import provenance
from canaryjax.weights.checkpoint import LoadedModel, load_model

SCHEMA = "canaryjax.probes/1"
REPORT, SCORES = "report.json", "scores.jsonl"


def open_run(config: ProbesConfig, out: Path | None, resume: bool) -> RunDirectory:
    """Makes or takes up a run directory.

    Raises:
      UserError: As `RunDirectory`; a run to resume that is not named.
    """
    if not resume:
        return RunDirectory.create(out, config.name, probes_hash(config), probes_yaml(config))
    if out is None:
        raise UserError("expected --out DIR with --resume, found none; name the run directory to go on with")
    return RunDirectory.resume(out, probes_hash(config), probes_yaml(config))


def load_base(config: ProbesConfig) -> LoadedModel:
    """The model that canaries are planted in.

    Raises:
      UserError: No tokenizer or no end-of-sequence id beside it.
    """
    model = load_model(config.model.path, config.model.dtype)
    if model.tokenizer is None:
        raise UserError(f"expected a tokenizer beside {config.model.path}, found none; canaries are text: add one")
    if not model.eos_ids:
        raise UserError(f"expected an EOS id for {config.model.path}, found none; add generation_config.json")
    return model


def prepare_material(config: ProbesConfig, model: LoadedModel) -> Material:
    """The canaries as the model reads them."""
    assert model.tokenizer is not None
    canaries = make_canaries(config.canaries)
    return prepare(model.tokenizer, canaries, config.canaries, config.reading, config.statistics.seed)


def run_audit(config: ProbesConfig, run: RunDirectory, progress: Progress) -> dict[str, Any]:
    """Trains and reads what is missing in a run, and writes report.json from all that was read.

    Raises:
      UserError: As `load_base` and `prepare_material`; a manifest of other canaries; a canary in the data.
      InvalidScore: Training that ends in numbers that are not finite.
    """
    progress.stage("model and canaries")
    model = load_base(config)
    material = prepare_material(config, model)
    sources = _check_data(config, model, material, progress)
    open_audit(config, run)
    manifest = manifest_of(material.canaries, config.canaries)
    pinned = Path(config.canaries.manifest) if config.canaries.manifest else run.path / MANIFEST_FILE
    state = pin(pinned, manifest)
    cells = make_cells(config)
    adapters = AdapterStore(run, model, config.model.path, progress)
    audit = _Audit(config, run, progress, model, material, cells, adapters)
    done = audit.finished()
    total = sum(len(seeds_of(config, cell)) for cell in cells)
    progress.stage("models", total=total, done=len(done))
    for regime in config.injection.regimes:
        audit.run_regime(regime, done)
    progress.stage("weighing the evidence")
    about = {
        "schema": SCHEMA,
        "name": config.name,
        "run": run.path.name,
        "started": run.read_json(RUN_FILE).get("started"),  # by its first call, whichever this is
        "config_hash": probes_hash(config),
        "environment": provenance(config.model.dtype),
        "model": {
            "name": model.name,
            "family": model.config.family,
            "parameters": int(sum(x.size for x in jax.tree.leaves(model.params))),
            "dtype": config.model.dtype,
            "vocabulary": model.config.vocab_size,
        },
        "manifest": {**{k: manifest[k] for k in ("sha256", "modality", "prefix", "count")}, "state": state},
    }
    report = about | weigh(run.path / SCORES, config)
    report["tuning"] = {"sources": sources}
    report["warnings"] += [_short(row) for row in sources if row["rows"] < row["asked"]]
    report["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    report["timings"] = {"seconds": run.keep_time()}
    run.write_json(REPORT, report)
    return report


def _check_data(
    config: ProbesConfig, model: LoadedModel, material: Material, progress: Progress
) -> list[dict[str, Any]]:
    """Draws and tokenises what models will be tuned on: a mistake in it is told before anything is trained.

    Returns:
      Of each source how many `rows` a model gets, how many were `asked` for, and by steps how many `epochs` they are.
    """
    found = []
    steps = sorted({steps for regime in config.injection.regimes for steps in regime_steps(config, regime)})
    for source in config.tuning.sources:
        drawn = [tuning_rows(config, material.canaries, Tuned(source, seed)) for seed in config.tuning.seeds]
        for own in drawn:
            encode_rows(config, model, own, source.name)
        rows = min(map(len, drawn))
        epochs = {str(number): number / updates_per_epoch(config, rows) for number in steps}
        found.append({"source": source.name, "rows": rows, "asked": config.tuning.examples, "epochs": epochs})
        if rows < config.tuning.examples:
            progress.note(_short(found[-1]))
    return found


def _short(row: dict[str, Any]) -> str:
    return (
        f"Source {row['source']} has {row['rows']:,} rows, fewer than the {row['asked']:,} of tuning.examples: all of "
        "them are taken, and seen more often."
    )


def weigh(scores: Path, config: ProbesConfig) -> dict[str, Any]:
    """The part of a report that scores alone decide, ours or those of others."""
    given = read_scores(scores, config.canaries.owner)
    return analyse(given.tokens, given.canaries, given.cells, given.readings, config)


def weigh_file(scores: Path, config: ProbesConfig, run: RunDirectory) -> dict[str, Any]:
    """Writes the report of a score file from elsewhere: no model is loaded and nothing is trained."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    about: dict[str, Any] = {"schema": SCHEMA, "name": config.name, "run": run.path.name}
    about |= {"started": now, "finished": now, "tuning": None}
    about |= {"config_hash": probes_hash(config), "environment": provenance(), "model": None, "manifest": None}
    report = about | weigh(scores, config) | {"timings": {"seconds": run.keep_time()}}
    if report["merged"] is not None:
        report["merged"]["dtype"] = None  # whoever merged them knows, and no config of ours
    run.write_json(REPORT, report)
    return report


@dataclasses.dataclass
class _Audit:
    """One call on a run: what every part of it needs."""

    config: ProbesConfig
    run: RunDirectory
    progress: Progress
    model: LoadedModel
    material: Material
    cells: tuple[Cell, ...]
    adapters: AdapterStore

    def finished(self) -> set[tuple[str, int]]:
        """Models (cell, seed) that were read whole; rows of one that was not are taken away."""
        rows = self.run.read_jsonl(SCORES)
        read: dict[tuple[str, int], list[Any]] = {(c.name, s): [] for c in self.cells for s in seeds_of(self.config, c)}
        for row in rows:
            read.get(_model_of(row), []).append(row.get("canary"))
        wanted = [canary.index for canary in self.material.canaries]
        whole = {key for key, found in read.items() if found == wanted}  # rows of a model are written in this order
        kept = [row for row in rows if _model_of(row) in whole]
        if len(kept) < len(rows):
            self.run.write_text(SCORES, "".join(f"{json.dumps(row)}\n" for row in kept))
        return whole

    def run_regime(self, regime: RegimeConfig, done: set[tuple[str, int]]) -> None:
        """Plants a regime's canaries, then tunes and reads all models on top of them."""
        own = [cell for cell in self.cells if cell.regime == regime.name]
        if all((cell.name, seed) in done for cell in own for seed in seeds_of(self.config, cell)):
            return
        planted = self._planted(regime)
        for seed in seeds_of(self.config, own[0]):
            self._read(planted, own[0], seed, None, done)
        for steps in regime_steps(self.config, regime):
            of_steps = [cell for cell in own if cell.steps == steps]
            adapters = self._tuned(planted, of_steps, steps)
            for cell in of_steps:
                # A random update imitates another cell's adapter; what was trained carries its own.
                trained = counterpart(own, cell) if cell.kind == "noise" else cell
                assert trained is not None
                for seed in self.config.tuning.seeds:
                    adapter = adapters[trained.name, seed]
                    if cell.kind == "noise":
                        key = device_key(seed, "matched noise", cell.name)
                        adapter = matched_noise(key, adapter, self.config.controls.noise_norm)
                    self._read(planted, cell, seed, adapter, done)

    def _planted(self, regime: RegimeConfig) -> LoadedModel:
        name = f"planted-{regime.name}"
        adapter = self.adapters.get(name)
        if adapter is None:
            states = self._checkpoints(name)
            with closing(states):
                adapter = plant(self.config, self.model, self.material.turns, regime, states.log, states)
            self.adapters.keep(adapter, name)
            shutil.rmtree(states.folder, ignore_errors=True)
        return dataclasses.replace(self.model, params=merge_adapter(self.model.params, adapter)[0])

    def _tuned(self, planted: LoadedModel, cells: Sequence[Cell], steps: int) -> dict[tuple[str, int], Adapter]:
        """Adapters by (name of the trained cell, seed): kept ones, or all of them trained together."""
        sources = {source.name: source for source in self.config.tuning.sources}
        trained = [cell for cell in cells if cell.kind in ("sft", "reexposed")]
        wanted = [(cell, seed) for cell in trained for seed in self.config.tuning.seeds]
        kept = {(cell.name, seed): self.adapters.get(_file_name(cell, seed)) for cell, seed in wanted}
        found = {key: adapter for key, adapter in kept.items() if adapter is not None}
        if len(found) == len(wanted):
            return found
        name = f"tuned-{cells[0].regime}-{steps}"
        group = [Tuned(sources[cell.source], seed, cell.kind == "reexposed") for cell, seed in wanted]
        states = self._checkpoints(name)
        with closing(states):
            canaries = self.material.canaries
            stacked = tune(self.config, self.model, planted.params, canaries, group, steps, states.log, states)
        for place, (cell, seed) in enumerate(wanted):
            adapter = jax.tree.map(lambda x, place=place: x[place], stacked)
            found[cell.name, seed] = adapter
            if kept[cell.name, seed] is None:
                self.adapters.keep(adapter, _file_name(cell, seed))
        shutil.rmtree(states.folder, ignore_errors=True)
        return found

    def _read(
        self, planted: LoadedModel, cell: Cell, seed: int, adapter: Adapter | None, done: set[tuple[str, int]]
    ) -> None:
        if (cell.name, seed) in done:
            return
        merged = self.config.controls.merged_dtype if is_merged(self.config, cell) else None
        reading = read_model(self.material, self.config.reading, planted, adapter, cell.name, seed, merged)
        for row in score_rows(self.material, cell, reading):
            self.run.append_jsonl(SCORES, row)
        self.run.keep_time()
        self.progress.advance(detail=f"{cell.name}, seed {seed}")

    def _checkpoints(self, name: str) -> TrainingCheckpoints:
        every = self.config.tuning.checkpoint_every
        return TrainingCheckpoints(self.run, probes_hash(self.config), name, every, self.progress)


def _model_of(row: dict[str, Any]) -> tuple[str, int]:
    """Which model a row is of; a damaged one is of none."""
    cell, seed = row.get("cell"), row.get("seed")
    return (cell, seed) if isinstance(cell, str) and isinstance(seed, int) else ("", -1)


def _file_name(cell: Cell, seed: int) -> str:
    # By points, which no name of a regime or source holds: by hyphens a-b of c and a of b-c would be one file.
    return f"{cell.name.replace('/', '.')}.seed{seed}"
