"""What is told before anything is sent, and the limits that stop it (SD-22)."""

import pytest

from canaryjax.detector.call import make_calls
from canaryjax.detector.plan import check_limits, plan_run
from canaryjax.errors import UserError

API = {"backend": "api", "name": "m"}


def plan(oracle, site, root, answered=0, spent=0.0, probing=None, **model):
    config = oracle.make_config(root, model=API | model, probing=probing or {})
    return config, plan_run(config, make_calls(config, site, "m"), answered, spent)


def test_calls_are_counted_exactly(oracle, site, made_site):
    # 17 canaries, 5 negatives, 3 famous facts; 5 questions at 0 once and at 0.8 twice.
    _, whole = plan(oracle, site, made_site)
    assert (whole.calls, whole.answered, whole.scored, whole.tokens_out) == (375, 0, 22, 375 * 64 + 22)
    assert whole.seconds == 47 * 4.0  # eight at a time
    assert whole.cost is None
    _, rest = plan(oracle, site, made_site, answered=370, logprobs="off")
    assert (rest.calls, rest.answered, rest.scored, rest.tokens_out) == (5, 370, 0, 320)


def test_a_thousand_calls_cost_what_the_prices_say(oracle, site, made_site):
    _, whole = plan(oracle, site, made_site, price_in=2.0, price_out=10.0)
    assert whole.cost == pytest.approx((whole.tokens_in * 2.0 + 24_022 * 10.0) / 1e6)
    # What earlier answers cost counts: a limit is one of the run, not of each call of the command.
    _, rest = plan(oracle, site, made_site, answered=375, spent=7.0, price_in=2.0, price_out=10.0)
    assert rest.cost == pytest.approx(2.0 + 5.0 + (rest.tokens_in * 2.0 + 22 * 10.0) / 1e6)
    # The 22 whole sentences are read too, a token each is written beside the echo, and neither is free.
    _, without = plan(oracle, site, made_site, answered=375, logprobs="off")
    assert (without.tokens_in, without.tokens_out) == (0, 0)
    assert 22 * 20 < rest.tokens_in < 22 * 200


def test_tokens_in_cover_prompt_and_system(oracle, site, made_site):
    config, whole = plan(oracle, site, made_site)
    letters = sum(len(call.request.system + call.request.prompt) for call in make_calls(config, site, "m"))
    assert letters / 4 < whole.tokens_in < letters


def test_a_run_past_a_limit_is_refused(oracle, site, made_site):
    for most, fits in ((397, True), (396, False)):  # 375 calls and 22 sentences
        config, whole = plan(oracle, site, made_site, probing={"max_calls": most})
        if fits:
            check_limits(whole, config)
        else:
            with pytest.raises(UserError, match=r"at most 396 calls \(probing\.max_calls\), found 397 in the plan"):
                check_limits(whole, config)
    config, whole = plan(oracle, site, made_site, price_out=10.0, spending_limit=0.24022)
    check_limits(whole, config)
    config, whole = plan(oracle, site, made_site, price_out=10.0, spending_limit=0.2402)
    with pytest.raises(UserError, match=r"a cost of at most 0\.2402 \(model\.spending_limit\), found up to 0\.24"):
        check_limits(whole, config)


def test_local_time_grows_with_the_weights(oracle, site, made_site, tmp_path):
    def seconds(path):
        config = oracle.make_config(made_site, model={"path": str(path)})
        return plan_run(config, make_calls(config, site, "m")).seconds

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.safetensors").write_bytes(b"\0" * 1000)
    assert seconds(tmp_path / "a") == pytest.approx(47 * 64 * 3e-3)
    big = tmp_path / "b.gguf"
    with big.open("wb") as file:
        file.truncate(50_000_000_000)  # sparse: takes no room
    assert seconds(big) == pytest.approx(47 * 64 * 10.0)
    assert seconds(tmp_path / "none") is None
