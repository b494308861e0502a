"""Calls through a proxy that breaks them: each request ends once, as an answer or a failure, and says no secret."""

import json
import logging
import threading
import traceback

import pytest

from canaryjax.detector.api import LOST_IN_A_ROW, Dialect
from canaryjax.detector.records import Failure, Reply
from canaryjax.errors import UserError


def _all(backend, asked):
    found = list(backend.answers(asked))
    assert sorted(outcome.key for outcome in found) == sorted(request.key for request in asked)
    return {outcome.key: outcome for outcome in found}


def test_a_request_is_sent_as_it_is_and_nothing_else(faults, backend, requests, key):
    with faults.FaultProxy(lambda *_: faults.chat_answer("In Rome.", 13, 5)) as proxy:
        found = _all(backend(proxy.url), requests(1))
    assert found["key-0"].text == "In Rome."
    assert (found["key-0"].finish, found["key-0"].prompt_tokens, found["key-0"].completion_tokens) == ("stop", 13, 5)
    ((path, body, headers),) = proxy.calls
    # No tool, no retrieval, no search option: the whole body (SD-20).
    assert body == {
        "model": "small", "temperature": 0.0, "max_tokens": 7, "seed": 100,
        "messages": [{"role": "system", "content": "Do not browse."},
                     {"role": "user", "content": "Where was Tarvolin, number 0?"}],
    }  # fmt: skip
    assert path == "/v1/chat/completions"
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == f"Bearer {key}"


def test_a_dialect_changes_names_only(faults, backend, requests):
    with faults.FaultProxy(lambda *_: faults.chat_answer("x")) as proxy:
        asking = backend(proxy.url)
        asking.dialect = Dialect("max_completion_tokens", system=False, seed=False)
        _all(asking, requests(1))
    assert proxy.calls[0][1] == {
        "model": "small", "temperature": 0.0, "max_completion_tokens": 7,
        "messages": [{"role": "user", "content": "Do not browse.\n\nWhere was Tarvolin, number 0?"}],
    }  # fmt: skip


def test_a_storm_of_429_waits_as_it_is_told_then_with_jitter_and_a_bound(faults, backend, requests, waits):
    # Known fault 48: 20 calls at once are told to come back in 2 seconds.
    storm = threading.Barrier(20)

    def plan(number, _):
        if number < 20:
            storm.wait(60)  # all are under way together
            return faults.Fault(status=429, headers={"Retry-After": "2"})
        return faults.chat_answer("x")

    with faults.FaultProxy(plan) as proxy:
        found = _all(backend(proxy.url, concurrency=20, retries=6), requests(20))
    assert all(isinstance(outcome, Reply) for outcome in found.values())
    assert len(proxy.calls) == 40
    assert len(waits) == 20
    assert min(waits) >= 2.0  # none before
    assert max(waits) <= 2.5
    assert len(set(waits)) == 20  # no two come back together


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_a_passing_status_is_tried_again(faults, backend, requests, waits, status):
    plan = lambda number, _: faults.Fault(status=status) if number < 2 else faults.chat_answer("x")  # noqa: E731
    with faults.FaultProxy(plan) as proxy:
        found = _all(backend(proxy.url), requests(1))
    assert isinstance(found["key-0"], Reply)
    assert len(proxy.calls) == 3
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "Tarvolin"}}},
         "status 400 (context_length_exceeded)"),
        ({"status": 400, "body": {"error": {"code": "Tarvolin", "message": "Tarvolin"}}}, "status 400"),
        ({"status": 422}, "status 422"),
        ({"status": 200, "body": {"choices": [], "object": "chat.completion"}}, "answer without a choice"),
        ({"status": 200, "body": {"choices": "Tarvolin"}}, "answer without a choice"),
    ],
)  # fmt: skip
def test_what_will_not_pass_is_not_tried_again(faults, backend, requests, waits, fault, reason):
    with faults.FaultProxy(lambda *_: faults.Fault(**fault)) as proxy:
        found = _all(backend(proxy.url), requests(3))
    assert [outcome.reason for outcome in found.values()] == [reason] * 3
    assert len(proxy.calls) == 3
    assert waits == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 503}, "status 503"),
        ({"kind": "cut", "body": b'{"choices": [{"mess'}, "connection lost"),
        ({"kind": "drop"}, "connection lost"),
        ({"status": 200, "body": b"<html>Tarvolin</html>", "headers": {"Content-Type": "text/html"}},
         "unreadable answer"),
        ({"status": 200, "body": b'{"choices": ['}, "unreadable answer (JSONDecodeError)"),
    ],
)  # fmt: skip
def test_what_lasts_is_a_failure_after_all_tries(faults, backend, requests, fault, reason):
    with faults.FaultProxy(lambda *_: faults.Fault(**fault)) as proxy:
        found = _all(backend(proxy.url, retries=2), requests(2))
    assert [outcome.reason for outcome in found.values()] == [reason] * 2
    assert len(proxy.calls) == 6


@pytest.mark.slow
def test_of_1500_calls_none_is_lost_and_none_comes_twice(faults, backend, requests):
    # One call in four meets a fault. Each answer repeats its own question: one that went astray would show.
    broken = [
        faults.Fault(status=429, headers={"Retry-After": "1"}),
        faults.Fault(status=500),
        faults.Fault(kind="cut", body=b'{"choices": [{"mess'),
        faults.Fault(kind="drop"),
        faults.Fault(status=408),
    ]

    def plan(number, _):
        if number % 4 == 3:
            return broken[number // 4 % len(broken)]
        return faults.chat_answer(proxy.calls[number][1]["messages"][1]["content"])

    asked = requests(1500)
    with faults.FaultProxy(plan) as proxy:
        found = _all(backend(proxy.url, concurrency=16, retries=20), asked)
    assert {request.key: request.prompt for request in asked} == {key: reply.text for key, reply in found.items()}
    assert len(proxy.calls) >= 2000 - 16


ODD = (7, True, "Tarvolin", {"a": "Tarvolin"}, [None], [7], [[]], ["Tarvolin"])


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "form",
    [
        lambda odd: odd,
        lambda odd: {"choices": odd},
        lambda odd: {"choices": [odd]},
        lambda odd: {"choices": [{"message": odd if not isinstance(odd, dict) else "a"}]},
        lambda odd: {"choices": [{"message": {"content": odd if odd != "Tarvolin" else None, "refusal": {"a": 1}}}]},
        lambda odd: {"choices": [{"message": {"content": [{"type": "text", "text": odd}] * 2 + [3]}}]},
    ],
)
def test_an_answer_of_another_form_is_a_failure(faults, backend, requests, form, odd):
    with faults.FaultProxy(lambda *_: faults.Fault(status=200, body=json.dumps(form(odd)).encode())) as proxy:
        (outcome,) = _all(backend(proxy.url, retries=0), requests(1)).values()
    assert isinstance(outcome, Failure)
    assert outcome.reason in ("answer without a choice", "answer without a text", "unreadable answer")


def test_an_answer_in_parts_is_its_text(faults, backend, requests):
    parts = [{"type": "thinking", "thinking": [7]}, {"type": "text", "text": "In "}, {"type": "text", "text": "1931"}]
    body = {"choices": [{"message": {"content": parts}}]}
    with faults.FaultProxy(lambda *_: faults.Fault(status=200, body=body)) as proxy:
        (outcome,) = _all(backend(proxy.url), requests(1)).values()
    assert outcome.text == "In 1931"


@pytest.mark.parametrize("count", [-1, True, 1.5, "7", 10**30, None, [7]])
def test_a_count_of_tokens_that_is_none_costs_the_worst_case(faults, backend, requests, count):
    answer = faults.chat_answer("x").body | {"usage": {"prompt_tokens": 5, "completion_tokens": count}}
    with faults.FaultProxy(lambda *_: faults.Fault(status=200, body=answer)) as proxy:
        asked = backend(proxy.url, price_in=1.0, price_out=1.0)
        (outcome,) = _all(asked, requests(1)).values()
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (5, None)
    assert asked.budget.spent == pytest.approx((len("Do not browse.Where was Tarvolin, number 0?") + 64 + 7) / 1e6)


def test_a_slow_call_ends_in_time(faults, backend, requests):
    with faults.FaultProxy(lambda *_: faults.Fault(kind="slow")) as proxy:
        found = _all(backend(proxy.url, retries=1, timeout=0.5), requests(1))
    assert found["key-0"].reason == "no answer in time"


def test_a_wait_of_an_hour_is_not_waited(faults, backend, requests, waits):
    plan = lambda *_: faults.Fault(status=429, headers={"Retry-After": "3600"})  # noqa: E731
    with faults.FaultProxy(plan) as proxy:
        found = _all(backend(proxy.url), requests(1))
    assert found["key-0"].reason == "status 429"
    assert waits == []


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, {}, "expected a key that the endpoint takes, found status 401"),
        (403, {}, "expected a key that the endpoint takes, found status 403"),
        (402, {}, "account with credit"),
        (404, {}, "expected a model of the name in model.name"),
        (429, {"error": {"code": "insufficient_quota"}}, "account with credit"),
        (307, {}, "expected the endpoint itself"),
    ],
)
def test_what_no_call_survives_ends_the_run_at_once(faults, backend, requests, key, status, body, words):
    fault = faults.Fault(status=status, body=body, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"})
    with faults.FaultProxy(lambda *_: fault) as proxy:
        asking = backend(proxy.url, concurrency=1)
        with pytest.raises(UserError, match=words) as caught:
            list(asking.answers(requests(7)))
    assert len(proxy.calls) == 1
    # Neither key nor prompt, in the error or in what stands behind it (SD-38, known fault 47).
    told = "".join(traceback.format_exception(caught.value)) + repr(asking)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert not any(secret in told for secret in (key, "Tarvolin", "browse."))


def test_an_endpoint_that_is_gone_ends_the_run(faults, backend, requests):
    with faults.FaultProxy(lambda *_: None) as proxy:
        url = proxy.url  # nobody listens there any more
    with pytest.raises(UserError, match=rf"none to {LOST_IN_A_ROW} calls in a row, each tried 2 times .*no connection"):
        list(backend(url, retries=1).answers(requests(LOST_IN_A_ROW + 30)))


def test_closing_stops_what_is_under_way(faults, backend, requests):
    plan = lambda number, _: faults.chat_answer("x") if number == 0 else faults.Fault(kind="slow")  # noqa: E731
    with faults.FaultProxy(plan) as proxy:
        answers = backend(proxy.url, concurrency=2).answers(requests(50))
        assert isinstance(next(answers), Reply)
        answers.close()
        called = len(proxy.calls)
        assert called <= 4
        assert not [thread for thread in threading.enumerate() if thread.name == "calls"]


def test_nothing_secret_is_logged_even_where_everything_is(faults, backend, requests, key, caplog):
    caplog.set_level(logging.DEBUG)
    plan = lambda number, _: faults.Fault(status=500) if number == 0 else faults.chat_answer("Tarvolin")  # noqa: E731
    with faults.FaultProxy(plan) as proxy:
        found = _all(backend(proxy.url), requests(2))
    told = caplog.text + repr(found)
    assert not any(secret in told for secret in (key, "Tarvolin"))


def test_spending_stops_before_the_limit_is_passed(faults, backend, requests):
    # Worst case of a call: 14 + 29 bytes and 64, and 7 tokens written, at 1 a token: 114; each costs 5 + 2.
    with faults.FaultProxy(lambda *_: faults.chat_answer("x", 5, 2)) as proxy:
        asking = backend(proxy.url, price_in=1e6, price_out=1e6, spending_limit=150.0, concurrency=3)
        found = []
        with pytest.raises(UserError, match="spending_limit=150"):
            found.extend(asking.answers(requests(10)))  # 114 fit into 150 while at most 36 are spent: 6 calls
    assert len(proxy.calls) == 6
    assert asking.budget.spent == pytest.approx(42.0)


def test_a_call_whose_end_nobody_knows_costs_its_worst_case(faults, backend, requests):
    with faults.FaultProxy(lambda *_: faults.Fault(kind="drop")) as proxy:
        asking = backend(proxy.url, price_in=1e6, price_out=1e6, spending_limit=1000.0, retries=1)
        _all(asking, requests(1))
    assert asking.budget.spent == pytest.approx(2 * 114.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base_url": "https://name:sk-secret@example.org/v1"}, "without a name or password"),
        ({"base_url": "example.org/v1?key=sk-secret"}, "like https://host/v1"),
        ({"api_key_variable": "sk-secret"}, "may be a key"),
        ({"api_key_variable": "NO_SUCH_VARIABLE"}, "found none"),
        ({"api_key_variable": "BAD_KEY"}, "characters that no key has"),
    ],
)
def test_a_bad_address_or_key_is_refused_without_showing_it(backend, monkeypatch, change, words):
    monkeypatch.setenv("BAD_KEY", "sk-secret\nX: y")  # the client's own error would show it
    with pytest.raises(UserError, match=words) as caught:
        backend(**({"url": "https://example.org/v1"} if "base_url" not in change else {"url": change["base_url"]})
                | {k: v for k, v in change.items() if k != "base_url"})  # fmt: skip
    assert "secret" not in str(caught.value)
    assert "NO_SUCH" not in str(caught.value)


def test_a_server_on_this_machine_needs_no_key(faults, backend, requests):
    with faults.FaultProxy(lambda *_: faults.chat_answer("x")) as proxy:
        found = _all(backend(proxy.url, api_key_variable="NO_SUCH_VARIABLE"), requests(1))
    assert not isinstance(found["key-0"], Failure)


def test_a_proxy_that_is_none_is_refused_without_showing_it(backend, requests, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "http://user:hidden@::bad::")
    with pytest.raises(UserError, match="expected proxies and certificates") as caught:
        _all(backend("http://example.invalid/v1"), requests(1))
    assert "hidden" not in "".join(traceback.format_exception(caught.value))
