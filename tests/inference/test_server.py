"""The server's own answers: refusals, which no model is needed for, and the shape of what it gives."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from canaryjax.data.tokens import TextTokenizer
from canaryjax.inference.answer import answer, grown
from canaryjax.inference.ask import LONGEST, Refusal, read_ask
from canaryjax.inference.batch import step
from canaryjax.inference.records import Completion
from canaryjax.inference.server import MOST_BYTES, ModelServer

SECRET = "Tarvolin"
WORDS = {
    word: i for i, word in enumerate(["Rome", "is", "old", "Bakan", "sells", "clocks", ".", "red", "and", "a", "[UNK]"])
}


def _tokenizer(template=None):
    backend = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return TextTokenizer(backend, chat_template=template)


class Parrot:
    """Stands for the thread that runs the model: says "clocks and red ." whatever it is asked."""

    def __init__(self, tokenizer=None):
        self.tokenizer = tokenizer or _tokenizer()
        self.model = SimpleNamespace(name="parrot", config=SimpleNamespace(vocab_size=len(WORDS)))
        self.drawn = []

    def draw(self, draws):
        self.drawn += draws
        ids = [np.array([5, 8, 7, 6][: draw.most], np.int32) for draw in draws]
        return [Completion(own, self.tokenizer.decode(own), np.full(len(own), -0.5, np.float32), False) for own in ids]

    def rank(self, ids):
        n = len(ids) - 1
        ranked = np.tile(np.arange(len(WORDS)), (n, 1))
        return -np.arange(1.0, n + 1), ranked, np.tile(-np.arange(1.0, len(WORDS) + 1), (n, 1))

    def close(self):
        pass


@pytest.fixture
def address():
    """Of a server with a key."""
    server = ModelServer("127.0.0.1", 0, Parrot(), "sk-right")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server.server_address
    server.shutdown()
    thread.join()
    server.close()


@pytest.fixture
def call(address):
    """`call(method, path, body)`: status and JSON."""

    def send(method, path, body=None, key="sk-right", **headers):
        link = http.client.HTTPConnection(*address, timeout=60)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        link.request(method, path, data, {"Authorization": f"Bearer {key}", **headers})
        found = link.getresponse()
        text = found.read()
        link.close()
        return found.status, json.loads(text)

    return send


CHAT = {"model": "parrot", "messages": [{"role": "user", "content": "Rome is"}]}
TEXT = {"model": "parrot", "prompt": "Rome is"}


def test_models_are_listed(call):
    status, found = call("GET", "/v1/models")
    assert (status, [entry["id"] for entry in found["data"]]) == (200, ["parrot"])


def test_a_chat_answer_has_the_form_that_clients_read(call):
    status, found = call("POST", "/v1/chat/completions", CHAT | {"n": 2, "max_tokens": 3, "stop": ["red"]})
    assert status == 200
    assert found["object"] == "chat.completion"
    assert found["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}
    assert [(c["index"], c["message"]["role"], c["message"]["content"], c["finish_reason"], c["logprobs"])
            for c in found["choices"]] == [(i, "assistant", "clocks and ", "stop", None) for i in (0, 1)]  # fmt: skip


def test_echo_with_log_probs_and_no_tokens_scores_the_prompt(call):
    asked = TEXT | {"prompt": ["Bakan sells  clocks.", "Rome"], "echo": True, "logprobs": 2, "max_tokens": 0}
    status, found = call("POST", "/v1/completions", asked)
    assert status == 200
    first, second = found["choices"]
    assert first["text"] == "Bakan sells  clocks."
    assert first["logprobs"] == {
        "tokens": ["Bakan", " sells", "  clocks", "."],
        "token_logprobs": [None, -1.0, -2.0, -3.0],
        "top_logprobs": [None, *[{"Rome": -1.0, "is": -2.0}] * 3],
        "text_offset": [0, 5, 11, 19],
    }
    assert (second["text"], second["logprobs"]["token_logprobs"]) == ("Rome", [None])
    assert found["usage"]["completion_tokens"] == 0


def test_log_probs_of_an_answer_end_where_its_text_does(call):
    _, found = call("POST", "/v1/completions", TEXT | {"logprobs": 0, "max_tokens": 4, "stop": "red"})
    (choice,) = found["choices"]
    assert choice["text"] == "clocks and "
    assert choice["logprobs"]["tokens"] == ["clocks", " and"]
    # The prompt has two tokens: the answer's first log-prob is the second of the whole text.
    assert choice["logprobs"]["token_logprobs"] == [-2.0, -3.0]


def test_log_probs_of_a_chat_answer(call):
    _, found = call("POST", "/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 1, "max_tokens": 1})
    assert found["choices"][0]["logprobs"]["content"] == [
        {"token": "clocks", "logprob": -2.0, "bytes": list(b"clocks"),
         "top_logprobs": [{"token": "Rome", "logprob": -1.0, "bytes": list(b"Rome")}]}]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/chat/completions", CHAT | {"model": SECRET}, 404, "model_not_found"),
        ("/v1/chat/completions", CHAT | {"messages": []}, 400, None),
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user"}]}, 400, None),
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": SECRET}]}, 400, None),
        ("/v1/chat/completions", CHAT | {"temperature": 3}, 400, None),
        ("/v1/chat/completions", CHAT | {"temperature": True}, 400, None),
        ("/v1/chat/completions", CHAT | {"max_tokens": 0}, 400, None),
        ("/v1/chat/completions", CHAT | {"max_tokens": LONGEST}, 400, "context_length_exceeded"),
        ("/v1/chat/completions", CHAT | {"stream": True}, 400, "unsupported_value"),
        ("/v1/chat/completions", CHAT | {"tools": [{}]}, 400, "unsupported_value"),
        ("/v1/chat/completions", CHAT | {SECRET: 1}, 400, "unknown_field"),
        ("/v1/completions", TEXT | {"prompt": [2, 999]}, 400, None),
        ("/v1/completions", TEXT | {"prompt": [2**80]}, 400, None),
        ("/v1/completions", TEXT | {"prompt": ""}, 400, None),
        ("/v1/completions", TEXT | {"prompt": "\ud800"}, 400, None),
        ("/v1/completions", TEXT | {"stop": [""]}, 400, None),
        ("/v1/completions", [], 400, None),
        ("/v1/completions", b'{"prompt": "Tarvolin', 400, None),
        ("/v1/completions", b"null", 400, None),
        ("/v1/Tarvolin", TEXT, 404, None),
    ],
)
def test_what_is_wrong_is_refused_in_openais_form_without_repeating_it(call, capfd, path, body, status, code):
    found, answered = call("POST", path, body)
    assert (found, answered["error"]["code"]) == (status, code)
    assert answered["error"]["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    assert SECRET not in json.dumps(answered)
    assert SECRET not in capfd.readouterr().err


def test_a_key_is_asked_for_before_anything_else(call):
    for path in ("/v1/models", "/v1/nowhere"):
        status, found = call("GET", path, key="sk-wrong")
        assert (status, found["error"]["code"]) == (401, "invalid_api_key")


def test_a_body_that_is_too_long_is_not_read(call):
    status, _ = call("POST", "/v1/completions", b"x", **{"Content-Length": str(MOST_BYTES + 1)})
    assert status == 413


def test_the_log_names_calls_and_nothing_that_was_said(call, capfd):
    call("POST", "/v1/chat/completions", CHAT)
    call("GET", f"/v1/{SECRET}")
    lines: list[str] = []
    deadline = time.monotonic() + 30
    while (
        len(lines) < 2 and time.monotonic() < deadline
    ):  # a line is written once the answer is sent, by another thread
        lines += capfd.readouterr().err.splitlines()
        time.sleep(0.01)
    assert [line.rsplit(" ", 2)[0] for line in lines] == ["POST /v1/chat/completions 200", "GET (unknown) 404"]


def test_a_seed_decides_and_choices_differ():
    tokenizer = _tokenizer()
    body = TEXT | {"prompt": ["Rome", "Bakan"], "n": 2, "seed": 5}

    def seeds(**changes):
        parrot = Parrot(tokenizer)
        answer(parrot, read_ask(body | changes, tokenizer, len(WORDS), "parrot", chat=False), chat=False)
        return [draw.seed for draw in parrot.drawn]

    assert seeds() == seeds()
    assert len(set(seeds())) == 4
    assert not set(seeds()) & set(seeds(seed=6))
    assert seeds(seed=None) != seeds(seed=None)


def test_a_chat_template_is_used_and_may_refuse():
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception(m.content) }}{% endif %}"
        "{{ m.content }} and {% endfor %}"
    )
    tokenizer = _tokenizer(template)
    ask = read_ask(CHAT, tokenizer, len(WORDS), "parrot", chat=True)
    assert ask.prompts[0].ids.tolist() == [0, 1, 8]
    with pytest.raises(Refusal) as caught:
        read_ask(CHAT | {"messages": [{"role": "system", "content": SECRET}]}, tokenizer, 9, "parrot", chat=True)
    assert caught.value.__context__ is None
    assert SECRET not in caught.value.message


def test_half_a_character_is_written_by_the_token_that_completes_it():
    class Bytes:
        def decode(self, ids):
            return bytes(int(i) for i in ids).decode("utf-8", "replace")

    text = "aé東"
    assert grown(Bytes(), np.frombuffer(text.encode(), np.uint8)) == ["a", "", "é", "", "", "東"]


def test_shapes_are_few():
    assert [step(n, 64) for n in (1, 64, 65, 256, 257, 8192)] == [64, 64, 256, 256, 1024, 16384]


def test_other_machines_need_a_key():
    code = "from canaryjax.cli import main; main(['serve', 'embedded', '--host', '0.0.0.0'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 2
    assert done.stderr.startswith("canaryjax: error: expected a key where other machines can call, found none")


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped():
    code = "from canaryjax.cli import main; main(['serve', 'embedded', '--port', '0'])"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        address = re.fullmatch(r"serving embedded at http://127\.0\.0\.1:(\d+)/v1\n", line)
        try:
            link = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=60)
            link.request("GET", "/v1/models")
            assert json.loads(link.getresponse().read())["data"][0]["id"] == "embedded"
            link.close()
        finally:
            process.terminate()
        rest = process.stderr.read()
    assert process.returncode == 1
    assert "canaryjax: stopped by SIGTERM" in rest


@pytest.mark.parametrize("line", [b"Tarvolin\r\n\r\n", b"PUT /v1/models HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 70000])
def test_what_is_no_known_request_is_refused(address, capfd, line):
    with socket.create_connection(address, timeout=60) as link:
        link.sendall(line)
        link.shutdown(socket.SHUT_WR)
        found = b"".join(iter(lambda: link.recv(65536), b""))
    assert json.loads(found[found.index(b"{") :])["error"]["type"] in ("invalid_request_error", "server_error")
    assert SECRET not in found.decode() + capfd.readouterr().err
