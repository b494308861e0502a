"""report.json: the evidence, and around it what was asked of whom, when, and how much of it was answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from canaryjax.config.detector import DetectorConfig
from canaryjax.detector.call import Call
from canaryjax.detector.edge.crawler import Crawler, SocketResolver, Verifier, read_crawlers, verified_fetches
from canaryjax.detector.edge.request_log import read_request_log
from canaryjax.detector.evidence import weigh
from canaryjax.detector.prior import LogFacts, log_facts
from canaryjax.detector.records import FIELDS
from canaryjax.detector.store import Store
from canaryjax.detector.targets import Site
from canaryjax.errors import UserError

SCHEMA = "canaryjax.detector/1"
CODE_VERSION = 1  # of the canary code, SPEC.md
CRAWLERS = "crawlers.yaml"  # in the site's folder


@dataclass(frozen=True, repr=False)
class Session:
    """What the report says of a run beside its answers.

    Attributes:
      config, site: Of the run.
      label: Of the model.
      capabilities: What a preflight found.
      crawlers: Of `check_crawlers`.
      look: Which look at the model it is, from 1.
      started, finished: UTC, ISO 8601.
    """

    config: DetectorConfig
    site: Site
    label: str
    capabilities: Mapping[str, Any]
    crawlers: tuple[Crawler, ...] | None
    look: int
    started: str
    finished: str


def check_crawlers(config: DetectorConfig) -> tuple[Crawler, ...] | None:
    """How crawlers are verified, from the site's crawlers.yaml; None where the prior is not read from the log (SD-A10).

    Raises:
      UserError: The model's maker is named and the file is missing, malformed or does not know it.
    """
    if config.site.request_log is None or config.site.vendor is None:
        return None
    path = Path(config.site.folder) / CRAWLERS
    if not path.exists():
        raise UserError(
            f"expected {CRAWLERS} beside the word lists with site.vendor, found none; write the agents, hosts and "
            "ranges of that maker's crawlers there, or leave site.vendor out"
        )
    crawlers = read_crawlers(path)
    known = [crawler.vendor for crawler in crawlers]
    if config.site.vendor not in known:
        raise UserError(f"expected site.vendor to be one of {known}, as in {CRAWLERS}, found {config.site.vendor!r}")
    return crawlers


def findings(session: Session, calls: Sequence[Call], store: Store) -> dict[str, Any]:
    """The whole report, as plain values; no text of the site.

    Args:
      session: The run.
      calls: All that were planned.
      store: What came of them.
    """
    config, site, answers = session.config, session.site, store.answers()
    evidence = weigh(
        site.targets,
        answers,
        config.evidence,
        session.look,
        _log_facts(session),
        _as_tokens(store.means("logp")),
        _as_tokens(store.means("standardised")),
    )
    failures = store.failures()
    report = {
        "schema": SCHEMA,
        "name": config.name,
        "run": store.about()["run"],
        "started": session.started,
        "finished": session.finished,
        "model": {
            "label": session.label,
            "backend": config.model.backend,
            "capabilities": dict(session.capabilities),
        },
        "site": {
            "fingerprint": site.manifest.fingerprint,
            "commitment": site.manifest.commitment,
            "commitment_time": site.manifest.made,
            "throwaway": site.manifest.throwaway,
        },
        "code": {"version": CODE_VERSION, "bits": {field: site.vocabulary.bits(field) for field in FIELDS}},
        "calls": {
            "planned": len(calls),
            "answered": len(answers),
            "failed": sum(failures.values()),
            "failures": failures,
            "empty": sum(answer.empty for answer in answers),
            "refusals": sum(answer.refusal for answer in answers),
            "per_target": len(calls) // max(1, len(site.targets)),
        },
        **evidence,
    }
    report["warnings"] = [*_warnings(session, len(calls), failures, store), *evidence["warnings"]]
    return report


def _as_tokens(means: Mapping[str, float]) -> dict[str, np.ndarray] | None:
    """Means as `weigh` takes them: the lowest share of a single number is that number."""
    return {key: np.array([mean]) for key, mean in means.items()} or None


def _log_facts(session: Session) -> LogFacts | None:
    """What the request log says, read anew: it holds the run's own time by now, or not."""
    site = session.config.site
    if site.request_log is None:
        return None
    log = read_request_log(site.request_log)
    fetched = None
    if session.crawlers is not None and site.vendor is not None:
        fetched = verified_fetches(log.rows, site.vendor, Verifier(session.crawlers, SocketResolver()))
    start, end = map(datetime.fromisoformat, (session.started, session.finished))
    return log_facts(log, session.site.targets, fetched, start, end)


def _warnings(session: Session, planned: int, failures: Mapping[str, int], store: Store) -> list[str]:
    texts = []
    if session.site.manifest.throwaway:
        texts.append("The word lists were made for tests: nothing here says anything of a real site.")
    if failures:
        reasons = ", ".join(f"{number}: {reason}" for reason, number in failures.items())
        texts.append(
            f"{sum(failures.values())} of {planned} calls have no answer ({reasons}); --resume asks them again, as a "
            "further look."
        )
    if session.config.model.backend == "api":
        whole = " and, for their log-probs, whole sentences" if store.means("logp") else ""
        texts.append(
            f"Whoever runs the endpoint was sent questions with some of the fields{whole}, of negatives too: if that "
            "is trained on, later runs find it there."
        )
    return texts
