"""One update of a reward model on several responses to a long prompt.

Ours learns from each response's own label, TRL from pairs: the same forward and backward pass with another last step.
What is compared is therefore the rewards and the gradient of a weighted sum of them.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.command import parse, run_script
from harness.contest import Peer, contest
from harness.record import finish


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit status."""
    options = parse(__doc__, ("trl",), arguments)
    from sides.our_reward import OurReward, write_reward_case

    shape = dataclasses.replace(options.shape, group=options.shape.group // 2 * 2)  # in pairs
    with tempfile.TemporaryDirectory() as folder:
        case = write_reward_case(shape, Path(folder))

        def trl():
            from sides.trl_reward import TrlReward

            return TrlReward(case)

        peers = {"trl": Peer(("torch", "transformers", "peft", "trl"), trl)}
        records = contest("reward_step", options, shape.record(), OurReward(case), peers)
    return finish(records, options.json)


if __name__ == "__main__":
    run_script(main)
