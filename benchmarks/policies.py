"""Several policies of the embedded model trained as a study trains them, against one after another."""

from collections.abc import Sequence

from harness.command import parse, run_script
from harness.contest import Peer, contest
from harness.record import finish

COUNTS = (1, 2, 4, 8, 16)
TINY_COUNTS = (1, 3)
PROMPT_TOKENS, TINY_PROMPT_TOKENS = 224, 13


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark for each number of policies and returns the exit status."""
    options = parse(__doc__, ("alone",), arguments, sizes=())
    records = []
    for count in TINY_COUNTS if options.tiny else COUNTS:
        records += _with(count, TINY_PROMPT_TOKENS if options.tiny else PROMPT_TOKENS, options)
    return finish(records, options.json)


def _with(count: int, prompt: int, options):
    import jax

    from canaryjax.audit.chunk_size import choose_chunks_at_once
    from canaryjax.audit.plan import most_together
    from canaryjax.weights.checkpoint import load_model
    from harness.timing import median_seconds
    from sides.policies import Policies

    config = load_model("embedded").config
    chunk = min(count, most_together(jax.default_backend() == "cpu", config))
    workers = choose_chunks_at_once(config)
    ours = Policies(count, chunk, workers, prompt)  # as a study would split them here

    def one_program() -> dict[str, float]:
        return {"one_program_s": median_seconds(Policies(count, count, 1, prompt).seconds, options.repeats)}

    return contest(
        "policies",
        options,
        {"policies": count, "chunk": chunk, "chunks_at_once": workers, "prompt": prompt},
        ours,
        {"alone": Peer((), lambda: Policies(count, 1, 1, prompt))},
        one_program,
    )


if __name__ == "__main__":
    run_script(main)
