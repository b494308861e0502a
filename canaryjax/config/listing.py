"""Every key of a config with its default, what it may be, and what it means, read from the schema itself."""

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from canaryjax.config.detector import DetectorConfig
from canaryjax.config.fields import Section, section_in
from canaryjax.config.policy import ALGORITHMS
from canaryjax.config.probes import ProbesConfig
from canaryjax.config.schema import AuditConfig

_LIMITS = {Ge: ("ge", "at least"), Gt: ("gt", "above"), Le: ("le", "at most"), Lt: ("lt", "below")}


@dataclass(frozen=True)
class Key:
    """One key of a config.

    Attributes:
      name: In full, `policy.lora.rank`.
      default: As an override would write it.
      allowed: Its choices or its range, in words.
      meaning: What it says.
      algorithm: Of `policy`, where the key is one's alone or differs between the two; else None.
    """

    name: str
    default: str
    allowed: str
    meaning: str
    algorithm: str | None = None


def config_keys() -> list[Key]:
    """All keys, in the schema's order; of `policy` both algorithms'."""
    keys: list[Key] = []
    for name, field in AuditConfig.model_fields.items():
        keys += _policy_keys() if name == "policy" else _keys(name, field, field.default)
    return keys


def detector_keys() -> list[Key]:
    """All keys of a detector run, in the schema's order; a key without a default says that one must be given."""
    return list(_class_keys("", DetectorConfig))


def probes_keys() -> list[Key]:
    """All keys of a probe audit, in the schema's order."""
    return list(_class_keys("", ProbesConfig))


def _class_keys(prefix: str, section: type[BaseModel]) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        if inner is not None and field.is_required():
            yield from _class_keys(f"{prefix}{name}.", inner)
        elif field.is_required():
            words = allowed(field.annotation, field.metadata)
            yield Key(f"{prefix}{name}", "(to be given)", words, field.description or "")
        else:
            yield from _keys(f"{prefix}{name}", field, field.default)


def _policy_keys() -> list[Key]:
    found = {name: {key.name: key for key in _section_keys("policy", kind())} for name, kind in ALGORITHMS.items()}
    chosen = found["grpo"].pop("policy.algorithm")
    del found["ppo"]["policy.algorithm"]
    keys = [Key(chosen.name, chosen.default, " | ".join(ALGORITHMS), chosen.meaning)]
    for name, own in found.items():
        for key in own.values():
            if all(others.get(key.name) == key for others in found.values()):
                if key not in keys:
                    keys.append(key)
            else:
                keys.append(Key(key.name, key.default, key.allowed, key.meaning, name))
    return keys


def _section_keys(prefix: str, section: BaseModel) -> Iterator[Key]:
    for name, field in type(section).model_fields.items():
        yield from _keys(f"{prefix}.{name}", field, getattr(section, name))


def _keys(name: str, field: FieldInfo, default: Any) -> Iterator[Key]:
    section = section_in(field.annotation)
    if section is None:
        yield Key(name, written(default), allowed(field.annotation, field.metadata), field.description or "")
        return
    if default is None:  # a section that is off: its keys' defaults are those it would begin with
        yield Key(name, "null", "null, or the keys below", field.description or "")
        default = section()
    yield from _section_keys(name, default)


def written(value: Any) -> str:
    """A value as an override writes it."""
    if isinstance(value, BaseModel):
        parts = (f"{name}: {written(part)}" for name, part in value)
        return f"{{{', '.join(parts)}}}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(written, value))}]"
    return str(value) or "''"


def _number(limit: float) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def allowed(kind: Any, limits: Iterable[Any] = ()) -> str:
    """What a type with limits admits, in words.

    >>> allowed(Annotated[int, Ge(1)] | None)
    'a whole number, at least 1, or null'
    >>> allowed(tuple[Literal["q", "v"], ...])
    'a list of q | v'
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = [limit for part in parts[1:] for limit in getattr(part, "metadata", [part])]
        return allowed(parts[0], [*inner, *limits])
    if origin in (Union, types.UnionType):
        return ", or ".join("null" if part is type(None) else allowed(part, limits) for part in parts)
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin is tuple:
        return f"a list of {allowed(parts[0])}"
    if kind is str:
        if any(isinstance(limit, AfterValidator) for limit in limits):  # `FilePath`'s
            return "a path"
        patterns = [limit.pattern for limit in limits if hasattr(limit, "pattern")]
        return f"a text that matches {patterns[0]}" if patterns else "a text"
    if kind is bool:
        return "true | false"
    if isinstance(kind, type) and issubclass(kind, Section):
        return f"{{{', '.join(kind.model_fields)}}}"
    words = [f"{text} {_number(getattr(limit, name))}" for limit in limits for of, (name, text) in _LIMITS.items()
             if isinstance(limit, of)]  # fmt: skip
    return ", ".join([{int: "a whole number", float: "a number"}[kind], *words])
