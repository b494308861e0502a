"""Sampled answers to one long prompt, all drawn together."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.command import WITHOUT_ADAPTER, parse, run_script
from harness.contest import Peer, contest
from harness.record import finish


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit status."""
    options = parse(__doc__, ("transformers",), arguments, sizes=WITHOUT_ADAPTER)
    from harness.model import random_ids, write_model
    from sides.our_rollout import OurRollout

    shape = options.shape
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(shape, Path(folder) / "model")
        context = random_ids(shape, (shape.context,), 3)
        ours = OurRollout(model, context, shape.group, shape.completion)

        def transformers():
            from sides.hf_rollout import HfRollout

            ids, _, real = ours.sampled()
            return HfRollout(model, context, ids, real)

        peers = {"transformers": Peer(("torch", "transformers"), transformers)}
        records = contest("rollout", options, shape.record(), ours, peers)
    return finish(records, options.json)


if __name__ == "__main__":
    run_script(main)
