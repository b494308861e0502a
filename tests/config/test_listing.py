"""`canaryjax keys`: every key of the schema is listed, with words, and with the range that the schema keeps."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from canaryjax.cli import main
from canaryjax.config import AuditConfig
from canaryjax.config.detector import DetectorConfig
from canaryjax.config.fields import Section
from canaryjax.config.listing import config_keys, written
from canaryjax.config.policy import AdaptiveKLConfig, GRPOConfig, PPOConfig


def _sections(kind=Section):
    for own in kind.__subclasses__():
        yield own
        yield from _sections(own)


def _printed(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        main(["keys", *words])
    out = capsys.readouterr()
    return caught.value.code, out.out, out.err


def _leaves(section, prefix=""):
    for name, value in section:
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _of(algorithm, **policy):
    return AuditConfig.model_validate({"policy": {"algorithm": algorithm} | policy})


@pytest.mark.parametrize("section", sorted(set(_sections()), key=lambda kind: kind.__name__))
def test_every_field_says_what_it_means(section):
    silent = [name for name, field in section.model_fields.items() if len(field.description or "") < 10]
    assert not silent


def test_the_command_prints_every_key_of_both_algorithms_in_80_columns(capsys):
    status, out, _ = _printed(capsys)
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    whole = [_of("grpo"), _of("ppo"), _of("ppo", adaptive_kl={})]
    names = {name for config in whole for name, _ in _leaves(config)}
    assert len(names) > 100
    assert {line.split(" = ")[0] for line in out.splitlines() if not line.startswith(" ")} == names


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_defaults_are_those_of_a_config_without_the_key(algorithm):
    shown = {key.name: key.default for key in config_keys() if key.algorithm in (None, algorithm)}
    text = {None: "null", True: "true", False: "false", "": "''"}
    for name, value in _leaves(_of(algorithm)):
        if name == "policy.algorithm" or isinstance(value, tuple):
            continue
        assert shown[name] == (text[value] if value is None or isinstance(value, bool) or value == "" else str(value))


def test_ranges_choices_and_lists_in_words():
    # By hand, from the schema.
    allowed = {(key.name, key.algorithm): key.allowed for key in config_keys()}
    assert allowed["statistic.target_fpr", None] == "a number, at least 1e-06, below 1"
    assert allowed["statistic.prevalences", None] == "a list of a number, at least 1e-06, below 1"
    assert allowed["study.seed", None] == "a whole number, at least 0, below 2147483648"
    assert allowed["study.policies_per_chunk", None] == "a whole number, at least 1, or null"
    assert allowed["policy.algorithm", None] == "grpo | ppo"
    assert allowed["policy.kl", "ppo"] == "k1 | k2 | k3"
    assert allowed["policy.dual_clip", "grpo"] == "a number, above 1, or null"
    assert allowed["output.report_to", None] == "a list of tensorboard | wandb | trackio"
    assert allowed["model.path", None] == "a path"
    assert allowed["data.path", None] == "a path, or null"


@pytest.mark.parametrize("key", [k for k in config_keys() if k.allowed.startswith(("a number", "a whole number"))],
                         ids=lambda key: f"{key.name}-{key.algorithm}")  # fmt: skip
def test_no_number_outside_a_range_is_taken(key):
    """Just outside of each limit that is shown, the field itself refuses."""
    section, name = _section_of(key)
    step = 1 if key.allowed.startswith("a whole") else 1e-9
    for bound, limit in re.findall(r"(at least|above|at most|below) (\S+?)(?:,|$)", key.allowed):
        number = float(limit) if step < 1 else int(limit)
        outside = {"at least": -step, "above": 0, "at most": step * 1e3, "below": 0}[bound] + number
        with pytest.raises(ValidationError) as caught:
            section.model_validate({name: outside})
        assert any(error["loc"][:1] == (name,) for error in caught.value.errors())


def _section_of(key):
    *path, name = key.name.split(".")
    section = AuditConfig
    for part in path:
        if part == "policy":
            section = PPOConfig if key.algorithm == "ppo" else GRPOConfig
        elif part == "adaptive_kl":
            section = AdaptiveKLConfig
        else:
            section = section.model_fields[part].annotation
    return section, name


def test_a_prefix_keeps_what_stands_below_it(capsys):
    _, out, _ = _printed(capsys, "canary.rate")
    assert out.startswith("canary.rate = 0.01\n    a number, at least 0, at most 1\n    Share of the")
    _, out, _ = _printed(capsys, "study.mesh.")
    assert re.findall(r"^\S+", out, re.M) == ["study.mesh.policy", "study.mesh.data", "study.mesh.model"]
    assert "name" not in _printed(capsys, "nam")[1]  # whole parts of a name, not its letters


@pytest.mark.parametrize(("wrong", "meant"), [("polici", "policy"), ("kl_coefficient", "policy.kl_coefficient")])
def test_an_unknown_prefix_is_one_line(capsys, wrong, meant):
    status, out, err = _printed(capsys, wrong)
    assert (status, out) == (2, "")
    assert err == (f"canaryjax: error: expected a config key or a section, found {wrong!r}; did you mean {meant!r}?\n")


def test_the_readme_shows_real_lines(capsys):
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"```\n(policy\.clip_high = .*?)```", text, re.S)
    assert shown in _printed(capsys, "policy")[1]


def test_the_detectors_keys_are_listed_under_its_name(capsys):
    status, out, _ = _printed(capsys, "detector")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    shown = dict(line.split(" = ", 1) for line in out.splitlines() if not line.startswith(" "))
    given = {"site": {"folder": "a", "secrets": "b"}, "model": {"path": "c"}}
    for name, value in _leaves(DetectorConfig.model_validate(given)):
        section, _, key = name.rpartition(".")
        if given.get(section, {}).get(key) is None:
            assert shown.pop(name) == written(value)
    assert shown == {"site.folder": "(to be given)", "site.secrets": "(to be given)", "model.path": "null"}


def test_a_part_of_the_detectors_keys(capsys):
    status, out, _ = _printed(capsys, "detector.evidence.prior")
    assert status == 0
    assert re.findall(r"^\S+", out, re.MULTILINE) == [
        f"evidence.prior.{name}" for name in ("no_log", "no_fetch", "some_pages", "all_pages")
    ]
    status, _, err = _printed(capsys, "detector.evidence.priors")
    assert status == 2
    assert "did you mean 'evidence.prior'?" in err
