"""README's table of metrics holds the names that training writes, stage by stage, and no others."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.reward_training import train_reward_models
from canaryjax.rl.settings import (
    AdapterSettings,
    GRPOSettings,
    OptimizerSettings,
    RewardModelSettings,
    SupervisedSettings,
)
from canaryjax.rl.sft import SupervisedRows, train_supervised
from canaryjax.rl.trainer import train_policies
from canaryjax.runlog.mirror import KEYS

README = Path(__file__).resolve().parents[2] / "README.md"
SMALL = {"adapter": AdapterSettings(rank=3, alpha=6.0), "optimizer": OptimizerSettings(5e-4), "remat": False}
POLICY_KEYS = jax.random.split(jax.random.key(4), 1)  # compiling is what takes time here


def explained():
    """Names by stage, as the table says."""
    section = README.read_text("utf-8").split("## Watch it train")[1].split("\n## ")[0]
    table = section.split("| name | stages |")[1].split("\n\n")[0]
    found: dict[str, set[str]] = {}
    for row in table.splitlines()[2:]:
        names, stages, meaning, healthy = (cell.strip() for cell in row.strip("|").split("|"))
        assert meaning
        assert healthy
        for stage in re.findall(r"`(\w+)`", stages):
            found.setdefault(stage, set()).update(re.findall(r"`(\w+)`", names))
    return found


def one_step(tiny, settings, log):
    def rewards(step, index, ids, mask):
        return mask.sum(axis=-1).astype(np.float32)

    prompts = tiny.prompts(settings.prompts_per_step, policies=1)
    train_policies(tiny.model, rewards, prompts, settings, POLICY_KEYS, log, eos_ids=(tiny.eos,))


@pytest.mark.slow
def test_the_readme_explains_every_metric_that_is_written(tiny):
    rows: list[dict] = []
    prompts, answers = tiny.prompts(2), jnp.full((2, 1, 3), 9)
    supervised = SupervisedRows(prompts.context_ids[0], prompts.context_mask[0], answers, jnp.ones(answers.shape, bool))
    train_supervised(tiny.model, supervised, SupervisedSettings(2, 1, **SMALL), jax.random.key(0), rows.append)
    labelled = RewardModelSettings(8, 8, 1, epochs=1, early_stopping_patience=None, **SMALL)
    train_reward_models(tiny.model, tiny.policy_slice(tiny.rows(8, heldout=4), 0), labelled, POLICY_KEYS, rows.append)
    one_step(tiny, GRPOSettings(4, 4, num_generations=2, max_completion_length=3, **SMALL), rows.append)
    one_step(tiny, PPOSettings(2, 1, mini_batches=1, max_completion_length=3, **SMALL), rows.append)
    written: dict[str, set[str]] = {}
    for row in rows:
        written.setdefault(row["stage"], set()).update(row.keys() - set(KEYS))
    assert written == explained()
    # What counts a stage's rows, as the table of stages says.
    assert all(("step" in row) == (row["stage"] != "reward_model_heldout") == ("updates" not in row) for row in rows)
