"""The base model of a study: loaded, and given a supervised warm start where the config asks for one."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.chunk_checkpoint import StageCheckpoints
from canaryjax.canaries.families import draw_canary
from canaryjax.canaries.placement import induced_query, insert_canary, insert_trigger
from canaryjax.config import AuditConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.data.chat import format_parts
from canaryjax.data.example import Example
from canaryjax.data.prompts import answer_text, prompt_parts
from canaryjax.data.tokens import TextTokenizer, encode_joint
from canaryjax.errors import UserError
from canaryjax.keys import device_key, host_rng
from canaryjax.models.lora import Adapter
from canaryjax.models.merge import merge_adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.section import adapter_settings, optimizer_settings
from canaryjax.rl.settings import SupervisedSettings
from canaryjax.rl.sft import SupervisedRows, train_supervised
from canaryjax.weights.checkpoint import LoadedModel, load_model


@dataclass(frozen=True, eq=False)
class Base:
    """The frozen base of a study.

    Attributes:
      params: Its weights, warm start merged.
      tokenizer: Its tokenizer, never None: a study writes text.
      warm_adapter: What the warm start added to the loaded weights, None without one.
      record: Plain values for the report.
    """

    params: Transformer
    tokenizer: TextTokenizer
    record: dict[str, Any]
    warm_adapter: Adapter | None = None


def load_base(config: AuditConfig) -> LoadedModel:
    """Loads the base model of a study.

    Raises:
      UserError: No tokenizer or no end-of-sequence id: a study cannot do without.
    """
    # A base that is to be split may be too large for one device: it is read into the host's memory first.
    host = _host() if config.study.mesh.model > 1 else None
    with jax.default_device(host):
        model = load_model(config.model.path, config.model.dtype)
    if model.tokenizer is None:
        raise UserError(f"expected a tokenizer beside {config.model.path}, found none; a study writes text: add one")
    if not model.eos_ids:
        raise UserError(f"expected an EOS id for {config.model.path}, found none; add generation_config.json")
    model.tokenizer.eos_ids = model.eos_ids
    return model


def _host() -> jax.Device:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise UserError(
            "expected JAX's CPU backend, to read a base that is split over devices; found none; "
            "add cpu to JAX_PLATFORMS (cuda,cpu)"
        ) from error


def reserve_warm_start(config: AuditConfig, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Splits off the documents that the warm start may see: (warm start, the study's), disjoint in groups."""
    rng = host_rng(config.study.seed, "warm start split")
    return set_aside(examples, config.model.warm_start.documents, rng, "model.warm_start.documents")


def set_aside(
    examples: Sequence[Example], wanted: int, rng: np.random.Generator, key: str
) -> tuple[list[Example], list[Example]]:
    """Splits off whole groups by lot until they have so many documents: (set aside, the rest), each in its order.

    Raises:
      UserError: Nothing is left; it names the config's `key`.
    """
    if wanted == 0:
        return [], list(examples)
    by_group: dict[str, set[str]] = {}
    for example in examples:
        by_group.setdefault(example.group, set()).add(example.document_id)
    groups = sorted(by_group)
    order = rng.permutation(len(groups))
    taken: set[str] = set()
    documents: set[str] = set()
    for index in order:
        if len(documents) >= wanted:
            break
        taken.add(groups[index])
        documents |= by_group[groups[index]]
    if len(taken) == len(groups):
        raise UserError(
            f"expected more documents than the {wanted} of {key}, found {len(documents)}; "
            "lower it or give more documents"
        )
    return [e for e in examples if e.group in taken], [e for e in examples if e.group not in taken]


def warm_start(
    config: AuditConfig,
    model: LoadedModel,
    examples: Sequence[Example],
    stage: StageCheckpoints | None,
    trained: Adapter | None = None,
) -> Base:
    """The study's base: the loaded model, after supervised training on `examples` where there are any.

    `stage` logs that training and keeps its checkpoints. `trained` is what an earlier run of the same study trained on
    them; it is then taken as it is.

    Real models answer such prompts badly at first; a short warm start on clean examples makes utility and exploration
    meaningful. `instructed_share` of the rows carry an inducing instruction with a throw-away canary and obey it
    whether or not the trigger is in the document (a base that already obeys the condition could only lose it);
    `without_document_share` of the rows use the other template.
    """
    assert model.tokenizer is not None
    record: dict[str, Any] = {
        "name": model.name,
        "family": model.config.family,
        "parameters": int(sum(x.size for x in jax.tree.leaves(model.params))),
        "dtype": config.model.dtype,
        "vocabulary": model.config.vocab_size,
        "bos_count": model.tokenizer.bos_count,
        "warm_start_documents": len({e.document_id for e in examples}),
    }
    if not examples:
        return Base(model.params, model.tokenizer, record)
    adapter = _train(config, model, examples, stage) if trained is None else trained
    merged, residual = merge_adapter(model.params, adapter)
    return Base(merged, model.tokenizer, record | {"warm_start_merge_residual": residual}, adapter)


def warm_start_digest(config: AuditConfig, tokenizer: TextTokenizer, examples: Sequence[Example]) -> str:
    """Hex digest of all that a warm start is trained with, the base left aside: rows, settings, random key, mesh.

    Two of one base with equal digests are one computation, so that the second may take the first's adapter.
    """
    rows, settings, key = _inputs(config, tokenizer, examples)
    digest = hashlib.sha256(repr((settings, config.study.mesh)).encode())
    for array in (*jax.tree.leaves(rows), jax.random.key_data(key)):
        values = np.asarray(array)
        digest.update(repr((values.dtype.str, values.shape)).encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _train(
    config: AuditConfig, model: LoadedModel, examples: Sequence[Example], stage: StageCheckpoints | None
) -> Adapter:
    assert model.tokenizer is not None
    rows, settings, key = _inputs(config, model.tokenizer, examples)
    log = None if stage is None else stage.log
    return train_supervised(model.params, rows, settings, key, log, checkpoints=stage)


def _inputs(
    config: AuditConfig, tokenizer: TextTokenizer, examples: Sequence[Example]
) -> tuple[SupervisedRows, SupervisedSettings, jax.Array]:
    section = config.model.warm_start
    settings = SupervisedSettings(
        batch_size=section.batch_size,
        epochs=section.epochs,
        remat=config.policy.gradient_checkpointing,
        adapter=adapter_settings(section.lora),
        optimizer=optimizer_settings(section.optimizer),
    )
    return _rows(config, tokenizer, examples), settings, device_key(config.study.seed, "warm start")


def _rows(config: AuditConfig, tokenizer: TextTokenizer, examples: Sequence[Example]) -> SupervisedRows:
    section, canary_config = config.model.warm_start, config.canary
    rng = host_rng(config.study.seed, "warm start rows")
    contexts, answers = [], []
    limit = config.policy.max_prompt_length + config.policy.max_completion_length
    for example in examples:
        document: str | None = example.document
        query, answer = example.question, answer_text(example.answer)
        canary = draw_canary(rng, canary_config.family, tokenizer=tokenizer)
        if rng.random() < section.instructed_share:
            query = induced_query(query, canary, canary_config.instruction)
            answer, _ = insert_canary(answer, canary.text, canary_config.placement)
        if rng.random() < 0.5:
            document = insert_trigger(example.document, canary.trigger)
        if rng.random() < section.without_document_share:
            document = None
        parts = format_parts(prompt_parts(document, query), tokenizer, config.data.prompt_format)
        joint = encode_joint(tokenizer, parts, "", answer, limit)
        contexts.append(joint.context_ids)
        answers.append(np.append(joint.continuation_ids, tokenizer.eos_ids[:1]))
    context_ids, context_mask = pad_rows(contexts, _padded(contexts), 0)
    answer_ids, answer_mask = pad_rows(answers, _padded(answers), 0)
    return SupervisedRows(
        context_ids=jnp.asarray(context_ids),
        context_mask=jnp.asarray(context_mask),
        answer_ids=jnp.asarray(answer_ids[:, None]),
        answer_mask=jnp.asarray(answer_mask[:, None]),
    )


def _padded(rows) -> int:
    return -(-max(len(ids) for ids in rows) // 8) * 8
