"""What is known to fail in a cell before anything is trained is said before the first cell runs."""

import json
from collections.abc import Callable, Sequence
from math import ceil
from typing import TypeVar

from canaryjax.audit.base import reserve_warm_start
from canaryjax.audit.preflight import check_start
from canaryjax.audit.trial import study_sizes
from canaryjax.canaries.instrument import injected_count
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.data.loaders import load_examples
from canaryjax.data.tokens import TextTokenizer
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError
from canaryjax.runlog.trackers import check_trackers
from canaryjax.sweep.cells import Cell
from canaryjax.weights.checkpoint import load_tokenizer

T = TypeVar("T")


def check_cells(cells: Sequence[Cell], tell: Callable[[str], None]) -> None:
    """Makes every check of a run's start that needs no weights, for each cell, and refuses doses that plant nothing.

    Args:
      cells: To be run.
      tell: Called with a line on each.

    Raises:
      UserError: The first mistake; it begins with the cell's name.
    """
    examples: dict[str, list[Example]] = {}
    tokenizers: dict[str, tuple[TextTokenizer | None, int]] = {}
    for number, cell in enumerate(cells, start=1):
        tell(f"checking cell {number} of {len(cells)}: {cell.name}")
        config = cell.config
        try:
            check_trackers(config.output.report_to)
            # Most cells share data and model: each is read once.
            documents = json.dumps([config.data.model_dump(mode="json"), config.study.seed])
            found = _once(examples, documents, lambda c=config: load_examples(c.data, c.study.seed, generate_examples))
            tokenizer, rows = _once(tokenizers, config.model.path, lambda c=config: load_tokenizer(c.model.path))
            warm, own = reserve_warm_start(config, found)
            check_dose(config, own)
            if tokenizer is not None and tokenizer.eos_ids:  # else loading the base says what is missing
                check_start(config, warm, own, tokenizer, rows)
        except UserError as error:
            raise UserError(f"cell {cell.name}: {error}") from error


def check_dose(config: AuditConfig, examples: Sequence[Example]) -> None:
    """Raises UserError for a rate above 0 at which no trace of a split would carry the canary.

    A single run warns of it; in a sweep such a cell would stand in a dose-response curve as a dose, and is a null.
    """
    sizes, rate = study_sizes(config, examples), config.canary.rate
    splits = {"reward-model": sizes.rm_training + sizes.rm_heldout, "policy": sizes.rl}
    for name, n in splits.items():
        if rate > 0 and injected_count(rate, n) == 0:
            raise UserError(
                f"expected canary.rate of 0, or of at least {ceil(5000 / n) / 10_000:g} to plant one trace in the {name} "
                f"split of {n}, found {rate:g}; raise it or give more documents"
            )


def _once(known: dict[str, T], key: str, make: Callable[[], T]) -> T:
    if key not in known:
        known[key] = make()
    return known[key]
