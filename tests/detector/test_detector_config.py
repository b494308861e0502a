"""The config of a detector run: layers of files, overrides, mistakes, and what a run may keep of it."""

import pytest
import yaml

from canaryjax.config.detector_file import detector_hash, load_detector_config, stored_yaml
from canaryjax.errors import UserError

BASE = """
name: weekly
site: {folder: /srv/hidden-house/site, secrets: /srv/hidden-house/keys, request_log: /srv/hidden-house/log.jsonl}
model: {backend: api, name: tiny, base_url: "http://user:pass@127.0.0.1:8011/v1?token=t0ken"}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weekly.yaml"
    path.write_text(BASE)
    return path


def message(path, *overrides):
    with pytest.raises(UserError) as caught:
        load_detector_config(path, list(overrides))
    return str(caught.value)


def test_a_file_extends_another_and_overrides_win(file, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("extends: weekly.yaml\nprobing: {repeats: 3, negatives: 17}\n")
    config = load_detector_config(own, ["probing.negatives=13"])
    # Of the base, of the file on top, of the override: the last that speaks is heard.
    assert (config.name, config.probing.repeats, config.probing.negatives) == ("weekly", 3, 13)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("probing.repeat=3", "unknown config key 'probing.repeat'; did you mean 'probing.repeats'?"),
        ("repeats=3", "unknown config key 'repeats'; did you mean 'probing.repeats'?"),
        ("evidence.prior.no_fetches=0.1", "did you mean 'evidence.prior.no_fetch'?"),
        ("zzzz=1", "unknown config key 'zzzz'; leave it out"),
        ("probing.temperature=0", "config key 'probing.temperature': expected a number above 0.0, found 0; raise it"),
        ("probing.temperature=???", "expected a value for 'probing.temperature', found ???"),
        ("probing.kinds=[who,who]", "config key 'probing': expected one or more probes, each once"),
        ("model.backend=cloud", "config key 'model.backend': expected one of local, api, found 'cloud'; choose one"),
        ("temperature", "expected an override of the form key=value, found 'temperature'; for example probing."),
    ],
)
def test_a_mistake_names_the_key_and_what_to_do(file, override, expected):
    assert expected in message(file, override)


def test_an_audits_config_and_a_missing_file_are_told_apart(tmp_path):
    assert "found one with a section 'policy'; run canaryjax audit" in message("quick")
    assert "found one with a section 'injection'; run canaryjax probes" in message("probes_quick")
    assert "expected a config file" in message(tmp_path / "none.yaml")


def test_what_a_run_keeps_tells_nothing_of_the_site(file):
    text = stored_yaml(load_detector_config(file))
    for secret in ("hidden-house", "pass", "t0ken", "user"):
        assert secret not in text, secret
    kept = yaml.safe_load(text)
    assert kept["model"]["base_url"] == "http://127.0.0.1:8011/v1"
    assert kept["site"] == {"vendor": None}


def test_the_hash_follows_what_changes_answers_and_findings_alone(file):
    base = detector_hash(load_detector_config(file))
    same = ("model.concurrency=3", "model.timeout=7", "model.retries=0", "probing.max_calls=9999", "site.folder=/other")
    for override in same:
        assert detector_hash(load_detector_config(file, [override])) == base, override
    other = ("probing.seed=1", "probing.temperature=0.7", "evidence.alpha=0.01", "model.name=huge", "name=x")
    digests = {detector_hash(load_detector_config(file, [override])) for override in other}
    assert len(digests | {base}) == len(other) + 1
