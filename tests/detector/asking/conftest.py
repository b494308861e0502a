"""A proxy that breaks calls, backends that ask through it, and a server of the model that ships."""

import asyncio
import contextvars
import importlib.util
import random
import sys
import threading
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("fault_proxy.py")
KEY = "sk-test-7f3a9c51d2e84b60"


@pytest.fixture(scope="session")
def faults():
    """The module of the proxy."""
    spec = importlib.util.spec_from_file_location("detector_fault_proxy", FILE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def key(monkeypatch):
    """The key that the backends of these tests use."""
    monkeypatch.setenv("TEST_API_KEY", KEY)
    return KEY


class Waits(list):
    """Waits that were asked for and not spent; the clock goes on for the task that waits, and for no other."""

    def __init__(self):
        self.spent = contextvars.ContextVar("spent", default=0.0)

    async def sleep(self, seconds):
        self.append(seconds)
        self.spent.set(self.spent.get() + seconds)
        await asyncio.sleep(0)

    def clock(self):
        return 1000.0 + self.spent.get()


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def backend(key, waits):
    """`backend(url, **model)`: an ApiBackend that writes its waits down in place of waiting."""
    from canaryjax.config.detector import ModelConfig
    from canaryjax.detector.api import ApiBackend

    def make(url, spent=0.0, **model):
        given = {"backend": "api", "base_url": url, "name": "small", "api_key_variable": "TEST_API_KEY", "retries": 3}
        return ApiBackend(ModelConfig(**(given | model)), spent, waits.sleep, waits.clock, random.Random(5))

    return make


@pytest.fixture
def requests():
    """`requests(n)`: as many, each with its number in its prompt."""
    from canaryjax.detector.records import Request

    def make(n, prompt="Where was Tarvolin, number"):
        return [Request(f"key-{i}", "Do not browse.", f"{prompt} {i}?", 0.0, 100 + i, 7) for i in range(n)]

    return make


@pytest.fixture(scope="session")
def served():
    """The embedded model behind a port of this machine; its key is KEY."""
    import canaryjax as cj
    from canaryjax.inference.server import ModelServer
    from canaryjax.inference.service import Service

    server = ModelServer("127.0.0.1", 0, Service(cj.load_model("embedded"), size=4), KEY, quiet=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.close()
