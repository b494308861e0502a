"""The config tree: merged, checked, and no field that nobody reads."""

import ast
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

import canaryjax
from canaryjax.audit.training import policy_settings, reward_settings
from canaryjax.config import AuditConfig, config_hash, load_config, validate_config
from canaryjax.config.detector import DetectorConfig
from canaryjax.config.detector_file import load_detector_config
from canaryjax.config.load import SHIPPED_CONFIGS, SWEEPS
from canaryjax.config.policy import GRPOConfig, PPOConfig
from canaryjax.config.probes_file import load_probes_config
from canaryjax.errors import UserError
from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.settings import AdapterSettings, GRPOSettings

PACKAGE = Path(canaryjax.__file__).parent


def sections_of(annotation) -> list[type[BaseModel]]:
    """The sections a field may hold: one, one or none, or one of two."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_of(part)]


def leaf_fields(section: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in section.model_fields.items():
        inner = sections_of(field.annotation)
        found += [leaf for part in inner for leaf in leaf_fields(part, f"{prefix}{name}.")] or [f"{prefix}{name}"]
    return found


def attributes_read() -> set[str]:
    """Every attribute name read in the package, the config layer left out."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        if "config" not in file.relative_to(PACKAGE).parts[:1]:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found


def test_every_field_is_read_somewhere():
    read = attributes_read()
    fields = leaf_fields(AuditConfig) + leaf_fields(DetectorConfig)
    assert {"policy.num_generations", "policy.ppo_epochs", "policy.adaptive_kl.horizon"} <= set(fields)
    assert [path for path in fields if path.rsplit(".", 1)[-1] not in read] == []


def test_an_audit_sends_a_detectors_config_to_its_command():
    with pytest.raises(UserError, match="found a detector run's; run canaryjax detector probe"):
        load_config("detector_demo")
    with pytest.raises(UserError) as caught:
        load_config("detector_dem")
    assert "'detector_demo'" not in str(caught.value)


def test_each_command_offers_its_own_configs():
    for load, own, others in (
        (load_probes_config, "probes_quick", ("quick'", "detector")),
        (load_detector_config, "detector_demo", ("quick", "probes")),
        (load_config, "'quick'", ("detector", "probes")),
    ):
        with pytest.raises(UserError) as caught:
            load("no such config")
        offered = str(caught.value).split("found no file")[0]
        assert own in offered
        assert not any(f"'{other}" in offered for other in others)


def test_a_probe_audits_config_is_sent_to_its_command_and_takes_no_other():
    with pytest.raises(UserError, match="found a probe audit's; run canaryjax probes"):
        load_config("probes_quick")
    with pytest.raises(UserError, match="found one with a section 'policy'; run canaryjax audit"):
        load_probes_config("quick")
    with pytest.raises(UserError, match="found one with a section 'site'; run canaryjax detector probe"):
        load_probes_config(SHIPPED_CONFIGS / "detector_demo.yaml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tuning.stepz=[3]", "unknown config key 'tuning.stepz'; did you mean 'tuning.steps'"),
        ("reading.hits=[1,32]", "every k of .?hits.? within the greedy output and 15 sampled ones, found 32"),
        ("reading.window=0", "reading.window"),
        ("tuning.seeds=[1,1]", "none twice"),
        ("canaries.prompt=none", "with {id} once"),
        ("controls.noise=some", "controls.noise"),
        ("statistics.level=1", "statistics.level"),
        ("tuning.max_length=1", "tuning.max_length"),  # a prompt and an answer have a token each
    ],
)
def test_mistakes_in_a_probe_audits_config(override, message):
    with pytest.raises(UserError, match=message):
        load_probes_config("probes_quick", [override])


def test_cells_that_are_not_there_are_refused(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("extends: probes_quick\ncontrols: {noise: [{regime: saturated, source: gui}]}\n")
    with pytest.raises(UserError, match=r"to name a regime of .* and a source of .*, found 'saturated' and 'gui'"):
        load_probes_config(path)
    path.write_text("extends: probes_quick\ntuning: {sources: [{name: gui, kind: jsonl}]}\n")
    with pytest.raises(UserError, match=r"path.? with kind jsonl"):
        load_probes_config(path)


def test_every_shipped_config_is_valid_and_named_once():
    files = [file for file in sorted(SHIPPED_CONFIGS.rglob("*.yaml")) if file.parent.name != SWEEPS]
    detector = [file for file in files if file.name.startswith("detector")]
    probes = [file for file in files if file.name.startswith("probes")]
    names = [load_config(file).name for file in files if file not in detector + probes]
    names += [load_detector_config(file).name for file in detector]
    names += [load_probes_config(file).name for file in probes]
    assert len(names) == len(set(names)) >= 10
    assert "detector_demo" in names


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("canary.delt=0.1", "did you mean 'canary.delta'"),
        ("polcy.kl=k3", "did you mean 'policy'"),
        ("policy.optimizer.learning_rat=1", "did you mean 'policy.optimizer.learning_rate'"),
        ("canary.rate=1.5", "canary.rate"),
        ("canary.rate=nan", "canary.rate"),
        ("study.compliant=0", "study.compliant"),
        ("policy.num_generations=1", "num_generations"),
        ("policy.train_batch_size=12", "a group is never"),
        ("data.kind=jsonl", "data.path"),
        ("data.path=mine.jsonl", "set data.kind=jsonl"),  # ignored, it would leave a report on other documents
        ("canary.contrast=0.9", "rate \\+ contrast"),
        ("data.rm_share=0.9", "rm_share \\+ eval_share"),
        ("policy.lora.targets=[q,q]", "targets"),
        ("policy.lora.targets=[query]", "policy.lora.targets"),
        ("reward_model.lora.targets=[q,head]", "without head, found .*take it out: a reward model reads no"),
        ("name=a/b", "name"),
        ("reward_model.eval_batch_size=6", "multiple of the 8 responses"),
        ("reward_model.max_response_tokens=4096", "max_response_tokens below"),
        ("canary.rate", "key=value"),
        *[(f"{key}=3", "of the form key=value") for key in (".canary", "canary.", "canary..rate", "")],
        ("canary.rate=???", r"expected a value for 'canary\.rate', found \?\?\?"),  # the default, 0.01, was taken
        # pydantic counts true as 1.
        (
            "study.compliant=true",
            r"'study\.compliant': expected a value of another kind than true or false, found True",
        ),
        ("study.seed=false", "study.seed"),
        ("canary.contrast=true", "canary.contrast"),
        # What was met after all training: an infinite need of policies, an infinite quantile, a table of 10^12 draws.
        ("statistic.target_fpr=1e-320", "target_fpr"),
        ("statistic.level=0.9999999999999999", "statistic.level"),
        ("statistic.bootstrap_samples=1000000000000", "bootstrap_samples"),
        ("statistic.prevalences=[1e-320]", "prevalences"),
        ("reward_model.sampling_temperature=1e-300", "sampling_temperature"),
        ("data.documents=20001", "at most 20000 with kind=embedded, found 20001"),
        # Errors that tags and OmegaConf make of their own.
        *[(f"canary.rate=!!{tag} x", "expected overrides that merge into quick") for tag in ("float", "int", "bool")],
        ("canary=[]", "merge into quick; Cannot merge"),
        ("canary[rate=1", "canary"),
        ("policy.algorithm=trpo", "'policy.algorithm': expected grpo or ppo, found 'trpo'; choose one"),
        (
            "policy.algorithm=ppo",
            "found the override ppo; take the config embedded/ppo, or a file with `extends: quick`",
        ),
        ("policy.clip_range=0.1", "'policy.clip_range' with policy.algorithm=grpo: it is one of ppo's; leave it out"),
        ("policy=3", "config key 'policy'"),
    ],
)
def test_mistakes_are_named(override, message):
    with pytest.raises(UserError, match=message):
        load_config("quick", [override])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["study.paired=true", "study.compliant=9"], "as many in each arm"),
        (["study.paired=true", "study.assignment=iid"], "assignment=blocked"),
        # Feedback given online would not be permuted: a null control that is none.
        (["study.scramble_feedback=true", "policy.reward=simulated"], "no null"),
    ],
)
def test_values_that_contradict_each_other_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        load_config("quick", overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["policy.clip_rang=0.1"], "did you mean 'policy.clip_range'"),
        (["policy.adaptive_kl={target: 6.0, horizn: 9}"], "did you mean 'policy.adaptive_kl.horizon'"),
        (["policy.adaptive_kl={target: 0.0}"], "'policy.adaptive_kl.target'"),
        (
            ["policy.adaptive_kl={horizon: 31}"],
            "'policy.adaptive_kl.horizon': expected adaptive_kl.horizon of at least the 32",
        ),
        (["policy.adaptive_kl={}", "policy.kl_coefficient=0"], "no factor moves it from 0"),
        (["policy.samples_per_prompt=5"], "train_batch_size to be a multiple of samples_per_prompt=5"),
        (["policy.kl=k3_weighted"], "'policy.kl'"),
        (["policy.top_p=0.9"], "'policy.top_p' with policy.algorithm=ppo: it is one of grpo's; leave it out"),
    ],
)
def test_mistakes_in_a_ppo_section_are_named(overrides, message):
    with pytest.raises(UserError, match=message):
        load_config("embedded/ppo", overrides)


def test_a_section_of_another_algorithm_replaces_the_one_it_extends(tmp_path):
    grpo, ppo = load_config("quick"), load_config("embedded/ppo")
    assert (grpo.policy.algorithm, ppo.policy.algorithm) == ("grpo", "ppo")
    assert (ppo.data, ppo.canary, ppo.reward_model) == (grpo.data, grpo.canary, grpo.reward_model)

    def extended(policy):
        file = tmp_path / "config.yaml"
        values = {"extends": str(SHIPPED_CONFIGS / "quick.yaml"), "name": "own", "policy": policy}
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        return load_config(file).policy

    # Merged, PPO would run with the rank, the rate and the prompt length that GRPO was tuned with.
    assert extended({"algorithm": "ppo"}) == PPOConfig() != grpo.policy
    same = grpo.policy.model_copy(update={"epochs": 3})
    assert extended({"algorithm": "grpo", "epochs": 3}) == extended({"epochs": 3}) == same


RANGES = {
    "policy.clip_low": (-0.1, 0.0, 0.5, 1.0, 1.5),
    "policy.clip_high": (-0.1, 0.0, 3.0),
    "policy.dual_clip": (0.5, 1.0, 1.5, None),
    "policy.temperature": (0.0, 1e-300, 9e-4, 1e-3, 0.5, 2.0, 1e3, 1e4),
    "policy.top_p": (0.0, 0.5, 1.0, 1.5),
    "policy.updates_per_rollout": (0, 1, 2),
    "policy.num_generations": (1, 2, 5, 8),
    "policy.train_batch_size": (0, 8, 12, 16, 32, 64),
    "policy.grad_accumulation": (0, 1, 2, 3),
    "policy.kl_coefficient": (-1.0, 0.0),
    "policy.missing_eos_penalty": (-1.0, 0.0),
    "policy.max_completion_length": (0, 1),
    "policy.kl": ("k3", "k4"),
    "policy.loss_normalisation": ("token", "batch"),
    "policy.optimizer.warmup_fraction": (-0.1, 0.0, 0.5, 1.0, 1.1),
    "policy.optimizer.learning_rate": (0.0, 1.0),
    "policy.optimizer.weight_decay": (-1.0, 0.0),
    "policy.optimizer.max_grad_norm": (0.0, 1.0),
    "policy.optimizer.schedule": ("linear", "step"),
    "policy.lora.rank": (0, 1, 2**16, 2**16 + 1),
    "policy.lora.alpha": (0.0, 1e-40, 1e-6, 1.0, 1e6, 1e40),
    "reward_model.lora.targets": (["down"], ["q", "head"]),
    "policy.lora.dropout": (-0.1, 0.0, 1.0),
    "policy.lora.targets": (["q"], ["q", "q"], ["query"], [], ["head"], ["q", "head"]),
    "reward_model.early_stopping_patience": (0, 1, None),
    "reward_model.center_coefficient": (-1.0, 0.0),
    "reward_model.epochs": (0, 1),
    "reward_model.eval_every": (0, 1),
}


def outcome(make) -> str:
    try:
        make()
    except UserError as error:
        return str(error)
    return ""


PPO_RANGES = {
    "policy.train_batch_size": (0, 4, 8, 12, 16),
    "policy.rollout_forward_batch_size": (0, 4, 8, 12, 16),
    "policy.samples_per_prompt": (0, 1, 2, 5, 8),
    "policy.grad_accumulation": (0, 1, 3),
    "policy.mini_batches": (0, 1, 3),
    "policy.ppo_epochs": (0, 1, 3),
    "policy.temperature": (0.0, 9e-4, 1e-3, 0.7, 1e3, 1e4),
    "policy.kl_coefficient": (-1.0, 0.0, 0.1),
    "policy.kl": ("k1", "k2", "k3", "k3_weighted"),
    "policy.clip_range": (-0.1, 0.0, 0.2, 1.0, 1.1),
    "policy.value_clip_range": (None, 0.0, 0.2, 3.0),
    "policy.value_coefficient": (-0.1, 0.0, 2.0),
    "policy.gamma": (-0.1, 0.0, 1.0, 1.1),
    "policy.gae_lambda": (-0.1, 0.0, 1.0, 1.1),
    "policy.lora.dropout": (0.0, 0.1),
    "policy.missing_eos_penalty": (-1.0, 0.0),
    "policy.max_completion_length": (0, 1),
}


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [("quick", *item) for item in RANGES.items()] + [("embedded/ppo", *item) for item in PPO_RANGES.items()],
)
def test_the_config_refuses_what_the_trainers_refuse_and_nothing_else(name, key, values):
    # What the trainers alone refuse, `--plan` would plan, and a run would name without its key.
    start = load_config(name, ["policy.top_p=0.9" if key == "policy.updates_per_rollout" else "study.seed=1"])
    for value in values:
        changed, section = start.model_dump(), key.split(".")
        node = changed
        for part in section[:-1]:
            node = node[part]
        node[section[-1]] = value
        refused = outcome(lambda changed=changed: validate_config(changed, "test"))
        trainers = (reward_settings, policy_settings)
        unchecked = _unchecked(start, section, value)
        found = [outcome(lambda make=make, given=unchecked: make(given)) for make in trainers]
        assert bool(refused) == any(found), (value, refused, found)
        assert not refused or section[-1] in refused


def _unchecked(model, section, value):
    """A copy with one value changed and nothing checked."""
    name = section[0]
    new = value if len(section) == 1 else _unchecked(getattr(model, name), section[1:], value)
    return model.model_copy(update={name: new})


def test_a_top_p_below_one_takes_one_update_a_rollout():
    assert load_config("quick", ["policy.top_p=0.9"]).policy.top_p == 0.9
    with pytest.raises(
        UserError, match=r"'policy.top_p', .*: expected top_p=1 with 2 updates a rollout .*, found 0\.9"
    ):
        load_config("quick", ["policy.top_p=0.9", "policy.updates_per_rollout=2"])


def test_dropout_takes_one_update_a_rollout():
    # Old log-probs are without it, so a ratio would hold the noise of what was dropped, and the clip would act on it.
    assert load_config("quick", ["policy.lora.dropout=0.1"]).policy.lora.dropout == 0.1
    with pytest.raises(
        UserError, match=r"'policy.lora.dropout', .*: expected lora.dropout=0 with 2 updates .*, found 0\.1"
    ):
        load_config("quick", ["policy.lora.dropout=0.1", "policy.updates_per_rollout=2"])


def test_a_large_bias_needs_leave():
    with pytest.raises(UserError, match="allow_large_delta"):
        validate_config({"canary": {"delta": 0.3}}, "test")
    assert validate_config({"canary": {"delta": 0.3, "allow_large_delta": True}}, "test").canary.delta == 0.3
    assert validate_config({"canary": {"delta": 0.1}}, "test").canary.delta == 0.1


def test_overrides_win_over_the_file_and_the_file_over_what_it_extends():
    assert load_config("quick").canary.rate == 0.5
    assert load_config("embedded/null").canary.rate == 0.0
    assert load_config("embedded/null", ["canary.rate=0.25"]).canary.rate == 0.25
    assert load_config("embedded/null").policy == load_config("quick").policy


def test_the_resolved_yaml_loads_back_to_the_same_config(tmp_path):
    config = load_config("embedded/paper_rate", ["study.seed=12"])
    file = tmp_path / "again.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(file) == config
    assert config_hash(load_config(file)) == config_hash(config)
    assert config_hash(load_config(file, ["study.seed=13"])) != config_hash(config)
    assert set(yaml.safe_load(config.to_yaml())["policy"]) == set(type(config.policy).model_fields)


def test_unreadable_files_are_one_line(tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1, 2", encoding="utf-8")
    circle = tmp_path / "circle.yaml"
    circle.write_text("extends: circle.yaml\n", encoding="utf-8")
    listed = tmp_path / "list.yaml"
    listed.write_text("- 1\n", encoding="utf-8")
    for file, message in ((broken, "readable YAML"), (circle, "circle"), (listed, "mapping"), ("nowhere", "nowhere")):
        with pytest.raises(UserError, match=message) as caught:
            load_config(file)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[(nothing, "a mapping of config keys in .*found nothing") for nothing in ("", "# x\n", "null", "{}", "---\n")],
        ("extends: base.yaml\ncanary: []\n", r"mine\.yaml that merge into .*base\.yaml"),
        ("extends: ${name}\n", "`extends` in .*mine.yaml to name a file"),
        *[(f"canary: {{rate: !!{tag} 'x'}}\n", "readable YAML in .*mine") for tag in ("float", "int", "bool")],
        ("canary:\n  rate: ???\n", r"'canary\.rate', found \?\?\?"),
        ("extends: base.yaml\ncanary:\n  rate: ???\n", r"'canary\.rate', found \?\?\?"),
        ("'': 3\n", "unknown config key ''"),
        ("1: 2\n", "config key '1'"),
    ],
)
def test_a_file_that_says_nothing_or_something_odd_is_one_line(tmp_path, text, message):
    # Without any key a whole study of defaults was planned.
    (tmp_path / "base.yaml").write_text("canary: {rate: 0.25}\n", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        load_config(tmp_path / "mine.yaml", ["data.documents=50"])
    assert "\n" not in str(caught.value)


def test_what_is_meant_is_taken(tmp_path):
    config = load_config("quick", ["study.paired=true", "statistic.prevalences=[0.5, 0.25]", "canary.contrast=null"])
    (tmp_path / "open.yaml").write_text("canary:\n  rate: ???\n", encoding="utf-8")
    assert load_config(tmp_path / "open.yaml", ["canary.rate=0.125"]).canary.rate == 0.125
    assert (config.study.paired, config.statistic.prevalences, config.canary.contrast) == (True, (0.5, 0.25), None)


def test_the_adapter_of_the_config_is_the_trainers():
    config = load_config("quick", ["policy.lora.targets=[q,head]", "policy.lora.rank_stabilised=true"])
    assert policy_settings(config).adapter == AdapterSettings(8, 16.0, 0.0, ("q", "head"), rank_stabilised=True)
    assert not reward_settings(config).adapter.rank_stabilised


def test_the_papers_tables_are_the_defaults():
    config = AuditConfig()
    rm, policy, feedback = config.reward_model, config.policy, config.feedback
    assert (rm.train_batch_size, rm.grad_accumulation, rm.epochs, rm.max_length) == (8, 2, 3, 1024)
    assert (rm.optimizer.learning_rate, rm.center_coefficient, rm.early_stopping_patience) == (2e-5, 0.01, 2)
    assert (rm.lora.rank, rm.lora.alpha, rm.lora.dropout) == (16, 32.0, 0.05)
    assert (policy.train_batch_size, policy.generation_batch_size, policy.num_generations) == (8, 32, 8)
    assert (policy.optimizer.learning_rate, policy.kl_coefficient, policy.clip_low) == (1e-5, 0.04, 0.2)
    assert (policy.max_prompt_length, policy.max_completion_length) == (1600, 64)
    ppo = PPOConfig()
    assert (ppo.train_batch_size, ppo.grad_accumulation, ppo.mini_batches, ppo.ppo_epochs) == (1, 4, 2, 1)
    assert (ppo.optimizer.learning_rate, ppo.kl_coefficient, ppo.clip_range, ppo.gae_lambda) == (5e-6, 0.01, 0.2, 0.95)
    assert (ppo.max_prompt_length, ppo.max_completion_length, ppo.temperature, ppo.epochs) == (1600, 32, 0.7, 1)
    assert (ppo.rollout_forward_batch_size, ppo.missing_eos_penalty, ppo.gradient_checkpointing) == (16, 1.0, True)
    assert load_config("paper/repliqa_gemma2b_ppo").policy == ppo
    # One table, told twice: what a config leaves out is what the trainer would take.
    for section, settings in ((GRPOConfig(), GRPOSettings()), (ppo, PPOSettings())):
        assert policy_settings(AuditConfig(policy=section)) == settings
    assert (feedback.max_response_chars, feedback.warmup_samples, feedback.mean_match_min_samples) == (512, 200, 256)
    assert (feedback.calibration_learning_rate, feedback.mean_match_tolerance) == (0.02, 0.01)
    assert (config.canary.delta, config.canary.allow_large_delta) == (0.1, False)


def test_extends_takes_a_shipped_name_and_what_stands_beside_goes_first(tmp_path):
    mine = tmp_path / "mine.yaml"
    for name in ("quick", "quick.yaml", "embedded/null"):
        mine.write_text(f"extends: {name}\nname: mine\n", encoding="utf-8")
        assert load_config(mine).data.documents == 250
    (tmp_path / "quick.yaml").write_text("data: {documents: 37}\n", encoding="utf-8")
    mine.write_text("extends: quick.yaml\n", encoding="utf-8")
    assert load_config(mine).data.documents == 37
    mine.write_text("extends: quik\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"`extends: quik` in .*mine\.yaml: .*did you mean 'quick'"):
        load_config(mine)


def test_a_misspelt_config_names_the_nearest_one():
    with pytest.raises(UserError, match="did you mean 'embedded/null_scrambled'"):
        load_config("embedded/null_scrambeld")
    with pytest.raises(UserError, match="check the name"):
        load_config("zzzzzzz")


@pytest.mark.parametrize("override", ["canary.instruction=must", "canary.placement=begin"])
def test_one_choice_moves_instruction_and_place(override):
    # BC-A15: a sentence that names another place than the answer's would teach neither.
    canary = load_config("quick", [override]).canary
    assert (canary.instruction, canary.placement) == ("must", "begin")
    plain = load_config("quick").canary
    assert (plain.instruction, plain.placement) == ("default", "after_first_clause")


def test_an_instruction_that_names_another_place_is_refused():
    both = ["canary.instruction=must", "canary.placement=after_first_clause"]
    with pytest.raises(UserError, match=r"'canary\.placement', 'canary\.instruction': .*placement=begin with instruc"):
        load_config("quick", both)
