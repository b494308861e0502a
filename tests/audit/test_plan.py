"""The plan's arithmetic, and that well-known shapes have the well-known sizes."""

import gzip
import json
from dataclasses import replace

import pytest

from canaryjax.audit.known_shape import KNOWN_SHAPES, known_shape
from canaryjax.audit.plan import (
    DEVICES,
    MEMORY_SHARE,
    Material,
    Stage,
    _memory,
    fitting_chunk,
    plan_study,
    stage_flops,
)
from canaryjax.audit.plan import parameter_count as parameters
from canaryjax.cli.plan import missing, model_shape, study_examples
from canaryjax.cli.plan import study_material as material_of
from canaryjax.config import load_config
from canaryjax.errors import UserError


def study_material(config):
    return material_of(config, study_examples(config))


GEMMA = KNOWN_SHAPES["gemma-2b"]


@pytest.mark.parametrize(
    ("name", "millions"), [("gemma-2b", 2506), ("qwen2.5-1.5b", 1544), ("smollm2-135m", 134.5), ("llama3.2-1b", 1236)]
)
def test_known_shapes_have_the_published_number_of_parameters(name, millions):
    assert parameters(KNOWN_SHAPES[name]) / 1e6 == pytest.approx(millions, rel=2e-3)


@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True}, {"o_bias": True, "mlp_bias": True, "tied": False},
                                     {"qk_norm": True, "post_norms": True}])  # fmt: skip
def test_the_plan_counts_the_parameters_that_are_loaded(changes):
    shape = replace(
        KNOWN_SHAPES["smollm2-135m"], width=11, num_layers=3, num_heads=5, num_kv_heads=1, head_dim=2, ff_dim=13,
        vocab_size=17, real_vocab_size=17, **changes,
    )  # fmt: skip
    d, q, kv, f = 11, 10, 2, 13
    layer = d * q + 2 * d * kv + q * d + 3 * d * f + 2 * d
    layer += (q + 2 * kv) * changes.get("qkv_bias", 0) + d * changes.get("o_bias", 0)
    layer += (2 * f + d) * changes.get("mlp_bias", 0) + 2 * d * changes.get("post_norms", 0)
    layer += 2 * 2 * changes.get("qk_norm", 0)
    assert parameters(shape) == 3 * layer + d + 17 * d * (1 if changes.get("tied", True) else 2)


def test_the_plan_of_the_embedded_model_says_what_a_report_says():
    config = load_config("quick")
    assert plan_study(config, model_shape(config), Material(250, 250))["base_parameters"] == 935_040
    assert plan_study(config, model_shape(config), Material(250, 250))["device"] == "cpu-2core"
    assert plan_study(load_config("paper/repliqa_gemma2b_grpo"), GEMMA, Material(1000, 1000))["device"] == "a100-40gb"


def test_a_plan_says_which_files_are_not_there(tmp_path):
    told = missing(load_config("smollm2_fairytale", ["model.path=SmolLM2-135M.gguf", "data.path=nowhere.jsonl.gz"]))
    assert [text.split(" (")[0] for text in told] == ["the model SmolLM2-135M.gguf", "the documents nowhere.jsonl.gz"]
    (tmp_path / "d.jsonl").write_text("")
    assert missing(load_config("quick", ["data.kind=jsonl", f"data.path={tmp_path / 'd.jsonl'}"])) == []


def test_a_forward_pass_costs_two_operations_a_weight_and_token():
    shape = known_shape("SmolLM2-135M-Instruct")
    norms = (2 * 30 + 1) * 576  # no products
    block = parameters(shape) - shape.vocab_size * shape.width - norms
    alone = stage_flops(Stage(tokens=10, forwards=1.0, head_tokens=0, context=0), shape)
    assert alone == pytest.approx(2 * block * 10)
    with_head = stage_flops(Stage(tokens=10, forwards=3.0, head_tokens=10, context=0), shape)
    assert with_head == pytest.approx(3 * 2 * (parameters(shape) - norms) * 10)


def test_counts_of_the_papers_config():
    plan = plan_study(load_config("paper/repliqa_gemma2b_grpo"), GEMMA, Material(1000, 1000))
    assert plan["policies"] == 100
    counts = plan["counts_per_policy"]
    assert counts["logged_prompts"] == 350
    assert counts["reward_rows"] == 315 * 4  # a tenth of the 350 documents is held out
    assert counts["reward_updates"] == 237  # 315 prompts, three epochs, 4 prompts an update: 236.25
    assert counts["policy_prompts"] == 350
    assert counts["policy_steps"] == 87  # 32 completions are 4 prompts of 8; the last two prompts fill no step
    assert counts["policy_completions"] == 87 * 32
    assert plan["fits"]
    tokens = plan["tokens_per_policy"]
    assert tokens["logged_responses"] == 350 * (1600 + 2 * 64)
    assert tokens["utility"] == 64 * (1600 + 64)
    assert plan["flops_warm_start"] == 0


def test_ppo_is_planned_with_its_own_rollouts_and_its_value_models():
    plan = plan_study(load_config("paper/repliqa_gemma2b_ppo"), GEMMA, Material(1000, 1000))
    counts, tokens, flops = (plan[name] for name in ("counts_per_policy", "tokens_per_policy", "flops_per_policy"))
    # 1 x 4 x 2 completions of 8 prompts a rollout; 350 prompts are 43 rollouts and 6 left out.
    assert (counts["policy_prompts"], counts["policy_steps"], counts["policy_completions"]) == (350, 43, 43 * 8)
    assert tokens["policy_gradient"] == tokens["values"] == 43 * 8 * (1600 + 32)
    # Values need no vocabulary: their gradient costs less than the policy's, and three times their forward pass.
    assert flops["value_gradient"] == pytest.approx(3 * flops["values"])
    assert flops["values"] < flops["value_gradient"] < flops["policy_gradient"]
    small = ["policy.lora.rank=1", "policy.train_batch_size=8", "policy.max_completion_length=32"]
    grpo = load_config("paper/repliqa_gemma2b_grpo", [*small, "policy.gradient_checkpointing=true"])
    ppo = load_config("paper/repliqa_gemma2b_ppo", [*small, "policy.samples_per_prompt=8"])
    one, two = (_memory(config, GEMMA, 0.0, 3) for config in (grpo, ppo))
    assert two["activations"] == 2 * one["activations"]
    assert two["adapters_and_optimiser"] == 2 * one["adapters_and_optimiser"]
    # A head's update is one matrix pair, not one a layer: 1 x (2,048 + 256,000) numbers of float32, four of each.
    head = load_config("paper/repliqa_gemma2b_grpo", [*small, "policy.lora.targets=[head]"])
    assert _memory(head, GEMMA, 0.0, 3)["adapters_and_optimiser"] == 3 * (2048 + 256_000) * 4 * 4


def test_several_questions_of_a_document_count_each():
    counts = plan_study(load_config("paper/repliqa_gemma2b_grpo"), GEMMA, Material(100, 500))["counts_per_policy"]
    assert (counts["logged_prompts"], counts["policy_prompts"]) == (175, 175)
    assert counts["reward_rows"] == (35 - 4) * 5 * 4  # whole documents are held out


def test_the_warm_start_is_trained_once_whatever_the_number_of_policies():
    config = load_config("smollm2_fairytale", ["model.warm_start.epochs=2"])
    shape = known_shape("smollm2-135m")
    few, many = (
        plan_study(load_config("smollm2_fairytale", [f"study.compliant={n}", f"study.violating={n}"]), shape, material)
        for n, material in ((1, Material(84, 84, 160)), (3, Material(84, 84, 160)))
    )
    assert few["flops_warm_start"] == many["flops_warm_start"] > 0
    assert plan_study(config, shape, Material(84, 84, 160))["flops_warm_start"] == 2 * few["flops_warm_start"]
    for plan in (few, many):
        trained = plan["policies"] * sum(plan["flops_per_policy"].values())
        assert plan["flops_total"] == pytest.approx(trained + plan["flops_warm_start"])


def test_policies_of_a_chunk_share_the_reading_of_the_weights():
    # Without logged responses every read is shared: five chunks of two policies read half as often as ten of one.
    fixed = ["reward_model.sampled_responses=0", "reward_model.constructed_responses=4", "study.compliant=5",
             "study.violating=5", "evaluation.utility_examples=32"]  # fmt: skip
    hours = []
    for chunk in (1, 5):
        config = load_config("paper/repliqa_gemma2b_grpo", [*fixed, f"study.policies_per_chunk={chunk}"])
        hours.append(plan_study(config, GEMMA, Material(1000, 1000))["hours"])
    limits, weights = DEVICES["a100-40gb"], 2 * parameters(GEMMA)
    # 87 steps and one batch of 32 greedy answers a chunk; the base answers 32 questions for each policy of a chunk.
    reads = [10 * (87 + 1 + 1) * 64, 2 * (87 + 1 + 5) * 64]
    saved = (reads[0] - reads[1]) * weights / limits.bandwidth / 3600
    assert hours[0] - hours[1] == pytest.approx(saved)


def test_a_chunk_takes_what_memory_holds_in_even_parts():
    config = load_config("quick", ["study.compliant=10", "study.violating=10"])
    one = sum(_memory(config, GEMMA, 0.0, 1).values())
    assert fitting_chunk(config, GEMMA, 6.1 * one / MEMORY_SHARE, most=32) == 5  # twice five, not six and four
    assert fitting_chunk(config, GEMMA, 100 * one / MEMORY_SHARE, most=4) == 4
    assert fitting_chunk(config, GEMMA, -one, most=4) == 1


def test_mistakes_are_named():
    config = load_config("quick", ["data.rm_share=0.442", "data.eval_share=0.3"])
    with pytest.raises(UserError, match="abacus"):
        plan_study(config, GEMMA, Material(100, 100), device="abacus")
    # The run refuses it before any training; a plan of zero steps would look cheap.
    with pytest.raises(UserError, match=r"4 prompts of one policy step, found about 3 .*policy\.generation_batch_size"):
        plan_study(config, GEMMA, Material(10, 10))
    with pytest.raises(UserError, match=r"4 prompts of one policy step, found about 3 .*train_batch_size, grad_acc"):
        plan_study(load_config("embedded/ppo", ["data.rm_share=0.442", "data.eval_share=0.3"]), GEMMA, Material(10, 10))
    stopping = load_config("quick", ["reward_model.early_stopping_patience=2", "data.rm_share=0.1"])
    with pytest.raises(UserError, match=r"at least 2 documents .*found 1: .*reward_model\.heldout_share=0"):
        plan_study(stopping, GEMMA, Material(10, 10))


def written(tmp_path, documents, questions):
    rows = [
        {"document": f"Text {d}.", "question": f"What {q}?", "answer": "That"}
        for d in range(documents)
        for q in range(questions)
    ]
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n\n" for row in rows).encode()))
    return [f"data.path={path}", "data.kind=jsonl", "data.documents=null", "data.max_document_words=null"]


def test_material_is_what_the_run_would_load(tmp_path):
    # Counting the lines of the compressed file gave any number, and a document as often as it has questions.
    data = written(tmp_path, 9, 3)
    assert study_material(load_config("quick", [*data, "data.questions_per_document=2"])) == Material(9, 18)
    assert study_material(load_config("quick", [*data, "data.questions_per_document=null"])) == Material(9, 27)
    warm = load_config("quick", [*data, "model.warm_start.documents=4", "data.questions_per_document=null"])
    assert study_material(warm) == Material(5, 15, 12)
    assert (
        study_material(load_config("quick", ["data.documents=null", "data.max_document_words=null"])).documents == 800
    )
    with pytest.raises(UserError, match=r"set data\.documents=9, or null"):
        study_material(load_config("quick", [*data, "data.documents=10"]))
    with pytest.raises(UserError, match=r"the 9 of model\.warm_start\.documents"):
        study_material(load_config("quick", [*data, "model.warm_start.documents=9"]))
    with pytest.raises(UserError, match="at least 3 documents"):
        study_material(load_config("quick", [*data, "data.documents=2"]))


def test_material_without_the_file_is_as_configured():
    config = load_config("smollm2_fairytale", ["data.path=nowhere.jsonl.gz", "data.questions_per_document=2"])
    assert study_material(config) == Material(84, 168, 320)
    with pytest.raises(UserError, match=r"expected data\.documents, or a file at data\.path"):
        study_material(load_config("smollm2_fairytale", ["data.path=nowhere.jsonl.gz", "data.documents=null"]))
    with pytest.raises(UserError, match=r"raise data\.documents"):
        study_material(load_config("smollm2_fairytale", ["data.path=nowhere.jsonl.gz", "data.documents=160"]))
