"""Waits between tries: never shorter than asked for, jittered, bounded."""

import asyncio
import random

import pytest

from canaryjax.detector.retry import Pace, retried, retry_after


def test_which_statuses_are_tried_again():
    assert [s for s in (200, 400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529) if retried(s)] == [
        408, 409, 429, 500, 502, 503, 529]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),  # our clock: 100 s
        # The endpoint's clock is an hour behind ours: by ours the date is long past, and no wait would be kept.
        ({"retry-after": "Wed, 31 Dec 1969 23:02:07 GMT", "date": "Wed, 31 Dec 1969 23:02:00 GMT"}, 7.0),
    ],
)
def test_retry_after_is_read(headers, seconds):
    assert retry_after(headers, now=100.0) == seconds


def _pace(waits, now):
    async def sleep(seconds):
        waits.append(seconds)
        now[0] += seconds

    return Pace(sleep, lambda: now[0], random.Random(3))


@pytest.mark.parametrize(("tries", "most"), [(1, 0.5), (2, 1.0), (4, 4.0), (9, 30.0), (21, 30.0)])
def test_back_off_doubles_up_to_its_bound(tries, most):
    waits = []
    pace = _pace(waits, [0.0])

    async def often():
        for _ in range(200):
            await pace.start(tries)

    asyncio.run(often())
    assert most / 2 <= min(waits) < 0.55 * most
    assert 0.95 * most < max(waits) <= most


def test_a_first_try_does_not_wait():
    waits = []
    asyncio.run(_pace(waits, [0.0]).start(0))
    assert waits == []


def test_a_hold_keeps_back_every_call_until_it_is_over():
    waits, now = [], [50.0]
    pace = _pace(waits, now)
    pace.hold(2.0)
    pace.hold(1.0)  # a shorter one does not end the longer
    asyncio.run(pace.start(0))
    assert 52.0 <= now[0] <= 52.5
    assert len(waits) == 1


def test_a_hold_that_comes_while_waiting_is_kept_too():
    now, waits = [0.0], []

    async def sleep(seconds):
        waits.append(seconds)
        now[0] += seconds
        if len(waits) == 1:
            pace.hold(5.0)

    pace = Pace(sleep, lambda: now[0], random.Random(1))
    pace.hold(1.0)
    asyncio.run(pace.start(1))
    assert now[0] >= waits[0] + 5.0
