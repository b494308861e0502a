"""What a study logs while it trains: metrics and their mirrors, and samples of what the policies write."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from canaryjax.audit.arms import arm_parts
from canaryjax.audit.assignment import Arm
from canaryjax.audit.trial import Trial
from canaryjax.config import AuditConfig
from canaryjax.data.tokens import TextTokenizer
from canaryjax.rl.metrics import Log, plain_number
from canaryjax.rl.samples import Sample, Sampling
from canaryjax.runlog import RunDirectory
from canaryjax.runlog.files import encode
from canaryjax.runlog.mirror import Mirror, mirroring

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
SAMPLED = "sample"  # the stage of rows that go to samples.jsonl
PROMPT_TAIL = 400  # characters


class StudyLog:
    """Where the rows of a study's training go, by their stage; called from several threads."""

    def __init__(self, run_dir: RunDirectory, mirror: Mirror) -> None:
        """Takes where files are, and where metrics go besides."""
        self._run_dir, self._mirror = run_dir, mirror

    def __call__(self, row: dict) -> None:
        """Keeps a row; nothing is mirrored that is not in the run already, and samples never leave it."""
        if row["stage"] == SAMPLED:
            self._run_dir.append_jsonl(SAMPLES, {name: value for name, value in row.items() if name != "stage"})
            return
        self._run_dir.append_jsonl(METRICS, row)
        self._mirror.add(row)

    def finish(self, trials: Sequence[int | None]) -> None:
        """Ends the mirrors of policies that are trained, None for the base.

        To be called before they are marked as done: a resumed run looks at no mirror of what is.
        """
        self._mirror.finish(trials)


@contextlib.contextmanager
def logging_to(
    run_dir: RunDirectory, names: Sequence[str], again: Sequence[int], warm: bool, tell: Callable[[str], None]
) -> Iterator[StudyLog]:
    """A study's log for the length of the block, without the rows of what is about to be trained again.

    A step would else stand there twice.

    Args:
      run_dir: The run.
      names: Of `output.report_to`.
      again: Trials that are trained from here on.
      warm: Whether the warm start is kept; its rows name no trial.
      tell: Called with a line where a mirror fails.
    """
    before = {name: run_dir.read_jsonl(name) for name in (METRICS, SAMPLES)}
    kept = {name: [row for row in rows if _stays(row, again, warm)] for name, rows in before.items()}
    with mirroring(names, run_dir, before[METRICS], kept[METRICS], tell) as mirror:
        for name, rows in kept.items():
            if len(rows) < len(before[name]):
                write_rows(run_dir, name, rows)
        yield StudyLog(run_dir, mirror)


def _stays(row: dict, again: Sequence[int], warm: bool) -> bool:
    return row["trial"] not in again if "trial" in row else warm


def write_rows(run_dir: RunDirectory, name: str, rows: Sequence[dict]) -> None:
    """Writes a whole JSONL file."""
    run_dir.write_bytes(name, b"".join(encode(row)[0] + b"\n" for row in rows))


class TrainingLog:
    """Passes a chunk's rows on under trial numbers, and keeps what a record sums up."""

    def __init__(self, trials: Sequence[Trial], log: Log, algorithm: str):
        self._trials, self._log, self._algorithm = [trial.trial for trial in trials], log, algorithm
        self.rows: list[list[dict]] = [[] for _ in trials]

    def __call__(self, row: dict) -> None:
        policy = row["policy"]
        if policy >= len(self._trials):  # a copy that fills up the chunk
            return
        self.rows[policy].append(row)
        self._log({"trial": self._trials[policy]} | {k: v for k, v in row.items() if k != "policy"})

    def final(self, policy: int, name: str) -> float | None:
        """Mean of a policy metric over the last quarter of its steps."""
        steps = [row.get(name) for row in self.rows[policy] if row["stage"] == self._algorithm]
        values = [v for v in steps[-max(1, len(steps) // 4) :] if v is not None]
        return float(np.mean(values)) if values else None


def sampling_into(
    log: Log, config: AuditConfig, arm: Arm, trials: Sequence[Trial], tokenizer: TextTokenizer
) -> Sampling | None:
    """Shows samples to a chunk's log as text, None where the config wants none.

    Of a prompt they hold what stands behind the document: the templates differ before it, and would tell the arm.
    """

    def take(sample: Sample) -> None:
        for policy, trial in enumerate(trials):
            trace = trial.rl_traces[sample.prompts_p[policy]]
            tail = arm_parts(trace, arm, config, tokenizer).after.lstrip()[-PROMPT_TAIL:]
            own = zip(sample.ids_pgt[policy], sample.mask_pgt[policy], sample.rewards_pg[policy], strict=True)
            for ids, mask, reward in own:
                row = {"stage": SAMPLED, "step": sample.step, "policy": policy, "prompt_tail": tail}
                log(row | {"completion": tokenizer.decode(ids[mask]), "reward": plain_number(reward)})

    every = config.output.sample_every
    return Sampling(take, every) if every else None
