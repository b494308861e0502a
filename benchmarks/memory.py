"""Memory that scoring and its gradient need beyond weights and ids, as the compiler plans it, against V, T and G."""

import dataclasses
from collections.abc import Sequence

from harness.command import parse, run_script
from harness.record import environment, finish, result
from harness.shape import DEFAULT

VOCABULARIES = (32_768, 65_536, 131_072, 262_144)
COMPLETIONS = (16, 64, 256)
GROUPS = (1, 8, 32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plans every size and returns the exit status; nothing is run, so that a laptop can ask about a large model.

    A size that is given is kept while the others vary.
    """
    usual = {
        name: f"where it is not itself varied, {getattr(DEFAULT, name)}" for name in ("vocab", "completion", "group")
    }
    options = parse(__doc__, (), arguments, usual=usual, timed=False)
    from sides.planned_memory import planned_bytes

    shape, few = options.shape, 2 if options.tiny else None
    asked = [dataclasses.replace(shape, vocab=v) for v in _scaled(VOCABULARIES, options.tiny)[:few]]
    asked += [dataclasses.replace(shape, completion=t) for t in _scaled(COMPLETIONS, options.tiny)[:few]]
    asked += [dataclasses.replace(shape, group=g) for g in GROUPS[:few]]
    surroundings = environment()
    return finish([result("memory", one, surroundings, [], planned_bytes(one)) for one in asked], options.json)


def _scaled(sizes: Sequence[int], tiny: bool) -> list[int]:
    return [size // 16 + 1 for size in sizes] if tiny else list(sizes)


if __name__ == "__main__":
    run_script(main)
