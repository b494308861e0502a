"""Adapters in the format of Hugging Face PEFT: `adapter_config.json` beside `adapter_model.safetensors`."""

import json
import math
import re
from pathlib import Path
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import HEAD, PROJECTIONS, Adapter, LoraPair, adapter_pairs, from_pairs, target_shapes
from canaryjax.models.transformer import Transformer, head_table
from canaryjax.weights.atomic import new_directory
from canaryjax.weights.checkpoint import no_model
from canaryjax.weights.engine import check_finite
from canaryjax.weights.peft_settings import Targets, alpha_of, read_settings, usable_alpha
from canaryjax.weights.stored import StoredTensor, given_path, open_safetensors

_MODULES = {
    **{"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"},
    **{"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", HEAD: "lm_head"},
}
_TARGET_OF = {module: name for name, module in _MODULES.items()}
_KEY = re.compile(
    r"base_model\.model\.(?:(?:model\.|language_model\.model\.|model\.language_model\.)layers\."
    r"(?P<layer>0|[1-9][0-9]{0,5})\.(?P<module>(?:self_attn|mlp)\.\w+)|"
    r"(?:language_model\.)?(?P<head>lm_head))\.lora_(?P<which>[AB])\.weight"
)
# PEFT keeps the head's own weights beside an adapter on it.
_HEAD_COPY = re.compile(r"base_model\.model\.(?:language_model\.)?lm_head\.base_layer\.weight")
Place = tuple[str, int, str]  # target, layer (0 for the head), A or B


class HasConfig(Protocol):
    """A model, loaded or bare."""

    @property
    def config(self) -> ModelConfig:
        """Its configuration."""


def load_adapter(model: HasConfig, path: str | Path) -> Adapter:
    """Reads a PEFT LoRA adapter for a model.

    Args:
      model: The base it belongs to: a `LoadedModel` or a `Transformer`.
      path: Directory with `adapter_config.json` and `adapter_model.safetensors`.

    Raises:
      UserError: A tensor is missing, unknown, misshapen for this base or not finite, or the configuration asks for
        something other than plain or rank-stabilised LoRA; the message names the key and the file.
    """
    if not isinstance(getattr(model, "config", None), ModelConfig):
        raise no_model(model)
    path = given_path(path)
    rank, scale, targets = read_settings(path / "adapter_config.json")
    file = path / "adapter_model.safetensors"
    if not file.exists() and (path / "adapter_model.bin").exists():
        raise UserError(
            f"expected {file}, found adapter_model.bin, which is not read (a pickle can run code); convert it"
        )
    tensors = open_safetensors(file)
    copies = [tensors.pop(key) for key in list(tensors) if _HEAD_COPY.fullmatch(key)]
    found = _by_place(tensors, model.config, file)
    if not found:
        raise UserError(f"expected LoRA tensors in {file}, found none; fetch the adapter again")
    meant = _check_targets(found, targets, model.config.num_layers, file)
    names = sorted({name for name, _, _ in found} | meant, key=list(_MODULES).index)
    pairs = {}
    for name in names:
        size_in, size_out = target_shapes(model.config)[name]
        a = _stack(found, name, "A", (rank, size_in), model.config.num_layers, file)
        b = _stack(found, name, "B", (size_out, rank), model.config.num_layers, file)
        pairs[name] = LoraPair(*(jnp.asarray(x[0] if name == HEAD else x) for x in (a, b)))
    for copy in copies:
        _check_copy(copy, model)
    return from_pairs(pairs, scale)


def _check_copy(copy: StoredTensor, model: HasConfig) -> None:
    """Raises UserError where a head that an adapter was saved with is not the base's: they belong to each other."""
    if not isinstance(params := getattr(model, "params", model), Transformer):
        return
    own = head_table(params)
    same = copy.shape == own.shape and copy.dtype in ("F32", "F16", "BF16")
    if same:
        stored = jnp.asarray(copy.read())
        same = bool((stored == own if stored.dtype == own.dtype else _are_roundings(stored, own)).all())
    if not same:
        raise UserError(
            f"expected the base's own head in {copy.key!r}, found other weights in {copy.file}; use the base that this "
            "adapter was trained on"
        )


def _are_roundings(x: jax.Array, y: jax.Array) -> jax.Array:
    """Where two arrays of different types can be one value, rounded to each: F16 and BF16 hold different digits."""

    def lost(rounded):  # at most half a unit in the last place
        kind = jnp.finfo(rounded.dtype)
        return jnp.abs(rounded.astype(jnp.float32)) * (float(kind.eps) / 2) + float(kind.smallest_subnormal) / 2

    return jnp.abs(x.astype(jnp.float32) - y.astype(jnp.float32)) <= lost(x) + lost(y)


def _is_target(module: str, targets: Targets) -> bool:
    """Whether PEFT would adapt a module: a pattern matches its whole name, a listed name its end."""
    if isinstance(targets, str):
        return re.fullmatch(targets, module) is not None
    return any(module == target or module.endswith(f".{target}") for target in targets or ())


def _check_targets(found: dict[Place, StoredTensor], targets: Targets, num_layers: int, file: Path) -> set[str]:
    """The projections that `target_modules` means; refuses tensors of others, which PEFT would leave out."""
    if targets is None:
        return set()
    modules = {
        t.key.removeprefix("base_model.model.").rsplit(".lora_", 1)[0]: name for (name, _, _), t in found.items()
    }
    stray = sorted(module for module in modules if not _is_target(module, targets))
    if stray:
        raise UserError(
            f"expected tensors of the target_modules {targets!r:.80} only, found those of {stray[0]!r} in {file}; "
            "correct target_modules, or save the adapter again"
        )
    before = next((module.split("layers.")[0] for module in modules if "layers." in module), "model.")
    names = {
        name: [_MODULES[name]] if name == HEAD else [f"{before}layers.{i}.{_MODULES[name]}" for i in range(num_layers)]
        for name in _MODULES
    }
    return {name for name, own in names.items() if any(_is_target(module, targets) for module in own)}


def _by_place(tensors: dict[str, StoredTensor], config: ModelConfig, file: Path) -> dict[Place, StoredTensor]:
    found: dict[Place, StoredTensor] = {}
    unknown = []
    prefixes: dict[bool, dict[str, str]] = {True: {}, False: {}}  # of the head and of layers, each with a key
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        name = _TARGET_OF.get(match["head"] or match["module"]) if match else None
        if match is None or name is None or int(match["layer"] or 0) >= config.num_layers:
            unknown.append(key)
            continue
        place = (name, int(match["layer"] or 0), match["which"])
        if place in found:
            raise UserError(
                f"expected each tensor once, found {found[place].key!r} and {key!r} in {file}; save it again"
            )
        found[place] = tensor
        prefixes[name == HEAD].setdefault(key.partition("lm_head" if name == HEAD else "layers.")[0], key)
    if unknown:
        raise UserError(
            f"expected LoRA tensors of the {config.num_layers} layers' projections or the head, found "
            f"{[key[:120] for key in sorted(unknown)[:5]]} in {file}; use the base this adapter was trained on"
        )
    for keys in prefixes.values():
        if len(keys) > 1:
            raise UserError(
                f"expected one model's names in {file}, found {list(keys.values())[:2]}; save the adapter again"
            )
    return found


def _stack(found: dict, name: str, which: str, shape: tuple[int, int], num_layers: int, file: Path) -> np.ndarray:
    """A target's matrices of all layers, turned: `[l, in, r]` or `[l, r, out]`; of the head l is 1."""
    num_layers = 1 if name == HEAD else num_layers
    missing = [layer for layer in range(num_layers) if (name, layer, which) not in found]
    if missing:
        where = _MODULES[name] if name == HEAD else f"layers.{missing[0]}.{_MODULES[name]}"
        raise UserError(
            f"expected '{where}.lora_{which}.weight' in {file}, found no such tensor "
            f"(absent from {len(missing)} of {num_layers} layers); use the base it was trained on, or save it again"
        )
    tensors = [found[name, layer, which] for layer in range(num_layers)]
    for tensor in tensors:  # before there is room for them all
        if tensor.shape != shape:
            raise UserError(
                f"expected {tensor.key!r} of shape {shape}, found {tensor.shape} in {file}; "
                "use the base and the rank this adapter was trained with"
            )
        if tensor.dtype not in ("F32", "F16", "BF16"):
            raise UserError(
                f"expected {tensor.key!r} as F32, F16 or BF16, found {tensor.dtype} in {file}; save it again"
            )
    out = np.empty((num_layers, shape[1], shape[0]), np.float32)
    for layer, tensor in enumerate(tensors):
        out[layer] = tensor.read().T
        check_finite(out[layer], tensor)
    return out


def not_finite(adapter: Adapter) -> str | None:
    """The first array of an adapter that holds NaN or infinity, `q.a` for one; None where all are finite."""
    for name, pair in adapter_pairs(adapter).items():
        for part, x in (("a", pair.a), ("b", pair.b)):
            if not np.isfinite(np.asarray(x, np.float32)).all():
                return f"{name}.{part}"
    return None


def save_adapter(adapter: Adapter, path: str | Path, base_name: str = "", *, rank_stabilised: bool = False) -> None:
    """Writes one policy's adapter so that PEFT and `load_adapter` read it back exactly.

    The directory appears whole or not at all.

    Args:
      adapter: One policy: arrays without a policy axis, one rank for all projections.
      path: A new or empty directory.
      base_name: The base's name or path, recorded for PEFT.
      rank_stabilised: Write the scale as alpha / sqrt(r) instead of alpha / r.

    Raises:
      UserError: The directory holds something already or cannot be written, or the adapter has a policy axis, several
        ranks, an unknown projection, or NaN or infinity in it.
    """
    if not isinstance(adapter, Adapter):
        raise UserError(
            f"expected an adapter to save, found {type(adapter).__name__}; pass what load_adapter or training returned"
        )
    path = given_path(path)
    if not usable_alpha(adapter.scale):
        raise UserError(f"expected an adapter whose scale is a number other than 0, found {adapter.scale}; correct it")
    strange = [name for name in adapter.layers if name not in PROJECTIONS]
    if strange:
        raise UserError(
            f"expected projections among {list(PROJECTIONS)} in the adapter, found {strange!r:.80}; load it again"
        )
    pairs = adapter_pairs(adapter)
    shapes = {name: pair.a.shape for name, pair in pairs.items()}
    ranks = {shape[-1] for shape in shapes.values()}
    if len(ranks) != 1 or any(len(shape) != (2 if name == HEAD else 3) for name, shape in shapes.items()):
        raise UserError(
            f"expected one policy with one rank, found lora_a of shapes {shapes}; save each policy by itself"
        )
    rank = ranks.pop()
    if (place := not_finite(adapter)) is not None:
        raise UserError(
            f"expected finite weights to save, found NaN or infinity in {place}; train the adapter again, with a "
            "smaller learning rate"
        )
    tensors = {}
    for name, pair in pairs.items():
        for which, x in (("A", pair.a), ("B", pair.b)):
            stacked = np.asarray(x, np.float32)
            for layer, matrix in enumerate(stacked[None] if name == HEAD else stacked):
                module = _MODULES[name] if name == HEAD else f"model.layers.{layer}.{_MODULES[name]}"
                tensors[f"base_model.model.{module}.lora_{which}.weight"] = np.ascontiguousarray(matrix.T)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": rank,
        "lora_alpha": alpha_of(adapter.scale, math.sqrt(rank) if rank_stabilised else rank),
        "use_rslora": rank_stabilised,
        "target_modules": [_MODULES[name].split(".")[-1] for name in pairs],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with new_directory(path) as partial:
        save_file(tensors, partial / "adapter_model.safetensors", metadata={"format": "pt"})
        (partial / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
