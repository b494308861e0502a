"""The hit rule: what the answers about one target add up to."""

import pytest

from canaryjax.config.detector import EvidenceConfig
from canaryjax.detector.hit import hit_rows, judge, rule_text, stray_rows
from canaryjax.detector.records import AnswerScore, Fact, Target
from canaryjax.errors import UserError

FACT = Fact("Aa", "Bb", "Cc", "Dd", "Ee", 1903)
LADDER = Target("ladder-007", "canary", "ladder", 100, None, 0x00ABCDEF0123, FACT)
FOUR = frozenset(("given", "surname", "place", "event"))
ALL_SIX = FOUR | {"archive", "year"}
THREE = frozenset(("given", "surname", "year"))
LITERAL, BITS = EvidenceConfig(), EvidenceConfig(rule="bits")


def answer(kind="completion", temperature=0.0, repeat=0, net=(), target="ladder-007", **others):
    settings = {"bits": 12.0 * len(net), "raw": frozenset(net), "raw_decoded": False, "decoded": False}
    settings |= {"others": (), "empty": False, "refusal": False} | others
    return AnswerScore(target=target, kind=kind, temperature=temperature, repeat=repeat, net=frozenset(net), **settings)


def verdict(*answers, config=LITERAL):
    return judge([LADDER], answers, config)[0]


def test_one_lucky_answer_is_no_hit():
    # SD-26, even with five fields, and three fields beside it.
    found = verdict(answer(net=FOUR | {"year"}), answer("paraphrase", net=THREE))
    assert not found.hit
    assert not found.telling


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("completion", 0.0, 0), ("paraphrase", 0.0, 0)),
        (("completion", 0.0, 0), ("completion", 0.8, 0)),
        (("completion", 0.8, 0), ("completion", 0.8, 1)),
        (("completion", 0.8, 0), ("completion", 1.2, 0)),
    ],
)
def test_two_separate_answers_are_a_hit(first, second):
    found = verdict(answer(*first, net=FOUR), answer(*second, net=FOUR))
    assert found.hit
    assert not found.decoded
    assert len(found.telling) == 2


def test_a_repeat_at_temperature_zero_is_the_same_answer():
    # SD-A3: keyed by repeat alone, the greedy answer would count twice.
    assert not verdict(answer(repeat=0, net=FOUR), answer(repeat=1, net=FOUR)).hit
    assert not verdict(*[answer("completion", 0.8, 1, net=FOUR)] * 2).hit  # one answer, given twice
    assert verdict(answer(repeat=0, net=FOUR), answer(repeat=1, net=FOUR)).evidence == 0.0


def test_one_full_decode_is_a_hit_but_not_by_fields():
    found = verdict(answer(net=FOUR | {"archive", "year"}, decoded=True, raw_decoded=True))
    assert (found.hit, found.decoded, found.field_hit) == (True, True, False)
    assert found.evidence == 72.0


NAME, WHEN = ("given", "surname"), ("year",)


@pytest.mark.parametrize(
    ("answers", "hit"),
    [
        # A famous fact that is known: both names, twice, and the year or the event, each from a question that leaves
        # it open. Four fields of one answer are open to the completion alone, which says of nobody.
        ([answer("who", net=NAME), answer("who", 0.8, net=NAME), answer("year", net=WHEN)], True),
        ([answer("who", net=NAME), answer("paraphrase", net=("event", "year"))], True),
        ([answer("who", net=NAME), answer("who", 0.8, net=NAME)], False),  # two fields in all
        ([answer("who", net=NAME), answer("year", net=WHEN), answer("archive", net=("archive",))], False),
        ([answer("who", 0.0, 0, net=NAME), answer("who", 0.0, 1, net=NAME), answer("year", net=WHEN)], False),
        ([answer("completion", net=ALL_SIX), answer("year", net=WHEN)], False),  # one lucky answer
    ],
)
def test_the_field_rule_can_be_met_by_famous_facts(answers, hit):
    found = verdict(*answers)
    assert found.field_hit is hit
    assert not found.hit


def test_fields_that_the_question_gave_make_only_a_raw_hit():
    echoes = [answer("who", 0.8, i, net=("given",), raw=FOUR) for i in range(2)]
    found = verdict(*echoes)
    assert (found.hit, found.raw_hit) == (False, True)
    assert verdict(answer("year", raw_decoded=True)).raw_hit
    assert not verdict(answer("year", raw_decoded=True)).hit


def test_the_rule_of_bits_needs_them_in_two_answers():
    strong, weak = answer("who", bits=36.0), answer("archive", bits=35.9)
    assert not verdict(strong, weak, config=BITS).hit
    assert verdict(strong, answer("archive", bits=36.0), config=BITS).hit
    assert not verdict(strong, answer("archive", bits=36.0), config=LITERAL).hit
    assert not verdict(strong, answer("archive", bits=36.0), config=EvidenceConfig(rule="bits", bits=37)).hit


def test_evidence_is_the_second_best_answer():
    answers = [answer("who", bits=24.0), answer("year", bits=7.0), answer("archive", bits=11.0)]
    assert verdict(*answers).evidence == 11.0
    assert verdict(*answers, answer("completion", bits=19.0, decoded=True)).evidence == 19.0
    assert verdict(*answers, answer("completion", bits=3.0, decoded=True)).evidence == 11.0
    assert verdict(answers[0]).evidence == 0.0
    # The rule of bits is this number at its threshold.
    assert verdict(answer("who", bits=36.0), answer("year", bits=36.0), config=BITS).evidence == BITS.bits


def test_a_target_without_answers_is_no_miss():
    found = judge([LADDER, Target("negative-001", "negative", None, 0, None, 5, FACT)], [answer()], LITERAL)
    assert [len(v.answers) for v in found] == [1, 0]


def test_answers_of_another_run_are_refused():
    with pytest.raises(UserError, match="site-001"):
        judge([LADDER], [answer(target="site-001")], LITERAL)
    with pytest.raises(UserError, match="ladder-007 twice"):
        judge([LADDER, LADDER], [], LITERAL)


def test_hits_name_their_manifest_entry_or_request():
    edge = Target("vendor-002", "canary", "vendor", 3, None, 0xF00000000001, FACT, "2031-03-05T07:11:13.017Z")
    negative = Target("negative-001", "negative", None, 0, None, 5, FACT)
    answers = [
        answer("completion", 0.8, 1, net=FOUR),
        answer("paraphrase", net=("event", "archive", "year", "given")),
        answer("who", net=("given",)),
        answer(net=FOUR | {"archive", "year"}, target="vendor-002", decoded=True),
        answer(net=FOUR | {"archive", "year"}, target="negative-001", decoded=True),
    ]
    first, second = hit_rows(judge([LADDER, edge, negative], answers, LITERAL))  # a negative has no source
    assert first["id"] == "00abcdef0123"  # twelve digits, zeros too
    assert (first["target"], first["tier"], first["occurrences"], first["cohort"]) == (
        "ladder-007",
        "ladder",
        100,
        None,
    )
    assert (first["how"], first["source"]) == ("fields", {"manifest_entry": "ladder-007"})
    assert first["answers"] == [
        {
            "probe": "completion",
            "temperature": 0.8,
            "repeat": 1,
            "net": ["given", "surname", "place", "event"],
            "bits": 48.0,
            "decoded": False,
        },
        {
            "probe": "paraphrase",
            "temperature": 0.0,
            "repeat": 0,
            "net": ["given", "event", "archive", "year"],
            "bits": 48.0,
            "decoded": False,
        },
    ]
    assert (second["id"], second["how"]) == ("f00000000001", "full decode")
    assert second["source"] == {"log_row": "2031-03-05T07:11:13.017Z"}


def test_strays_are_counted_by_answer():
    answers = [answer("who", others=(5, 9)), answer("year", others=(5, 5)), answer("archive")]
    negative = Target("negative-001", "negative", None, 0, None, 5, FACT)
    assert stray_rows(judge([LADDER, negative], answers, LITERAL)) == [
        {"id": "000000000005", "target": "negative-001", "seen_in": 2},
        {"id": "000000000009", "target": None, "seen_in": 1},
    ]


def test_the_rule_is_told_as_declared():
    assert "hold 4 fields or more" in rule_text(LITERAL)
    assert "carry 41.5 bits or more" in rule_text(EvidenceConfig(rule="bits", bits=41.5))
