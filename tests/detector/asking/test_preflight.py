"""What an endpoint can do is proved by asking it; endpoints here are scripted, for each has another fault."""

import pytest

from canaryjax.detector.api import Dialect
from canaryjax.detector.echo import KNOWN_TEXT
from canaryjax.detector.preflight import examine
from canaryjax.errors import UserError

PIECES = [word + " " for word in KNOWN_TEXT.split()]


def _completion(tokens, logps, text=KNOWN_TEXT, written=0):
    logprobs = {"tokens": tokens, "token_logprobs": logps, "text_offset": [0] * len(tokens), "top_logprobs": None}
    usage = {"prompt_tokens": len(PIECES), "completion_tokens": written, "total_tokens": len(PIECES) + written}
    return {"id": "x", "object": "text_completion", "created": 0, "model": "small", "usage": usage,
            "choices": [{"index": 0, "text": text, "finish_reason": "length", "logprobs": logprobs}]}  # fmt: skip


def _logps(n):
    return [None, *[-0.5 - i / 8 for i in range(n - 1)]]


@pytest.fixture
def scripted(faults, backend):
    """`scripted(chat, completion)`: what `examine` finds where the endpoint answers so, and the calls it made."""

    def run(chat, completion=None, models=("small",)):
        bodies = []

        def plan(number, path):
            body = proxy.calls[number][1]
            bodies.append((path, body))
            if path.endswith("/models"):
                listed = [{"id": name, "object": "model", "created": 0, "owned_by": "x"} for name in models]
                return faults.Fault(status=200, body={"object": "list", "data": listed})
            if path.endswith("/chat/completions"):
                return chat(body)
            found = None if completion is None else completion(body)
            return faults.Fault(status=404) if found is None else faults.Fault(status=200, body=found)

        with faults.FaultProxy(plan) as proxy:
            asking = backend(proxy.url, concurrency=1)
            return examine(asking), asking, bodies

    return run


def test_an_endpoint_that_can_do_all(scripted, faults):
    answer = lambda body: faults.chat_answer(f"About {body['messages'][1]['content']}")  # noqa: E731
    found, asking, bodies = scripted(answer, lambda body: _completion(PIECES, _logps(len(PIECES))))
    assert found.plain() == {"model_name": "small", "logprobs": True, "reason": None, "repeatable": True,
                             "system_role": True, "seeded": True}  # fmt: skip
    assert asking.dialect == Dialect()
    scoring = [body for path, body in bodies if path == "/v1/completions"]
    assert scoring[0] == {"model": "small", "prompt": KNOWN_TEXT, "echo": True, "logprobs": 1, "max_tokens": 0,
                          "temperature": 0.0}  # fmt: skip


@pytest.mark.parametrize(
    ("completion", "why"),
    [
        (None, "completions end with status 404"),
        # Known fault 34: `echo` is ignored, and what was made up is scored.
        (lambda _: _completion(["Nine", "."], [-1.0, -2.0], "Nine.", 2), "ignores echo"),
        (lambda _: _completion(["Nine", "."], [-1.0, -2.0], KNOWN_TEXT + "Nine.", 2), "do not cover"),
        # Known fault 38: a bound in place of a value.
        (lambda _: _completion(PIECES, [*_logps(len(PIECES))[:-1], -9999.0]), "bounds in place"),
        # Known fault 37: inside the text.
        (lambda _: _completion(PIECES, [*_logps(len(PIECES))[:-1], None]), "leaves log-probs out"),
    ],
)
def test_log_probs_that_are_none_are_found_out(scripted, faults, completion, why):
    found, asking, _ = scripted(lambda _: faults.chat_answer("Paris"), completion)
    assert not found.logprobs
    assert why in found.reason
    assert asking.token_logps(["any"]) == [None]  # and nobody is asked again: the proxy is gone


def test_an_endpoint_that_wants_a_token_more_gets_one(scripted, faults):
    def completion(body):
        return (
            _completion([*PIECES, "Yes"], [*_logps(len(PIECES)), -9.0], KNOWN_TEXT + "Yes", 1)
            if body["max_tokens"]
            else None
        )

    found, _, _ = scripted(lambda _: faults.chat_answer("Paris"), completion)
    assert found.logprobs


def test_the_dialect_is_found(scripted, faults):
    def chat(body):
        refused = "max_tokens" in body or "seed" in body or body["messages"][0]["role"] == "system"
        return faults.Fault(status=400) if refused else faults.chat_answer("Paris")

    found, asking, _ = scripted(chat)
    assert asking.dialect == Dialect("max_completion_tokens", system=False, seed=False)
    assert (found.system_role, found.seeded) == (False, False)


def test_answers_that_change_at_temperature_0_are_noted(scripted, faults):
    numbers = iter(range(100))
    found, _, _ = scripted(lambda _: faults.chat_answer(f"Paris {next(numbers)}"))
    assert not found.repeatable


def test_empty_answers_are_refused(scripted, faults):
    with pytest.raises(UserError, match="found empty ones to 3 questions"):
        scripted(lambda _: faults.chat_answer(" "))


def test_a_wrong_name_is_answered_with_the_nearest(scripted, faults):
    with pytest.raises(UserError, match=r"it lists smalt$") as caught:
        scripted(lambda _: faults.Fault(status=404), models=("other", "smalt", "gpt"))
    assert "status 404" in str(caught.value)


def test_a_wrong_key_is_said(scripted, faults):
    with pytest.raises(UserError, match="found status 401"):
        scripted(lambda _: faults.Fault(status=401))


def test_an_endpoint_that_is_not_there_is_said(faults, backend):
    with faults.FaultProxy(lambda *_: None) as proxy:
        url = proxy.url
    with pytest.raises(UserError, match=r"no connection; check model\.base_url"):
        examine(backend(url))
