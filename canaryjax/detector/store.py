"""The run's database: scored answers and failures by keyed hash, one transaction each; no text of any kind.

SQLite in write-ahead mode keeps it whole through a kill at any moment: an answer is in it altogether or not at all.
"""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from canaryjax.detector.call import Call
from canaryjax.detector.records import FIELDS, AnswerScore, Cohort, Field, Population, ProbeKind, Reply, Target, Tier
from canaryjax.detector.schema import SCHEMA, TABLES
from canaryjax.errors import UserError

VERSION = 1
STORE = "answers.sqlite"


@dataclass(frozen=True)
class Kept:
    """What a target is known by in the database: all of it but its fact, which its id gives again."""

    key: str
    population: Population
    tier: Tier | None
    occurrences: int | None
    cohort: Cohort | None
    id: int | None
    log_row: str | None


@dataclass(frozen=True)
class Begun:
    """How far a run came.

    Attributes:
      targets: Whom it asks about; none before it began.
      answers: How many there are.
      spent: What all calls have cost so far, by the prices of their time; those that failed and the preflight's too.
    """

    targets: tuple[Kept, ...]
    answers: int
    spent: float


NOTHING = Begun((), 0, 0.0)


class Store:
    """Answers of one run; held open by one process.

    Args:
      path: Made where it is not there.
      identity: What tells this run from others, such as the hash of its config; compared with that of the file.

    Raises:
      UserError: The file is damaged, no such database, of another version, or of another run.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        self._path = path
        self._db = _connect(path)
        try:
            with _whole(path):
                self._begin(identity)
        except BaseException:
            self._db.close()
            raise

    def _begin(self, identity: Mapping[str, str]) -> None:
        if _version(self._db, self._path) is None:
            with self._db:  # one transaction: a kill leaves an empty file, which is begun anew
                self._db.execute("BEGIN IMMEDIATE")
                for statement in SCHEMA.split(";")[:-1]:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")
                self._db.executemany("INSERT INTO about VALUES (?, ?)", identity.items())
        about = self.about()
        for name, value in identity.items():
            if about.get(name) != value:
                raise UserError(
                    f"expected answers of this run in {self._path}, found those of one with another {name}; give the "
                    "directory that this run was begun in, or begin a new one"
                )

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        self._db.close()

    def about(self) -> dict[str, str]:
        """What is known of the run, by name."""
        return dict(self._read("SELECT name, value FROM about"))

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with _whole(self._path):
            return self._db.execute(statement, values).fetchall()

    def note(self, name: str, value: str) -> str:
        """Keeps a value the first time; returns the one that is kept."""
        with _whole(self._path), self._db:
            self._db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
        return self.about()[name]

    def forget(self, name: str) -> None:
        """Lets the next `note` of that name be the first again."""
        with _whole(self._path), self._db:
            self._db.execute("DELETE FROM about WHERE name = ?", (name,))

    def book(self, spent: float) -> None:
        """Keeps what the run has cost so far, in place of what was kept before."""
        with _whole(self._path), self._db:
            self._db.execute("INSERT OR REPLACE INTO about VALUES ('spent', ?)", (repr(spent),))

    def keep_targets(self, targets: tuple[Target, ...]) -> None:
        """Writes down whom the run asks about, in their order."""
        rows = [(t.key, t.population, t.tier, t.occurrences, t.cohort, t.id, t.log_row) for t in targets]
        columns = "(key, population, tier, occurrences, cohort, id, log_row)"
        with _whole(self._path), self._db:
            self._db.executemany(f"INSERT INTO targets {columns} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def targets(self) -> list[Kept]:
        """Whom the run asks about; empty before `keep_targets`."""
        with _whole(self._path):
            return _targets(self._db)

    def add(self, call: Call, score: AnswerScore, reply: Reply) -> None:
        """Keeps the score of an answer, in a transaction of its own; an earlier failure of the call is forgotten.

        Raises:
          sqlite3.IntegrityError: The call has an answer.
        """
        row = (
            call.request.key,
            *(score.target, score.kind, score.temperature, score.repeat, _mask(score.raw), _mask(score.net)),
            *(score.bits, score.raw_decoded, score.decoded, " ".join(f"{id:012x}" for id in score.others)),
            *(score.empty, score.refusal, reply.prompt_tokens, reply.completion_tokens),
        )
        with _whole(self._path), self._db:
            self._db.execute(f"INSERT INTO answers VALUES ({', '.join('?' * len(row))})", row)
            self._db.execute("DELETE FROM failures WHERE key = ?", (call.request.key,))

    def fail(self, key: str, reason: str) -> None:
        """Keeps why a call has no answer; it is asked again when the run is resumed."""
        with _whole(self._path), self._db:
            self._db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?)", (key, reason))

    def answered(self) -> set[str]:
        """Keys of the calls that have an answer."""
        return {key for (key,) in self._read("SELECT key FROM answers")}

    def answers(self) -> list[AnswerScore]:
        """All scored answers, in the order of their keys: the same whenever they came."""
        columns = "target, kind, temperature, repeat, raw, net, bits, raw_decoded, decoded, others, empty, refusal"
        return [_score(row) for row in self._read(f"SELECT {columns} FROM answers ORDER BY key")]

    def failures(self) -> dict[str, int]:
        """How many calls have no answer, by reason, the most frequent first."""
        return dict(Counter(reason for (reason,) in self._read("SELECT reason FROM failures")).most_common())

    def add_mean(self, target: str, measure: str, nats: float) -> None:
        """Keeps one number of a target's sentence.

        Never one a token: whoever has the weights reads a sentence off its tokens' log-probs, one after the other.
        """
        with _whole(self._path), self._db:
            self._db.execute("INSERT OR REPLACE INTO means VALUES (?, ?, ?)", (target, measure, nats))

    def means(self, measure: str) -> dict[str, float]:
        """By target's key."""
        return dict(self._read("SELECT target, nats FROM means WHERE measure = ? ORDER BY target", measure))


def peek(path: Path) -> Begun:
    """How far a run came, without taking it up; nothing where there is no file.

    Raises:
      UserError: As `Store`, but for the run's identity.
    """
    if not path.exists():
        return NOTHING
    with contextlib.closing(_connect(path)) as db, _whole(path):
        if _version(db, path) is None:
            return NOTHING
        (answers,) = db.execute("SELECT count(*) FROM answers").fetchone()
        booked = db.execute("SELECT value FROM about WHERE name = 'spent'").fetchone()
        return Begun(tuple(_targets(db)), answers, float(booked[0]) if booked else 0.0)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, isolation_level="IMMEDIATE")
    except sqlite3.Error as error:
        raise UserError(f"expected to open {path}; {error}; give access to the run directory") from None


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turns what SQLite says of a file that is no database of this program into a `UserError`."""
    try:
        yield
    except sqlite3.IntegrityError:  # of a statement, not of the file
        raise
    except sqlite3.OperationalError as error:  # locked, read-only, full, or tables that are not there
        raise UserError(
            f"expected a database of answers that can be read and written in {path}; {error}; see that no other "
            "process uses it and that the disk has room, or begin a new run directory"
        ) from None
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from None


def _version(db: sqlite3.Connection, path: Path) -> int | None:
    """The version of a whole database; None of an empty one. Sets up how it is written."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version != VERSION and tables:
        raise UserError(
            f"expected answers of version {VERSION} in {path}, found version {version}; finish the run with the "
            "canaryjax that began it, or begin a new run directory"
        )
    (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise _damaged(path, state)
    if tables and not tables >= TABLES:
        raise _damaged(path, "tables are missing")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # an answer that was paid for outlives a power cut, too
    return version if tables else None


def _targets(db: sqlite3.Connection) -> list[Kept]:
    columns = "key, population, tier, occurrences, cohort, id, log_row"
    return [Kept(*row) for row in db.execute(f"SELECT {columns} FROM targets ORDER BY place")]


def _damaged(path: Path, what: str) -> UserError:
    found = " ".join(what.split())
    return UserError(
        f"expected a whole database of answers in {path}, found it damaged ({found}); restore it from a copy, or "
        "begin a new run directory: its answers cannot be told from damage"
    )


def _mask(fields: frozenset[Field]) -> int:
    return sum(1 << place for place, field in enumerate(FIELDS) if field in fields)


def _score(row: tuple[Any, ...]) -> AnswerScore:
    target, kind, temperature, repeat, raw, net, bits, raw_decoded, decoded, others, empty, refusal = row
    return AnswerScore(
        target=target,
        kind=cast(ProbeKind, kind),
        temperature=temperature,
        repeat=repeat,
        raw=_fields(raw),
        net=_fields(net),
        bits=bits,
        raw_decoded=bool(raw_decoded),
        decoded=bool(decoded),
        others=tuple(int(id, 16) for id in others.split()),
        empty=bool(empty),
        refusal=bool(refusal),
    )


def _fields(mask: int) -> frozenset[Field]:
    return frozenset(field for place, field in enumerate(FIELDS) if mask >> place & 1)
