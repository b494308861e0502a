"""What the sections of a config are made of: their base class, and the ranges that several of them use."""

from pathlib import Path
from typing import Annotated, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]
# Below, the law is greedy and teaches nothing, and logits divided by it end at infinity; above, it is uniform.
Temperature = Annotated[float, Field(ge=1e-3, le=1e3)]
Rank = Annotated[int, Field(ge=1, le=2**16)]  # wider than any projection; a larger one is a slip
# Beyond, an update is nothing or infinite in float32, and no adapter's file holds it.
Alpha = Annotated[float, Field(ge=1e-6, le=1e6)]

LARGEST = 2**31 - 1  # beyond, a count is a slip, and what is reckoned with it overflows
LONGEST_SHOWN = 80  # characters of a value in a message
LONGEST_NAME = 255  # bytes of a file's or folder's name on the usual file systems


def _usable(path: str) -> str:
    if not path or "\0" in path:  # an empty one would mean the folder where one stands
        raise ValueError(f"expected a path, found {path!r}; give one")
    # Asking the system about a longer name is an error, not "no such file"; it is better met here than after a start.
    longest = max((len(part.encode("utf-8", "surrogateescape")) for part in Path(path).parts), default=0)
    if longest > LONGEST_NAME:
        raise ValueError(
            f"expected names of at most {LONGEST_NAME} bytes in a path, found one of {longest}; check the path"
        )
    return path


FilePath = Annotated[str, AfterValidator(_usable)]


def section_in(annotation: object) -> "type[Section] | None":
    """The section of an annotation such as `Section` or `Section | None`; None elsewhere, in a list too."""
    kinds = (annotation,) if get_origin(annotation) is tuple else (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)), None)


class Section(BaseModel):
    """A part of the config: frozen, checked, and without unknown keys or numbers that are not finite."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _switches_alone_are_true_or_false(cls, value: object, info: ValidationInfo) -> object:
        # pydantic counts true as 1: `study.compliant=true` would be a study of one policy.
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError(f"expected a value of another kind than true or false, found {value}; correct it")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _whole_numbers_are_countable(cls, value: object) -> object:
        if isinstance(value, int) and value > LARGEST:
            raise ValueError(f"expected at most {LARGEST}, found {shown(value)}; lower it")
        return value


def shown(value: object) -> str:
    """A value in a message, cut; Python refuses to write whole numbers of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        text = "a whole number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
