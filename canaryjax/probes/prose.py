"""Sentences of interpretation, warnings and limits, chosen by rule from a report's numbers (PA-51, PA-52)."""

import math
from typing import Any

from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.decoy import smallest_p
from canaryjax.probes.verdict import DAMAGE, DRIFT, NONE, RECOVERY, TRUNCATION, UNDERTRAINED, UNKNOWN

FEWEST_OUTPUTS = 4  # the least k of hit@k that an audit should have (PA-51)
MEANING = {
    RECOVERY: "the secret itself became more likely in every seed, or is said more often than before",
    UNDERTRAINED: "the window's mean fell on the secret's first tokens only: learning the format would look the same",
    DAMAGE: "the secret became less likely and is said less often",
    DRIFT: "the window's mean moved on words that are no secret: it says nothing about memory of the secret",
    TRUNCATION: "the window's mean stayed flat while the whole secret or recall was damaged: it does not see that",
}


def reading(report: dict[str, Any], config: ProbesConfig) -> list[str]:
    """What the numbers say, most important first."""
    tuned = [cell for cell in report["cells"] if cell["kind"] == "sft"]
    said = []
    for label, meaning in MEANING.items():
        names = [cell["name"] for cell in tuned if label in cell["verdict"]["labels"]]
        if names:
            said.append(f"{label.capitalize()} in {len(names)} of {len(tuned)} tuned cells ({_few(names)}): {meaning}.")
    signs = [cell["name"] for cell in tuned if RECOVERY in cell["verdict"]["labels"] and _by_signs_alone(report, cell)]
    if signs:
        said.append(
            f"Full-secret recovery goes by the signs of the seeds alone in {_few(signs)}: the two families of "
            "intervals do not both tell the secret's change from 0, and no more secrets are said, so no claim rests "
            "on it."
        )
    quiet = sum(cell["verdict"]["labels"] == [NONE] for cell in tuned)
    if quiet:
        said.append(f"In {quiet} of {len(tuned)} tuned cells no rule finds the probes at odds.")
    unread = [cell["name"] for cell in tuned if cell["verdict"]["labels"] == [UNKNOWN]]
    if unread:
        missing = ", ".join(_not_read(report, set(unread)))
        said.append(
            f"In {len(unread)} of {len(tuned)} tuned cells ({_few(unread)}) no rule holds and some could not be "
            f"decided, since a number that they need was not read ({missing}): whether the probes agree there is not "
            "known."
        )
    if not tuned:
        said.append("No tuned cell was read: there is no change for the probes to agree on.")
    account = report["accounting"]
    if account["ci_rows"]:
        said.append(
            f"The secret's change lies strictly below 0 by the nested bootstrap in {account['secret_below_zero']} of "
            f"{account['ci_rows']} cells with intervals; {len(account['negative_points'])} have a negative point."
        )
    said += _of_claims(tuned) + _of_noise(report) + _of_reexposure(report, config.verdict.moved) + _of_decoys(report)
    return said


def _by_signs_alone(report: dict[str, Any], cell: dict[str, Any]) -> bool:
    """Whether a recovery has neither both families of intervals behind it nor more secrets said than before (PA-27)."""
    before = next(_hit_at_1(one) for one in report["cells"] if one["name"] == cell["baseline"])
    after = _hit_at_1(cell)
    said_more = before is not None and after is not None and after > before
    return cell["delta"]["secret"]["label"] != "both" and not said_more


def _not_read(report: dict[str, Any], names: set[str]) -> list[str]:
    """Which of the numbers that rules need these cells lack."""
    cells = {cell["name"]: cell for cell in report["cells"]}
    own = [cells[name] for name in sorted(names)]
    lacking = {
        "recall": any(_hit_at_1(cell) is None for one in own for cell in (one, cells[one["baseline"]])),
        "the window's change": any(one["delta"]["window"]["value"] is None for one in own),
        "the secret's change": any(one["delta"]["secret"]["value"] is None for one in own),
        "the parts of the window": any(one["decomposition"] is None for one in own),
    }
    return [what for what, is_so in lacking.items() if is_so] or ["a part of the window's change"]


def _hit_at_1(cell: dict[str, Any]) -> float | None:
    """The share that the greedy outputs say; None where it was not read."""
    return next((one["rate"]["estimate"] for one in cell["hits"] or () if one["k"] == 1), None)


def _of_claims(tuned: list[dict[str, Any]]) -> list[str]:
    """Changes that only one family of intervals tells from 0 (PA-27)."""
    marked = [
        f"{cell['name']} ({quantity}, {cell['delta'][quantity]['label']})"
        for cell in tuned
        for quantity in ("window", "secret")
        if cell["delta"][quantity]["label"] in ("hb-only", "t-only")
    ]
    if not marked:
        return []
    return [f"Told from 0 by one family of intervals alone, so no claim rests on them: {_few(marked)}."]


def _of_noise(report: dict[str, Any]) -> list[str]:
    """Whether tuning changes a secret more than a random update of its size does."""
    values = [[cell["delta"]["secret"]["value"] for cell in pair] for pair in _pairs(report, "noise")]
    known = [(a, b) for a, b in values if a is not None and b is not None]
    if not known:
        return []
    larger = sum(abs(tuned) > abs(noise) for tuned, noise in known)
    return [f"The secret changes more than under a random update of the same norm in {larger} of {len(known)} cells."]


def _pairs(report: dict[str, Any], kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each tuned cell with the one of a kind that stands beside it."""
    cells = {cell["name"]: cell for cell in report["cells"]}
    return [
        (cells[cell["counterpart"]], cell) for cell in cells.values() if cell["kind"] == kind and cell["counterpart"]
    ]


def _of_reexposure(report: dict[str, Any], moved: float) -> list[str]:
    """Whether the probes move at all where the canaries themselves are among the rows (PA-48)."""
    said = []
    for plain, cell in _pairs(report, "reexposed"):
        window, secret = (
            [one["delta"][quantity]["value"] for one in (plain, cell)] for quantity in ("window", "secret")
        )
        if None in (*window, *secret):
            continue
        said.append(
            f"With the canaries among its rows {plain['name']} changes the window by {window[1]:+.4f} instead of "
            f"{window[0]:+.4f} and the secret by {secret[1]:+.4f} instead of {secret[0]:+.4f} nats a token"
            + (": the probes can move." if abs(secret[1] - secret[0]) > moved else ": the probes hardly move here.")
        )
    return said


def _of_decoys(report: dict[str, Any]) -> list[str]:
    if not report["decoys"]:
        return ["No decoys were scored: no change here can be called specific to the true secrets."]
    said = []
    for row in report["exposure"]:
        if row["cell"] in {cell["name"] for cell in report["cells"] if cell["kind"] == "baseline"}:
            smallest = smallest_p(row["decoys"])
            ranked = (
                f"Under {row['cell']} {row['below']} of {row['n']} true secrets rank among {row['decoys']} fresh ones "
                f"with p of at most {row['alpha']:.2g}"
                if smallest <= row["alpha"]
                else f"Under {row['cell']} no true secret can rank among {row['decoys']} fresh ones with p below "
                f"{smallest:.2g} ({math.ceil(1 / row['alpha'] - 1e-9) - 1} would allow {row['alpha']:.2g})"
            )
            said.append(
                f"{ranked}; exposure is {row['mean_bits']:.2f} of at most {row['most_bits']:.2f} bits on average."
            )
    return said


def warnings(report: dict[str, Any], config: ProbesConfig) -> list[str]:
    """What a reader should know before any number."""
    said = []
    if report["not_finite"]["tokens"]:
        where = [f"{row['cell']}, seed {row['seed']}, canary {row['canary']}" for row in report["not_finite"]["where"]]
        count = report["not_finite"]["tokens"]
        said.append(
            f"{count} token log-probs are not finite ({_few(where)}): their quantities leave those instances out."
        )
    if report["not_finite"]["beside"]:
        rows = report["not_finite"]["beside"]
        where = [f"{row['part']} of {row['cell']}, seed {row['seed']}, canary {row['canary']}" for row in rows]
        count = sum(len(row["positions"]) for row in rows)
        said.append(f"{count} numbers of other passes or of decoys are not finite ({_few(where)}): they are left out.")
    if report["without_outputs"]:
        where = [f"{row['cell']}, seed {row['seed']}" for row in report["without_outputs"]]
        said.append(
            f"{len(where)} models have no outputs ({_few(where)}): log-probs of what they generated are not finite, or "
            "outputs are not given for every canary. Recall of their cells is not known."
        )
    shortest = report["tokens"]["target_tokens"]["min"]
    beyond = [k for k in sorted({config.reading.window, *config.reading.sweep}) if k > shortest]
    if beyond:
        said.append(
            f"Windows of {', '.join(map(str, beyond))} tokens are longer than the shortest target ({shortest}): a "
            "target that is shorter than a window is left out of its mean."
        )
    if report["tokens"]["straddles"]["tokens"]:
        found = report["tokens"]["straddles"]
        said.append(
            f"{found['tokens']} tokens of {found['canaries']} canaries cover bytes of two spans; they count for the "
            f"span of their {config.canaries.owner.replace('_', ' ')}."
        )
    baselines = [cell for cell in report["cells"] if cell["kind"] == "baseline" and cell["hits"]]
    fewest = {cell["name"]: min(cell["hits"], key=lambda one: one["k"]) for cell in baselines}
    rates = {name: one["hits"] / one["n"] for name, one in fewest.items()}
    if rates and max(rates.values()) < 1:
        said.append(f"No baseline recalls all its secrets ({_rates(rates)}): there is no saturated control.")
    if rates and min(rates.values()) > 0:
        said.append(f"Every baseline recalls some secret ({_rates(rates)}): there is no undertrained control.")
    most = max((one["k"] for cell in report["cells"] for one in cell["hits"] or ()), default=0)
    if not most:
        said.append("Nothing was generated: whether a secret is said is not known.")
    elif most < FEWEST_OUTPUTS:
        said.append(
            f"Recall was read of no more than {most} outputs a canary: with fewer than {FEWEST_OUTPUTS} a secret that "
            "is said now and then is soon taken for forgotten."
        )
    if any(len(cell["seeds"]) < 2 for cell in report["cells"] if cell["kind"] != "baseline"):
        said.append("Some cells have one seed: they have no intervals, and signs that agree mean nothing.")
    return said


def limitations(report: dict[str, Any]) -> list[str]:
    """What such an audit cannot say, whatever it found."""
    seeds = max((len(cell["seeds"]) for cell in report["cells"]), default=0)
    coin = f"{seeds} of {seeds} seeds with one sign have probability {2.0 ** (1 - seeds):.3g} under a fair coin."
    return [
        f"{seeds} seed{'s' * (seeds != 1)}, one model, one template of text canaries: both families of intervals "
        "describe these runs and support no claim about others.",
        *([coin] if seeds > 1 else []),
        "The nested bootstrap draws canaries afresh in every seed although all seeds share them; the crossed one does "
        "not. Neither covers the choice of cells.",
        "Cases are chosen after the numbers were seen; pool and rank are given, and no claim survives that choice.",
        "A change of a window's mean alone shows neither memory nor forgetting: read it beside the whole secret, "
        "recall, the parts of the window and decoys.",
        "Exact recall is letter by letter; a secret that is said in another form counts as not said.",
    ]


def _rates(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())


def _few(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
