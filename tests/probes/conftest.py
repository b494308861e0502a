"""One small audit on the embedded model, run once for all tests that look at it."""

import pytest

from canaryjax import load_model
from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.run import open_run, run_audit
from canaryjax.runlog.progress import Silence

SMALL = {
    "name": "small",
    "canaries": {"count": 3, "prompt": "Which text is on {id}?", "preamble": "The text is"},
    "injection": {
        "regimes": [{"name": "deep", "epochs": 40}, {"name": "flat", "epochs": 1}],
        "batch_size": 3,
        "grad_accumulation": 1,
        "lora": {"rank": 5, "alpha": 10.0},
        "optimizer": {"learning_rate": 1e-2, "schedule": "cosine"},
    },
    "tuning": {
        "sources": [{"name": "synth", "kind": "synth"}, {"name": "random", "kind": "random"}],
        "seeds": [0, 1],
        "steps": [3],
        "examples": 7,
        "grad_accumulation": 2,
        "lora": {"rank": 3, "alpha": 6.0},
        "optimizer": {"learning_rate": 5e-4, "schedule": "cosine"},
        "checkpoint_every": 2,
    },
    "controls": {
        "noise": [{"regime": "deep", "source": "synth"}],
        "reexposed": [{"regime": "deep", "source": "synth"}],
        "merged": [{"regime": "deep", "source": "random"}],
    },
    "reading": {"window": 11, "sweep": [5, 11], "hits": [1, 3], "samples": 2, "decoys": 3, "shuffled": 2},
    "statistics": {"resamples": 50},
}


@pytest.fixture(scope="session")
def small_config():
    return ProbesConfig.model_validate(SMALL)


@pytest.fixture(scope="session")
def embedded_model():
    return load_model("embedded")


@pytest.fixture(scope="session")
def small_run(small_config, tmp_path_factory):
    run = open_run(small_config, tmp_path_factory.mktemp("probes") / "run", resume=False)
    report = run_audit(small_config, run, Silence())
    run.close()
    return run.path, report
