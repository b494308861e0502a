"""Tunix's GRPO learner as a process of its own: it needs other versions than ours, so it imports nothing of ours.

Started with a folder that `sides.tunix_grpo` has filled, it answers one JSON line for each line it reads: `answers` (a
file of arrays) and `seconds` (one step of the learner's own loop).
"""

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import qwix
from flax import nnx
from safetensors.numpy import load_file
from transformers import AutoTokenizer
from tunix.models.qwen2 import model as qwen2
from tunix.models.qwen2.params import create_model_from_safe_tensors
from tunix.rl import rl_cluster
from tunix.rl.common import TrainExample
from tunix.rl.function_registry import get_policy_loss_fn
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import RolloutConfig

STEPS = 1000
PROJECTIONS = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"


class Worker:
    """One policy that is trained on one prompt, over and over; the reference is the base without its adapter."""

    def __init__(self, folder: Path) -> None:
        self.case = SimpleNamespace(**json.loads((folder / "case.json").read_text()))
        self.batch = np.load(folder / "batch.npz")
        self.mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        with self.mesh:
            base = create_model_from_safe_tensors(self.case.model, _config(self.case), self.mesh, jnp.float32)
            self.policy = _with_adapter(base, self.case)
        self.tokenizer = AutoTokenizer.from_pretrained(self.case.tokenizer)
        self.algorithm = GRPOConfig(
            num_generations=self.case.group,
            beta=self.case.beta,
            epsilon=self.case.epsilon,
            kl_loss_mode="low_var_kl",
        )
        self.cluster = rl_cluster.RLCluster(
            actor=self.policy,
            reference=base,
            tokenizer=self.tokenizer,
            cluster_config=_cluster_config(self.case, self.mesh),
        )
        self.learner = GRPOLearner(self.cluster, self.algorithm, reward_fns=_reward)
        self.asked, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.taken = self.started = 0.0

    def seconds(self) -> float:
        """Lets the learner's loop make one step: its rollout, reference, gradient and update."""
        if self.started == 0.0:
            self.started = time.perf_counter()
            threading.Thread(target=self._train, daemon=True).start()
        self.asked.release()
        self.done.acquire()
        return self.taken

    def _train(self) -> None:
        try:
            with self.mesh:
                self.learner.train(self._prompts())
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # it should never end; whoever waits for an answer sees that none comes

    def _prompts(self):
        """The prompt, once a step: a step lasts from one to the next."""
        while True:
            self.asked.acquire()
            self.started = time.perf_counter()
            yield {"prompts": np.array([self.case.prompt])}
            jax.block_until_ready(nnx.state(self.policy, nnx.LoRAParam))
            self.taken = time.perf_counter() - self.started
            self.done.release()

    def answers(self, file: Path) -> None:
        """Writes reference log-probs, loss and gradient on the batch, the gradient under PEFT's names."""
        ids, mask = jnp.asarray(self.batch["completions"]), jnp.asarray(self.batch["mask"])
        prompt = jnp.broadcast_to(jnp.asarray(self.batch["context"]), (len(ids), len(self.batch["context"])))
        pad, eos = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        reference = self.cluster.get_ref_per_token_logps(prompt, ids, pad, eos)
        example = TrainExample(
            prompt_ids=prompt,
            prompt_mask=jnp.ones(prompt.shape, bool),
            completion_ids=ids,
            completion_mask=mask,
            ref_per_token_logps=reference,
            advantages=jnp.asarray(self.batch["advantages"]),
            old_per_token_logps=None,
        )

        def loss(model):
            return get_policy_loss_fn("grpo")(model, example, self.algorithm, pad, eos)[0]

        with self.mesh:
            gradient = nnx.jit(nnx.value_and_grad(loss, argnums=nnx.DiffState(0, nnx.LoRAParam)))
            value, found = gradient(self.policy)
        tensors = {_peft_name(path): _peft_layout(path, leaf.get_value()) for path, leaf in nnx.to_flat_state(found)}
        tensors["loss"] = np.asarray(value)
        tensors["reference_logps"] = np.asarray(reference) * self.batch["mask"]
        with file.open("wb") as stream:
            np.savez(stream, **tensors)  # type: ignore[arg-type]  # names are free, but for two that are not used


def _config(case) -> qwen2.ModelConfig:
    return qwen2.ModelConfig(
        num_layers=case.layers,
        vocab_size=case.vocab,
        embed_dim=case.width,
        hidden_dim=case.ff,
        num_heads=case.heads,
        head_dim=case.head,
        num_kv_heads=case.kv_heads,
        rope_theta=case.rope_theta,
        norm_eps=case.norm_eps,
        use_tied_embedding=True,
        # Kept whole, the attention scores of eight layers alone are 11 GB at the study's shape.
        remat_config=qwen2.RematConfig.BLOCK if case.remat else qwen2.RematConfig.NONE,
    )


def _with_adapter(base: qwen2.Qwen2, case) -> nnx.Module:
    """The base with the given adapter on it."""
    provider = qwix.LoraProvider(module_path=f".*({PROJECTIONS})", rank=case.rank, alpha=case.alpha)
    policy = qwix.apply_lora_to_model(base, provider, **base.get_model_input(), rngs=nnx.Rngs(0))
    stored, state = load_file(Path(case.adapter) / "adapter_model.safetensors"), nnx.state(policy, nnx.LoRAParam)
    for path, leaf in nnx.to_flat_state(state):
        leaf.set_value(jnp.asarray(stored[_peft_name(path)].T.reshape(leaf.get_value().shape)))
    nnx.update(policy, state)
    return policy


def _cluster_config(case, mesh) -> rl_cluster.ClusterConfig:
    roles = (rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT)
    return rl_cluster.ClusterConfig(
        role_to_mesh=dict.fromkeys(roles, mesh),
        training_config=rl_cluster.RLTrainingConfig(
            actor_optimizer=optax.chain(
                optax.clip_by_global_norm(case.max_grad_norm),
                optax.adamw(case.learning_rate, weight_decay=case.weight_decay),
            ),
            eval_every_n_steps=STEPS + 1,
            max_steps=STEPS,
            mini_batch_size=1,
            train_micro_batch_size=1,
        ),
        rollout_config=RolloutConfig(
            max_tokens_to_generate=case.completion,
            max_prompt_length=case.context,
            kv_cache_size=case.context + case.completion,
            temperature=1.0,
            top_p=1.0,
        ),
    )


def _reward(prompts, completions, **_):
    """The share of even ids, which the tokenizer writes as w and the number; special ones count as odd."""
    rows = [text.split() for text in completions]
    return [sum(word[0] == "w" and int(word[1:]) % 2 == 0 for word in row) / max(len(row), 1) for row in rows]


def _peft_name(path: tuple) -> str:
    _, layer, block, projection, leaf = path
    which = leaf[-1].upper()
    place = "self_attn" if block == "attn" else "mlp"
    return f"base_model.model.model.layers.{layer}.{place}.{projection}.lora_{which}.weight"


def _peft_layout(path: tuple, value) -> np.ndarray:
    """`[in..., r]` or `[r, out...]` as PEFT's matrix: `[r, in]` or `[out, r]`."""
    x = np.asarray(value)
    return x.reshape(-1, x.shape[-1]).T if path[-1].endswith("a") else x.reshape(x.shape[0], -1).T


def main() -> None:
    """Reads commands until there are no more."""
    answers_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the learner prints must not stand between the answers
    worker = Worker(Path(sys.argv[1]))
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "answers":
            worker.answers(Path(argument))
            print("null", file=answers_to, flush=True)
        else:
            print(json.dumps(worker.seconds()), file=answers_to, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
