"""One GRPO step: G completions of a long prompt sampled, rewarded, scored by policy and reference, and learnt from."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.command import parse, run_script
from harness.contest import Peer, contest
from harness.record import finish
from sides.grpo_case import GrpoCase, write_case

TORCH = ("torch", "transformers", "peft")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit status."""
    options = parse(__doc__, ("transformers", "trl", "tunix"), arguments)
    from sides.our_grpo import OurGrpo  # imports JAX, which must come after the options
    from sides.tunix_grpo import TunixGrpo, tunix_python

    with tempfile.TemporaryDirectory() as folder:
        case = write_case(options.shape, Path(folder))
        ours = OurGrpo(case)
        peers = {
            "transformers": Peer(TORCH, lambda: _transformers(case)),
            "trl": Peer((*TORCH, "trl"), lambda: _trl(case)),
            "tunix": Peer((), lambda: TunixGrpo(case), tunix_python()),
        }
        records = contest("grpo_step", options, case.shape.record(), ours, peers, lambda: ours.detail(options.tiny))
    return finish(records, options.json)


def _transformers(case: GrpoCase):
    from sides.hf_grpo import HandWrittenGrpo

    return HandWrittenGrpo(case)


def _trl(case: GrpoCase):
    from sides.trl_grpo import TrlGrpo

    return TrlGrpo(case)


if __name__ == "__main__":
    run_script(main)
