"""The model that ships, asked through its server, through a proxy that breaks calls, and directly: the same answers."""

import numpy as np
import pytest

import canaryjax as cj
from canaryjax.config.detector import ModelConfig, ProbingConfig
from canaryjax.detector.local import LocalBackend
from canaryjax.detector.preflight import examine
from canaryjax.detector.records import Request
from canaryjax.errors import UserError

pytestmark = pytest.mark.slow
TEXTS = ["The tower of Gatonril is old.", "Bakan sells red clocks, and the doctor of Rome is a singer."]


@pytest.fixture(scope="module")
def local():
    return LocalBackend(ModelConfig(path="embedded", concurrency=4), ProbingConfig(prompt_format="plain"))


@pytest.fixture
def port(served):
    return served.server_address[1]


def _asked(n, temperature):
    return [Request(f"k{temperature}-{i}", "Answer from memory. Do not browse or search the web.",
                    f"Question: What does Bakan sell? {i}", temperature, 50 + i, 11) for i in range(n)]  # fmt: skip


def test_a_server_proves_what_it_can_do(faults, backend, port, local):
    with faults.FaultProxy(lambda *_: None, port) as proxy:
        found = examine(backend(proxy.url, name="embedded", timeout=600))
    assert found.plain() == {"model_name": "embedded", "logprobs": True, "reason": None, "repeatable": True,
                             "system_role": True, "seeded": True}  # fmt: skip
    assert examine(local).plain() == found.plain()


def test_log_probs_are_those_of_score(faults, backend, port, local):
    with faults.FaultProxy(lambda *_: None, port) as proxy:
        remote = backend(proxy.url, name="embedded", timeout=600).token_logps(TEXTS)
    model = cj.load_model("embedded")
    for text, far, near in zip(TEXTS, remote, local.token_logps(TEXTS), strict=True):
        ids = model.tokenizer.encode(text).ids
        expected = cj.score(model, [ids[:1]], [ids[1:]])[0].logps
        np.testing.assert_allclose(near, expected, atol=1e-4)
        np.testing.assert_allclose(far, expected, atol=1e-4)
        assert near.dtype == far.dtype == np.float64


def test_every_request_is_answered_once_whatever_breaks(faults, backend, port, local):
    # One call in three meets a fault; none is lost, none comes twice, and each answer is the unbroken one.
    broken = [
        faults.Fault(status=429, headers={"Retry-After": "1"}),
        faults.Fault(status=500),
        faults.Fault(kind="cut", body=b'{"choices": [{"message": {"content": "The'),
        faults.Fault(kind="drop"),
        faults.Fault(status=503),
    ]
    plan = lambda number, _: None if number % 3 else broken[number // 3 % len(broken)]  # noqa: E731
    asked = [*_asked(12, 0.0), *_asked(12, 0.8)]
    with faults.FaultProxy(plan, port) as proxy:
        found = list(backend(proxy.url, name="embedded", timeout=600, retries=20).answers(asked))
    assert sorted(reply.key for reply in found) == sorted(request.key for request in asked)
    assert len(proxy.calls) >= 36
    greedy = {reply.key: reply.text for reply in local.answers(_asked(12, 0.0))}
    assert {reply.key: reply.text for reply in found if reply.key in greedy} == greedy


def test_an_answer_depends_on_its_seed_and_not_on_its_company(local):
    asked = _asked(7, 0.8)
    together = {reply.key: reply.text for reply in local.answers(asked)}
    (alone,) = local.answers(asked[3:4])
    assert alone.text == together[alone.key]
    assert len(set(together.values())) > 1


def test_a_prompt_that_the_vocabulary_lacks_is_a_failure_that_does_not_show_it(local):
    (failure,) = local.answers([Request("k", "", "Where is 東京?", 0.0, 0, 5)])
    assert failure.reason == "the model's vocabulary cannot write the prompt"
    assert local.token_logps(["東京 is old."]) == [None]


def test_a_model_without_a_chat_form_is_refused_for_chat():
    with pytest.raises(UserError, match="set probing"):
        LocalBackend(ModelConfig(path="embedded"), ProbingConfig())


def test_a_wrong_key_and_a_wrong_name_are_the_servers_to_refuse(faults, backend, port, monkeypatch, requests):
    with faults.FaultProxy(lambda *_: None, port) as proxy:
        with pytest.raises(UserError, match=r"status 404.*it lists embedded"):
            examine(backend(proxy.url, name="imbedded"))
        monkeypatch.setenv("TEST_API_KEY", "sk-wrong")
        with pytest.raises(UserError, match="status 401"):
            examine(backend(proxy.url, name="embedded"))
