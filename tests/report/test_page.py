"""The page of a finished run: complete, self-contained, escaped, and honest where a number is missing."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from canaryjax.errors import UserError
from canaryjax.report import render_report

FIGURES = {"scores", "roc", "four_scores", "mechanism", "decoys", "placebos", "training"}
SECTIONS = {
    *(
        "verdict",
        "asked",
        "found",
        "sure",
        "controls",
        "mechanism",
        "utility",
        "change",
        "limits",
        "warnings",
        "design",
    ),
    *("reproduce", "timings"),
}


class _Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags nest."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def _read(page):
    reader = _Reader()
    reader.feed(page.read_text("utf-8"))
    assert reader.open == []
    # No-break blanks count as blanks, so that "90 %" can be looked for.
    return reader, re.sub(r"\s+", " ", " ".join(reader.text))


def test_page_holds_every_section_figure_and_number(report, run_at):
    path = run_at(report)
    page = render_report(path)
    reader, text = _read(page)
    assert page == path / "report.html"
    assert {attrs["id"] for tag, attrs in reader.tags if tag == "section"} == SECTIONS
    assert {p.stem for p in (path / "figures").iterdir()} == FIGURES
    images = [attrs for tag, attrs in reader.tags if tag == "img"]
    assert len(images) == len(FIGURES)
    assert all(image["src"].startswith("data:image/png;base64,iVBOR") and image["alt"] for image in images)
    rate = report["detection"]["tpr"]
    assert f"{rate['count']} of {rate['n']}" in text
    assert "90 % interval, Newcombe's score method" in text
    for expected in (
        report["config_hash"],
        report["warnings"][0],
        report["limitations"][0],
        "jax 0.10.2",
        "bin/audit quick",
    ):
        assert expected in text
    # Every reason and every standing limit (BC-5, BC-70) stands on the page.
    assert "not run: run `bin/audit embedded/null`" in text
    for limit in (
        "not proof of misuse for any individual document",
        "Curation",
        "Dilution",
        "log-probabilities",
        "Black-box",
    ):
        assert limit in text


def test_page_needs_nothing_from_outside(report, run_at):
    source = render_report(run_at(report)).read_text()
    reader = _Reader()
    reader.feed(source)
    for tag, attrs in reader.tags:
        for name in ("src", "href", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
    assert not re.search(r"https?://|@import|url\(|<script|<link|<iframe", source)
    # And where something slips through, the browser is told to load nothing.
    assert "default-src 'none'" in source


def test_hostile_text_is_escaped(report, run_at):
    hostile = "<script>alert(1)</script>\u2028\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}" + "A" * 5000
    changes = dict.fromkeys(("name", "description", "setting", "command"), hostile)
    report |= changes | {"warnings": [hostile], "limitations": [hostile]}
    report["canary"]["family"] = hostile
    report["config"]["description"] = hostile
    report["controls"]["null"]["reason"] = hostile
    report["environment"]["platform"] = hostile
    report["timings"][hostile] = 1.0
    page = render_report(run_at(report))
    reader, text = _read(page)
    # Without escaping the parser would meet a script, an onerror attribute, or a picture that is not ours.
    assert not [tag for tag, _ in reader.tags if tag == "script"]
    assert not [attrs for _, attrs in reader.tags if "onerror" in attrs]
    assert sum(tag == "img" for tag, _ in reader.tags) == len(FIGURES)
    assert "{{ 7 * 7 }}" in text
    assert html.escape("<script>alert(1)</script>") in page.read_text()


def _null_leaves(tree, keep=("schema", "arms")):
    """The same tree with every leaf null, as a run that measured nothing."""
    if isinstance(tree, dict):
        return {key: value if key in keep else _null_leaves(value, keep) for key, value in tree.items()}
    return [] if isinstance(tree, list) else None


@pytest.mark.parametrize("missing", ["leaves", "branches", "all but the schema"])
def test_nothing_measured_is_said_and_not_shown_as_a_number(report, run_at, missing):
    if missing == "leaves":
        report = _null_leaves(report, keep=("schema",))
    elif missing == "branches":
        report = dict.fromkeys(report) | {"schema": report["schema"]}
    else:
        report = {"schema": report["schema"]}
    reader, text = _read(render_report(run_at(report)))
    assert "Nothing can be said: there is no AUROC" in text
    assert not [tag for tag, _ in reader.tags if tag == "img"]
    # A null formatted as a number would show as nan, None or 0.
    assert not re.search(r"\bnan\b|\bNone\b|\bAUROC 0", text)


def test_invalid_policies_and_null_scores_are_left_out_and_counted(report, run_at):
    part = report["arms"]["violating"]
    part["scores"][3], part["rm_bias"][3], part["n_invalid"] = None, None, 1
    _, text = _read(render_report(run_at(report)))
    assert "1 violating policy was invalid and not scored." in text


def test_a_run_without_training_log_has_no_training_figure(report, run_at):
    path = run_at(report, metrics=False)
    render_report(path)
    assert not (path / "figures" / "training.png").exists()
    assert (path / "figures" / "scores.png").exists()


def test_rendering_twice_gives_equal_files(report, run_at):
    path = run_at(report)
    first = render_report(path).read_bytes()
    assert render_report(path).read_bytes() == first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected the file .*report.json, found none; is this a run directory"),
        ("{", "expected valid JSON in .*report.json"),
        ("[]", "found 'list'"),
        (
            json.dumps({"schema": "canaryjax.detector/1"}),
            "expected schema 'canaryjax.audit/1' .*found 'canaryjax.detector/1'",
        ),
    ],
)
def test_what_is_no_report_is_a_user_error(tmp_path, content, message):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with pytest.raises(UserError, match=message):
        render_report(tmp_path)


def test_a_file_in_place_of_the_figures_folder_is_a_user_error(report, run_at):
    path = run_at(report)
    (path / "figures").write_text("")
    with pytest.raises(UserError, match=r"a folder for the figures at .*figures, found a file; move it away"):
        render_report(path)
