"""Adapters in the format of Hugging Face PEFT: `adapter_config.json` beside `adapter_model.safetensors`."""

import json
import math
import re
from pathlib import Path
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import Adapter, LoraPair, projection_shapes
from canaryjax.weights.atomic import new_directory
from canaryjax.weights.engine import check_finite
from canaryjax.weights.stored import StoredTensor, open_safetensors, read_json

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
    path = Path(path).expanduser()
    rank, scale, targets = _read_settings(path / "adapter_config.json")
    file = path / "adapter_model.safetensors"
    if not file.exists() and (path / "adapter_model.bin").exists():
        raise UserError(
            f"expected {file}, found adapter_model.bin, which is not read (a pickle can run code); convert it"
        )
    found = _by_place(open_safetensors(file), model.config, file)
    names = sorted({name for name, _, _ in found} | targets, key=list(_MODULES).index)
    layers = {}
    for name in names:
        size_in, size_out = projection_shapes(model.config)[name]
        a = _stack(found, name, "A", (rank, size_in), model.config.num_layers, file)
        b = _stack(found, name, "B", (size_out, rank), model.config.num_layers, file)
        layers[name] = LoraPair(a=jnp.asarray(a), b=jnp.asarray(b))
    if not layers:
        raise UserError(f"expected LoRA tensors in {file}, found none; fetch the adapter again")
    return Adapter(layers=layers, scale=scale)


def _read_settings(file: Path) -> tuple[int, float, set[str]]:
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
    rank, alpha, stabilised = raw.get("r"), raw.get("lora_alpha"), raw.get("use_rslora", False)
    if type(rank) is not int or rank < 1:
        raise UserError(f"expected r to be a positive whole number in {file}, found {rank!r}; correct the file")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise UserError(f"expected lora_alpha to be a number in {file}, found {alpha!r}; correct the file")
    targets = raw.get("target_modules")
    if targets == "all-linear":
        targets = list(_PROJECTION_OF)
    names = [target.split(".")[-1] for target in targets] if isinstance(targets, list) else []
    unknown = sorted(set(names) - set(_PROJECTION_OF))
    if unknown:
        raise UserError(
            f"expected target_modules among {list(_PROJECTION_OF)} in {file}, found {unknown}: not implemented"
        )
    return rank, alpha / (math.sqrt(rank) if stabilised else rank), {_PROJECTION_OF[name] for name in names}


def _by_place(
    tensors: dict[str, StoredTensor], config: ModelConfig, file: Path
) -> dict[tuple[str, int, str], StoredTensor]:
    found: dict[tuple[str, int, str], StoredTensor] = {}
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
            f"(absent from {len(missing)} of {num_layers} layers); save the adapter again"
        )
    out = np.empty((num_layers, shape[1], shape[0]), np.float32)
    for layer in range(num_layers):
        tensor = found[name, layer, which]
        if tensor.shape != shape:
            raise UserError(
                f"expected {tensor.key!r} of shape {shape}, found {tensor.shape} in {file}; "
                "use the base and the rank this adapter was trained with"
            )
        if tensor.dtype not in ("F32", "F16", "BF16"):
            raise UserError(
                f"expected {tensor.key!r} as F32, F16 or BF16, found {tensor.dtype} in {file}; save it again"
            )
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
    path = Path(path).expanduser()
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
