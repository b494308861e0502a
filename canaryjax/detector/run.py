"""A run: asks what has no answer yet, scores and forgets each answer, and writes report.json at the end.

All that is written as it goes lies in the database of `store.py`, so a run that was stopped or killed at any moment is
taken up where it was, and asks nothing twice.
"""

import hashlib
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from canaryjax.config.detector import DetectorConfig
from canaryjax.config.detector_file import detector_hash, stored_yaml
from canaryjax.detector.call import Call, make_calls
from canaryjax.detector.findings import Session, check_crawlers, findings
from canaryjax.detector.ledger import take_look
from canaryjax.detector.measure import Measure, measure_sentences
from canaryjax.detector.records import Backend, Failure, Reply, Target
from canaryjax.detector.scoring import score_answer
from canaryjax.detector.sentence import fact_of
from canaryjax.detector.store import STORE, Kept, Store
from canaryjax.detector.targets import Site
from canaryjax.errors import UserError
from canaryjax.runlog.directory import RunDirectory
from canaryjax.runlog.progress import Progress

REPORT = "report.json"
SILENT = "the backend ended without an answer"


class NothingAnswered(RuntimeError):
    """No call of a run was answered: there is nothing to report a rate of."""


def open_run(config: DetectorConfig, out: Path | None, resume: bool) -> RunDirectory:
    """Makes or takes up a run directory; its config.yaml tells nothing of the site.

    Args:
      config: Of the run.
      out: The directory; None makes `runs/<name>-<hash>-<n>`.
      resume: Whether the run is there already.

    Raises:
      UserError: As `RunDirectory`; a run to resume that is not named.
    """
    digest, text = detector_hash(config), stored_yaml(config)
    if not resume:
        return RunDirectory.create(out, config.name, digest, text)
    if out is None:
        raise UserError("expected --out DIR with --resume, found none; name the run directory to go on with")
    return RunDirectory.resume(out, digest, text)


def run_probes(
    config: DetectorConfig,
    site: Site,
    backend: Backend,
    capabilities: Mapping[str, Any],
    measures: Mapping[str, Measure],
    run: RunDirectory,
    progress: Progress,
) -> dict[str, Any]:
    """Asks a model about a site's targets and writes what that showed as report.json (SD-21, SD-36, SD-37).

    Args:
      config: Of the run.
      site: Of `make_targets` with the same config; a resumed run keeps the targets that it was begun with.
      backend: The model.
      capabilities: What a preflight found, for the report.
      measures: Of `find_measures`; may be empty.
      run: Of `open_run`.
      progress: Is told.

    Returns:
      The report.

    Raises:
      UserError: As the backend; the store, the questions or the site are not those that the run was begun with.
      NothingAnswered: Every call failed.
    """
    crawlers = check_crawlers(config)
    identity = {"config": detector_hash(config), "site": site.manifest.commitment, "model": backend.label}
    with Store(run.path / STORE, identity) as store:
        if kept := store.targets():
            site = as_begun(site, kept)
        else:
            store.keep_targets(site.targets)
        calls = make_calls(config, site, backend.label)
        _refuse_other_calls(calls, store)
        started = store.note("started", _now())
        run_name = store.note("run", secrets.token_hex(8))
        if len(store.answered()) < len(calls):
            _reopen(store)
        name = store.note("look", f"{run_name}/{secrets.token_hex(4)}")
        look = take_look(Path(config.site.folder), name, backend.label, _now())
        try:
            _ask(calls, site, backend, store, progress)
        finally:
            store.book(backend.spent)
        if not store.answered():
            reasons = "; ".join(f"{number} times {reason}" for reason, number in store.failures().items())
            raise NothingAnswered(f"none of {len(calls)} calls was answered ({reasons}), so there is no rate to report")
        finished = store.note("finished", _now())
        measure_sentences(site, measures, config.evidence.min_k_share, store, progress)
        store.book(backend.spent)
        progress.stage("weighing the evidence")
        session = Session(config, site, backend.label, capabilities, crawlers, look, started, finished)
        report = findings(session, calls, store)
    with run.telling():
        run.write_json(REPORT, report)
    return report


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_begun(site: Site, kept: Sequence[Kept]) -> Site:
    """The site with the targets that a run was begun with: a request log that grew since has other ones.

    Raises:
      UserError: A famous fact of the run is gone.
    """
    facts = {target.key: target.fact for target in site.targets}
    lost = [row.key for row in kept if row.id is None and row.key not in facts]
    if lost:
        raise UserError(
            f"expected the famous facts that the run was begun with, found no {lost[0]}; restore positives.yaml, or "
            "begin a new run"
        )
    targets = tuple(
        Target(**asdict(row), fact=facts[row.key] if row.id is None else fact_of(row.id, site.vocabulary))
        for row in kept
    )
    return replace(site, targets=targets)


def _refuse_other_calls(calls: Sequence[Call], store: Store) -> None:
    """Raises UserError where a question was reworded since the run began: its answers would be of two kinds."""
    keys = {call.request.key for call in calls}
    digest = hashlib.sha256("".join(sorted(keys)).encode()).hexdigest()
    if store.note("calls", digest) != digest or not store.answered() <= keys:
        raise UserError(
            "expected the questions and famous facts that the run was begun with, found others; restore shapes.yaml "
            "and positives.yaml, or begin a new run"
        )


def _reopen(store: Store) -> None:
    """Takes back the end of a run that goes on after it was reported: further answers are a further look at the model.

    A run without an open call keeps its end, so a request log that is read again later can be found complete.
    """
    if "finished" in store.about():
        store.forget("look")
        store.forget("finished")  # last: a kill between the two gives no look away


def _ask(calls: Sequence[Call], site: Site, backend: Backend, store: Store, progress: Progress) -> None:
    """Asks whatever has no answer; each answer is scored, kept and forgotten before the next is looked at."""
    answered = store.answered()
    waiting = {call.request.key: call for call in calls if call.request.key not in answered}
    requests = [call.request for call in waiting.values()]
    progress.stage("asking", total=len(calls), done=len(answered))
    failed = 0
    # Closed at once when the run is stopped, so that nothing more is sent.
    outcomes = cast(Generator[Reply | Failure, None, None], backend.answers(requests))
    with closing(outcomes):
        for outcome in outcomes:
            call = waiting.pop(outcome.key)
            if isinstance(outcome, Failure):
                failed += 1
                store.fail(outcome.key, outcome.reason)
            else:
                score = score_answer(outcome.text, call.probe, call.target, site, call.temperature, call.repeat)
                store.add(call, score, outcome)
            store.book(backend.spent)  # each time: a killed run forgets at most the calls that were under way
            progress.advance(detail=f"{failed} failed" if failed else "")
    for key in waiting:
        store.fail(key, SILENT)
