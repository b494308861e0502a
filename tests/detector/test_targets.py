"""What a run asks about: three populations, chosen and ordered by lot, and the edge's by the request log."""

import json
import traceback
from collections import Counter

import pytest

from canaryjax.config.detector import DetectorConfig
from canaryjax.detector.derive import edge_id
from canaryjax.detector.design import Sizes, ticket
from canaryjax.detector.generation import generate_site
from canaryjax.detector.records import Target
from canaryjax.detector.secret import Secret, make_secrets
from canaryjax.detector.targets import make_targets
from canaryjax.detector.throwaway import make_site_lists
from canaryjax.errors import UserError

SIZES = Sizes(site=7, linked=3, sitemap=2, honeypot=1, per_rung=3, negatives=11)
EDGE = "example-edge-secret-not-secret"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    make_site_lists(root / "site", 11)
    make_secrets(root / "secrets")
    (root / "secrets" / "edge_secret").write_text(EDGE)
    generate_site(root / "site", root / "secrets", SIZES, allow_throwaway=True)
    return root


def config(root, log=None, **probing):
    site = {"folder": str(root / "site"), "secrets": str(root / "secrets"), "request_log": log and str(log)}
    return DetectorConfig.model_validate(
        {"site": site, "model": {"path": "nowhere"}, "probing": {"negatives": 11, **probing}}
    )


def row(tier, label, time="2031-03-05T07:11:13.017Z", path="/a", status=200, secret=EDGE):
    stamp = f"{edge_id(Secret(secret.encode()), tier, label):012x}" if tier else None
    values = {"time": time, "path": path, "ip": None, "user_agent": None, "vendor": None, "tier": tier, "label": label}
    return json.dumps(values | {"id": stamp, "page_status": status}) + "\n"


@pytest.fixture(scope="module")
def site(root):
    return make_targets(config(root))


def test_three_populations_with_tier_cohort_and_occurrences(site):
    assert Counter(target.population for target in site.targets) == {"canary": 25, "negative": 11, "positive": 8}
    assert Counter((t.tier, t.cohort, t.occurrences) for t in site.targets if t.population == "canary") == {
        ("site", None, 1): 7,
        ("cohort", "linked", 1): 3,
        ("cohort", "sitemap", 1): 2,
        ("cohort", "honeypot", 1): 1,
        ("ladder", None, 300): 3,
        ("ladder", None, 100): 3,
        ("ladder", None, 10): 3,
        ("ladder", None, 1): 3,
    }
    assert {(t.tier, t.cohort, t.occurrences) for t in site.targets if t.population == "negative"} == {(None, None, 0)}
    assert {(t.tier, t.occurrences, t.id) for t in site.targets if t.population == "positive"} == {(None, None, None)}
    assert len({target.key for target in site.targets}) == len(site.targets)


def test_a_targets_fact_is_that_of_its_id(site):
    for target in site.targets:
        if target.id is not None:
            assert target.fact.given == site.vocabulary.given[target.id >> 36]
            assert target.fact.event == site.vocabulary.event[target.id & 4095]
            assert site.manifest.by_id[target.id].key == target.key


def test_ids_of_canaries_and_negatives_are_disjoint(site):
    ids = [target.id for target in site.targets if target.id is not None]
    assert len(set(ids)) == len(ids) == 36


def test_the_order_is_by_lot_and_the_same_each_time(root, site):
    keys = [target.key for target in site.targets]
    assert keys == [target.key for target in make_targets(config(root)).targets]
    # No population stands together: half of the 44 are of one by chance less than once in a hundred million.
    populations = [target.population for target in site.targets]
    assert all(len(set(half)) > 1 for half in (populations[:22], populations[22:]))
    # A dealt target's place in the order follows from its position, so it would be the same under any other deal.
    dealt = [key for key in keys if not key.startswith("positive")]
    by_hand = sorted(dealt, key=lambda key: ticket(site.manifest.nonce, "order", f"position/{key[-3:]}"))
    assert dealt == by_hand


def test_fewer_are_drawn_by_lot_and_stay_the_same(root, site):
    few = make_targets(config(root, negatives=5, positives=3, most_per_group=2)).targets
    again = make_targets(config(root, negatives=5, positives=3, most_per_group=2)).targets
    assert [target.key for target in few] == [target.key for target in again]
    assert Counter(target.population for target in few) == {"canary": 7 * 2 + 1, "negative": 5, "positive": 3}
    groups = Counter((t.tier, t.cohort, t.occurrences) for t in few if t.population == "canary")
    assert set(groups.values()) == {1, 2}
    negatives = [target.key for target in site.targets if target.population == "negative"]
    nonce = site.manifest.nonce
    drawn = sorted(negatives, key=lambda key: ticket(nonce, "choice", f"position/{key[-3:]}"))[:5]
    assert {target.key for target in few if target.population == "negative"} == set(drawn)


def test_more_negatives_than_were_made_are_refused(root):
    with pytest.raises(UserError, match=r"expected probing\.negatives of at most 11, .*found 12; lower it"):
        make_targets(config(root, negatives=12))


def test_all_famous_facts_are_taken_where_there_are_fewer(root):
    own = root / "site" / "positives.yaml"
    own.write_text("- {given: Ada, surname: Lovelace, place: London, event: notes, year: 1843}\n")
    try:
        positives = [t for t in make_targets(config(root)).targets if t.population == "positive"]
    finally:
        own.unlink()
    assert [(target.key, target.fact.surname) for target in positives] == [("positive-000", "Lovelace")]


def test_an_edge_id_is_one_target_with_its_first_request(root, tmp_path):
    # SD-13. Served thrice, of which one is an error page; the lines are not in the order of time.
    log = tmp_path / "log.jsonl"
    log.write_text(
        row("vendor", "acme/1", "2031-03-05T07:11:19.000Z", "/later")
        + row("vendor", "acme/1", "2031-03-05T07:11:13.017Z", "/first")
        + row("vendor", "acme/1", "2031-03-05T07:11:11.000Z", "/gone", 404)
        + row("window", "2031-03", path="/w")
        + row("window", "2031-04", path="/lost", status=500)
        + row(None, None, path="/robots.txt")
        + '{"time":"2031-03-05T07:1'
    )
    made = make_targets(config(root, log))
    edge = [target for target in made.targets if target.tier in ("vendor", "window")]
    assert {(t.tier, t.occurrences, t.cohort, t.log_row) for t in edge} == {
        ("vendor", 2, None, "2031-03-05T07:11:13.017Z"),
        ("window", 1, None, "2031-03-05T07:11:13.017Z"),
    }
    first = edge_id(Secret(EDGE.encode()), "vendor", "acme/1")
    assert [target.id for target in edge if target.tier == "vendor"] == [first]
    assert {target.key for target in edge if target.tier == "vendor"} == {f"vendor-{first:012x}"}
    assert made.log is not None
    assert made.log.torn == 1


def test_ids_that_the_edge_secret_does_not_give_are_refused(root, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(row("window", "2031-03") + row("vendor", "acme/1", secret="of-another-edge-altogether"))
    with pytest.raises(UserError, match="found others in 1 of 2 rows") as caught:
        make_targets(config(root, log))
    assert EDGE not in "".join(traceback.format_exception(caught.value))


def test_a_log_without_the_edge_secret_is_refused(root, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(row("window", "2031-03"))
    kept = (root / "secrets" / "edge_secret").rename(tmp_path / "away")
    try:
        with pytest.raises(UserError, match="expected the file edge_secret beside the seed, found none; 1 rows"):
            make_targets(config(root, log))
        log.write_text(row(None, None))
        assert make_targets(config(root, log)).log is not None
    finally:
        kept.rename(root / "secrets" / "edge_secret")


def test_nothing_shows_what_it_holds(site):
    shown = repr(site) + repr(site.targets) + repr(site.manifest)
    words = {value for target in site.targets for value in vars(target.fact).values() if isinstance(value, str)}
    assert not [word for word in words if word in shown]
    assert site.manifest.nonce.hex() not in shown
    assert isinstance(site.targets[0], Target)
