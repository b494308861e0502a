"""`canaryjax serve`: a local model behind OpenAI's interface."""

import ipaddress
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from canaryjax.cli.numbers import within
from canaryjax.errors import UserError


def serve(
    model: Annotated[str, typer.Argument(help="Hugging Face directory, .gguf file, or embedded.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(callback=within(0, 65535), help="Port; 0 takes a free one.")] = 8000,
    adapter: Annotated[Path | None, typer.Option(help="PEFT adapter directory.")] = None,
    batch: Annotated[int, typer.Option(callback=within(1, 1024), help="Answers drawn at once, 1 to 1024.")] = 8,
    api_key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key that callers must send.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Answers /v1/models, /v1/chat/completions and /v1/completions (with echo and log-probs) until it is stopped."""
    key = _key(api_key_variable)
    if key is None and not _loopback(host):
        raise UserError(
            "expected a key where other machines can call, found none; set --api-key-variable, or leave out --host"
        )
    import canaryjax as cj
    from canaryjax.inference.server import ModelServer
    from canaryjax.inference.service import Service

    loaded = cj.load_model(model, dtype=dtype)
    service = Service(loaded, cj.load_adapter(loaded, adapter) if adapter else None, batch)
    server = ModelServer(host, port, service, key)
    print(f"serving {loaded.name} at http://{host}:{server.server_address[1]}/v1", file=sys.stderr, flush=True)
    server.serve_forever()


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:  # the name is not shown: a key may have been given in its place
        raise UserError("expected a key in the variable that --api-key-variable names, found none; export it")
    return key


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
