"""A spending limit is never passed, whatever is under way."""

import asyncio

import pytest

from canaryjax.detector.spending import Budget, Prices
from canaryjax.errors import UserError


def test_prices_are_of_a_million_tokens():
    assert Prices(2.0, 10.0).of(500_000, 100_000) == pytest.approx(2.0)


def test_the_worst_case_counts_bytes_and_the_whole_answer():
    # "é" is two bytes: a tokenizer may need two tokens for it. 64 more for the chat's form.
    assert Prices(1e6, 0.0).worst("ééa", 50) == pytest.approx(5 + 64)
    assert Prices(0.0, 1e6).worst("ééa", 50) == pytest.approx(50)


def test_calls_wait_for_those_under_way_and_the_limit_is_never_passed():
    budget, seen, done = Budget(1.0), [], []

    async def call(cost):
        await budget.reserve(0.3)
        seen.append(budget.spent + budget._held)
        await asyncio.sleep(0)
        budget.settle(0.3, cost)
        done.append(cost)

    async def all_of_them():
        await asyncio.gather(*[call(0.05) for _ in range(13)])

    asyncio.run(all_of_them())  # 13 * 0.3 is above the limit, 13 * 0.05 is not
    assert len(done) == 13
    assert budget.spent == pytest.approx(0.65)
    assert max(seen) <= 1.0


def test_a_call_that_cannot_fit_ends_the_run():
    budget = Budget(1.0, spent=0.8)
    with pytest.raises(UserError, match=r"spending_limit=1, found 0.8 spent"):
        asyncio.run(budget.reserve(0.3))


def test_a_budget_serves_one_loop_after_another():
    budget = Budget(1.0)

    async def two():
        await budget.reserve(0.6)
        second = asyncio.ensure_future(budget.reserve(0.6))
        await asyncio.sleep(0)
        assert not second.done()
        budget.settle(0.6, 0.0)
        await second
        budget.settle(0.6, 0.0)

    asyncio.run(two())
    asyncio.run(two())  # an event kept from the first loop would raise here


def test_no_limit_never_waits():
    budget = Budget(None)
    asyncio.run(budget.reserve(1e9))
    budget.settle(1e9, 3.0)
    assert budget.spent == 3.0
