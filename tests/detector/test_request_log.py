"""The request log's reader: whole lines are read, all else is counted, and a count says how far it can be trusted."""

import bz2
import gzip
import json
import lzma
from datetime import UTC, datetime, timedelta

import pytest

from canaryjax.detector.edge.request_log import LONGEST_LINE, read_request_log, stamp_of
from canaryjax.errors import UserError

START = datetime(2031, 3, 10, 7, 0, tzinfo=UTC)
NOW = START + timedelta(days=1)


def at(seconds):
    return START + timedelta(seconds=seconds)


def row(seconds, **changes):
    plain = {
        "time": stamp_of(at(seconds)),
        "path": "/a",
        "ip": "192.0.2.7",
        "user_agent": "ExampleBot",
        "vendor": "example",
        "tier": "vendor",
        "label": "example|/a",
        "id": "fedcba987654",
        "page_status": 200,
    }
    return json.dumps(plain | changes, separators=(",", ":"))


def plain_row(seconds, **changes):
    return row(seconds, **{"tier": None, "label": None, "id": None} | changes)


@pytest.fixture
def read(tmp_path):
    def of(*lines, now=NOW, end="\n"):
        path = tmp_path / "requests.jsonl"
        joined = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
        path.write_bytes(joined + end.encode())
        return read_request_log(path, now)

    return of


def test_a_row_is_read_as_it_stands(read):
    log = read(row(1.017))
    (found,) = log.rows
    assert found.time == datetime(2031, 3, 10, 7, 0, 1, 17_000, tzinfo=UTC)
    assert found.id == 0xFEDCBA987654 > 2**47
    assert (found.path, found.ip, found.user_agent, found.vendor) == ("/a", "192.0.2.7", "ExampleBot", "example")
    assert (found.tier, found.label, found.page_status) == ("vendor", "example|/a", 200)
    assert (log.torn, log.unordered, log.future, log.duplicates) == (0, 0, 0, 0)


def test_an_id_joins_its_rows(read):
    log = read(row(0), plain_row(1), row(2), row(3, id="000000000001", label="example|/b"))
    assert [one.time for one in log.rows_of(0xFEDCBA987654)] == [at(0), at(2)]
    assert [one.label for one in log.rows_of(1)] == ["example|/b"]
    assert log.rows_of(2) == ()
    assert log.duplicates == 1
    assert (log.rows[1].tier, log.rows[1].label, log.rows[1].id) == (None, None, None)


BROKEN = {
    "cut": row(1)[:40],
    "empty object": "{}",
    "a list": "[1]",
    "a number": "17",
    "not json": "hello",
    "bytes": b"\xff\xfe\x00\x80",
    "deep": "[" * 100_000,
    "no status": row(1).replace('"page_status"', '"page"'),
    "status text": row(1, page_status="200"),
    "status true": row(1, page_status=True),
    "path missing": row(1, path=None),
    "number as ip": row(1, ip=17),
    "no zone": row(1, time="2031-03-10T07:00:00.000"),
    "no time": row(1, time="yesterday"),
    "time a number": row(1, time=1_930_893_071),
    "short id": row(1, id="fedcba98765"),
    "id with blanks": row(1, id="fe dc ba 98 "),
    "id not hex": row(1, id="fedcba98765g"),
    "upper-case id": row(1, id="FEDCBA987654"),
    "id without label": row(1, label=None),
    "label without id": row(1, id=None),
    "unknown tier": row(1, tier="site"),
    "empty label": row(1, label=""),
    "half a character": row(1, label="example|/\ud800"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_counted_and_the_others_are_read(read, name):
    log = read(row(0), BROKEN[name], row(2))
    assert [one.time for one in log.rows] == [at(0), at(2)]
    assert log.torn == 1
    assert log.gaps == ((at(0), at(2)),)


def test_a_row_after_a_cut_one_in_its_line_is_read(read):
    # A writer that was cut short writes no newline.
    log = read(row(0), row(1)[:50] + row(2), b"\0" * 11 + row(3).encode())
    assert [one.time for one in log.rows] == [at(0), at(2), at(3)]
    assert log.torn == 2


def test_a_row_inside_a_text_is_no_row(read):
    # What a visitor sends must not become a row of its own.
    agent = 'x{"time":' + row(9, id="000000000001")
    log = read(row(0, user_agent=agent))
    assert [one.user_agent for one in log.rows] == [agent]
    assert read(row(0, user_agent=agent)[:-1]).rows == ()


def test_lines_are_parted_by_newline_alone(read):
    agent = "a\u2028b\u0085c"
    log = read(json.dumps(json.loads(row(0)) | {"user_agent": agent}, ensure_ascii=False), "", "  ", row(1))
    assert [one.user_agent for one in log.rows] == [agent, "ExampleBot"]
    assert log.torn == 0


def test_a_last_line_without_newline_counts_if_it_is_whole(read):
    assert len(read(row(0), row(1), end="").rows) == 2
    log = read(row(0), row(1)[:-1], end="")
    assert (len(log.rows), log.torn, log.gaps) == (1, 1, ((at(0), None),))


def test_unordered_rows_are_counted_and_lower_the_watermark(read):
    log = read(row(0), row(100), row(70), row(90), row(120))
    assert (log.unordered, log.most_behind) == (2, timedelta(seconds=30))
    # Up to 120 seconds are seen, but a row may come 30 late.
    assert log.covers_until == at(90)
    assert log.covers_from == at(0)


def test_other_zones_are_turned_to_utc(read):
    log = read(row(0, time="2031-03-10T09:00:05+02:00"), row(4))
    assert log.rows[0].time == at(5)
    assert log.unordered == 1


def test_future_rows_are_counted_and_cover_nothing(read):
    log = read(row(0), row(10), row(200_000), row(20), now=at(100))
    assert (log.future, log.unordered) == (1, 0)
    assert log.covers_until == at(20)
    assert len(log.rows) == 4  # its id still joins
    count = log.count_fetches(at(5), at(15))
    assert (count.during_run, count.log_complete) == (1, False)
    assert "clock" in count.reason


def test_a_clock_a_little_ahead_is_no_future(read):
    assert read(row(0), row(100), now=at(0)).future == 0
    assert read(row(0), row(121), now=at(0)).future == 1


def test_fetches_are_counted_with_both_ends(read):
    log = read(*(row(second) for second in (0, 10, 20, 30, 40)))
    count = log.count_fetches(at(10), at(30))
    assert (count.during_run, count.log_complete, count.reason) == (3, True, None)
    assert log.count_fetches(at(11), at(19)).during_run == 0


def test_requests_without_content_are_no_fetches(read):
    statuses = (200, 206, 304, 399, 400, 404, 500)
    log = read(plain_row(0), *(plain_row(i + 1, page_status=one) for i, one in enumerate(statuses)), plain_row(50))
    # 304 counts: whoever asked has the page.
    assert log.count_fetches(at(1), at(20)).during_run == 4


@pytest.mark.parametrize(
    ("lines", "complete", "reason"),
    [
        ([row(0), row(30)], False, "complete up to 2031-03-10T07:00:30.000Z"),  # ends before the run does
        ([row(15), row(50)], False, "it begins at 2031-03-10T07:00:15.000Z"),
        ([row(0), row(50), row(38), row(51)], False, "rows come up to 0:00:12 late"),  # 51 - 12 < 40
        ([row(0), row(50), row(45), row(51)], True, None),
        ([row(0), "torn", row(5), row(50)], True, None),  # torn before the run
        ([row(0), row(5), "torn", row(20), row(50)], False, "1 lines around the run's time are torn"),
        ([row(0), row(45), "torn", row(50)], True, None),  # after it
        ([row(0), row(5), "torn", "torn", row(50)], False, "2 lines around"),
        (["torn", row(0), row(50)], True, None),  # before its next line, so before the run
        ([row(0), row(20), row(41), "torn"], True, None),
        ([], False, "holds no row"),
        (["torn"], False, "holds no row"),
    ],
)
def test_whether_the_log_holds_all_of_a_run(read, lines, complete, reason):
    count = read(*lines).count_fetches(at(10), at(40))
    assert count.log_complete is complete
    assert count.reason is None if reason is None else reason in count.reason
    assert (count.during_run is None) == (not any("{" in line for line in lines))


def test_a_missing_log_is_an_error_of_the_user(tmp_path):
    with pytest.raises(UserError, match=r"expected a readable request log.*No such file"):
        read_request_log(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="Is a directory"):
        read_request_log(tmp_path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_log_is_refused(tmp_path, pack):
    """Its bytes are torn lines without a row: every id would be a stranger's."""
    path = tmp_path / "requests.jsonl.gz"
    path.write_bytes(pack(row(0).encode()))
    with pytest.raises(UserError, match=r"found .*requests\.jsonl\.gz compressed; unpack it first"):
        read_request_log(path, NOW)


def test_a_line_without_end_is_read_in_pieces(read):
    log = read(row(0), b"q" * (2 * LONGEST_LINE + 7), row(2))
    assert [one.time for one in log.rows] == [at(0), at(2)]
    assert log.torn == 3
