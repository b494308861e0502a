"""The sweeps of the paper's tables: every row has a config in the paper's setting, and all of them can be planned."""

import pytest

from canaryjax.audit.plan import plan_study
from canaryjax.cli.plan import model_shape, study_examples, study_material
from canaryjax.cli.sweep_plan import print_sweep_plan
from canaryjax.config import load_config
from canaryjax.config.load import SHIPPED_CONFIGS
from canaryjax.errors import UserError
from canaryjax.report.published import ROWS
from canaryjax.report.setting import differences, setting_of
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.file import read_sweep

FOLDERS = ("paper", "embedded")
NAMES = [f"{folder}/{path.stem}" for folder in FOLDERS for path in sorted((SHIPPED_CONFIGS / folder).glob("*.yaml"))]
CONFIGS = [name for name in NAMES if "/probes" not in name]  # those are planned by their own command


def stood(name):
    """(row, cell as `sweep.json` has it before it is run) of a shipped sweep."""
    file = read_sweep(name, [])
    cells = {cell.name: {"setting": setting_of(cell.config), "found": None} for cell in make_cells(file)}
    return {row: cells[cell] for row, cell in file.rows.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_shipped_config_can_be_planned(name):
    config = load_config(name)
    plan = plan_study(config, model_shape(config), study_material(config, study_examples(config)))
    assert plan["policies"] == config.study.compliant + config.study.violating
    assert plan["fits"]


@pytest.mark.parametrize(("name", "cells", "policies"), [("paper_tables", 6, 520), ("paper_figure3", 8, 800)])
def test_the_papers_sweeps_can_be_planned(name, cells, policies, capsys):
    made = make_cells(read_sweep(name, []))
    print_sweep_plan(name, made, None)
    assert len(made) == cells
    assert f"all {cells} cells" in (last := capsys.readouterr().out.split("│all")[1].join(["│all", ""]))
    assert last.split("│")[2].strip() == str(policies)


def test_every_row_of_the_paper_has_a_cell_in_its_setting():
    rows = stood("paper_tables")
    assert set(ROWS) == set(rows)
    for row, cell in rows.items():
        assert differences(ROWS[row], cell).none, row


def test_table_2_is_of_the_policies_of_table_1():
    # Named as rows of their own, and run once: a sweep over both has one cell.
    for data in ("repliqa", "qmsum"):
        setting = [setting_of(load_config(f"paper/{row}")) for row in (f"table1_{data}", f"table2_{data}_canary")]
        assert setting[0] == setting[1]
        assert setting_of(load_config(f"paper/table2_{data}_no_canary"))["canary.rate"] == 0.0


def test_the_papers_figure_3_has_its_doses_optimisers_and_bases():
    cells = {cell.name: cell.config for cell in make_cells(read_sweep("paper_figure3", []))}
    assert {config.canary.rate for config in cells.values()} == {0.0, 0.001, 0.005, 0.01}
    assert {config.canary.family for config in cells.values()} == {"signature", "emoji", "punctuation"}
    kinds = {(config.policy.algorithm, config.model.path) for config in cells.values()}
    assert kinds == {("grpo", "gemma-2b"), ("ppo", "gemma-2b"), ("grpo", "qwen2.5-1.5b")}
    assert len({config.study.seed for config in cells.values()}) == len(cells)


def test_the_embedded_rows_are_told_apart_from_the_papers():
    rows = stood("paper_embedded")
    assert {row.split(".")[0] for row in rows} == {"table1", "table2", "table6", "section4"}
    assert all(
        "study.compliant" in cell["setting"] and cell["setting"]["study.compliant"] == 50 for cell in rows.values()
    )
    assert not any(differences(ROWS[row], cell).none for row, cell in rows.items())


ROWS_OF = "base: quick\nset: {{canary.contrast: null}}\ngrid: {{canary.rate: [0, 0.5], study.compliant: [{}]}}\n{}"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("rows: {table1.repliqua: rate-0_compliant-10}", "found 'table1.repliqua'; did you mean 'table1.repliqa'?"),
        (
            "rows: {table1.repliqa: rate-0_compliant}",
            r"for table1\.repliqa in .*found 'rate-0_compliant'; did you mean 'rate-0_compliant-10'\?",
        ),
        ("rows: [table1.repliqa]", "expected rows of the paper with names of cells in `rows`"),
        ("rows: {table1.repliqa: 3}", "expected rows of the paper with names of cells in `rows`"),
        ("mixed_n: 2", "expected true or false as `mixed_n`"),
    ],
)
def test_a_mistake_in_rows_is_told(tmp_path, rows, message):
    (tmp_path / "mine.yaml").write_text(ROWS_OF.format("10", rows))
    with pytest.raises(UserError, match=message):
        make_cells(read_sweep(str(tmp_path / "mine.yaml"), []))


def test_a_table_over_unlike_numbers_of_policies_is_refused_unless_asked_for(tmp_path):
    # BC-A1. Of different tables they may be unlike, as the paper's are.
    def made(rows):
        (tmp_path / "mine.yaml").write_text(ROWS_OF.format("10, 12", rows))
        return make_cells(read_sweep(str(tmp_path / "mine.yaml"), []))

    unlike = "rows: {table6.textual: rate-0_compliant-10, table6.behavioural: rate-0.5_compliant-12}"
    with pytest.raises(
        UserError, match=r"table6\.textual with 10 \+ 10, table6\.behavioural with 12 \+ 10.*mixed_n: true"
    ):
        made(unlike)
    assert len(made(f"{unlike}\nmixed_n: true")) == 4
    assert len(made("rows: {table1.repliqa: rate-0_compliant-10, table6.behavioural: rate-0.5_compliant-12}")) == 4
