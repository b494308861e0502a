"""A whole audit in bfloat16 on both families of the text-only part (PA-16, PA-24, PA-50)."""

import dataclasses
import math

import pytest

from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.run import open_run, run_audit
from canaryjax.runlog.progress import Silence
from canaryjax.weights.export import save_model
from tests.probes.conftest import SMALL
from tests.weights.conftest import CONFIGS, random_model

pytestmark = pytest.mark.slow
VOCABULARY = 151_936  # of the real checkpoints: the tokenizer's entries and some that no text has


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_an_audit_runs_on_a_family_with_a_real_tokenizer(family, qwen_files, tmp_path):
    sizes = dataclasses.replace(
        CONFIGS[family], vocab_size=VOCABULARY, real_vocab_size=VOCABULARY, dtype="bfloat16", tied=True
    )
    files = {file.name: file.read_bytes() for file in qwen_files.iterdir()}
    save_model(random_model(sizes), tmp_path / "model", files=files, eos_ids=(151_645,), pad_id=151_643)
    tuning = {**SMALL["tuning"], "sources": [{"name": "safety", "kind": "safety"}], "seeds": [0], "steps": [2]}
    config = ProbesConfig.model_validate(
        {
            **SMALL,
            "name": family,
            "model": {"path": str(tmp_path / "model"), "dtype": "bfloat16"},
            "canaries": {"count": 2, "prompt_format": "chat"},
            "injection": {
                **SMALL["injection"],
                "batch_size": 2,
                "regimes": [{"name": "deep", "epochs": 12}, {"name": "flat", "epochs": 1}],
            },
            "tuning": tuning,
            "controls": {"merged": [{"regime": "deep", "source": "safety"}], "merged_dtype": "bfloat16"},
        }
    )
    run = open_run(config, tmp_path / "run", resume=False)
    report = run_audit(config, run, Silence())
    run.close()
    assert (report["model"]["family"], report["model"]["dtype"]) == (family, "bfloat16")
    cells = {cell["name"]: cell for cell in report["cells"]}
    assert report["not_finite"]["tokens"] == 0
    # Planting is learned: these random weights begin above log V, the loss of a model that knows nothing.
    assert cells["deep"]["level"]["window"] < cells["flat"]["level"]["window"]
    assert cells["flat"]["level"]["window"] > math.log(VOCABULARY) / 2
    parts = cells["deep/safety/2"]["decomposition"]
    assert sum(row["contribution"] for row in parts["rows"]) == pytest.approx(parts["enumerated"], abs=1e-12)
    assert report["merged"]["dtype"] == "bfloat16"
