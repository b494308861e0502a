"""A whole run against a backend that knows some sentences: what it reports, and that a stop costs nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from canaryjax.detector.call import make_calls
from canaryjax.detector.derive import edge_id
from canaryjax.detector.question import sentence_of
from canaryjax.detector.run import NothingAnswered, open_run, run_probes
from canaryjax.detector.spec import format_id
from canaryjax.detector.store import STORE, peek
from canaryjax.detector.targets import make_targets
from canaryjax.errors import UserError
from canaryjax.runlog.progress import Silence

ORACLE = Path(__file__).with_name("oracle.py")


class World:
    """A site and runs on it."""

    def __init__(self, oracle, root, site):
        self.oracle, self.root, self.site = oracle, root, site

    def config(self, **sections):
        return self.oracle.make_config(self.root, **sections)

    def backend(self, config, **settings):
        site = settings.pop("site", self.site)
        known = frozenset(target.key for target in site.targets if target.occurrences == 300)
        return self.oracle.Oracle(config, site, **{"known": known, **settings})

    def run(self, config, backend, out, resume=False, measures=None):
        run = open_run(config, out, resume)
        try:
            capabilities = {"logprobs": bool(measures)}
            return run_probes(config, self.site, backend, capabilities, measures or {}, run, Silence())
        finally:
            run.close()


@pytest.fixture
def world(oracle, root, site):
    return World(oracle, root, site)


def test_a_model_that_knows_two_sentences_has_two_hits(world, tmp_path):
    config = world.config()
    backend = world.backend(config)
    report = world.run(config, backend, tmp_path / "run")
    assert report == json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["schema"] == "canaryjax.detector/1"
    calls = report["calls"]
    assert (calls["planned"], calls["answered"], calls["failed"], calls["per_target"]) == (375, 375, 0, 15)
    assert calls["refusals"] == 23 * 15  # all but the two known ones say that they don't know
    assert len(backend.asked) == len(set(backend.asked)) == 375
    assert {(hit["target"], hit["how"]) for hit in report["hits"]} == {(key, "full decode") for key in backend.known}
    assert len(report["hits"]) == 2
    populations = {name: (found["hits"], found["n"]) for name, found in report["populations"].items()}
    assert populations == {"canary": (2, 17), "negative": (0, 5), "positive": (0, 3)}
    curve = {point["occurrences"]: (point["hits"], point["n"]) for point in report["curve"]}
    assert curve == {1: (0, 2), 10: (0, 2), 100: (0, 2), 300: (2, 2)}
    assert report["look"]["number"] == 1
    assert report["started"] < report["finished"]
    assert report["fetches"]["during_run"] is None


def test_a_stopped_run_goes_on_and_ends_as_if_it_had_not(world, tmp_path):
    config = world.config()
    whole = world.run(config, world.backend(config), tmp_path / "whole")
    first = world.backend(config, stop_after=101)
    with pytest.raises(KeyboardInterrupt):
        world.run(config, first, tmp_path / "run")
    assert not (tmp_path / "run" / "report.json").exists()
    second = world.backend(config)
    report = world.run(config, second, tmp_path / "run", resume=True)
    assert (len(first.asked), len(second.asked)) == (101, 274)
    assert not set(first.asked) & set(second.asked)
    assert report["look"]["number"] == 2  # after the whole one, and once for both halves
    # All else is what it would have been, but for the level of a second look.
    for name in ("calls", "populations", "hits", "curve", "strays"):
        assert report[name] == whole[name], name


def test_failures_are_counted_and_asked_again(world, tmp_path):
    config = world.config()
    failing = frozenset(call.request.key for call in make_calls(config, world.site, "oracle")[::37])
    report = world.run(config, world.backend(config, failing=failing), tmp_path / "run")
    assert len(failing) == 11
    calls = report["calls"]
    assert (calls["planned"], calls["answered"], calls["failed"]) == (375, 364, 11)
    assert calls["failures"] == {"status 503": 11}
    assert any("11 of 375 calls have no answer (11: status 503); --resume" in text for text in report["warnings"])
    assert report["look"]["number"] == 1
    again = world.backend(config)
    report = world.run(config, again, tmp_path / "run", resume=True)
    assert set(again.asked) == failing
    assert (report["calls"]["answered"], report["calls"]["failed"], report["calls"]["failures"]) == (375, 0, {})
    # Whoever asks on because of what the first report said looks twice; to weigh the same answers anew is no look.
    assert report["look"]["number"] == 2
    assert world.run(config, again, tmp_path / "run", resume=True)["look"]["number"] == 2


def test_what_a_run_has_cost_is_kept_over_stops_and_failures(world, tmp_path):
    config, store = world.config(), tmp_path / "run" / STORE
    assert peek(store).spent == 0.0
    failing = frozenset(call.request.key for call in make_calls(config, world.site, "oracle")[:7])
    with pytest.raises(KeyboardInterrupt):
        world.run(config, world.backend(config, failing=failing, stop_after=101), tmp_path / "run")
    # Answers alone would say 94: those that failed were sent, too.
    assert peek(store).spent == 101 * 0.25
    world.run(config, world.backend(config, spent=peek(store).spent), tmp_path / "run", resume=True)
    assert peek(store).spent == (101 + 274 + 7) * 0.25


def test_a_finished_run_is_weighed_anew_without_a_call(world, tmp_path):
    config = world.config()
    first = world.run(config, world.backend(config), tmp_path / "run")
    again = world.backend(config)
    # Its times stay: a log that covers them by now is complete, where one read at once never is.
    assert world.run(config, again, tmp_path / "run", resume=True) == first
    assert again.asked == []


def test_a_run_without_an_answer_reports_no_rate(world, tmp_path):
    config = world.config()
    every = frozenset(call.request.key for call in make_calls(config, world.site, "oracle"))
    with pytest.raises(NothingAnswered, match=r"none of 375 calls was answered \(375 times status 503\)"):
        world.run(config, world.backend(config, failing=every), tmp_path / "run")
    assert not (tmp_path / "run" / "report.json").exists()


def test_a_backend_that_ends_early_leaves_failures(world, tmp_path):
    config = world.config()
    backend = world.backend(config)
    answers = backend.answers
    backend.answers = lambda requests: (answer for answer, _ in zip(answers(requests), range(370), strict=False))
    calls = world.run(config, backend, tmp_path / "run")["calls"]
    assert (calls["answered"], calls["failures"]) == (370, {"the backend ended without an answer": 5})


def test_sentences_are_scored_last_and_not_twice(world, tmp_path):
    config = world.config()
    backend = world.backend(config)
    seen = []

    def logp(texts):
        seen.append((len(backend.asked), list(texts)))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return backend.token_logps(texts)

    with pytest.raises(KeyboardInterrupt):
        world.run(config, backend, tmp_path / "run", measures={"logp": logp})
    report = world.run(config, backend, tmp_path / "run", resume=True, measures={"logp": logp})
    # After the last question, so that no answer can come from a sentence that was just sent.
    assert {asked for asked, _ in seen} == {375}
    assert [len(texts) for _, texts in seen] == [16, 6, 6]
    sentences = {sentence_of(t, backend.site) for t in backend.site.targets if t.population != "positive"}
    assert set(seen[0][1]) | set(seen[2][1]) == sentences
    assert report["membership"]["available"]


def test_nothing_secret_lies_in_a_run(world, tmp_path):
    config = world.config(model={"backend": "api", "name": "m", "base_url": "http://user:passw0rd@127.0.0.1:9/v1"})
    backend = world.backend(config)
    world.run(config, backend, tmp_path / "run", measures={"logp": backend.token_logps})
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"config.yaml", "run.json", "report.json", "answers.sqlite"}
    keys = [(world.root / "keys" / name).read_text().strip() for name in ("seed", "control_seed", "edge_secret")]
    secrets = [*keys, str(world.root), "passw0rd"]
    for target in backend.site.targets:
        fact = target.fact
        if target.population != "positive":  # a famous fact is none, and a report may well say London
            secrets += [
                fact.given,
                fact.surname,
                fact.place,
                fact.event,
                fact.archive,
                sentence_of(target, backend.site),
            ]
    for path in [*files, world.root / "site" / "looks.jsonl"]:
        data = path.read_bytes().lower()
        for secret in secrets:
            assert secret.lower().encode() not in data, path
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["site"] == {"vendor": None}


def test_another_config_site_or_model_is_refused(world, tmp_path):
    config = world.config()
    backend = world.backend(config, stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        world.run(config, backend, tmp_path / "run")
    with pytest.raises(UserError, match=r"differing keys: probing\.temperature"):
        world.run(world.config(probing={"temperature": 0.7}), backend, tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="one with another model; give the directory"):
        world.run(config, world.backend(config, label="sibyl"), tmp_path / "run", resume=True)
    # Limits and speed are no part of what a run is.
    faster = world.config(model={"concurrency": 64}, probing={"max_calls": 1000})
    assert world.run(faster, world.backend(faster), tmp_path / "run", resume=True)["calls"]["answered"] == 375


def test_reworded_questions_are_refused(world, tmp_path):
    config = world.config()
    with pytest.raises(KeyboardInterrupt):
        world.run(config, world.backend(config, stop_after=3), tmp_path / "run")
    shapes = world.site.shapes
    who = shapes.questions["who"].replace("Give the full name.", "Give a name.")
    world.site = replace(world.site, shapes=replace(shapes, questions={**shapes.questions, "who": who}))
    with pytest.raises(UserError, match="expected the questions and famous facts that the run was begun with"):
        world.run(config, world.backend(config), tmp_path / "run", resume=True)


def write_log(world, labels):
    from canaryjax.detector.secret import read_secrets

    secret = read_secrets(world.root / "keys").edge_secret
    common = {
        "time": "2021-03-05T07:11:13.017Z",
        "ip": "192.0.2.7",
        "user_agent": "x",
        "vendor": None,
        "tier": "window",
    }
    rows = [
        {
            **common,
            "path": f"/a-page-of-ours-{i}",
            "label": label,
            "id": format_id(edge_id(secret, "window", label)),
            "page_status": 200,
        }
        for i, label in enumerate(labels)
    ]
    (world.root / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_log_that_grows_changes_no_targets_of_a_run(oracle, full_root, tmp_path):
    world = World(oracle, full_root, None)
    config = world.config(site={"request_log": str(world.root / "log.jsonl")}, probing={"most_per_group": 2})
    labels = ["a-1", "a-2", "a-3", "a-4", "a-5"]
    write_log(world, labels[:2])
    begun = world.site = make_targets(config)
    first = world.backend(config, stop_after=200)
    with pytest.raises(KeyboardInterrupt):
        world.run(config, first, tmp_path / "run")
    write_log(world, labels)
    world.site = make_targets(config)
    assert {target.key for target in world.site.targets} != {target.key for target in begun.targets}
    second = world.backend(config, site=begun)
    report = world.run(config, second, tmp_path / "run", resume=True)
    assert Counter(first.asked + second.asked).most_common(1)[0][1] == 1
    assert report["calls"]["answered"] == report["calls"]["planned"] == len(first.asked) + len(second.asked)
    # The path of a page may tell which site it is; the id and the time are enough to find the row (SD-38).
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"a-page-of-ours" not in path.read_bytes(), path
    windows = [group for group in report["groups"] if group["tier"] == "window"]
    assert [group["n"] for group in windows] == [2]
    # The log's last row is of years ago: it says nothing of today.
    assert (report["fetches"]["during_run"], report["fetches"]["log_complete"]) == (0, False)


def test_a_named_maker_needs_its_crawlers(world, tmp_path):
    write_log(world, ["a-1"])
    config = world.config(site={"request_log": str(world.root / "log.jsonl"), "vendor": "acme"})
    with pytest.raises(UserError, match=r"expected crawlers\.yaml beside the word lists"):
        world.run(config, world.backend(config), tmp_path / "one")
    (world.root / "site" / "crawlers.yaml").write_text("other: {agents: [otherbot], ranges: [192.0.2.0/24]}\n")
    with pytest.raises(UserError, match=r"expected site\.vendor to be one of \['other'\]"):
        world.run(config, world.backend(config), tmp_path / "two")


@pytest.mark.slow
def test_a_killed_run_loses_no_answer_and_asks_none_twice(full_root, tmp_path):
    out, diary = tmp_path / "run", full_root / "diary"

    def begin(delay):
        words = [sys.executable, str(ORACLE), str(full_root), str(out), str(delay)]
        return subprocess.Popen(
            words, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        )

    killed = []
    for least in (40, 90):
        process = begin(0.01)
        while not diary.exists() or len(diary.read_text().splitlines()) < least:
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.005)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        killed.append(len(diary.read_text().splitlines()))
    assert killed[0] < killed[1] < 375
    process = begin(0.0)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    asked = Counter(diary.read_text().splitlines())
    # An answer that was on its way when the process died is asked again: at most one for each kill.
    assert len(asked) == 375
    assert sum(asked.values()) <= 377
    report = json.loads((out / "report.json").read_text())
    assert (report["calls"]["answered"], len(report["hits"]), report["look"]["number"]) == (375, 2, 1)


def test_one_number_a_sentence_is_kept(world, tmp_path):
    from canaryjax.detector.store import STORE, Store

    config = world.config(evidence={"permutations": 999, "min_k_share": 0.3})
    backend = world.backend(config)
    missing = {sentence_of(target, backend.site) for target in backend.site.targets[:4]}

    def logp(texts):
        return [None if text in missing else nats for text, nats in zip(texts, backend.token_logps(texts), strict=True)]

    report = world.run(config, backend, tmp_path / "run", measures={"logp": logp})
    with Store(tmp_path / "run" / STORE, {"model": "oracle"}) as store:
        kept = store.means("logp")
    for target in backend.site.targets:
        text = sentence_of(target, backend.site)
        assert (target.key in kept) == (target.population != "positive" and text not in missing)
        if target.key in kept:
            # Seven tokens of -1 to -7 over the length; the lowest 3 of 7, as 0.3 of 7 is 2.1: -7, -6 and -5.
            assert kept[target.key] == pytest.approx(-6 / len(text))
    found = report["membership"]["min_k"]
    assert found["n"] + found["negatives"] == len(kept) < 22
    assert report["membership"]["min_k_plus_plus"]["n"] == 0
