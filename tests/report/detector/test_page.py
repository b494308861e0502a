"""The page of a detector run: complete, self-contained, escaped, and honest where a number is missing."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from canaryjax.errors import UserError
from canaryjax.report.detector_page import render_detector

SECTIONS = {
    *("verdict", "asked", "found", "tiers", "cohorts", "membership", "hits", "controls", "sure", "limits", "warnings"),
    "ran",
}
FIGURES = {"dose_response", "cohorts", "membership"}


class _Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags nest."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

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
    # No-break blanks count as blanks, so that "300 times" can be looked for.
    return reader, re.sub(r"\s+", " ", " ".join(reader.text))


def test_page_holds_every_section_figure_and_number(made, folder_of):
    folder = folder_of(made())
    page = render_detector(folder)
    reader, text = _read(page)
    assert page == folder / "report.html"
    assert {attrs["id"] for tag, attrs in reader.tags if tag == "section"} == SECTIONS
    assert {path.stem for path in (folder / "figures").iterdir()} == FIGURES
    images = [attrs for tag, attrs in reader.tags if tag == "img"]
    assert len(images) == len(FIGURES)
    assert all(image["src"].startswith("data:image/png;base64,iVBOR") and image["alt"] for image in images)
    # 3 of 9 against 0 of 20 (SD-A7), by hand: Wilson, Newcombe, Fisher 84/3654 = 0.023.
    for expected in ("3 of 9", "[0.12, 0.65]", "+0.33 [0.07, 0.65]", "0.023 Holm"):
        assert expected in text, expected
    # 10 of 13 by the field rule, above a ceiling of 5 of 8: (10/13)/(5/8) = 1.23, beside what it is clipped to.
    assert "1.23 clipped 1.00" in text
    for expected in (
        "pessimistic by construction",
        "2 unanswered",
        "By the field rule two separate answers each hold 2 fields",
        "The site's pages are all of one kind.",
        "The request log holds 2 torn lines.",
        "Prior 50 %: verified crawlers of the maker fetched each of the pages.",
        "SmolLM2-135M-Instruct (local)",
        "0a1b2c3d4e5f",
        "1,620 of 1,620",
        "Linked pages are recalled and sitemap-only pages are not",
    ):
        assert expected in text, expected


def test_each_hit_points_at_what_its_id_names(made, folder_of):
    report = made(rungs={300: (13, 1)}, cohorts={}, edge={"vendor": (9, 1)})
    ladder, vendor = report["hits"]
    _, text = _read(render_detector(folder_of(report)))
    assert f"{ladder['id']} {ladder['target']} ladder 300 times full decode manifest entry ladder-000" in text
    assert f"{vendor['id']} {vendor['target']} vendor once full decode request-log row vendor/visit-17" in text
    assert "completion, T 0.0: all 6 net, 63 bits, full decode" in text


def test_hits_json_lists_all_hits_by_id(made, folder_of):
    report = made(edge={"vendor": (300, 140)})
    folder = folder_of(report)
    _, text = _read(render_detector(folder))
    document = json.loads((folder / "hits.json").read_bytes())
    assert document["schema"] == "canaryjax.detector.hits/1"
    assert document["look"] == 1
    assert document["fetches"] == {"during_run": 0, "reason": None, "log_complete": True}
    ids = [hit["id"] for hit in document["hits"]]
    assert ids == sorted(hit["id"] for hit in report["hits"])
    assert len(ids) == 9 + 6 + 1 + 5 + 1 + 140
    assert all(hit["source"] for hit in document["hits"])
    # The page shows the first hundred, and says that there are more.
    assert "62 more are in hits.json" in text
    assert ids[99] in text
    assert ids[100] not in text


@pytest.mark.parametrize(
    ("case", "kind", "texts"),
    [
        (
            "strong",
            "Recall rises with exposure",
            [
                *("within the alpha of 0.030", "nothing was retrieved from the site"),
                # What is uncorrected and what small controls leave open (SD-A7: 0 of 20 goes up to 0.16).
                *("corrected for all secondary tests", "p is not corrected and decides nothing"),
                "floor of 0 of 20 may be anything in [0.00, 0.16], a ceiling of 5 of 8 may be anything in [0.31, 0.86]",
            ],
        ),
        ("fetched", "Memory or retrieval: not told apart", ["fetched 3 times during the run", "may be retrieved"]),
        ("floor", "At the floor", ["No group of sentences can be told from", "it is the baseline", "weak evidence"]),
        ("blind", "The questions do not work on this model", ["none of 8 famous facts"]),
        ("api", "Recall rises with exposure", ["31 of", "status 429 after 6 retries: 31", "no request log was given"]),
        (
            "empty",
            "",
            ["no trials: n = 0", "No ceiling is drawn", "none none none none", "is not known to be complete"],
        ),
    ],
)
def test_each_case_says_what_it_shows(cases, made, folder_of, case, kind, texts):
    _, text = _read(render_detector(folder_of(made(**cases[case]))))
    assert kind in text
    for expected in texts:
        assert expected in text, expected
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", text)


def test_log_probs_that_an_endpoint_does_not_give_are_said_to_be_missing(cases, made, folder_of):
    folder = folder_of(made(**cases["api"]))
    _, text = _read(render_detector(folder))
    assert "Not computed: the backend gives no log-probs of a given text." in text
    assert not (folder / "figures" / "membership.png").exists()


def test_the_ledger_adds_up(made, folder_of):
    _, text = _read(render_detector(folder_of(made(look=3))))
    # 6 x 0.05 / (pi^2 t^2) at t = 1, 2, 3: 0.0304, 0.0076, 0.0034; 0.0414 of 0.05 is gone.
    for expected in (
        "look at this model 3",
        "alpha of this look 0.0034",
        "spent by earlier looks 0.0380",
        "spent with this one 0.0414",
        "left for later looks 0.0086",
    ):
        assert expected in text, expected


def test_each_field_is_held_against_its_own_floor(made, folder_of):
    _, text = _read(render_detector(folder_of(made())))
    # 0.11 % of the negatives' 180 answers, 2 % of the canaries' 720, 10 % of the positives' 72.
    assert "given 12.0 2.0 % of 720 0.1 % of 180 10.0 % of 72" in text


def test_page_needs_nothing_from_outside(made, folder_of):
    source = render_detector(folder_of(made())).read_text()
    reader = _Reader()
    reader.feed(source)
    for tag, attrs in reader.tags:
        for name in ("src", "href", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
    assert not re.search(r"https?://|@import|url\(|<script|<link|<iframe", source)
    assert "default-src 'none'" in source


def _every_text(tree, text, keep=("schema",)):
    """The same tree with every text, keys of free dictionaries too, replaced."""
    if isinstance(tree, dict):
        return {key: value if key in keep else _every_text(value, text) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_every_text(value, text) for value in tree]
    return text if isinstance(tree, str) else tree


def test_hostile_text_is_escaped_wherever_it_stands(made, folder_of):
    hostile = "<script>alert(1)</script>\u2028\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}$x$" + "A" * 500
    report = _every_text(made(failed=2), hostile)
    report["calls"]["failures"] = {hostile: 2}
    report["membership"]["min_k"]["flagged"] = {hostile: {"n": 13, "k": 2}}
    report["model"]["capabilities"][hostile] = True
    page = render_detector(folder_of(report))
    reader, text = _read(page)
    # Without escaping the parser would meet a script, an onerror attribute, or a picture that is not ours.
    assert not [tag for tag, _ in reader.tags if tag == "script"]
    assert not [attrs for _, attrs in reader.tags if "onerror" in attrs]
    assert sum(tag == "img" for tag, _ in reader.tags) == len(FIGURES)
    assert "{{ 7 * 7 }}" in text
    assert html.escape("<script>alert(1)</script>") in page.read_text()


def _null_leaves(tree, inside):
    """The same tree with every leaf null; lists are emptied, or with `inside` kept and their leaves made null."""
    if isinstance(tree, dict):
        return {key: value if key == "schema" else _null_leaves(value, inside) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_null_leaves(value, inside) for value in tree] if inside else []
    return None


@pytest.mark.parametrize("missing", ["leaves", "leaves of lists", "branches", "all but the schema"])
def test_nothing_measured_is_said_and_not_shown_as_a_number(made, folder_of, missing):
    report = made()
    if missing.startswith("leaves"):
        report = _null_leaves(report, missing == "leaves of lists")
        # Words of lists of text: a null warning is no warning.
        report |= {name: [] for name in ("warnings", "limitations", "reading")}
    elif missing == "branches":
        report = dict.fromkeys(report) | {"schema": report["schema"]}
    else:
        report = {"schema": report["schema"]}
    reader, text = _read(render_detector(folder_of(report)))
    assert "The primary test, the trend over the ladder, has no result: no reason was recorded" in text
    assert not [tag for tag, _ in reader.tags if tag == "img"]
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", text)
    # What no run can settle stands there whatever was measured (SD-41).
    assert "weak evidence" in text
    assert "Only what" in text


@pytest.mark.parametrize("content", ['{"schema": "canaryjax.audit/1"}', "[]", '{"schema": null}'])
def test_another_schema_is_refused(tmp_path, content):
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(UserError, match=r"expected schema 'canaryjax\.detector/1'"):
        render_detector(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
