"""The hours of a plan: what they are made of, checked by hand on one setting and by what must not matter."""

import json

import pytest

from canaryjax.audit.known_shape import known_shape
from canaryjax.audit.plan import DEVICES, parameter_count
from canaryjax.config.probes_file import load_probes_config
from canaryjax.probes.plan import plan_audit, plan_hours

QUICK = "probes_quick"
SMOLLM2 = known_shape("smollm2-135m")
ONE = (
    "injection.regimes=[{name: deep, epochs: 4}]",
    "tuning.sources=[{name: safety, kind: safety}]",
    *["tuning.seeds=[0]", "tuning.steps=[3]", "controls.noise=none", "controls.reexposed=[]", "controls.merged=none"],
)


def hours(*words):
    config = load_probes_config(QUICK, [*ONE, *words])
    return plan_audit(config), plan_hours(config, SMOLLM2)


def test_updates_are_told_apart_and_weighed_as_two_forward_passes():
    counts, found = hours()
    # 20 canaries x 4 epochs in eights plant; 3 updates tune.
    assert (counts.planting, counts.tuning, counts.updates) == (10, 3, 13)
    blocks = parameter_count(SMOLLM2) - 49_152 * 576 - 61 * 576  # without the embedding and the norms
    # The prompt has 39 bytes ("Which text is on the gate of ", 8 digits, "?"), the target 67: 2 a token.
    # A product with a weight is 2 operations; attention of 9 heads of 64 in 30 layers meets half of the context, twice.
    a_token = 2 * blocks + 2 * 2 * 9 * 64 * 30 * (19 + 34) / 2
    expected = 2 * 10 * 8 * (a_token * (19 + 34) + 2 * 576 * 49_152 * 34)
    assert found.flops["planting"] == pytest.approx(expected, rel=1e-12)


def test_hours_add_up_and_other_devices_differ():
    config = load_probes_config(QUICK, ONE)
    own, other = plan_hours(config, SMOLLM2), plan_hours(config, SMOLLM2, "h100-80gb")
    assert (own.device, own.flops) == ("cpu-2core", other.flops)
    reads = 2 * 2 * (34 + 4) * 4.0 * parameter_count(SMOLLM2)  # two models, greedy and sampled outputs, float32
    for found in (own, other):
        limits = DEVICES[found.device]
        seconds = sum(found.flops.values()) / (0.35 * limits.matmul) + reads / limits.bandwidth
        assert found.hours == pytest.approx(seconds / 3600, rel=1e-12)


def test_what_is_not_done_costs_nothing():
    _, all_of_it = hours()
    _, less = hours("reading.decoys=0", "reading.shuffled=0", "reading.samples=0", "reading.hits=[1]")
    assert less.flops["tuning"] == all_of_it.flops["tuning"]
    assert less.flops["decoys"] == pytest.approx(all_of_it.flops["decoys"] / 24)  # of 19 + 4 + 1 the one of digits 0
    assert less.flops["outputs"] == pytest.approx(all_of_it.flops["outputs"] / 16)


def test_rows_of_a_file_are_measured_and_one_that_is_not_here_is_taken_at_its_longest(tmp_path):
    path = tmp_path / "rows.jsonl"
    source = f"tuning.sources=[{{name: mine, kind: jsonl, path: {path}}}]"
    _, unknown = hours(source, "tuning.max_length=100")
    assert "up to 50 and 50 a row" in unknown.assumed
    path.write_text(json.dumps({"prompt": "p" * 30, "response": "r" * 12}) + "\n")
    assert "up to 10 and 4 a row" in hours(source)[1].assumed
