"""The database of answers: what it refuses, what it forgets, and that it holds no text (SD-37, SD-A12)."""

import sqlite3

import pytest

from canaryjax.detector.call import make_calls
from canaryjax.detector.question import sentence_of
from canaryjax.detector.records import Reply
from canaryjax.detector.scoring import score_answer
from canaryjax.detector.store import Store, peek
from canaryjax.errors import UserError

IDENTITY = {"config": "c0ffee", "site": "5a17", "model": "tiny"}
NOW = "2026-11-30T21:53:41.123+00:00"


@pytest.fixture(scope="module")
def calls(site, oracle, made_site):
    return make_calls(oracle.make_config(made_site), site, "tiny")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.sqlite"


def keep(store, site, call, text="I don't know."):
    score = score_answer(text, call.probe, call.target, site, call.temperature, call.repeat)
    store.add(call, score, Reply(call.request.key, text, "stop", 31, 17))
    return score


def test_what_is_kept_comes_back(site, calls, path):
    some = calls[:7]
    with Store(path, IDENTITY) as store:
        kept = [keep(store, site, call, sentence_of(site.targets[0], site)) for call in some]
        store.keep_targets(site.targets)
        store.add_mean("ladder-003", "logp", -11.25)
        assert store.note("started", NOW) == NOW
    with Store(path, IDENTITY) as store:
        assert sorted(store.answers(), key=repr) == sorted(kept, key=repr)
        assert store.answered() == {call.request.key for call in some}
        assert [row.key for row in store.targets()] == [target.key for target in site.targets]
        assert [row.id for row in store.targets()] == [target.id for target in site.targets]
        assert store.means("logp") == {"ladder-003": -11.25}
        assert store.means("standardised") == {}
        # The first value stays: a resumed run began when it first began.
        assert store.note("started", NOW.replace("53", "54")) == NOW
        store.book(2.5)
        store.book(7.25)  # in place of what it was
    begun = peek(path)
    assert [row.id for row in begun.targets] == [target.id for target in site.targets]
    assert (begun.answers, begun.spent) == (7, 7.25)


def test_answers_come_in_one_order_however_they_were_kept(site, calls, tmp_path):
    found = []
    for number, order in enumerate((calls[:9], calls[8::-1])):
        with Store(tmp_path / f"{number}.sqlite", IDENTITY) as store:
            for call in order:
                keep(store, site, call)
            found.append(store.answers())
    assert found[0] == found[1]


def test_a_call_is_answered_once_and_its_failure_forgotten(site, calls, path):
    with Store(path, IDENTITY) as store:
        for reason in ("status 500", "status 503"):
            store.fail(calls[0].request.key, reason)
        store.fail(calls[1].request.key, "timeout")
        assert store.failures() == {"status 503": 1, "timeout": 1}
        keep(store, site, calls[0])
        assert store.failures() == {"timeout": 1}
        with pytest.raises(sqlite3.IntegrityError):
            keep(store, site, calls[0])
        assert len(store.answers()) == 1


def test_no_text_is_kept(site, calls, path):
    with Store(path, IDENTITY) as store:
        store.keep_targets(site.targets)
        for call in calls:
            keep(store, site, call, sentence_of(call.target, site))
        log = path.with_name(path.name + "-wal").read_bytes()
    data = (path.read_bytes() + log).lower()
    for target in site.targets:
        fact = target.fact
        for text in (fact.given, fact.surname, fact.place, fact.event, fact.archive, sentence_of(target, site)):
            assert text is None or text.lower().encode() not in data


@pytest.mark.parametrize("name", IDENTITY)
def test_a_store_of_another_run_is_refused(path, name):
    Store(path, IDENTITY).close()
    with pytest.raises(UserError, match=f"one with another {name}; give the directory"):
        Store(path, IDENTITY | {name: "other"})


def test_a_store_of_another_version_is_refused(path):
    Store(path, IDENTITY).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    for read in (lambda: Store(path, IDENTITY), lambda: peek(path)):
        with pytest.raises(UserError, match=r"answers of version 1 .* found version 2; finish the run with"):
            read()


def test_another_programs_database_is_refused(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()
    with pytest.raises(UserError, match=r"expected answers of version 1 .* found version 0"):
        Store(path, IDENTITY)


def damage_header(data):
    return b"no database at all, but long enough to be one" + data[45:]


def damage_page(data):
    return data[:4096] + b"\xa5" * 8192 + data[12288:]


@pytest.mark.parametrize("damage", [damage_header, damage_page, lambda data: data[: len(data) // 2]])
def test_a_damaged_store_is_refused_with_advice(site, calls, path, damage):
    with Store(path, IDENTITY) as store:
        for call in calls[:60]:
            keep(store, site, call)
    path.write_bytes(damage(path.read_bytes()))
    for read in (lambda: Store(path, IDENTITY), lambda: peek(path)):
        with pytest.raises(UserError, match=r"damaged .*; restore it from a copy, or begin a new run"):
            read()


EDITS = (
    *(f"UPDATE answers SET {change}" for change in (
        "raw = 'abc'", "raw = -1", "raw = 64", "net = 63, raw = 1", "bits = 'x'", "bits = 9e999", "others = 'zz'",
        "others = x'ff'", "kind = 'nope'", "temperature = 'hot'", "temperature = -1", "repeat = 'x'", "decoded = 'x'",
        "empty = 7", "prompt_tokens = 9e999", "completion_tokens = -1", "completion_tokens = 'x'",
    )),
    *(f"UPDATE targets SET {change}" for change in (
        "population = 'x'", "tier = 'x'", "tier = NULL", "id = 'x'", "id = -1", "id = 281474976710656", "id = NULL",
        "occurrences = 'many'", "occurrences = -1", "cohort = 5", "log_row = x'ff'", "key = x'ff'",
    )),
    "UPDATE means SET nats = 'x'",
    "UPDATE means SET nats = -9e999",
    "UPDATE failures SET reason = x'ff'",
    "UPDATE about SET value = x'ff'",
    "UPDATE about SET value = 'yesterday' WHERE name = 'started'",
    "UPDATE about SET value = '2026-01-01T00:00:00' WHERE name = 'started'",
    *(f"DROP TABLE {name}" for name in ("about", "targets", "answers", "failures", "means")),
)  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_store_that_was_edited_is_refused_with_advice(site, calls, path, edit):
    with Store(path, IDENTITY) as store:
        store.keep_targets(tuple(target for target in site.targets if target.population == "canary")[:1])
        keep(store, site, calls[0])
        store.fail(calls[1].request.key, "status 500")
        store.add_mean("ladder-003", "logp", -11.25)
        store.note("started", NOW)
    with sqlite3.connect(path) as db:
        if not edit.startswith("DROP"):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(edit)
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute(edit)
    db.close()
    for read in (lambda: Store(path, IDENTITY), lambda: peek(path)):
        with pytest.raises(UserError, match=r"damaged .*; restore it from a copy, or begin a new run"):
            read()


def test_a_text_that_is_none_is_damage(path):
    with Store(path, IDENTITY) as store:
        store.fail("key", "status 500")
        store._db.execute("UPDATE failures SET reason = CAST(x'ff' AS TEXT)")
        with pytest.raises(UserError, match="begin a new run"):
            store.failures()


def test_an_empty_file_is_begun_anew(path):
    # What a kill leaves between the making of the file and its first transaction.
    path.write_bytes(b"")
    assert peek(path).answers == 0
    with Store(path, IDENTITY) as store:
        assert store.answers() == []
