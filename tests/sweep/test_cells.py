"""From a sweep file to its cells: hand-worked expansions, names, seeds, and what is refused."""

import pytest

from canaryjax.audit.shelf import BaseShelf
from canaryjax.config import load_config
from canaryjax.config.load import SHIPPED_CONFIGS, SWEEPS
from canaryjax.errors import UserError
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.check import check_dose
from canaryjax.sweep.file import read_sweep


def cells_of(tmp_path, text, *overrides, name="mine.yaml"):
    (tmp_path / name).write_text(text)
    return make_cells(read_sweep(str(tmp_path / name), overrides))


def test_a_grid_is_the_product_of_its_lists_in_the_order_of_the_file(tmp_path):
    text = "base: quick\ngrid: {canary.family: [emoji, signature], canary.delta: [0.0, 0.5, 1.0]}"
    cells = cells_of(tmp_path, text)
    assert [cell.name for cell in cells] == [
        *("family-emoji_delta-0.0", "family-emoji_delta-0.5", "family-emoji_delta-1.0"),
        *("family-signature_delta-0.0", "family-signature_delta-0.5", "family-signature_delta-1.0"),
    ]
    assert [(c.config.canary.family, c.config.canary.delta) for c in cells][1:4] == [
        *(("emoji", 0.5), ("emoji", 1.0), ("signature", 0.0)),
    ]
    assert cells[4].points == ({"canary.family": "signature", "canary.delta": 0.5},)
    assert [cell.config.name for cell in cells][:1] == ["mine-family-emoji_delta-0.0"]


def test_factors_are_varied_one_at_a_time_and_the_base_cell_runs_once(tmp_path):
    # quick has signature and 0.5; a product would be 6 cells, and the base cell thrice would be 6 too.
    text = "base: quick\nset: {canary.contrast: null}\n"
    text += "factors: {canary.family: [signature, emoji], canary.rate: [0.1, 0.5, 0.3]}"
    cells = cells_of(tmp_path, text)
    assert [cell.name for cell in cells] == ["base", "family-emoji", "rate-0.1", "rate-0.3"]
    assert cells[0].points == ({}, {"canary.family": "signature"}, {"canary.rate": 0.5})
    assert [cell.config.canary.contrast_rate for cell in cells] == [0.5, 0.5, 0.1, 0.3]


def test_equal_cells_are_one_however_their_values_are_written(tmp_path):
    cells = cells_of(tmp_path, "base: quick\ngrid: {canary.rate: [0.1, 0.10, 1.0e-1], canary.delta: [1, 1.0]}")
    assert [cell.name for cell in cells] == ["rate-0.1_delta-1"]
    assert len(cells[0].points) == 6


def test_a_cell_is_what_audit_runs_with_its_words(tmp_path):
    text = "base: quick\nset: {study: {compliant: 3}, policy.lora.targets: [q, v]}\ngrid: {canary.rate: [0.25]}"
    (cell,) = cells_of(tmp_path, text, "study.violating=4", "study.setting=two words")
    assert load_config(cell.base, list(cell.overrides)) == cell.config
    study = cell.config.study
    assert (study.compliant, study.violating, study.setting) == (3, 4, "two words")
    assert list(cell.config.policy.lora.targets) == ["q", "v"]
    assert cell.overrides[-1] == "name=mine-rate-0.25"


def test_the_config_itself_can_be_varied(tmp_path):
    # A policy section belongs to one algorithm, so policy.algorithm alone cannot be.
    cells = cells_of(tmp_path, "base: quick\nfactors: {base: [quick, embedded/ppo]}")
    assert [(cell.name, cell.config.policy.algorithm) for cell in cells] == [("base", "grpo"), ("embedded-ppo", "ppo")]
    (tmp_path / "own.yaml").write_text(f"extends: {SHIPPED_CONFIGS / 'quick.yaml'}\nstudy: {{seed: 3}}")
    (cell,) = cells_of(tmp_path, "base: own.yaml\ngrid: {canary.delta: [0.5]}")  # beside the sweep file
    assert cell.config.study.seed == 3


def test_seeds_are_shared_or_each_cells_own(tmp_path):
    text = "base: quick\ngrid: {{canary.rate: [{}]}}\nseeds: {}"
    shared = cells_of(tmp_path, text.format("0.1, 0.2", "shared"))
    assert [cell.config.study.seed for cell in shared] == [1005, 1005]
    own = cells_of(tmp_path, text.format("0.1, 0.2", "own"))
    seeds = {cell.name: cell.config.study.seed for cell in own}
    assert len({1005, *seeds.values()}) == 3
    more = cells_of(tmp_path, text.format("0.3, 0.2, 0.1", "own"))  # by name, not by place
    assert seeds.items() <= {cell.name: cell.config.study.seed for cell in more}.items()


def test_sections_that_hold_nothing_are_left_out(tmp_path):
    (cell,) = cells_of(tmp_path, "base: quick\nname:\ndescription:\nset:\nrows:\ngrid: {canary.rate: [0.25]}")
    assert cell.overrides == ("canary.rate=0.25", "name=mine-rate-0.25")


def test_names_that_would_be_one_folder_are_told_apart(tmp_path):
    text = "base: quick\ngrid: {study.setting: ['a b', 'a-b', 'A b']}"
    assert [cell.name for cell in cells_of(tmp_path, text)] == ["setting-a-b", "setting-a-b-2", "setting-A-b-3"]
    text = (
        "base: quick\ngrid: {policy.optimizer.learning_rate: [1.0e-3], reward_model.optimizer.learning_rate: [2.0e-3]}"
    )
    (cell,) = cells_of(tmp_path, text)
    assert cell.name == "policy.optimizer.learning_rate-0.001_reward_model.optimizer.learning_rate-0.002"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "base: quick\ngrid: {canary.rat: [0.1]}",
            "cell rat-0.1: unknown config key 'canary.rat'; did you mean 'canary.rate'?",
        ),
        ("base: quick\nset: {beta: 1}\ngrid: {canary.rate: [0.1]}", "did you mean 'policy.kl_coefficient'?"),
        ("base: quick\ngrid: {canary.rate: [0.1, 1.5]}", "cell rate-1.5: config key 'canary.rate': expected at most 1"),
        ("base: quick\ngrids: {canary.rate: [0.1]}", "found 'grids'; did you mean 'grid'?"),
        (
            "base: quick\ncanary: {rate: 0.1}\ngrid: {canary.rate: [0]}",
            "found 'canary'; put keys of the config below `set`",
        ),
        ("base: quick", "expected either `grid` or `factors`"),
        ("base: quick\ngrid: {a: [1]}\nfactors: {a: [1]}", "found both"),
        ("base: quick\ngrid: {}", "expected keys with lists of values in `grid`"),
        ("base: quick\ngrid: [1]", "expected config keys and their values in `grid`"),
        ("base: quick\ngrid: {canary.rate: 0.1}", "expected a list of values for 'canary.rate'"),
        ("base: quick\ngrid: {canary.rate: []}", "expected a list of values for 'canary.rate'"),
        ("base: quick\nset: {canary.rate: 0}\ngrid: {canary.rate: [0]}", "where it would have no effect"),
        ("base: quick\nset: {name: x}\ngrid: {canary.rate: [0]}", "expected no 'name' in `set`"),
        ("base: quick\ngrid: {study.seed: [1]}\nseeds: own", "expected `seeds: shared` with study.seed in `grid`"),
        ("base: quick\ngrid: {canary.rate: [0]}\nseeds: new", "expected shared or own as `seeds`"),
        ("base: quik\ngrid: {canary.rate: [0]}", "did you mean 'quick'?"),
        ("grid: {canary.rate: [0]}", "expected the name of a config as `base`"),
        ("base: quick\nname: a b\ngrid: {canary.rate: [0]}", "expected letters, digits and ._- in `name`"),
        ("base: quick\nfactors: {policy.algorithm: [ppo]}", "cell algorithm-ppo: expected policy.algorithm=grpo"),
        # One key would have two names: `canary[rate]`, and what stands before a sign of its own.
        ("base: quick\ngrid: {'canary[rate]': [0.1]}", "expected keys such as canary.rate in `grid`"),
        ("base: quick\nset: {name=x: 1}\ngrid: {canary.rate: [0]}", "expected keys such as canary.rate in `set`"),
        ("base: quick\ngrid: {canary..rate: [0]}", "expected keys such as canary.rate in `grid`"),
        ("base: quick\ngrid: {'': [0]}", "found ''; correct it"),
        # No file of a run holds bytes, wherever they stand.
        ("base: quick\nset: {study.setting: !!binary aGk=}\ngrid: {canary.rate: [0]}", "'study.setting' in `set`"),
        ("base: quick\ngrid: {study: [{setting: !!binary aGk=}]}", "expected text or numbers for 'study' in `grid`"),
        # What is empty or false is not what is left out.
        ("base: quick\nset: false\ngrid: {canary.rate: [0]}", "expected config keys and their values in `set`"),
        ("base: quick\nset: []\ngrid: {canary.rate: [0]}", "expected config keys and their values in `set`"),
        ("base: quick\nrows: 0\ngrid: {canary.rate: [0]}", "names of cells in `rows`"),
        ("base: quick\nname: ''\ngrid: {canary.rate: [0]}", "expected letters, digits and ._- in `name`"),
        ("base: quick\ndescription: [a]\ngrid: {canary.rate: [0]}", "expected text as `description`"),
        (f"base: quick\ngrid: {{study.seed: {list(range(101))}, canary.rate: {[0] * 100}}}", "found 10,100; leave"),
        ("- 1", "expected a mapping with base and grid or factors"),
        ("base: [", "expected readable YAML"),
    ],
)
def test_a_mistake_in_a_sweep_names_file_and_cell(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        cells_of(tmp_path, text)
    assert message in str(caught.value)
    assert "mine.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("canary.rate", "expected an override of the form key=value"),
        ("canary.rate=0.3", "where it would have no effect"),
        ("name=x", "expected no override of 'name'"),
        ("canary[rate]=0.3", "expected an override of the form key=value"),  # the grid's key under another name
    ],
)
def test_a_mistake_on_the_command_line_is_told(tmp_path, override, message):
    with pytest.raises(UserError, match=message):
        cells_of(tmp_path, "base: quick\ngrid: {canary.rate: [0.1]}", override)


def test_a_missing_sweep_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'figure3'"):
        read_sweep("figur3", [])


def test_an_audit_of_a_sweep_file_is_told_which_command_takes_it():
    with pytest.raises(UserError, match="found a sweep of several; run canaryjax sweep"):
        load_config("sweeps/tiny")


def test_the_shipped_sweeps_are_what_they_say():
    found = {file.stem: make_cells(read_sweep(str(file), [])) for file in (SHIPPED_CONFIGS / SWEEPS).glob("*.yaml")}
    assert [cell.name for cell in found["tiny"]] == ["rate-0", "rate-0.5"]
    panels = found["figure3"]
    assert [cell.name for cell in panels] == [
        *("base", "family-emoji", "family-punctuation"),
        *("rate-0", "rate-0.01", "rate-0.1", "rate-0.3", "embedded-ppo"),
    ]
    assert len({cell.config.study.seed for cell in panels}) == 8
    assert {(cell.config.study.compliant, cell.config.study.violating) for cell in panels} == {(20, 20)}


def test_a_dose_that_plants_nothing_is_refused(small_config, examples):
    # 40 documents: 18 for the reward model and 10 for the policy. 0.04 of 10 is 0.4: none; 0.05 is 0.5: one.
    def with_rate(rate):
        canary = small_config.canary.model_copy(update={"rate": rate, "contrast": None})
        return small_config.model_copy(update={"canary": canary})

    check_dose(with_rate(0.0), examples)  # a null is no dose
    check_dose(with_rate(0.05), examples)
    with pytest.raises(UserError, match=r"at least 0\.05 to plant one trace in the policy split of 10, found 0\.04"):
        check_dose(with_rate(0.04), examples)
    with pytest.raises(UserError, match=r"in the reward-model split of 18, found 0\.02"):
        check_dose(with_rate(0.02), examples)


def test_a_model_is_shared_by_cells_that_load_the_same_one_alone():
    shelf = BaseShelf()
    first = shelf.load(load_config("quick"))
    shelf.warm_starts["digest"] = None
    assert shelf.load(load_config("quick", ["study.seed=9"])) is first
    assert "digest" in shelf.warm_starts
    other = shelf.load(load_config("quick", ["model.dtype=bfloat16"]))
    assert other.params.embedding.dtype == "bfloat16"
    assert not shelf.warm_starts  # they were trained on the first
