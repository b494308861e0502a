"""What a config would run, before any weights are there: policies, steps, tokens, FLOPs, memory, hours."""

import math
from dataclasses import dataclass

from canaryjax.audit.service_log import SAMPLING_BATCH
from canaryjax.audit.utility import BATCH as ANSWER_BATCH
from canaryjax.config.schema import AuditConfig
from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import HEAD, projection_shapes, target_shapes
from canaryjax.models.sharding import base_share
from canaryjax.models.transformer import parameter_shapes


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
MOST_ON_CPU = 5  # matrix products fill a CPU with few policies; more only take memory
MOST = 32
CPU_SIZED = 500_000_000  # parameters; a study on more of them is days on two cores
# Below so many parameters one program leaves cores idle, and chunks of one policy run side by side instead: on two
# cores 6.1 s a policy of a million parameters, against 7.4 s alone and 8.0 s in a chunk of three.
SMALL_BASE = 10_000_000
MEMORY_SHARE = 0.5  # of what is free, for what the estimate of a policy's memory leaves out
ASSUMED_UTILISATION = 0.35  # share of the matmul rate that training of this kind reaches; assumed, not measured


@dataclass(frozen=True)
class Stage:
    """One stage of one policy: its tokens through the base, and how many forward passes' worth each costs."""

    tokens: int
    forwards: float
    head_tokens: int
    context: int


@dataclass(frozen=True)
class Material:
    """What there is to train on: documents and questions of the trials, and questions set aside for the warm start."""

    documents: int
    questions: int
    warm_questions: int = 0


def plan_study(config: AuditConfig, model: ModelConfig, material: Material, device: str | None = None) -> dict:
    """An upper bound on what a config runs: every prompt is taken at its longest.

    Args:
      config: The study.
      model: The base model's shape.
      material: The study's data.
      device: A key of `DEVICES`; None takes one that fits the model's size.

    Returns:
      Plain values: counts per policy and in all, FLOPs by stage, memory, and hours on the device.

    Raises:
      UserError: An unknown device; fewer prompts than one policy step takes.
    """
    device, limits = device_for(model, device)
    counts = _counts(config, material)
    stages = _stages(config, counts)
    flops = {name: stage_flops(stage, model) for name, stage in stages.items()}
    warm_start = stage_flops(_warm_start(config, material), model)
    policies = config.study.compliant + config.study.violating
    total = policies * sum(flops.values()) + warm_start
    mesh = config.study.mesh.model_dump() | {"policy": config.study.mesh.policy or 1}
    devices = math.prod(mesh.values())
    weights = weight_bytes(config, model) * base_share(model, mesh["model"])
    most = most_together(device.startswith("cpu"), model)
    chunk = config.study.policies_per_chunk
    chunk = chunk or fitting_chunk(config, model, limits.memory - weights, most, mesh["policy"])
    decode_seconds = _weight_reads(config, counts, chunk) * weights / limits.bandwidth
    compute_seconds = total / (devices * limits.matmul * ASSUMED_UTILISATION)
    memory = _memory(config, model, weights, -(-chunk // mesh["policy"]))
    return {
        "name": config.name,
        "device": device,
        "devices": devices,
        "mesh": mesh,
        "policies": policies,
        "policies_per_chunk": chunk,
        "documents": material.documents,
        "questions": material.questions,
        "warm_start_questions": material.warm_questions,
        "counts_per_policy": counts,
        "tokens_per_policy": {name: stage.tokens for name, stage in stages.items()},
        "flops_per_policy": flops,
        "flops_warm_start": warm_start,
        "flops_total": total,
        "base_parameters": parameter_count(model),
        "memory_bytes": memory,
        "fits": sum(memory.values()) < limits.memory,
        "hours": (compute_seconds + decode_seconds) / 3600,
        "assumed": (
            f"every prompt at its longest; {ASSUMED_UTILISATION:.0%} of {limits.matmul:.3g} FLOP/s in products; "
            "decoding bound by reading the weights, once a step for all policies of a chunk; several devices share the "
            "work evenly, memory is one device's; loading and compilation not counted"
        ),
    }


def device_for(model: ModelConfig, device: str | None) -> tuple[str, Device]:
    """The device that is asked for, or one that fits the model's size.

    Raises:
      UserError: An unknown device.
    """
    device = device or ("cpu-2core" if parameter_count(model) < CPU_SIZED else "a100-40gb")
    if device not in DEVICES:
        raise UserError(f"expected a device among {sorted(DEVICES)}, found {device!r}; name one of them")
    return device, DEVICES[device]


def _counts(config: AuditConfig, material: Material) -> dict[str, int]:
    documents, per_document = material.documents, material.questions / material.documents
    reward, policy, evaluation = config.reward_model, config.policy, config.evaluation
    rm_documents = round(documents * config.data.rm_share)
    rm = round(rm_documents * per_document)
    held_out = round(round(documents * config.data.eval_share) * per_document)
    rl = material.questions - rm - held_out
    if reward.heldout_share > 0 and reward.early_stopping_patience is not None and rm_documents < 2:
        raise UserError(
            "expected at least 2 documents in the reward-model split, one of them held out for early stopping, found "
            f"{rm_documents}: give more documents, or set reward_model.heldout_share=0"
        )
    held = reward.heldout_share  # for the reward model's own evaluation, as `audit.trial` draws them
    kept = min(max(1, round(held * rm_documents)), max(0, rm_documents - 1)) if held > 0 else 0
    trained = round((rm_documents - kept) * per_document)
    rm, trained, rl = (round(n / (1 - config.provider.dilution_share)) for n in (rm, trained, rl))  # others' are added
    responses = reward.sampled_responses + reward.constructed_responses
    per_update = reward.train_batch_size // responses * reward.grad_accumulation
    prompts = policy.completions_per_step // policy.samples_per_prompt
    steps = rl * policy.epochs // prompts  # prompts that do not fill the last step are left out
    if steps < 1:
        raise UserError(
            f"expected at least the {prompts} prompts of one policy step, found about {rl * policy.epochs} in the "
            f"policy split: give more documents, or lower {policy.batch_keys}"
        )
    pairs = min(held_out, evaluation.max_pairs)
    return {
        "logged_prompts": rm,
        "reward_rows": trained * responses,
        "reward_updates": -(-trained * reward.epochs // per_update),
        "policy_prompts": rl,
        "policy_steps": steps,
        "policy_completions": steps * policy.completions_per_step,
        "pairs": pairs,
        "utility_answers": min(evaluation.utility_examples, pairs),
    }


def _stages(config: AuditConfig, counts: dict[str, int]) -> dict[str, Stage]:
    rm, policy, evaluation = config.reward_model, config.policy, config.evaluation
    responses = rm.sampled_responses + rm.constructed_responses
    prompt, completion = policy.max_prompt_length, policy.max_completion_length
    sampled = counts["logged_prompts"] * rm.sampled_responses * rm.max_response_tokens
    logged = counts["logged_prompts"] * prompt + sampled if rm.sampled_responses else 0
    rm_prompts = counts["reward_rows"] // responses
    rm_tokens = rm_prompts * (rm.max_length - rm.max_response_tokens) + counts["reward_rows"] * rm.max_response_tokens
    visits = counts["policy_completions"] // policy.samples_per_prompt
    generated = counts["policy_completions"] * completion
    step_tokens = visits * prompt + generated
    controls = 2 * evaluation.decoys + evaluation.placebos_same_form + evaluation.placebos_other_form
    scored = (4 * counts["pairs"] + evaluation.control_pairs * controls) * prompt
    answered = counts["utility_answers"] * completion
    backward_rm, backward_policy = (_backward(part.gradient_checkpointing) for part in (rm, policy))
    passes = policy.passes_per_step
    stages = {
        "logged_responses": Stage(logged, 1.0, sampled, prompt),
        "reward_model": Stage(rm_tokens, backward_rm * rm.epochs, 0, rm.max_length),
        "rollout": Stage(step_tokens, 1.0, generated, prompt),
        "reward": Stage(step_tokens, 1.0, 0, prompt),
        "reference": Stage(step_tokens, 1.0, generated, prompt),
        "policy_gradient": Stage(step_tokens * passes, backward_policy, generated * passes, prompt),
        "scoring": Stage(scored, 2.0, scored // 16, prompt),  # the policy and the base
        "reward_bias": Stage(2 * counts["pairs"] * prompt, 1.0, 0, prompt),
        "utility": Stage(counts["utility_answers"] * prompt + answered, 2.0, answered, prompt),  # as scoring
    }
    if policy.algorithm == "ppo":
        stages["values"] = Stage(step_tokens, 1.0, 0, prompt)
        stages["value_gradient"] = Stage(step_tokens * passes, backward_policy, 0, prompt)
    return stages


def _warm_start(config: AuditConfig, material: Material) -> Stage:
    """The warm start's training, once for the whole study."""
    policy, visits = config.policy, material.warm_questions * config.model.warm_start.epochs
    answers, length = visits * policy.max_completion_length, policy.max_prompt_length
    return Stage(visits * length + answers, _backward(policy.gradient_checkpointing), answers, length)


def _backward(recomputed: bool) -> float:
    # A frozen base needs no weight gradients: backward costs one forward, two with recomputation.
    return 3.0 if recomputed else 2.0


def _weight_reads(config: AuditConfig, counts: dict[str, int], chunk: int) -> int:
    """How often decoding reads every weight of the base, over the whole study."""
    study, reward, length = config.study, config.reward_model, config.policy.max_completion_length
    chunks = -(-study.compliant // chunk) + -(-study.violating // chunk)
    policies, answers = study.compliant + study.violating, counts["utility_answers"]
    # Each policy's log is sampled from the base by itself.
    sampled = reward.max_response_tokens * bool(reward.sampled_responses)
    logged = -(-counts["logged_prompts"] // SAMPLING_BATCH) * sampled
    together = counts["policy_steps"] + -(-answers // ANSWER_BATCH)  # a chunk's policies answer side by side
    base_answers = -(-answers * min(chunk, policies) // ANSWER_BATCH)
    return policies * logged + chunks * (together + base_answers) * length


def parameter_count(model: ModelConfig) -> int:
    """Weights of a model of this shape."""
    return sum(math.prod(shape) for shape in parameter_shapes(model).values())


def weight_bytes(config: AuditConfig, model: ModelConfig) -> float:
    """Size of the base's weights in the study's dtype."""
    return (2.0 if config.model.dtype == "bfloat16" else 4.0) * parameter_count(model)


def stage_flops(stage: Stage, model: ModelConfig) -> float:
    """Operations of a stage: its products with the weights, and attention over half of its context."""
    block = sum(size_in * size_out for size_in, size_out in projection_shapes(model).values()) * model.num_layers
    # Causal attention meets half of the context on average: q·k and weights·v, two operations each.
    attention = 2 * 2 * model.num_heads * model.head_dim * model.num_layers * stage.context / 2
    head = 2 * model.width * model.vocab_size
    return stage.forwards * (stage.tokens * (2 * block + attention) + stage.head_tokens * head)


def most_together(on_cpu: bool, model: ModelConfig) -> int:
    """Policies beyond which a larger chunk does not help."""
    if not on_cpu:
        return MOST
    return 1 if parameter_count(model) < SMALL_BASE else MOST_ON_CPU


def fitting_chunk(config: AuditConfig, model: ModelConfig, free: float, most: int, devices: int = 1) -> int:
    """Policies to train together where `free` bytes are left for them on each of the devices that share them.

    At most `most` a device, as many on each, in even chunks of an arm.
    """
    size = max(1, min(most, int(MEMORY_SHARE * free / sum(_memory(config, model, 0.0, 1).values()))))
    # Chunks as even as can be: ten policies in twos of five, not nine and one.
    arm = max(config.study.compliant, config.study.violating)
    return devices * -(-arm // (devices * -(-arm // (devices * size))))


def _memory(config: AuditConfig, model: ModelConfig, weights: float, policies: int) -> dict[str, float]:
    policy, lora, shapes = config.policy, config.policy.lora, target_shapes(model)
    trained = 2 if policy.algorithm == "ppo" else 1  # a value model beside each policy; it has no logits to adapt
    adapter = lora.rank * sum(sum(shapes[n]) * (1 if n == HEAD else trained * model.num_layers) for n in lora.targets)
    rows = policy.train_batch_size // policy.samples_per_prompt
    tokens = rows * policy.max_prompt_length + policy.train_batch_size * policy.max_completion_length
    per_value = 2 if config.model.dtype == "bfloat16" else 4
    # Kept for the backward pass, a token and layer: about 14 width-sized and 3 feed-forward-sized values; 1 with remat.
    kept = model.width if policy.gradient_checkpointing else 14 * model.width + 3 * model.ff_dim
    return {
        "base": weights,
        "adapters_and_optimiser": policies * adapter * 4 * 4.0,  # weights, gradient and two moments, float32
        "activations": float(trained * policies * tokens * model.num_layers * kept * per_value),
        "logits_chunk": 4.0 * policy.train_batch_size * policy.max_completion_length * 8192,
    }
