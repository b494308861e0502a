"""Words of a detector's report: how often a sentence stood there, groups, p-values, chances."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.text import MISSING, label, number, percent

TIER_NAMES = {
    "site": "Site: sentences on ordinary pages",
    "cohort": "Cohorts: how a page can be found",
    "ladder": "Repetition ladder: how often a sentence stood there",
    "vendor": "Vendor: one sentence a crawler's owner",
    "window": "Window: one sentence an owner and time",
}
COHORT_NAMES = {"linked": "linked pages", "sitemap": "sitemap-only pages", "honeypot": "honeypot pages"}


def whole(value: Any) -> int:
    """A count for comparing; 0 where there is none.

    >>> whole(None), whole(3)
    (0, 3)
    """
    return value if isinstance(value, int) else 0


def times(occurrences: Any) -> str:
    """How often a sentence stood on the site.

    >>> times(1), times(300), times(0), times(None)
    ('once', '300\xa0times', 'never', 'unknown times')
    """
    if not isinstance(occurrences, int):
        return "unknown times"
    return {0: "never", 1: "once"}.get(occurrences, f"{occurrences:,}\u00a0times")


def cohort_name(record: Mapping[str, Any]) -> str:
    """How the pages of a cohort can be found.

    >>> cohort_name({"cohort": "sitemap"}), cohort_name({})
    ('sitemap-only pages', 'cohort not recorded')
    """
    cohort = str(record.get("cohort") or "cohort not recorded")
    return COHORT_NAMES.get(cohort, cohort)


def group_row(group: Mapping[str, Any]) -> str:
    """A group within its tier.

    >>> group_row({"cohort": "linked", "occurrences": 1}), group_row({"occurrences": 10}), group_row({"name": "w-3"})
    ('linked pages, once', '10\xa0times', 'w-3')
    """
    parts = [cohort_name(group)] if group.get("cohort") else []
    parts += [times(group["occurrences"])] if group.get("occurrences") is not None else []
    return ", ".join(parts) or str(group.get("name") or "unnamed")


def group_name(group: Mapping[str, Any]) -> str:
    """A group among those of all tiers.

    >>> group_name({"tier": "ladder", "occurrences": 300})
    'ladder (300\xa0times)'
    """
    row = group_row(group)
    return f"{label(group['tier'])} ({row})" if group.get("tier") else row


def p_words(test: Mapping[str, Any]) -> str:
    """A test's p-value with how it was got; or why there is none.

    >>> p_words({"p": 0.0304, "method": "exact"}), p_words({"p": None, "reason": "no ladder"})
    ('p\xa0=\xa00.030 (exact permutation test)', 'no p: no ladder')
    >>> p_words({"p": 1e-5, "method": "monte carlo", "permutations": 99999})
    'p\xa0=\xa01.0e-05 (99,999 random permutations)'
    """
    if test.get("p") is None:
        return f"no p: {test.get('reason') or 'no reason was recorded'}"
    method = str(test.get("method") or "method not recorded")
    how = {"exact": "exact permutation test", "monte carlo": f"{number(test.get('permutations'))} random permutations"}
    return f"p\u00a0=\u00a0{number(test['p'])} ({how.get(method, method)})"


def chance(value: Any) -> str:
    """A probability as a percentage, never shown as 0 or 100 of what is neither.

    >>> chance(0.9999), chance(0.00002), chance(0.0163), chance(None)
    ('above 99.9\\xa0%', '0.002\\xa0%', '1.6\\xa0%', 'not available')
    """
    if value is None or isinstance(value, str):
        return value or MISSING
    if 0.999 < value < 1:
        return f"above {percent(0.999)}"
    if 0 < value < 0.001:
        return f"{100 * value:.1g}\u00a0%" if value >= 1e-6 else f"below {100 * 1e-6:.4f}\u00a0%"
    return percent(value, 1)


def factor(value: Any) -> str:
    """A Bayes factor with three digits that count.

    >>> factor(25.67), factor(0.0163), factor(123456.0), factor(None)
    ('25.7', '0.0163', '1.23e+05', 'not available')
    """
    return MISSING if value is None else value if isinstance(value, str) else f"{value:.3g}"
