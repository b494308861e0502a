"""Ctrl-C and SIGTERM: status 1, one line that says how to go on; a second signal ends a step that never returns."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WAITING = """
import gc
import hashlib
import signal
import threading
import time
from pathlib import Path
import typer
from canaryjax.cli import app, audit

def busy(*_):
    print("ready", flush=True)
    time.sleep(1.5)

class Finalised:
    __del__ = busy

def collect():
    gc.callbacks.append(busy)
    gc.collect()
    gc.callbacks.clear()

def finalise():
    Finalised()

def swallow():
    try:
        busy()
    except BaseException:
        pass

SWALLOWING = {"callback": collect, "finaliser": finalise, "bare except": swallow}

@app.app.command("wait")
def wait(kind: str, folder: str = typer.Argument("runs/quick-0123-1")) -> None:
    audit._current.update(run_dir=Path(folder), words=["quick", "canary.rate=0.1"])
    if kind == "python":
        print("ready", flush=True)
        time.sleep(600)
    if kind.startswith("deaf"):
        worker = threading.Thread(target=time.sleep, args=(600,), daemon=True)
        worker.start()
        threading.Timer(1.0, lambda: signal.pthread_kill(worker.ident, int(kind[4:]))).start()
        print("ready", flush=True)
        worker.join()
    if kind in SWALLOWING:
        SWALLOWING[kind]()
        time.sleep(600)
    # Said by another thread, once this one is inside the call.
    threading.Timer(1.0, lambda: print("ready", flush=True)).start()
    hashlib.pbkdf2_hmac("sha512", b"x", b"y", 30_000_000)  # no bytecode runs in here, as in a compiled program

app.main()
"""


def _start(kind, folder="runs/quick-0123-1", cwd=ROOT):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, "wait", kind, str(folder)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_names_the_run_and_how_to_go_on(number):
    process = _start("python")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith(
        f"canaryjax: stopped by {signal.Signals(number).name}; no policy was finished in runs/quick-0123-1"
    )
    assert last.endswith("; go on with: bin/audit quick canary.rate=0.1 --out runs/quick-0123-1 --resume")
    assert out == ""


@pytest.mark.parametrize(
    ("count", "kept"), [(1, "the 1 finished policy is kept"), (3, "the 3 finished policies are kept")]
)
def test_a_stop_elsewhere_counts_what_is_kept_and_names_a_script_that_is_there(tmp_path, count, kept):
    folder = tmp_path / "run"
    (folder / "trials").mkdir(parents=True)
    for trial in range(count):
        (folder / "trials" / f"{trial:04d}.json").write_text("{}")
    process = _start("python", folder, cwd=tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    last = err.splitlines()[-1]
    assert f"; {kept} in {folder}; go on with: " in last
    # bin/audit alone is no file in another folder.
    assert f"go on with: {ROOT / 'bin' / 'audit'} quick " in last


def test_a_second_signal_ends_a_step_that_runs_on():
    process = _start("compiled")
    process.send_signal(signal.SIGINT)
    # Answered by the thread while the main one is busy; without it nothing would be said for hours.
    assert "once more to stop at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith("canaryjax: stopped at once; no policy was finished in runs/quick-0123-1; go on with: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["callback", "finaliser", "bare except"])
def test_a_stop_that_python_drops_comes_again(where, number):
    # Raised in a callback of the garbage collector, as JAX has one, or a finaliser, an exception goes no further.
    process = _start(where)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Exception ignored" not in err
    assert "stopped at once" not in err  # the stop that came again is no second one
    assert err.splitlines()[-1].startswith(f"canaryjax: stopped by {signal.Signals(number).name}; no policy was")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_that_another_thread_was_given_reaches_the_one_that_waits(number):
    process = _start(f"deaf{number:d}")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith(f"canaryjax: stopped by {number.name}; no policy was")


@pytest.mark.parametrize("apart", [0, 0.002, 0.01, 0.03])
def test_one_stop_that_arrives_twice_is_one_stop(apart):
    # coreutils' `timeout` signals its child and then the whole group; taken for an impatient user, nothing is said,
    # and one that comes when the handlers are gone would kill the process by the signal.
    process = _start("python")
    process.send_signal(signal.SIGTERM)
    time.sleep(apart)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("canaryjax: stopped by SIGTERM; no policy was finished")


def test_a_stop_does_not_wait_for_what_runs_on_beside_it():
    # A device's threads go on; taking the interpreter down under them ended a stopped run with a segmentation fault.
    code = WAITING.replace('print("ready", flush=True)\n        time.sleep', (
        'import atexit; atexit.register(os.kill, os.getpid(), 11)\n        '
        'print("ready", flush=True)\n        time.sleep'
    )).replace("import hashlib", "import hashlib\nimport os")  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", code, "wait", "python"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 1
