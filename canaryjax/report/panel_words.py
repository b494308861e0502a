"""A panel's test in words: its name and sizes, its numbers, which way it points."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from canaryjax.report.text import brackets, number, percent

ALPHA = 0.05  # below it a difference is said to be there; the p-value stands beside it
FEW = 5  # policies a cell below which the laws of large samples are rough


def compared(panel: Mapping[str, Any], per_token: bool = False) -> list[str]:
    """Sentences on a panel's test; the first names it with its numbers, or says why there are none.

    Args:
      panel: As `sweep.json` has it.
      per_token: Its `test_per_token`, which must be there, in place of its `test`.
    """
    test = panel["test_per_token" if per_token else "test"]
    refused = test["refused"]
    why = [f"Refused: {refused['reason']}."] if refused else []
    if test["kind"] is None:
        return [f"No test: {test['reason']}.", *why]
    return [*_WORDS[test["kind"]](_done(panel), test, per_token), *why]


def _done(panel: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [level for level in panel["levels"] if level["status"] == "done"]


def p_words(value: float | None) -> str:
    """A p-value.

    >>> p_words(0.03121), p_words(1.5e-7), p_words(None)
    ('p = 0.0312', 'p = 1.5e-07', 'no p-value')
    """
    return "no p-value" if value is None else f"p = {number(float(value), 4)}"


def _sizes(levels: Sequence[Mapping[str, Any]]) -> str:
    counts = [level["arms"]["violating"]["n"] for level in levels]
    if len(set(counts)) == 1:
        return f"n = {counts[0]} violating policies in each of {len(counts)} cells"
    return f"n = {', '.join(map(str, counts))} violating policies"


def _unit(per_token: bool) -> str:
    return "nats a token" if per_token else "nats"


def _means(levels: Sequence[Mapping[str, Any]], per_token: bool) -> dict[str, float]:
    name = "mean_per_token" if per_token else "mean"
    return {level["label"]: level["arms"]["violating"][name] for level in levels}


def _ranking(levels: Sequence[Mapping[str, Any]], per_token: bool) -> str:
    means = sorted(_means(levels, per_token).items(), key=lambda own: -own[1])
    told = ", ".join(f"{name} {number(mean)}" for name, mean in means)
    return f"By mean of all valid policies, highest first: {told} {_unit(per_token)}."


def _rough(levels: Sequence[Mapping[str, Any]], which: str) -> list[str]:
    least = min(level["arms"]["violating"]["n"] for level in levels)
    return [f"With {least} policies in a cell {which} is rough."] if least < FEW else []


def _kruskal(levels: list[Mapping[str, Any]], test: Mapping[str, Any], per_token: bool) -> list[str]:
    result, sizes = test["result"], _sizes(levels)
    if result["p_value"] is None:
        return [f"Kruskal-Wallis ({sizes}): no statistic, {result['reason']}."]
    first = f"Kruskal-Wallis ({sizes}): H = {number(result['statistic'], 2)}, {result['df']} degrees of freedom, "
    pairs = [
        f"{_above(pair['first'], pair['second'], pair['statistic'])}, {p_words(pair['adjusted_p'])}"
        for pair in result["pairs"]
    ]
    return [
        f"{first}{p_words(result['p_value'])}.",
        _ranking(levels, per_token),
        f"Pairs by mean rank (Dunn, Holm-adjusted): {'; '.join(pairs)}. "
        f"{sum(pair['adjusted_p'] < ALPHA for pair in result['pairs'])} of {len(pairs)} are below {ALPHA}.",
        *_rough(levels, "this p-value"),
    ]


def _above(first: str, second: str, statistic: float | None) -> str:
    if not statistic:
        return f"{first} level with {second}"
    return f"{first} {'above' if statistic > 0 else 'below'} {second}"


def _trend(levels: list[Mapping[str, Any]], test: Mapping[str, Any], per_token: bool) -> list[str]:
    result, permuted, sizes = test["result"], test["permuted"], _sizes(levels)
    if result["p_value"] is None:
        return [f"Jonckheere-Terpstra ({sizes}): no statistic, {result['reason']}."]
    return [
        f"Jonckheere-Terpstra for a monotone trend ({sizes}): J = {number(result['statistic'], 1)}, "
        f"z = {number(result['z'], 2)}, {p_words(result['p_value'])} with the variance corrected for ties, "
        f"{p_words(permuted['p_value'])} by {number(permuted['resamples'])} permutations.",
        f"{_slope(result['z'], result['p_value'], permuted['p_value'])} In {percent(test['rising'])} of the pairs of "
        "policies from two cells, the one with the greater value has the higher score (a tie counts half).",
        _ranking(levels, per_token),
        *_rough(levels, "the p-value without permutations"),
    ]


def _slope(z: float, *p_values: float) -> str:
    """Which way scores go, where all p-values say so."""
    if max(p_values) < ALPHA:
        return f"Scores {'rise' if z > 0 else 'fall'} along the panel."
    return _not_shown("trend", "p" if min(p_values) >= ALPHA else "one of the two p-values")


def _not_shown(what: str, which: str = "p") -> str:
    return f"A {what} was not shown ({which} is not below {ALPHA}), which is no evidence that there is none."


def _welch(levels: list[Mapping[str, Any]], test: Mapping[str, Any], per_token: bool) -> list[str]:
    result, (first, second) = test["result"], [level["label"] for level in levels]
    named = f"Welch's t test, {first} against {second} ({_sizes(levels)})"
    if result["p_value"] is None:
        return [f"{named}: no statistic, {result['reason']}."]
    return [
        f"{named}: t = {number(result['statistic'], 2)}, {number(result['df'], 1)} degrees of freedom, "
        f"{p_words(result['p_value'])}.",
        f"The mean of {first} minus that of {second} is {number(result['difference'], sign=True)} {_unit(per_token)} "
        f"{brackets(result['interval'], 3)}, {number(result['effect'], 2, sign=True)} standard deviations (Hedges' g).",
        *_verdict(first, second, result["difference"], result["p_value"]),
    ]


def _verdict(first: str, second: str, difference: float, p_value: float) -> list[str]:
    if p_value >= ALPHA:
        return [_not_shown("difference")]
    return [f"The higher mean is that of {first if difference > 0 else second}."]


def _paired_sizes(test: Mapping[str, Any]) -> str:
    left_out = f", {len(test['left_out'])} left out" if test["left_out"] else ""
    return f"n = {len(test['trials'])} violating trials that are valid in every cell{left_out}"


def _page(levels: list[Mapping[str, Any]], test: Mapping[str, Any], per_token: bool) -> list[str]:
    result, sizes = test["result"], _paired_sizes(test)
    if result["p_value"] is None:
        return [f"Page's test ({sizes}): no statistic, {result['reason']}."]
    return [
        f"Page's test for a monotone trend within trials ({sizes}): L = {number(result['statistic'], 1)}, "
        f"z = {number(result['z'], 2)}, {p_words(result['p_value'])} by {number(result['permutations'])} permutations.",
        _slope(result["z"], result["p_value"]),
        _ranking(levels, per_token),
    ]


def _flips(levels: list[Mapping[str, Any]], test: Mapping[str, Any], per_token: bool) -> list[str]:
    pairs, several = test["pairs"], len(test["pairs"]) > 1
    told = [
        f"{pair['first']} minus {pair['second']} {number(pair['statistic'], sign=True)} {_unit(per_token)}, "
        f"{p_words(pair['adjusted_p'])}"
        for pair in pairs
    ]
    least = f" Unadjusted, none can be below {number(2 / pairs[0]['permutations'], 4)}." if pairs[0]["exact"] else ""
    first = (
        f"Sign flips of the differences within trials ({_paired_sizes(test)}){', Holm-adjusted' if several else ''}: "
    )
    sentences = [f"{first}{'; '.join(told)}.{least}"]
    if several:
        return [*sentences, _ranking(levels, per_token)]
    own = pairs[0]
    return [*sentences, *_verdict(own["first"], own["second"], own["statistic"], own["p_value"])]


_WORDS: dict[str, Callable[[list[Mapping[str, Any]], Mapping[str, Any], bool], list[str]]] = {
    "kruskal_wallis": _kruskal,
    "jonckheere_terpstra": _trend,
    "welch": _welch,
    "page": _page,
    "sign_flips": _flips,
}
