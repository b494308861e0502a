"""What a config would run, before any weights are there: policies, steps, tokens, FLOPs, memory, hours."""

from dataclasses import dataclass, replace

from canaryjax.config.schema import AuditConfig
from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import projection_shapes


@dataclass(frozen=True)
class Device:
    """A device's limits: dense matmul rate (FLOP/s), memory (bytes), memory bandwidth (bytes/s)."""

    matmul: float
    memory: float
    bandwidth: float


# Makers' figures for dense bfloat16 products, and this project's own measurement for two CPU cores in float32.
DEVICES = {
    "cpu-2core": Device(2.7e11, 24e9, 2.0e10),
    "l4-24gb": Device(1.21e14, 24e9, 3.0e11),
    "a100-40gb": Device(3.12e14, 40e9, 1.555e12),
    "a100-80gb": Device(3.12e14, 80e9, 2.039e12),
    "h100-80gb": Device(9.89e14, 80e9, 3.35e12),
    "h200-141gb": Device(9.89e14, 141e9, 4.8e12),
}
ASSUMED_UTILISATION = 0.35  # share of the matmul rate that training of this kind reaches; assumed, not measured

_QWEN25_1_5B = ModelConfig(
    family="qwen2", vocab_size=151_936, width=1536, num_layers=28, num_heads=12, num_kv_heads=2, head_dim=128,
    ff_dim=8960, norm_eps=1e-6, rope_theta=1e6, rope_theta_local=1e6, rope_scaling=None, windows=(None,) * 28,
    attn_scale=128**-0.5, attn_softcap=None, final_softcap=None, activation="silu", scale_embedding=False,
    unit_offset_norm=False, post_norms=False, qk_norm=False, qkv_bias=True, o_bias=False, mlp_bias=False, tied=True,
    real_vocab_size=151_665, dtype="bfloat16",
)  # fmt: skip
KNOWN_SHAPES = {
    "qwen2.5-1.5b": _QWEN25_1_5B,
    "gemma-2b": replace(
        _QWEN25_1_5B, family="gemma", vocab_size=256_000, width=2048, num_layers=18, num_heads=8, num_kv_heads=1,
        head_dim=256, ff_dim=16_384, rope_theta=1e4, rope_theta_local=1e4, windows=(None,) * 18, attn_scale=256**-0.5,
        activation="gelu_tanh", scale_embedding=True, unit_offset_norm=True, qkv_bias=False, real_vocab_size=256_000,
    ),
    "smollm2-135m": replace(
        _QWEN25_1_5B, family="llama", vocab_size=49_152, width=576, num_layers=30, num_heads=9, num_kv_heads=3,
        head_dim=64, ff_dim=1536, norm_eps=1e-5, rope_theta=1e5, rope_theta_local=1e5, windows=(None,) * 30,
        attn_scale=64**-0.5, qkv_bias=False, real_vocab_size=49_152,
    ),
}  # fmt: skip


def known_shape(path: str) -> ModelConfig | None:
    """The shape of a well-known model whose name occurs in a path, or None.

    >>> known_shape("google/gemma-2b").head_dim
    256
    """
    name = path.lower()
    return next((shape for key, shape in KNOWN_SHAPES.items() if key in name), None)


@dataclass(frozen=True)
class Stage:
    """One stage of one policy: its tokens through the base, and how many forward passes' worth each costs."""

    tokens: int
    forwards: float
    head_tokens: int
    context: int


def plan_study(config: AuditConfig, model: ModelConfig, documents: int, device: str = "a100-40gb") -> dict:
    """An upper bound on what a config runs: every prompt is taken at its longest.

    Args:
      config: The study.
      model: The base model's shape.
      documents: How many documents there are.
      device: A key of `DEVICES`.

    Returns:
      Plain values: counts per policy and in all, FLOPs by stage, memory, and hours on the device.

    Raises:
      UserError: An unknown device.
    """
    if device not in DEVICES:
        raise UserError(f"expected a device among {sorted(DEVICES)}, found {device!r}; name one of them")
    limits = DEVICES[device]
    counts = _counts(config, documents)
    stages = _stages(config, counts)
    flops = {name: _flops(stage, model) for name, stage in stages.items()}
    policies = config.study.compliant + config.study.violating
    total = policies * sum(flops.values())
    # Decoding reads every base weight once a step, for all rows and policies of a chunk together.
    bytes_per = 2 if config.model.dtype == "bfloat16" else 4
    weights = bytes_per * _parameters(model)
    decode_steps = counts["policy_steps_per_epoch"] * config.policy.epochs * config.policy.max_completion_length
    decode_seconds = policies * decode_steps * weights / limits.bandwidth
    compute_seconds = total / (limits.matmul * ASSUMED_UTILISATION)
    memory = _memory(config, model, weights)
    return {
        "name": config.name,
        "device": device,
        "policies": policies,
        "documents": documents,
        "counts_per_policy": counts,
        "tokens_per_policy": {name: stage.tokens for name, stage in stages.items()},
        "flops_per_policy": flops,
        "flops_total": total,
        "base_parameters": _parameters(model),
        "memory_bytes": memory,
        "fits": sum(memory.values()) < limits.memory,
        "hours": (compute_seconds + decode_seconds) / 3600,
        "assumed": (
            f"every prompt at its longest; {ASSUMED_UTILISATION:.0%} of {limits.matmul:.3g} FLOP/s in products; one "
            "policy decoding at a time, bound by reading the weights; loading and compilation not counted"
        ),
    }


def _counts(config: AuditConfig, documents: int) -> dict[str, int]:
    per_document = config.data.questions_per_document or 1
    rm = round(documents * config.data.rm_share) * per_document
    held_out = round(documents * config.data.eval_share) * per_document
    rl = documents * per_document - rm - held_out
    responses = config.reward_model.sampled_responses + config.reward_model.constructed_responses
    rm_batch = config.reward_model.train_batch_size * config.reward_model.grad_accumulation
    prompts = config.policy.generation_batch_size // config.policy.num_generations
    return {
        "reward_rows": rm * responses,
        "reward_steps": -(-rm * responses // rm_batch) * config.reward_model.epochs,
        "policy_prompts": rl,
        "policy_steps_per_epoch": -(-rl // prompts),
        "policy_completions": rl * config.policy.num_generations * config.policy.epochs,
        "pairs": min(held_out, config.evaluation.max_pairs),
    }


def _stages(config: AuditConfig, counts: dict[str, int]) -> dict[str, Stage]:
    rm, policy, evaluation = config.reward_model, config.policy, config.evaluation
    responses = rm.sampled_responses + rm.constructed_responses
    rm_prompts = counts["reward_rows"] // responses
    rm_tokens = rm_prompts * (rm.max_length - rm.max_response_tokens) + counts["reward_rows"] * rm.max_response_tokens
    prompts = counts["policy_prompts"] * policy.epochs
    step_tokens = prompts * policy.max_prompt_length + counts["policy_completions"] * policy.max_completion_length
    generated = counts["policy_completions"] * policy.max_completion_length
    controls = evaluation.control_pairs * (
        2 * evaluation.decoys + evaluation.placebos_same_form + evaluation.placebos_other_form
    )
    scored = (4 * counts["pairs"] + controls) * policy.max_prompt_length
    # A frozen base needs no weight gradients: backward costs one forward, two with recomputation.
    backward_rm, backward_policy = (3.0 if part.gradient_checkpointing else 2.0 for part in (rm, policy))
    return {
        "reward_model": Stage(rm_tokens, backward_rm * rm.epochs, 0, rm.max_length),
        "rollout": Stage(step_tokens, 1.0, generated, policy.max_prompt_length),
        "reward": Stage(step_tokens, 1.0, 0, policy.max_prompt_length),
        "reference": Stage(step_tokens, 1.0, generated, policy.max_prompt_length),
        "policy_gradient": Stage(step_tokens, backward_policy, generated, policy.max_prompt_length),
        "scoring": Stage(scored, 2.0, scored // 16, policy.max_prompt_length),  # the policy and the base
    }


def _parameters(model: ModelConfig) -> int:
    block = sum(size_in * size_out for size_in, size_out in projection_shapes(model).values())
    return block * model.num_layers + model.vocab_size * model.width * (1 if model.tied else 2)


def _flops(stage: Stage, model: ModelConfig) -> float:
    block = sum(size_in * size_out for size_in, size_out in projection_shapes(model).values()) * model.num_layers
    # Causal attention meets half of the context on average: q·k and weights·v, two operations each.
    attention = 2 * 2 * model.num_heads * model.head_dim * model.num_layers * stage.context / 2
    head = 2 * model.width * model.vocab_size
    return stage.forwards * (stage.tokens * (2 * block + attention) + stage.head_tokens * head)


def memory_per_policy(config: AuditConfig, model: ModelConfig) -> float:
    """Bytes that one more policy in a chunk takes while it trains."""
    parts = _memory(config, model, 0.0)
    return sum(parts.values()) / (config.study.policies_per_chunk or 1)


def _memory(config: AuditConfig, model: ModelConfig, weights: float) -> dict[str, float]:
    policy, lora = config.policy, config.policy.lora
    adapter = model.num_layers * sum(
        lora.rank * sum(projection_shapes(model)[name]) for name in lora.targets
    )  # fmt: skip
    policies = config.study.policies_per_chunk or 1
    rows = policy.train_batch_size // policy.num_generations
    tokens = rows * policy.max_prompt_length + policy.train_batch_size * policy.max_completion_length
    per_value = 2 if config.model.dtype == "bfloat16" else 4
    # Kept for the backward pass, a token and layer: about 14 width-sized and 3 feed-forward-sized values; 1 with remat.
    kept = model.width if policy.gradient_checkpointing else 14 * model.width + 3 * model.ff_dim
    return {
        "base": weights,
        "adapters_and_optimiser": policies * adapter * 4 * 4.0,  # weights, gradient and two moments, float32
        "activations": float(policies * tokens * model.num_layers * kept * per_value),
        "logits_chunk": 4.0 * policy.train_batch_size * policy.max_completion_length * 8192,
    }
