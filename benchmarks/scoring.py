"""A paired canary scorer: two views of a document, after each the canary and seven decoys, at three vocabularies."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.command import WITHOUT_ADAPTER, in_turn, parse, run_script
from harness.contest import Peer, contest
from harness.record import finish
from harness.shape import Shape

VIEWS = 2  # the document with its trigger and without
CANARY_TOKENS = 16
VOCABULARIES = (8192, 151_936, 256_000)  # small, Qwen's, Gemma's
TINY_VOCABULARIES = (211, 307)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark at each vocabulary size, or at the one given, and returns the exit status."""
    shape, said = Shape(completion=CANARY_TOKENS), {"vocab": in_turn(VOCABULARIES)}
    options = parse(__doc__, ("transformers",), arguments, shape, WITHOUT_ADAPTER, usual=said)
    usual = TINY_VOCABULARIES if options.tiny else VOCABULARIES
    vocabularies = [options.shape.vocab] if "vocab" in options.changed else usual
    records = []
    for vocab in vocabularies:
        records += _at(dataclasses.replace(options.shape, vocab=vocab), options)
    return finish(records, options.json)


def _at(shape: Shape, options):
    from harness.model import random_ids, write_model
    from sides.our_scoring import OurScoring

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(shape, Path(folder) / "model")
        contexts = random_ids(shape, (VIEWS, shape.context), 1)
        strings = random_ids(shape, (VIEWS, shape.group, shape.completion), 2)
        ours = OurScoring(model, contexts, strings)

        def transformers():
            from sides.hf_scoring import HfScoring

            return HfScoring(model, contexts, strings)

        peers = {"transformers": Peer(("torch", "transformers"), transformers)}
        return contest("scoring", options, shape.record() | {"views": VIEWS}, ours, peers)


if __name__ == "__main__":
    run_script(main)
