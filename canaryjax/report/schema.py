"""A report as its schema says it is, or an error that says what was found."""

from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from canaryjax.runlog import read_json


def read_schema(file: Path, schema: str, remedy: str) -> dict[str, Any]:
    """Reads a JSON object of a schema.

    Args:
      file: Of a run.
      schema: What its `schema` must be.
      remedy: What to give instead, for the message.

    Raises:
      UserError: No such file, a malformed one, or another schema.
    """
    report = read_json(file)
    if not isinstance(report, dict) or report.get("schema") != schema:
        found = report.get("schema") if isinstance(report, dict) else type(report).__name__
        raise UserError(f"expected schema {schema!r} in {file}, found {found!r}; {remedy}")
    return report
