"""A small study's documents and model, made-up reports of a sweep's cells, and a real local Ray that a test can end."""

import dataclasses
import importlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from canaryjax.config import load_config
from canaryjax.data.loaders import load_examples
from canaryjax.embedded.corpus import generate_examples
from canaryjax.embedded.pretrain.training import base_config
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, build_tokenizer, padded_rows, save_tokenizer
from canaryjax.models.transformer import init_transformer
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.file import read_sweep
from canaryjax.sweep.summary import summarise
from canaryjax.weights.export import save_model

ROOT = Path(__file__).resolve().parents[2]
AWAKE = {"RAY_worker_niceness": "0"}  # at Ray's 15 its workers would wait for all other tests that run beside them
# Not in the test's own process: Ray forks where it starts, which JAX's threads do not survive.
HOLD = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="session")
def small_config():
    return load_config("quick", ["data.documents=40", "data.rm_share=0.442", "data.eval_share=0.3", "study.seed=7"])


@pytest.fixture(scope="session")
def examples(small_config):
    return load_examples(small_config.data, small_config.study.seed, generate_examples)


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory):
    """A random model of two narrow layers that speaks the embedded vocabulary, as a directory."""
    tokenizer = build_tokenizer()
    shape = dataclasses.replace(
        base_config(padded_rows(tokenizer), tokenizer.get_vocab_size()),
        **{"width": 24, "num_layers": 2, "num_heads": 3, "num_kv_heads": 1, "head_dim": 8, "ff_dim": 40},
        windows=(None, None),
    )
    folder = tmp_path_factory.mktemp("base") / "model"
    save_model(init_transformer(jax.random.key(1), shape, stddev=0.3), folder, eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer, folder)
    return folder


def _report(violating, compliant=(0.0, 0.1), trials=None, tokens=(11,), invalid=(), **changes):
    trials = list(range(len(violating))) if trials is None else trials
    lost = [{"trial": trial, "reason": "not finite"} for trial in invalid]

    def arm(scores, own, lost):
        found = {"trials": own, "scores": list(scores), "invalid": lost}
        # Strings of several lengths are not told apart here: a test that has such says the scores a token itself.
        return found | ({"scores_per_token": [x / tokens[0] for x in scores]} if len(tokens) == 1 else {})

    return {
        "statistic": {"primary": "induced_net"},
        "canary": {"tokens": list(tokens)},
        "arms": {
            "compliant": arm(compliant, list(range(100, 100 + len(compliant))), []),
            "violating": arm(violating, trials, lost),
        },
    } | changes


def _row(cell, made):
    status = "done" if isinstance(made, dict) else "failed" if made else "not run"
    return {
        "name": cell.name,
        "command": "bin/audit",
        "points": list(cell.points),
        "seed": cell.config.study.seed,
        "config": cell.config.model_dump(mode="json"),
        "directory": f"cells/{cell.name}",
        "status": status,
        "error": made if status == "failed" else None,
        "policies": 4,
        "finished_policies": 0,
        "report": made if status == "done" else None,
    }


@pytest.fixture
def report():
    """Makes a report as far as panels read it, of scores; compliant policies are the trials from 100 on."""
    return _report


@pytest.fixture
def summary(tmp_path):
    """Makes the `sweep.json` of a file's text, with made-up reports of its real cells, in their order.

    None stands for a cell that was not run, a text for one that failed with it.
    """

    def make(text, reports):
        (tmp_path / "made_up.yaml").write_text(text)
        file = read_sweep(str(tmp_path / "made_up.yaml"), [])
        cells = make_cells(file)
        return summarise(file, [_row(cell, made) for cell, made in zip(cells, reports, strict=True)])

    return make


class LocalRay:
    """One node of two CPUs. Attributes: `address`."""

    def __init__(self, log):
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLD],
            env=os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", **AWAKE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()

    def shut_down(self):
        """Ends all of its processes, and waits for that."""
        if self._process.poll() is None:
            self._process.communicate()


@pytest.fixture(scope="session")
def ray():
    """The module, which continuous integration must have."""
    if not os.environ.get("CI"):
        pytest.importorskip("ray", reason="needs the extra ray: pip install -e '.[ray]'")
    return importlib.import_module("ray")


@pytest.fixture
def local_ray(ray, tmp_path):
    """A cluster for one test."""
    with (tmp_path / "ray.log").open("w") as log:
        cluster = LocalRay(log)
        if not cluster.address:  # containers without shared memory or sockets, say
            pytest.skip(f"Ray starts no cluster here: {(tmp_path / 'ray.log').read_text()[-300:]}")
        yield cluster
        cluster.shut_down()
