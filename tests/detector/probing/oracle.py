"""A backend that knows some sentences by heart, and the site that it is asked about; a program for a run to be killed.

It answers as a real one does, request by request, and writes down each key that it was asked.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from canaryjax.config.detector import DetectorConfig
from canaryjax.detector.call import make_calls
from canaryjax.detector.design import Sizes
from canaryjax.detector.manifest import make_manifest, write_manifest
from canaryjax.detector.question import sentence_of
from canaryjax.detector.records import Failure, Reply
from canaryjax.detector.secret import make_secrets, read_secrets
from canaryjax.detector.shapes import read_shapes
from canaryjax.detector.targets import make_targets
from canaryjax.detector.throwaway import make_site_lists
from canaryjax.detector.vocabulary import read_vocabulary

SIZES = Sizes(site=3, linked=2, sitemap=2, honeypot=2, per_rung=2, negatives=7)
LABEL = "oracle"


def make_site(root: Path, seed: int = 11) -> None:
    """A throw-away site below a folder: `site` and `keys`."""
    make_site_lists(root / "site", seed)
    make_secrets(root / "keys")
    secrets, shapes = read_secrets(root / "keys"), read_shapes(root / "site" / "shapes.yaml")
    vocabulary = read_vocabulary(root / "site")
    manifest = make_manifest(secrets, vocabulary, shapes, SIZES, bytes(range(32)), "2031-03-05T07:11:13Z", True)
    write_manifest(root / "site", manifest)


def make_config(root: Path, **sections) -> DetectorConfig:
    """A small run's config; sections `site`, `probing`, ... change it."""
    values = {
        "site": {"folder": str(root / "site"), "secrets": str(root / "keys")},
        "model": {"path": "/nowhere"},
        "probing": {"negatives": 5, "positives": 3, "seed": 23},
        "evidence": {"permutations": 999},
    }
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return DetectorConfig.model_validate(values)


@dataclass
class Oracle:
    """Knows the sentences of the targets in `known` word by word, and of the others nothing.

    Attributes:
      known: Keys of targets.
      failing: Keys of requests that have no answer.
      stop_after: Ends with KeyboardInterrupt after so many answers.
      diary: File that gets a line for each request, before its answer.
      delay: Seconds before each answer.
      spent: At first; each request, answered or not, costs a quarter.
    """

    config: DetectorConfig
    site: object
    known: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    stop_after: int | None = None
    diary: Path | None = None
    delay: float = 0.0
    spent: float = 0.0
    label: str = LABEL
    asked: list[str] = field(default_factory=list)

    def answers(self, requests):
        calls = {call.request.key: call for call in make_calls(self.config, self.site, self.label)}
        for number, request in enumerate(requests):
            if number == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(request.key)
            self.spent += 0.25
            if self.diary is not None:
                with self.diary.open("a") as file:
                    file.write(request.key + "\n")
            time.sleep(self.delay)
            if request.key in self.failing:
                yield Failure(request.key, "status 503")
                continue
            target = calls[request.key].target
            text = sentence_of(target, self.site) if target.key in self.known else "I don't know."
            yield Reply(request.key, text, "stop", 31, 17)

    def token_logps(self, texts):
        # Longer sentences look likelier: any rule that is a function of the text will do.
        return [-np.arange(1.0, 8.0) / len(text) for text in texts]


def main(root: Path, out: Path, delay: float) -> None:
    """Runs on a site until it is killed, or to its end."""
    from canaryjax.detector.run import open_run, run_probes
    from canaryjax.runlog.progress import Silence

    config = make_config(root)
    site = make_targets(config)
    known = frozenset(target.key for target in site.targets if target.occurrences == 300)
    backend = Oracle(config, site, known, diary=root / "diary", delay=delay)
    run = open_run(config, out, resume=out.exists())
    run_probes(config, site, backend, {}, {}, run, Silence())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
