"""The YAML files that a site's owner writes: read strictly, and refused without a word of what stands in them."""

from pathlib import Path
from typing import Any

import yaml

from canaryjax.errors import UserError

TWICE = "a key twice"


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice: YAML would keep the last one, and half a list would be gone unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, TWICE, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> Any:
    """What a YAML file holds, in UTF-8 with or without a byte-order mark.

    Args:
      path: The file.
      what: What it should hold, for the message.

    Raises:
      UserError: It cannot be read, or has a key twice; names the line and never what stands there.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_Loader)
    except OSError as error:
        reason = error.strerror or "no file"
    except UnicodeDecodeError:
        reason = "other bytes than UTF-8"
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none, such as 1503-13-01
        mark = getattr(error, "problem_mark", None)
        reason = TWICE if getattr(error, "problem", None) == TWICE else "broken YAML"
        reason += f", line {mark.line + 1}" if mark is not None else ""
    # Raised out here, so that no parser's error with a piece of the file in it hangs on to this one.
    raise UserError(f"expected {what} in {path}, found {reason}; correct the file")
