"""What went wrong with a call, in words that are safe to keep.

The client's exceptions carry the request, the headers with the key, and the endpoint's own words, which may repeat the
prompt: nothing of them is kept but the status and a few known codes, and they are never chained to another error.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from canaryjax.detector.retry import retried, retry_after
from canaryjax.errors import UserError

CODES = ("context_length_exceeded", "content_filter", "insufficient_quota", "invalid_api_key", "model_not_found")
UNSENT = ("ConnectError", "ConnectTimeout", "PoolTimeout")  # nothing reached the endpoint, so nothing is charged


class NoSuchModel(UserError):
    """The endpoint knows no model of that name, or has no such address."""


@dataclass(frozen=True)
class Trouble:
    """Why a call has no answer.

    Attributes:
      reason: Short, without anything of prompt, answer or key.
      again: Whether another try may succeed.
      wait: Seconds that the endpoint asks to wait, or None.
      charged: Whether the endpoint may have worked for it.
      status: Of HTTP, or None.
    """

    reason: str
    again: bool
    wait: float | None = None
    charged: bool = False
    status: int | None = None

    def stop(self) -> UserError | None:
        """The error that ends the run where no call can succeed; None where others may."""
        if self.status in (401, 403):
            return UserError(
                f"expected a key that the endpoint takes, found {self.reason}; check that the environment variable "
                "that model.api_key_variable names is set, and holds it"
            )
        if self.status == 402 or "insufficient_quota" in self.reason:
            return UserError(f"expected an account with credit, found {self.reason}; add some and resume")
        if self.status == 404 or "model_not_found" in self.reason:
            return NoSuchModel(
                f"expected a model of the name in model.name at model.base_url, found {self.reason}; check both, "
                "and that the address ends in /v1 where the endpoint's own does"
            )
        if self.status is not None and 300 <= self.status < 400:
            return UserError(f"expected the endpoint itself at model.base_url, found {self.reason}; correct it")
        return None


async def attempt(call: Callable[[], Awaitable[Any]]) -> Any:
    """The call's answer, or a `Trouble` in place of any error."""
    import openai

    try:
        found = await call()
    except openai.APIStatusError as error:
        return _of_status(error.status_code, error.response.headers, error.code)
    except (TimeoutError, openai.APITimeoutError) as error:
        return Trouble("no answer in time", again=True, charged=type(error.__cause__).__name__ not in UNSENT)
    except openai.APIConnectionError as error:
        unsent = type(error.__cause__).__name__ in UNSENT
        return Trouble("no connection" if unsent else "connection lost", again=True, charged=not unsent)
    except Exception as error:  # whatever else the client cannot read; its words may be the endpoint's
        return Trouble(f"unreadable answer ({type(error).__name__})", again=True, charged=True)
    if isinstance(found, str) or found is None:  # the client hands out what is no JSON as text
        return Trouble("unreadable answer", again=True, charged=True)
    return found


def _of_status(status: int, headers: Any, code: str | None) -> Trouble:
    known = f" ({code})" if code in CODES else ""
    again = retried(status) and code != "insufficient_quota"
    return Trouble(f"status {status}{known}", again, retry_after(headers, time.time()), status=status)
