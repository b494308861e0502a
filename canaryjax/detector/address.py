"""Where an endpoint is and the key that opens it: read from the config and the environment, and never shown."""

import os
import re
from urllib.parse import urlsplit

from canaryjax.errors import UserError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read_address(url: str) -> tuple[str, str]:
    """The address and its host, which is all of it that is shown."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UserError("expected model.base_url like https://host/v1, found another form; correct it")
    if parts.username is not None or parts.password is not None:
        raise UserError("expected model.base_url without a name or password in it; give keys by the environment only")
    return url, host if port is None else f"{host}:{port}"


def on_this_machine(host: str) -> bool:
    """Whether a host, with its port or without, is the machine itself."""
    return host in LOOPBACK or host.rpartition(":")[0] in LOOPBACK


def read_key(variable: str, host: str) -> str:
    """The key; messages do not show the variable's name, in whose place a key may have been given."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable):
        raise UserError(
            "expected model.api_key_variable to name an environment variable in capitals, found something else (not "
            "shown: it may be a key); put the key in the environment and its variable's name in the config"
        )
    key = os.environ.get(variable, "").strip()
    if not key and on_this_machine(host):
        return "none"  # a server on this machine mostly asks for no key, and the client insists on one
    if not key or not re.fullmatch(r"[!-~]+", key):
        found = "characters that no key has" if key else "none"
        raise UserError(
            f"expected an API key in the environment variable that model.api_key_variable names, found {found}; "
            "export the key"
        )
    return key
