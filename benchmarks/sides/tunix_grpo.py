"""Tunix's GRPO learner, run by a Python of its own: its pins and ours cannot be installed together."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from harness.agreement import Answers
from harness.model import as_text
from sides.grpo_case import GrpoCase

WORKER = Path(__file__).with_name("tunix_worker.py")
# glibc's settings as the product makes them for itself: big buffers are kept instead of handed back at each step.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000", "MALLOC_TOP_PAD_": "200000000"}
SMALL = 2**31  # bytes of attention scores that a whole backward pass may keep; it makes several arrays of them


def tunix_python() -> Path:
    """The Python that has Tunix: `TUNIX_PYTHON`, or that of `.venv-tunix` beside the package."""
    usual = Path(__file__).resolve().parents[2] / ".venv-tunix" / "bin" / "python"
    return Path(os.environ.get("TUNIX_PYTHON") or usual)


class TunixGrpo:
    """One policy that is trained on one prompt, over and over, in another process."""

    def __init__(self, case: GrpoCase) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        (folder / "case.json").write_text(json.dumps(_stated(case)))
        np.savez(
            folder / "batch.npz",
            context=case.context,
            completions=case.completions,
            mask=case.mask,
            advantages=case.advantages,
        )
        self.log = (folder / "log.txt").open("w+")
        self.process = subprocess.Popen(
            [tunix_python(), WORKER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | KEEP_MEMORY,
        )

    def seconds(self) -> float:
        """A whole step of the learner's loop."""
        return float(self._ask("seconds"))

    def answers(self) -> Answers:
        """As ours: the learner's reference pass and its loss on the batch."""
        file = Path(self.folder.name) / "answers.npz"
        self._ask(f"answers {file}")
        found = dict(np.load(file))
        return {
            "reference_logps": found.pop("reference_logps"),
            "loss": float(found.pop("loss")),
            "gradients": found,
        }

    def _ask(self, command: str):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(command, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"tunix stopped without an answer; it said: {self.log.read()[-2000:]}")
        return json.loads(line)


def _stated(case: GrpoCase) -> dict:
    """What the worker needs to know, as plain values."""
    ours, config, shape = case.settings, case.shape.config(), case.shape
    scores = 4 * shape.layers * shape.group * shape.heads * (shape.context + shape.completion) ** 2
    return shape.record() | {
        "model": str(case.model),
        "adapter": str(case.adapter),
        "tokenizer": str(case.tokenizer),
        "prompt": as_text(case.context),
        "rope_theta": config.rope_theta,
        "norm_eps": config.norm_eps,
        "alpha": ours.adapter.alpha,
        "beta": ours.kl_coefficient,
        "epsilon": ours.clip_low,
        "learning_rate": ours.optimizer.learning_rate,
        "weight_decay": ours.optimizer.weight_decay,
        "max_grad_norm": ours.optimizer.max_grad_norm,
        "remat": scores > SMALL,
    }
