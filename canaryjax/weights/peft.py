"""Adapters in the format of Hugging Face PEFT: `adapter_config.json` beside `adapter_model.safetensors`."""

import json
import math
import re
from pathlib import Path
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import Adapter, LoraPair, projection_shapes
from canaryjax.weights.atomic import new_directory
from canaryjax.weights.engine import check_finite
from canaryjax.weights.stored import StoredTensor, given_path, open_safetensors, read_json

_MODULES = {
    **{"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"},
    **{"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"},
}
_PROJECTION_OF = {module.split(".")[1]: name for name, module in _MODULES.items()}
_KEY = re.compile(
    r"base_model\.model\.(?:model\.|language_model\.model\.|model\.language_model\.)layers\.(\d+)\."
    r"(self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)
# What an entry must be for the arithmetic to be plain LoRA; anything else is refused by name.
_PLAIN: dict[str, tuple] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", None),  # others (pissa, olora, loftq) change the base as well
    "task_type": ("CAUSAL_LM", None),
}
_HARMLESS = frozenset(
    {
        *("base_model_name_or_path", "revision", "inference_mode", "lora_dropout", "peft_version", "auto_mapping"),
        *("runtime_config", "qalora_group_size", "layers_pattern", "megatron_core", "arrow_config"),
    }
)
LARGEST_ALPHA = 1e30  # it and its inverse, divided by a rank, are within float32

Targets = list[str] | str | None  # names or endings of modules, a pattern, or nothing said
Place = tuple[str, int, str]  # projection, layer, A or B
_READ = ("r", "lora_alpha", "use_rslora", "target_modules")


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
    path = given_path(path)
    rank, scale, targets = _read_settings(path / "adapter_config.json")
    file = path / "adapter_model.safetensors"
    if not file.exists() and (path / "adapter_model.bin").exists():
        raise UserError(
            f"expected {file}, found adapter_model.bin, which is not read (a pickle can run code); convert it"
        )
    found = _by_place(open_safetensors(file), model.config, file)
    if not found:
        raise UserError(f"expected LoRA tensors in {file}, found none; fetch the adapter again")
    meant = _check_targets(found, targets, model.config.num_layers, file)
    names = sorted({name for name, _, _ in found} | meant, key=list(_MODULES).index)
    layers = {}
    for name in names:
        size_in, size_out = projection_shapes(model.config)[name]
        a = _stack(found, name, "A", (rank, size_in), model.config.num_layers, file)
        b = _stack(found, name, "B", (size_out, rank), model.config.num_layers, file)
        layers[name] = LoraPair(a=jnp.asarray(a), b=jnp.asarray(b))
    return Adapter(layers=layers, scale=scale)


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
            f"expected tensors of the target_modules {targets!r} only, found those of {stray[0]!r} in {file}; correct "
            "target_modules, or save the adapter again"
        )
    before = next(iter(modules)).split("layers.")[0]
    return {
        name
        for name, module in _MODULES.items()
        if any(_is_target(f"{before}layers.{layer}.{module}", targets) for layer in range(num_layers))
    }


def _read_settings(file: Path) -> tuple[int, float, Targets]:
    raw = read_json(file)
    for name, value in raw.items():
        if name in _PLAIN and value not in _PLAIN[name]:
            raise UserError(
                f"expected {name} to be one of {list(_PLAIN[name])} in {file}, found {value!r}: not implemented"
            )
        if name not in _PLAIN and name not in _READ and name not in _HARMLESS and value not in (None, False, {}, []):
            raise UserError(f"expected plain LoRA in {file}, found {name} = {value!r}: not implemented")
    if "peft_type" not in raw:
        raise UserError(f"expected peft_type in {file}, found none; use an adapter saved by PEFT")
    rank, alpha, stabilised = raw.get("r"), raw.get("lora_alpha"), raw.get("use_rslora")
    if type(rank) is not int or not 1 <= rank < 2**31:
        raise UserError(f"expected r to be a positive whole number in {file}, found {rank!r}; correct the file")
    # At 0 the adapter would be loaded and do nothing.
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not _usable(alpha):
        raise UserError(f"expected lora_alpha to be a number other than 0 in {file}, found {alpha!r}; correct the file")
    if stabilised is not None and not isinstance(stabilised, bool):
        raise UserError(f"expected use_rslora to be true or false in {file}, found {stabilised!r}; correct the file")
    return rank, alpha / (math.sqrt(rank) if stabilised else rank), _read_targets(raw.get("target_modules"), file)


def _usable(alpha: float) -> bool:
    return 1 / LARGEST_ALPHA < abs(alpha) < LARGEST_ALPHA


def _read_targets(targets: Any, file: Path) -> Targets:
    if targets == "all-linear":
        return list(_PROJECTION_OF)
    if targets is None:
        return None
    if isinstance(targets, str):
        try:
            re.compile(targets)
        except (re.error, RecursionError, OverflowError) as error:
            raise UserError(
                f"expected target_modules to be a list or a pattern in {file}, found {targets!r} ({error}); correct it"
            ) from error
        return targets
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        raise UserError(f"expected target_modules to be a list of names in {file}, found {targets!r}; correct the file")
    unknown = sorted({target.split(".")[-1] for target in targets} - set(_PROJECTION_OF))
    if unknown:
        raise UserError(
            f"expected target_modules among {list(_PROJECTION_OF)} in {file}, found {unknown}: not implemented"
        )
    return targets


def _by_place(tensors: dict[str, StoredTensor], config: ModelConfig, file: Path) -> dict[Place, StoredTensor]:
    found: dict[Place, StoredTensor] = {}
    unknown = []
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        name = _PROJECTION_OF.get(match[3]) if match else None
        if (
            match is None
            or name is None
            or _MODULES[name] != f"{match[2]}.{match[3]}"
            or int(match[1]) >= config.num_layers
        ):
            unknown.append(key)
            continue
        place = (name, int(match[1]), match[4])
        if place in found:
            raise UserError(
                f"expected each tensor once, found {found[place].key!r} and {key!r} in {file}; save it again"
            )
        found[place] = tensor
    if unknown:
        raise UserError(
            f"expected LoRA tensors of the {config.num_layers} layers' projections, found {sorted(unknown)[:5]} in "
            f"{file}; use the base this adapter was trained on"
        )
    return found


def _stack(found: dict, name: str, which: str, shape: tuple[int, int], num_layers: int, file: Path) -> np.ndarray:
    missing = [layer for layer in range(num_layers) if (name, layer, which) not in found]
    if missing:
        raise UserError(
            f"expected 'layers.{missing[0]}.{_MODULES[name]}.lora_{which}.weight' in {file}, found no such tensor "
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


def save_adapter(adapter: Adapter, path: str | Path, base_name: str = "", *, rank_stabilised: bool = False) -> None:
    """Writes one policy's adapter so that PEFT and `load_adapter` read it back exactly.

    The directory appears whole or not at all.

    Args:
      adapter: One policy: arrays without a policy axis, one rank for all projections.
      path: A new or empty directory.
      base_name: The base's name or path, recorded for PEFT.
      rank_stabilised: Write the scale as alpha / sqrt(r) instead of alpha / r.

    Raises:
      UserError: The directory holds something already, or the adapter has a policy axis or several ranks.
    """
    path = given_path(path)
    if not isinstance(adapter, Adapter):
        raise UserError(f"expected an adapter to save, found {adapter!r}; pass what load_adapter or training returned")
    if not _usable(adapter.scale):
        raise UserError(f"expected an adapter whose scale is a number other than 0, found {adapter.scale}; correct it")
    shapes = {name: pair.a.shape for name, pair in adapter.layers.items()}
    ranks = {shape[-1] for shape in shapes.values()}
    if len(ranks) != 1 or any(len(shape) != 3 for shape in shapes.values()):
        raise UserError(
            f"expected one policy with one rank, found lora_a of shapes {shapes}; save each policy by itself"
        )
    rank = ranks.pop()
    tensors = {}
    for name, pair in adapter.layers.items():
        for which, x in (("A", pair.a), ("B", pair.b)):
            for layer, matrix in enumerate(np.asarray(x, np.float32)):
                key = f"base_model.model.model.layers.{layer}.{_MODULES[name]}.lora_{which}.weight"
                tensors[key] = np.ascontiguousarray(matrix.T)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": rank,
        "lora_alpha": _alpha(adapter.scale, math.sqrt(rank) if rank_stabilised else rank),
        "use_rslora": rank_stabilised,
        "target_modules": [_MODULES[name].split(".")[1] for name in adapter.layers],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with new_directory(path) as partial:
        save_file(tensors, partial / "adapter_model.safetensors", metadata={"format": "pt"})
        (partial / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _alpha(scale: float, divisor: float) -> float:
    """An alpha whose quotient is the scale to the last bit, a whole number where it is one."""
    near = scale * divisor
    for alpha in (float(round(near)), near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf)):
        if alpha / divisor == scale:
            return int(alpha) if alpha.is_integer() else alpha
    return near
