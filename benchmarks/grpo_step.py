"""One GRPO step: G completions of a long prompt sampled, rewarded, scored by policy and reference, and learnt from."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.command import parse, run_script
from harness.contest import Peer, contest
from sides.grpo_case import GrpoCase, write_case

TORCH = ("torch", "transformers", "peft")


def transformers_side(case: GrpoCase):
    from sides.hf_grpo import HandWrittenGrpo

    return HandWrittenGrpo(case)


def trl_side(case: GrpoCase):
    from sides.trl_grpo import TrlGrpo

    return TrlGrpo(case)


PEERS = {"transformers": (TORCH, transformers_side), "trl": ((*TORCH, "trl"), trl_side)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; see `harness.contest`."""
    options = parse(__doc__, list(PEERS), arguments)
    from sides.our_grpo import OurGrpo  # imports JAX, which must come after the options

    with tempfile.TemporaryDirectory() as folder:
        case = write_case(options.shape, options.rank, Path(folder))
        ours = OurGrpo(case)
        peers = {name: Peer(modules, lambda opens=opens: opens(case)) for name, (modules, opens) in PEERS.items()}
        return contest("grpo_step", options, case.record(), ours, peers, lambda: ours.detail(options.tiny))


if __name__ == "__main__":
    run_script(main)
