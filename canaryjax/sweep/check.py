"""What is known to fail in a cell before anything is trained is said before the first cell runs."""

import functools
from collections.abc import Callable, Sequence
from math import ceil

from canaryjax.audit.base import reserve_warm_start
from canaryjax.audit.preflight import check_start
from canaryjax.audit.trial import study_sizes
from canaryjax.canaries.instrument import injected_count
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.data.loaders import load_examples
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError
from canaryjax.runlog.trackers import check_trackers
from canaryjax.sweep.cells import Cell
from canaryjax.weights.checkpoint import load_tokenizer


def check_cells(cells: Sequence[Cell], tell: Callable[[str], None]) -> None:
    """Makes every check of a run's start that needs no weights, for each cell, and refuses doses that plant nothing.

    Args:
      cells: To be run.
      tell: Called with a line on each.

    Raises:
      UserError: The first mistake; it begins with the cell's name.
    """
    # Most cells share data and model with the one before; one of each is kept, since they can be large.
    examples_of = functools.lru_cache(maxsize=1)(load_examples)
    tokenizer_of = functools.lru_cache(maxsize=1)(load_tokenizer)
    for number, cell in enumerate(cells, start=1):
        tell(f"checking cell {number} of {len(cells)}: {cell.name}")
        config = cell.config
        try:
            check_trackers(config.output.report_to)
            tokenizer, rows = tokenizer_of(config.model.path)
            warm, own = reserve_warm_start(config, examples_of(config.data, config.study.seed, generate_examples))
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
    for name, n in (("reward-model", sizes.rm_training + sizes.rm_heldout), ("policy", sizes.rl)):
        if rate > 0 and injected_count(rate, n) == 0:
            least = ceil(5000 / n) / 10_000  # half a trace, which is rounded up, at four decimals
            raise UserError(
                f"expected canary.rate of 0, or of at least {least:g} to plant one trace in the {name} split of {n}, "
                f"found {rate:g}; raise it or give more documents"
            )
