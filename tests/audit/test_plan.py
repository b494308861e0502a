"""The plan's arithmetic, and that well-known shapes have the well-known sizes."""

import pytest

from canaryjax.audit.plan import KNOWN_SHAPES, Stage, _flops, known_shape, plan_study
from canaryjax.audit.plan import _parameters as parameters
from canaryjax.config import load_config
from canaryjax.errors import UserError


@pytest.mark.parametrize(("name", "millions"), [("gemma-2b", 2506), ("qwen2.5-1.5b", 1544), ("smollm2-135m", 134.5)])
def test_known_shapes_have_the_published_number_of_parameters(name, millions):
    assert parameters(KNOWN_SHAPES[name]) / 1e6 == pytest.approx(millions, rel=2e-3)


def test_a_forward_pass_costs_two_operations_a_weight_and_token():
    shape = known_shape("SmolLM2-135M-Instruct")
    block = parameters(shape) - shape.vocab_size * shape.width
    alone = _flops(Stage(tokens=10, forwards=1.0, head_tokens=0, context=0), shape)
    assert alone == pytest.approx(2 * block * 10)
    with_head = _flops(Stage(tokens=10, forwards=3.0, head_tokens=10, context=0), shape)
    assert with_head == pytest.approx(3 * 2 * parameters(shape) * 10)


def test_counts_of_the_papers_config():
    config = load_config("paper/repliqa_gemma2b_grpo")
    plan = plan_study(config, KNOWN_SHAPES["gemma-2b"], documents=1000)
    assert plan["policies"] == 100
    counts = plan["counts_per_policy"]
    assert counts["reward_rows"] == 350 * 4
    assert counts["reward_steps"] == 88 * 3  # 1,400 responses in updates of 16, three epochs
    assert counts["policy_prompts"] == 350
    assert counts["policy_steps_per_epoch"] == 88  # 32 completions are 4 prompts of 8
    assert counts["policy_completions"] == 2800
    assert plan["fits"]


def test_an_unknown_device_is_named():
    config = load_config("quick")
    with pytest.raises(UserError, match="abacus"):
        plan_study(config, KNOWN_SHAPES["gemma-2b"], 100, device="abacus")
