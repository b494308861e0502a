"""The command: its plan, its limits, a run through an endpoint, a stop and its continuation."""

import importlib.util
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from canaryjax.cli import detector_probe, main
from canaryjax.detector.positives import SHIPPED
from canaryjax.detector.store import STORE, Store, peek

PROXY = Path(__file__).parents[1] / "asking" / "fault_proxy.py"
KEY = "sk-test-51d07ab2c9e63f48"


@pytest.fixture(scope="session")
def faults():
    spec = importlib.util.spec_from_file_location("detector_probe_faults", PROXY)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def write(made_site, root, tmp_path, monkeypatch):
    """`write(**sections)`: the file of a config for a site of this test's own."""
    monkeypatch.setenv("PROBE_KEY", KEY)
    monkeypatch.setattr(detector_probe, "_current", {})
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made_site / "site", root / "site", dirs_exist_ok=True)

    def make(**sections):
        values = {
            "name": "weekly",
            "site": {"folder": str(root / "site"), "secrets": str(root / "keys")},
            "model": {"backend": "api", "name": "small", "api_key_variable": "PROBE_KEY", "retries": 0},
            "probing": {"negatives": 5, "positives": 3},
            "evidence": {"permutations": 999},
        }
        for name, section in sections.items():
            values[name] |= section
        file = tmp_path / "weekly.yaml"
        file.write_text(yaml.safe_dump(values))
        return file

    return make


def probe(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        main(["detector", "probe", *map(str, words)])
    told = capsys.readouterr()
    return caught.value.code, told.out, told.err


def test_a_plan_is_exact_and_sends_nothing(write, capsys, tmp_path):
    file = write(model={"base_url": "http://127.0.0.1:9/v1", "price_out": 10.0})
    code, out, _ = probe(capsys, file, "--plan")
    assert code == 0
    for row in (r"calls\W+375", r"canaries\W+17", r"sentences\W+5", r"famous facts\W+3", r"cost\W+up to 0\.24"):
        assert re.search(rf"{row}\b", out), row
    assert "at most 24,022 written" in out
    assert not (tmp_path / "runs").exists()
    code, _, err = probe(capsys, file, "probing.max_calls=396")
    assert (code, "at most 396 calls (probing.max_calls), found 397" in err) == (2, True)
    code, _, err = probe(capsys, file, "--resume")
    assert (code, "expected --out DIR with --resume" in err) == (2, True)
    code, _, err = probe(capsys, file)  # tests have no terminal: nobody could say yes
    assert (code, "look at --plan, then add --yes" in err) == (2, True)
    assert not (tmp_path / "runs").exists()


def test_without_a_terminal_nothing_is_sent_unasked(write, capsys, tmp_path, faults, monkeypatch):
    with faults.FaultProxy(lambda *_: faults.chat_answer("x")) as proxy:
        file = write(model={"base_url": proxy.url})
        for stdin in (io.StringIO("y\n"), None):  # a pipe, and one that was closed
            monkeypatch.setattr(sys, "stdin", stdin)
            code, _, err = probe(capsys, file, "--out", tmp_path / "run")
            assert (code, "or a terminal to ask at" in err, "add --yes" in err) == (2, True, True)
        assert not proxy.calls
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "127.0.0.1:9/v1", "ftp://h/v1", "http://u:hidden@h/v1", "http://h/v1?key=hidden", ""]
)
@pytest.mark.parametrize("words", [["--plan"], ["--yes", "--out", "run"]])
def test_a_bad_address_is_refused_in_a_plan_too(write, capsys, tmp_path, url, words):
    code, out, err = probe(capsys, write(model={"base_url": url}), *words)
    assert (code, out) == (2, "")
    assert err.startswith("canaryjax: error: expected model.base_url ")
    assert "hidden" not in err
    assert not (tmp_path / "run").exists()


def test_a_models_name_does_not_steer_the_terminal(write, capsys, tmp_path, faults):
    name = "\x1b[31mred[bold]\x07\u202e"
    with faults.FaultProxy(lambda number, _: faults.chat_answer("x") if number < 30 else None) as proxy:
        file = write(model={"base_url": proxy.url, "name": name, "logprobs": "off"}, probing={"kinds": ["year"]})
        told = probe(capsys, file, "--yes", "probing.repeats=0", "probing.negatives=2", "probing.positives=0")
        wrong = probe(capsys, write(model={"base_url": "http://127.0.0.1:9/v1", "name": name}), "--yes")
    assert (told[0], wrong[0]) == (0, 2)
    for text in (told[1], told[2], wrong[2]):
        assert not set("\x1b\x07\u202e") & set(text)
    assert r"\x1b[31mred[bold]\x07\u202e" in told[1]
    assert r"\x1b[31mred[bold]\x07\u202e" in wrong[2]


def test_an_endpoint_that_is_down_leaves_nothing_behind(write, capsys, tmp_path):
    code, _, err = probe(capsys, write(model={"base_url": "http://127.0.0.1:9/v1"}), "--yes", "--out", tmp_path / "run")
    assert code == 2
    assert "no connection" in err
    assert not (tmp_path / "run").exists()


def test_a_run_whose_calls_all_fail_ends_with_one_and_goes_on(write, capsys, tmp_path, faults):
    broken, chats = True, itertools.count()

    def plan(_, path):
        if "chat" not in path:  # no log-probs
            return faults.Fault(status=404)
        preflight = next(chats) < 7  # one call, then three questions twice
        return faults.chat_answer("I cannot say.") if preflight or not broken else faults.Fault(status=400)

    out = tmp_path / "run"
    with faults.FaultProxy(plan) as proxy:
        file = write(model={"base_url": proxy.url}, probing={"kinds": ["who"], "repeats": 0, "max_tokens": 8})
        code, _, err = probe(capsys, file, "--yes", "--out", out)
        sent = [body for path, body, _ in proxy.calls if "chat" in path]
        browsing = {name for body in sent for name in body if name not in ("model", "messages", "temperature",
                                                                          "max_tokens", "seed")}  # fmt: skip
        assert browsing == set()  # no tool, no search option (SD-20)
        assert (code, peek(out / STORE).answers) == (1, 0), err
        assert "none of 25 calls was answered (25 times status 400)" in err
        assert f"--out {out} --resume --yes" in err
        assert not (out / "report.json").exists()
        broken = False
        code, told, err = probe(capsys, file, "--yes", "--out", out, "--resume")
    assert code == 0, err
    report = json.loads((out / "report.json").read_text())
    assert (report["calls"]["planned"], report["calls"]["answered"], report["calls"]["refusals"]) == (25, 25, 25)
    assert (out / "report.html").is_file()
    assert "report.html" in told
    for path in out.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def plain_facts(folder):
    """Gives a site its own famous facts: the shipped ones that the embedded model's vocabulary can write."""
    lines = SHIPPED.read_text("utf-8").splitlines()
    (folder / "positives.yaml").write_text("\n".join(line for line in lines if line.isascii()) + "\n")


def model_server():
    import canaryjax as cj
    from canaryjax.inference.server import ModelServer
    from canaryjax.inference.service import Service

    server = ModelServer("127.0.0.1", 0, Service(cj.load_model("embedded"), size=8), KEY, quiet=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    return server, thread


@pytest.mark.slow
def test_fifteen_hundred_calls_under_faults_lose_nothing(write, capsys, tmp_path, faults, root, oracle):
    # The issue's own measure: every answer once, and denominators that say so.
    shutil.rmtree(root)
    oracle.SIZES, sizes = (
        type(oracle.SIZES)(site=30, linked=8, sitemap=7, honeypot=7, per_rung=5, negatives=20),
        oracle.SIZES,
    )
    try:
        oracle.make_site(root)
    finally:
        oracle.SIZES = sizes
    plain_facts(root / "site")
    broken = [
        faults.Fault(status=429, headers={"Retry-After": "0"}),
        faults.Fault(status=500),
        faults.Fault(kind="cut", body=b'{"choices": [{"message": {"content": "The'),
        faults.Fault(kind="drop"),
        faults.Fault(status=503),
        faults.Fault(kind="slow"),
    ]
    server, thread = model_server()

    def plan(number, path):
        if "chat" not in path or number < 10 or number % 7:
            return None
        kind = broken[number // 7 % len(broken)]
        return kind if kind.kind != "slow" or number % 49 == 0 else None

    try:
        with faults.FaultProxy(plan, server.server_address[1]) as proxy:
            model = {"base_url": proxy.url, "name": "embedded", "retries": 8, "timeout": 600.0, "logprobs": "off"}
            file = write_for(root, tmp_path, model)
            code, _, err = probe(capsys, file, "--yes", "--out", tmp_path / "run")
            assert code == 0, err
            asked = sum("chat" in path for path, _, _ in proxy.calls)
    finally:
        server.shutdown()
        thread.join()
        server.close()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    calls = report["calls"]
    assert (calls["planned"], calls["answered"], calls["failed"], calls["per_target"]) == (1500, 1500, 0, 15)
    assert asked > 1600  # faults were met, and asked again
    assert {name: found["n"] for name, found in report["populations"].items()} == {
        "canary": 72, "negative": 20, "positive": 8}  # fmt: skip
    assert sum(group["n"] for group in report["groups"]) == 72
    with Store(tmp_path / "run" / STORE, {}) as store:
        answers = store.answers()
    each = Counter((a.target, a.kind, a.temperature, a.repeat) for a in answers)
    assert (len(each), max(each.values())) == (1500, 1)


def write_for(root, tmp_path, model):
    values = {
        "site": {"folder": str(root / "site"), "secrets": str(root / "keys")},
        "model": {"backend": "api", "api_key_variable": "PROBE_KEY", **model},
        "probing": {"max_tokens": 4},
        "evidence": {"permutations": 999},
    }
    file = tmp_path / "many.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def test_a_stop_before_the_first_question_leaves_nothing_behind(write, tmp_path, faults):
    out = tmp_path / "new" / "run"
    with faults.FaultProxy(lambda *_: faults.Fault(kind="slow")) as proxy:
        file = write(model={"base_url": proxy.url})
        words = [sys.executable, "-m", "canaryjax.detector", "probe", str(file), "--out", str(out), "--yes"]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        while process.poll() is None and not proxy.calls:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, "stopped by SIGINT" in err) == (1, True), err
    assert not out.parent.exists()  # the same command can be given again


@pytest.mark.slow
def test_a_local_run_is_stopped_and_goes_on(write, root, tmp_path):
    file, out = tmp_path / "local.yaml", tmp_path / "run"
    values = yaml.safe_load(write().read_text()) | {"model": {"path": "embedded"}}
    values["probing"] |= {"prompt_format": "plain", "max_tokens": 8, "kinds": ["completion", "who"], "repeats": 1}
    plain_facts(root / "site")
    file.write_text(yaml.safe_dump(values))
    words = [sys.executable, "-m", "canaryjax.detector", "probe", str(file), "--out", str(out)]
    begin = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    begin["env"] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(words, **begin)
    while process.poll() is None and not ((out / STORE).is_file() and peek(out / STORE).answers >= 16):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 1, err
    assert "stopped by SIGINT" in err
    assert f"--out {out} --resume --yes" in err
    assert not (out / "report.json").exists()
    kept = peek(out / STORE).answers
    assert 16 <= kept < 100  # 25 targets, two questions at two temperatures
    done = subprocess.run([*words, "--resume", "--yes"], **begin)
    assert done.returncode == 0, done.stderr
    assert f"{100 - kept} (and {kept} answered already)" in done.stdout
    report = json.loads((out / "report.json").read_text())
    assert (report["calls"]["answered"], report["calls"]["failed"]) == (100, 0)
    assert report["model"]["capabilities"]["logprobs"]
    for measure in ("min_k", "min_k_plus_plus"):  # weights that run here give both
        assert report["membership"][measure]["auroc"] is not None, measure
    assert report["populations"]["canary"]["hits"] == 0
    assert {"report.html", "hits.json", "answers.sqlite"} <= {path.name for path in out.iterdir()}
