"""Sentences of interpretation, warnings and limits, chosen by rule from a report's numbers (PA-51, PA-52)."""

from typing import Any

from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.verdict import DAMAGE, DRIFT, NONE, RECOVERY, TRUNCATION, UNDERTRAINED, UNKNOWN

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
    quiet = sum(cell["verdict"]["labels"] == [NONE] for cell in tuned)
    if quiet:
        said.append(f"In {quiet} of {len(tuned)} tuned cells no rule finds the probes at odds.")
    unread = [cell["name"] for cell in tuned if cell["verdict"]["labels"] == [UNKNOWN]]
    if unread:
        said.append(
            f"In {len(unread)} of {len(tuned)} tuned cells ({_few(unread)}) no rule holds and some could not be "
            "decided, since a number that they need was not read: whether the probes agree there is not known."
        )
    account = report["accounting"]
    if account["ci_rows"]:
        said.append(
            f"The secret's change lies strictly below 0 by the nested bootstrap in {account['secret_below_zero']} of "
            f"{account['ci_rows']} cells with intervals; {len(account['negative_points'])} have a negative point."
        )
    said += _of_claims(tuned) + _of_noise(report) + _of_reexposure(report) + _of_decoys(report)
    return said


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
    cells = {cell["name"]: cell for cell in report["cells"]}
    pairs = [(cells[name.removesuffix("/noise")], cell) for name, cell in cells.items() if cell["kind"] == "noise"
             and name.removesuffix("/noise") in cells]  # fmt: skip
    values = [[cell["delta"]["secret"]["value"] for cell in pair] for pair in pairs]
    known = [(a, b) for a, b in values if a is not None and b is not None]
    if not known:
        return []
    larger = sum(abs(tuned) > abs(noise) for tuned, noise in known)
    return [f"The secret changes more than under a random update of the same norm in {larger} of {len(known)} cells."]


def _of_reexposure(report: dict[str, Any]) -> list[str]:
    said = []
    cells = {cell["name"]: cell for cell in report["cells"]}
    for name, cell in cells.items():
        plain = cells.get(name.removesuffix("/reexposed"))
        if cell["kind"] != "reexposed" or plain is None:
            continue
        window, secret = (
            [one["delta"][quantity]["value"] for one in (plain, cell)] for quantity in ("window", "secret")
        )
        if None in (*window, *secret):
            continue
        said.append(
            f"With the canaries among its rows {plain['name']} changes the window by {window[1]:+.4f} instead of "
            f"{window[0]:+.4f} and the secret by {secret[1]:+.4f} instead of {secret[0]:+.4f} nats a token"
            + (": the probes can move." if abs(secret[1] - secret[0]) > 1e-3 else ": the probes hardly move here.")
        )
    return said


def _of_decoys(report: dict[str, Any]) -> list[str]:
    if not report["decoys"]:
        return ["No decoys were scored: no change here can be called specific to the true secrets."]
    said = []
    for row in report["exposure"]:
        if row["cell"] in {cell["name"] for cell in report["cells"] if cell["kind"] == "baseline"}:
            said.append(
                f"Under {row['cell']} {row['below']} of {row['n']} true secrets rank among {row['decoys']} fresh ones "
                f"with p of at most {row['alpha']:.2g}; exposure is {row['mean_bits']:.2f} of at most "
                f"{row['most_bits']:.2f} bits on average."
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
    if any(len(cell["seeds"]) < 2 for cell in report["cells"] if cell["kind"] != "baseline"):
        said.append("Some cells have one seed: they have no intervals, and signs that agree mean nothing.")
    return said


def limitations(report: dict[str, Any]) -> list[str]:
    """What such an audit cannot say, whatever it found."""
    seeds = max((len(cell["seeds"]) for cell in report["cells"]), default=0)
    return [
        f"{seeds} seeds, one model, one template of text canaries: both families of intervals describe these runs and "
        "support no claim about others.",
        f"{seeds} of {seeds} seeds with one sign have probability {2.0 ** (1 - max(seeds, 1)):.3g} under a fair coin.",
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
