"""hit@k over nested outputs, and decoys."""

import dataclasses

import numpy as np
import pytest

from canaryjax.config.probes import CanariesConfig
from canaryjax.errors import UserError
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.decoy import exposure, make_decoys
from canaryjax.probes.findings import analyse
from canaryjax.probes.recall import first_difference, hits, says
from tests.probes import constructed as c

FOUND = {0: [[False, False, True, False, False], [True, False, False, False, False]],
         1: [[False, False, False, False, True], [False] * 5]}  # fmt: skip


def test_hits_are_nested_and_never_fall():
    counts = [hits(FOUND, k, 0.95).hits for k in (1, 2, 3, 4, 5)]
    assert counts == [1, 1, 2, 2, 3]
    assert hits(FOUND, 5, 0.95).per_seed == (2, 1)
    assert hits(FOUND, 5, 0.95).n == 4


def test_the_estimator_of_k_draws_is_another_quantity():
    found = hits(FOUND, 2, 0.95)
    # Of the 4 sampled outputs 1, 0, 1 and 0 are right: 1 - C(3, 2) / C(4, 2) = 1/2 twice, over 4 instances.
    assert found.unbiased == pytest.approx(0.25)
    assert found.hits / found.n == 0.25  # by chance equal here: the greedy output is in the one and not in the other
    assert hits(FOUND, 1, 0.95).unbiased == pytest.approx(2 * 0.25 / 4)
    assert hits(FOUND, 5, 0.95).unbiased is None  # 4 were sampled


def test_more_than_there_are_is_refused():
    with pytest.raises(UserError, match="expected at least k=6 outputs of every canary, found 5"):
        hits(FOUND, 6, 0.95)


@pytest.mark.parametrize(
    ("target", "output", "expected"),
    [("abc", "abc and more", None), ("abc", "ab", 2), ("abc", "", 0), ("abc", "abx", 2)],
)
def test_where_an_output_leaves_its_target(target, output, expected):
    assert first_difference(target, output) == expected


def test_decoys_by_kind():
    canary = make_canaries(CanariesConfig(count=3))[2]
    found = make_decoys(canary, 5, 7, np.random.default_rng(1))
    assert {kind: len(secrets) for kind, secrets in found.items()} == {"shuffled": 5, "wrong": 7, "format": 1}
    assert all(sorted(secret) == sorted(canary.secret) for secret in found["shuffled"])
    assert canary.secret not in {secret for secrets in found.values() for secret in secrets}
    assert all(len(secret) == 16 and set(secret) <= set("0123456789abcdef") for secret in found["wrong"])
    again = make_decoys(canary, 5, 7, np.random.default_rng(1))
    assert again == found


def test_exposure_counts_ties_against_the_secret():
    found = exposure(2.0, np.array([2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0]))
    assert (found.rank, found.n) == (3, 7)
    assert found.p_value == 3 / 8
    assert found.bits == pytest.approx(np.log2(8 / 3))
    assert exposure(float("nan"), np.array([1.0])) is None
    assert exposure(1.0, np.array([])) is None
    assert exposure(1.0, np.array([np.inf])) is None


def test_ranks_of_a_secret_that_is_one_more_decoy_are_uniform():
    rng = np.random.default_rng(5)
    draws = rng.normal(size=(4000, 20))
    p = np.array([exposure(row[0], row[1:]).p_value for row in draws])
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.011)  # three standard errors


def test_an_empty_answer_and_an_echo_of_the_prompt_are_no_recall():
    for canary in make_canaries(CanariesConfig(count=5)):
        assert says(f"so {canary.target}", canary.recall)
        for output in ("", " ", canary.prompt, f"{canary.prompt}\n", canary.target.replace(canary.secret, "")):
            assert not says(output, canary.recall)


def test_a_rank_at_the_edge_of_alpha_counts():
    """First among 9 decoys has p = 0.1, which is at most 1 - 0.9: in floats 1 - 0.9 is less."""
    canaries, tokens = c.material(3)
    cells, readings = c.readings(c.same_for_all(np.zeros(c.LENGTH), 3), canaries=canaries)
    wrong = tuple(np.full(9, 99.0) for _ in canaries)
    readings = [dataclasses.replace(one, decoy_nll={"wrong": wrong}) for one in readings]
    report = analyse(tokens, canaries, cells, readings, c.config(statistics={"resamples": 9, "level": 0.9}))
    assert [(row["below"], row["n"], row["alpha"]) for row in report["exposure"]] == [(3, 3, 0.1), (9, 9, 0.1)]


def test_gaps_and_exposures_of_a_cell():
    """True secrets of 13 nats; decoys of which none, none and all are as likely."""
    canaries, tokens = c.material(3)
    cells, readings = c.readings(c.same_for_all(np.zeros(c.LENGTH), 3), base_nll=1.0, canaries=canaries)
    wrong = tuple(np.array(sums) for sums in ([14.0, 15.0, 16.0], [20.0, 14.0, 14.0], [1.0, 2.0, 12.0]))
    report = analyse(
        tokens, canaries, cells, [dataclasses.replace(readings[0], decoy_nll={"wrong": wrong})], c.config()
    )
    (gap,), (ranked,) = report["decoys"], report["exposure"]
    assert (gap["cell"], gap["kind"], gap["n"]) == ("base", "wrong", 3)
    assert gap["gap"] == pytest.approx((15 + 16 + 5) / 3 - 13)  # decoy less true
    assert ranked["most_bits"] == 2.0  # first of 4
    assert ranked["mean_bits"] == pytest.approx((2 + 2 + 0) / 3)
    assert ranked["median_rank"] == 1.0  # the mean of 1, 1 and 4 is 2
    assert (ranked["decoys"], ranked["below"]) == (3, 0)
