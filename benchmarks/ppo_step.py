"""One PPO step at Table 4's sizes, one sample a prompt; and, of our own, as many completions of a single prompt.

The stored rollout that both sides are compared on has drifted from its policy, so that clips bind.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.command import in_turn, parse, run_script
from harness.contest import Peer, contest
from harness.record import finish
from harness.shape import Shape
from sides.ppo_case import PpoCase, write_ppo_case

TORCH = ("torch", "transformers", "peft")
COMPLETIONS = 8  # of a rollout
TABLE_4 = Shape(completion=32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark, with one completion a prompt and with G, and returns the exit status."""
    options = parse(__doc__, ("transformers", "trl"), arguments, TABLE_4, usual={"group": in_turn((1, COMPLETIONS))})
    completions = 4 if options.tiny else COMPLETIONS
    groups = [options.shape.group] if "group" in options.changed else [1, completions]
    records = []
    for group in groups:
        records += _at(dataclasses.replace(options.shape, group=group), max(completions // group, 1), options)
    return finish(records, options.json)


def _at(shape: Shape, prompts: int, options):
    from sides.our_ppo import OurPpo

    with tempfile.TemporaryDirectory() as folder:
        case = write_ppo_case(shape, prompts, Path(folder))
        peers = {
            "transformers": Peer(TORCH, lambda: _by_hand(case)),
            "trl": Peer((*TORCH, "trl.experimental.ppo"), lambda: _trl(case)),
        }
        return contest("ppo_step", options, shape.record() | {"prompts": prompts}, OurPpo(case), peers)


def _by_hand(case: PpoCase):
    from sides.hf_ppo import HandWrittenPpo

    return HandWrittenPpo(case)


def _trl(case: PpoCase):
    from sides.trl_ppo import TrlPpo

    return TrlPpo(case)


if __name__ == "__main__":
    run_script(main)
