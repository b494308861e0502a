"""`canaryjax detector demo`: the end-to-end proof on this machine, from word lists to two reports."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.detector.targets import Site

CONFIG = "detector_demo"
MODELS = {"planted": True, "clean": False}  # whether it reads the planted sentences
SEED = 0  # of word lists and corpus; secrets and deal are new each time
BATCH = 16  # answers that the server draws at once


def demo(
    out: Annotated[Path, typer.Option(help="New directory.")] = Path("runs/detector_demo"),
) -> None:
    """Trains two small models, on a corpus with planted sentences and without, serves and asks both, reports."""
    from canaryjax.config.detector_file import load_detector_config
    from canaryjax.detector.demo.site import make_dealt_site
    from canaryjax.detector.targets import make_targets

    if out.exists():
        raise UserError(f"expected a new directory, found {out}; give another --out")
    start = time.monotonic()
    out.mkdir(parents=True)
    folder, secrets = out / "site", out / "secrets"
    make_dealt_site(folder, secrets, SEED)
    here = [f"site.folder={folder.resolve()}", f"site.secrets={secrets.resolve()}"]
    site = make_targets(load_detector_config(CONFIG, here))
    for name, published in MODELS.items():
        _train(site, published, out / "models" / name)
    print(f"two models trained, {time.monotonic() - start:.0f} s since the start", flush=True)
    for name in MODELS:
        _probe(out, name, here)
    print(f"the whole demo took {time.monotonic() - start:.0f} s; reports: {', '.join(str(out / n) for n in MODELS)}")


def _train(site: "Site", published: bool, folder: Path) -> None:
    from rich.console import Console

    import canaryjax as cj
    from canaryjax.cli.progress import watching
    from canaryjax.detector.demo.corpus import make_corpus
    from canaryjax.detector.demo.export import save_demo_model
    from canaryjax.detector.demo.training import Recipe, make_batches, train_on

    recipe = Recipe()
    batches = make_batches(make_corpus(site, published, SEED), recipe)
    with watching(Console(stderr=True), unit="steps") as progress:
        progress.stage(f"training {folder.name}", total=batches.shape[0] * batches.shape[1])

        def report(steps: int, loss: float) -> None:
            progress.advance(steps, detail=f"loss {loss:.3f}")

        model = train_on(cj.load_model("embedded"), batches, recipe, report)
    save_demo_model(model, folder)


def _probe(out: Path, name: str, here: list[str]) -> None:
    from canaryjax.cli.detector_probe import probe
    from canaryjax.detector.demo.serving import serving

    with serving(out / "models" / name, out / f"{name}.log", BATCH) as address:
        words = [CONFIG, *here, f"name={name}", f"model.base_url={address}", f"model.name={name}"]
        probe(words, out=out / name, resume=False, plan=False, yes=True)
