"""What a mistake in a config is answered with: the key, what was expected, what was found and what to do, in a line."""

import re

import pytest

from canaryjax.config import load_config
from canaryjax.config.nearest import ALIASES, hint, paths_of
from canaryjax.config.policy import ALGORITHMS
from canaryjax.errors import UserError


def message(overrides, config="quick"):
    with pytest.raises(UserError) as caught:
        load_config(config, overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", ALIASES)
def test_every_name_of_another_trainer_leads_to_keys_that_are(name):
    paths = {algorithm: paths_of(algorithm) for algorithm in ALGORITHMS}
    assert {path for own in paths.values() for path in own} >= {"policy.clip_low", "policy.clip_range"}
    for end in ALIASES[name]:
        assert any(f".{path}".endswith(f".{end}") for own in paths.values() for path in own), end
    # Not a key itself, where it stands: its owner would never be told of another.
    assert all(f"policy.{name}" not in own for own in paths.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_offered_is_a_key(algorithm):
    for name in (*ALIASES, "learning_rate", "kl_coefficient", "lora", "rank", "epochs"):
        for keys in ([name], ["policy", name]):
            offered = re.findall("'([^']+)'", hint(keys, algorithm).split("did you mean")[-1])
            assert offered or "leave it out" in hint(keys, algorithm), keys
            if "did you mean" in hint(keys, algorithm):
                assert set(offered) <= set(paths_of(algorithm)), keys


@pytest.mark.parametrize(
    ("key", "offer"),
    [
        # TRL's and PEFT's names.
        ("policy.beta", "did you mean 'policy.kl_coefficient'?"),
        ("beta", "did you mean 'policy.kl_coefficient'?"),
        ("policy.num_iterations", "did you mean 'policy.updates_per_rollout'?"),
        ("policy.epsilon", "did you mean 'policy.clip_low'?"),
        ("policy.epsilon_high", "did you mean 'policy.clip_high'?"),
        ("policy.delta", "did you mean 'policy.dual_clip'?"),
        ("policy.loss_type", "did you mean 'policy.loss_normalisation'?"),
        ("policy.scale_rewards", "did you mean 'policy.scale_advantages'?"),
        ("policy.per_device_train_batch_size", "did you mean 'policy.train_batch_size'?"),
        ("policy.gradient_accumulation_steps", "did you mean 'policy.grad_accumulation'?"),
        ("reward_model.gradient_accumulation_steps", "did you mean 'reward_model.grad_accumulation'?"),
        ("policy.lora.r", "did you mean 'policy.lora.rank'?"),
        ("policy.lora.lora_alpha", "did you mean 'policy.lora.alpha'?"),
        ("policy.lora_r", "did you mean 'policy.lora.rank'?"),
        ("vf_coef", "'policy.value_coefficient' is one of ppo's; leave it out"),
        ("policy.lam", "'policy.gae_lambda' is one of ppo's; leave it out"),
        # Right names in the wrong place; the section that was written counts.
        ("kl_coefficient", "did you mean 'policy.kl_coefficient'?"),
        ("delta", "did you mean 'canary.delta'?"),
        ("policy.learning_rate", "did you mean 'policy.optimizer.learning_rate'?"),
        (
            "learning_rate",
            "did you mean 'policy.optimizer.learning_rate' or 'reward_model.optimizer.learning_rate' or "
            "'model.warm_start.optimizer.learning_rate'?",
        ),
        ("policy.seed", "did you mean 'study.seed'?"),
        ("max_completion_length", "did you mean 'policy.max_completion_length'?"),
        ("lora.rank", "did you mean 'policy.lora' or 'reward_model.lora' or 'model.warm_start.lora'?"),
        # Misspelt, in its section and elsewhere.
        ("policy.kl_coeficient", "did you mean 'policy.kl_coefficient'?"),
        ("max_completion_lenght", "did you mean 'policy.max_completion_length'?"),
        ("polcy", "did you mean 'policy'?"),
        ("policy.zzzzzz", "unknown config key 'policy.zzzzzz'; `canaryjax keys` lists them"),
    ],
)
def test_an_unknown_key_is_answered_with_what_was_meant(key, offer):
    assert offer in message([f"{key}=3"])


@pytest.mark.parametrize(
    ("key", "offer"),
    [
        ("cliprange", "policy.clip_range"),
        ("cliprange_value", "policy.value_clip_range"),
        ("vf_coef", "policy.value_coefficient"),
        ("lam", "policy.gae_lambda"),
        ("num_ppo_epochs", "policy.ppo_epochs"),
        ("num_mini_batches", "policy.mini_batches"),
        ("epsilon", "policy.clip_range"),
    ],
)
def test_ppo_has_names_of_its_own(key, offer):
    assert f"did you mean '{offer}'?" in message([f"policy.{key}=3"], "embedded/ppo")


VALUES = {
    "data.kind": "pickle",  # by pydantic: literal_error
    "policy.optimizer.schedule": "3",
    "study.mesh.policy": "0",  # greater_than_equal
    "policy.optimizer.learning_rate": "0",  # greater_than
    "policy.lora.dropout": "1",  # less_than
    "canary.rate": "1.5",  # less_than_equal
    "study.compliant": "many",  # int_parsing
    "study.violating": "2.5",  # int_from_float
    "study.seed": "[1]",  # int_type
    "evaluation.max_pairs": "true",  # ours
    "policy.kl_coefficient": "small",  # float_parsing
    "policy.temperature": "{a: 1}",  # float_type
    "canary.delta": "nan",  # finite_number
    "policy.clip_high": "inf",
    "policy.scale_advantages": "perhaps",  # bool_parsing
    "study.paired": "[true]",  # bool_type
    "name": "a/b",  # string_pattern_mismatch
    "description": "3",  # string_type
    "model.path": "null",
    "policy.lora.targets": "q",  # tuple_type
    "output.report_to": "{a: 1}",
    "statistic.prevalences.0": "[2.0]",  # within a list
    "reward_model.lora": "3",  # model_type
    "policy": "3",
    "study.mesh": "[1]",
    "policy.algorithm": "trpo",
}


@pytest.mark.parametrize(("key", "value"), VALUES.items())
def test_a_bad_value_is_answered_in_one_form(key, value):
    told = message([f"{key.removesuffix('.0')}={value}"])
    assert re.fullmatch(rf"config key '{re.escape(key)}': expected [^;]+, found [^;]+; [^;]+ \(in quick\)", told), told
    assert not re.search(r"Input should|[{}\n`]", told)


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["policy.num_generations=6"], ["policy.generation_batch_size", "policy.num_generations"]),
        (["policy.grad_accumulation=3"], ["policy.generation_batch_size", "policy.grad_accumulation"]),
        (["canary.rate=0.6"], ["canary.rate", "canary.contrast"]),
        (["canary.allow_large_delta=false"], ["canary.delta"]),
        (["data.rm_share=0.9"], ["data.rm_share", "data.eval_share"]),
        (["data.kind=jsonl"], ["data.path", "data.kind"]),
        (["data.path=x.jsonl"], ["data.path", "data.kind"]),
        (["data.documents=30000"], ["data.documents", "data.kind"]),
        (["study.paired=true", "study.compliant=9"], ["study.paired", "study.compliant", "study.violating"]),
        (["study.paired=true", "study.assignment=iid"], ["study.assignment", "study.paired"]),
        (["study.policies_per_chunk=3", "study.mesh.policy=2"], ["study.policies_per_chunk", "study.mesh.policy"]),
        (["output.report_to=[wandb,wandb]"], ["output.report_to"]),
        (["study.scramble_feedback=true", "policy.reward=simulated"], ["policy.reward", "study.scramble_feedback"]),
        (["policy.lora.targets=[]"], ["policy.lora.targets"]),
        (["reward_model.lora.targets=[head]"], ["reward_model.lora.targets"]),
        (["reward_model.train_batch_size=9"], ["reward_model.train_batch_size", "reward_model.sampled_responses"]),
        (
            ["reward_model.sampled_responses=0", "reward_model.constructed_responses=0"],
            ["reward_model.sampled_responses", "reward_model.constructed_responses"],
        ),
        (["reward_model.max_length=20"], ["reward_model.max_response_tokens", "reward_model.max_length"]),
        (["policy.top_p=0.9", "policy.updates_per_rollout=2"], ["policy.top_p", "policy.updates_per_rollout"]),
        (["policy.lora.dropout=0.1", "policy.updates_per_rollout=2"], ["policy.lora.dropout"]),
        (["model.warm_start.lora.targets=[q,q]"], ["model.warm_start.lora.targets"]),
        ([f"model.path={'x' * 300}"], ["model.path"]),
    ],
)
def test_values_that_do_not_go_together_name_all_their_keys(overrides, keys):
    told = message(overrides)
    assert re.fullmatch(r"config keys? '[^:]+': expected .+, found .+; .+ \(in quick\)", told), told
    named = re.findall("'([^']+)'", told.split(":")[0])
    assert set(keys) <= set(named), told
    assert not re.search(r"[{}\n`]", told)


@pytest.mark.parametrize(
    ("config", "override", "offer"),
    [
        ("quick", "policy.algorithm=ppo", "embedded/ppo"),
        ("quick", "policy={algorithm: ppo, epochs: 2}", "embedded/ppo"),
        ("embedded/ppo", "policy.algorithm=grpo", "quick"),
        ("paper/qmsum_gemma2b_grpo", "policy.algorithm=ppo", "paper/qmsum_gemma2b_ppo"),
    ],
)
def test_an_override_to_another_algorithm_names_the_config_for_it(config, override, offer):
    told = message([override], config)
    assert f"take the config {offer}, or a file with `extends: {config}` and a policy section of its own" in told


def test_an_override_may_name_the_algorithm_where_the_file_says_nothing_of_policies(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    assert load_config(tmp_path / "mine.yaml", ["policy.algorithm=ppo"]).policy.algorithm == "ppo"
    assert load_config("quick", ["policy.algorithm=grpo"]).policy == load_config("quick").policy


def test_marks_in_a_value_are_the_values_own():
    with pytest.raises(UserError, match=r"^config keys 'data\.path', 'data\.kind': .*found '`x`'; set"):
        load_config("quick", ["data.path='`x`'"])


@pytest.mark.parametrize("value", ["9" * 30, "9" * 400, "1e30", "0x" + "f" * 5000, "2147483648"])
@pytest.mark.parametrize("key", ["policy.epochs", "policy.max_prompt_length", "evaluation.decoys", "data.documents"])
def test_a_number_that_nothing_can_be_reckoned_with_is_refused(key, value):
    # Plans and runs met it later, as a traceback of an overflow.
    told = message([f"{key}={value}"])
    assert f"config key '{key}': expected " in told
    assert len(told) < 300


def test_a_number_of_thousands_of_digits_is_named_without_them():
    assert "found a whole number of thousands of digits; lower it" in message(["study.seed=0x" + "f" * 5000])


def test_no_more_policies_than_a_list_holds():
    assert "'study.compliant': expected at most 100000, found 100001; lower it" in message(["study.compliant=100001"])


@pytest.mark.parametrize("key", ["model.path", "data.path", "data.index"])
def test_an_empty_path_does_not_mean_the_folder_where_one_stands(tmp_path, key):
    section, name = key.split(".")
    file = tmp_path / "mine.yaml"
    for given, found in (("''", "''"), ('"a\\0b"', r"'a\x00b'")):
        file.write_text(f"extends: quick\n{section}: {{{name}: {given}}}\n")
        assert f"config key '{key}': expected a path, found {found}; give one" in message([], file)


@pytest.mark.parametrize("text", ["extends: null", "extends: ???", "extends:"])
def test_a_config_that_extends_nothing_and_says_nothing_is_refused(tmp_path, text):
    # It would be every default: days of training, unasked.
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    assert re.match(r"expected (keys beside|a value for) .?`?.?extends", message([], file))
