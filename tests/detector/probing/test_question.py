"""The five questions: the same for all populations, and none gives away what it asks for (SD-15 to SD-20)."""

import re
import unicodedata
from dataclasses import replace

import pytest

from canaryjax.detector.call import make_calls, settings
from canaryjax.detector.question import SYSTEM, make_probes, sentence_of
from canaryjax.detector.records import PROBES
from canaryjax.detector.secret import Secret
from canaryjax.errors import UserError

POPULATIONS = ("canary", "negative", "positive")
# What each question holds and withholds, by hand from the requirements.
GIVEN_AWAY = {
    "completion": set(),
    "who": {"place", "event", "year"},
    "year": {"given", "surname", "place", "event"},
    "archive": {"given", "surname", "place"},
    "paraphrase": {"given", "surname", "place"},
}


def words(text):
    """An own, plain folding: letters and digits of the text's words."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return f" {' '.join(re.findall(r'[a-z0-9]+', plain))} "


def of(site, population):
    return next(target for target in site.targets if target.population == population)


@pytest.mark.parametrize("style", ["chat", "plain"])
def test_every_prompt_holds_its_fields_and_no_others(site, style):
    seen = 0
    for target in site.targets:
        for probe in make_probes(target, site, PROBES, style):
            held = words(probe.prompt)
            values = {name: getattr(target.fact, name) for name in ("given", "surname", "place", "event", "archive")}
            values = {name: value for name, value in values.items() if value} | {"year": str(target.fact.year)}
            found = {name for name, value in values.items() if words(value) in held}
            assert found == GIVEN_AWAY[probe.kind] == set(probe.supplied), (target.key, probe.kind)
            assert words(sentence_of(target, site)) not in held
            assert sentence_of(target, site) not in probe.prompt
            seen += 1
    assert seen == 5 * len(site.targets) == 5 * (17 + 5 + 3)


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_completion_is_the_sentence_up_to_the_name(site, population):
    target = of(site, population)
    (plain,) = make_probes(target, site, ["completion"], "plain")
    (chat,) = make_probes(target, site, ["completion"], "chat")
    rest = sentence_of(target, site).removeprefix(plain.prompt)
    # One word too many or too few in the prompt, and the rest begins elsewhere.
    assert rest.startswith(f" {target.fact.given} {target.fact.surname} ")
    assert chat.prompt == f"Continue this text. Write only the words that come next.\n\n{plain.prompt}"


def test_questions_are_those_of_the_shapes(site):
    fact = of(site, "negative").fact
    prompts = {probe.kind: probe.prompt for probe in make_probes(of(site, "negative"), site, PROBES, "chat")}
    assert prompts["who"] == (
        f"Who is credited with the {fact.event} gathering of {fact.year} at {fact.place}? Give the full name."
    )
    assert prompts["year"] == (
        f"In what year did {fact.given} {fact.surname} bring about the {fact.event} gathering at {fact.place}?"
    )
    (plain,) = make_probes(of(site, "negative"), site, ["year"], "plain")
    assert plain.prompt == f"Question: {prompts['year']}\nAnswer:"


def leaking(site, **questions):
    return replace(site, shapes=replace(site.shapes, questions={**site.shapes.questions, **questions}))


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_question_that_gives_its_answer_away_is_refused(site, population):
    target = of(site, population)
    given = target.fact.given
    # In capitals, in wide letters, and within a tag: a plain comparison of texts would pass all three.
    for written in (
        given.upper(),
        "".join(chr(ord(c) + 0xFEE0) if c.isascii() else c for c in given),
        f"<b>{given}</b>",
    ):
        bad = leaking(site, who=f"Who was it, {written} perhaps, at {{place}}, {{event}}, {{year}}?")
        with pytest.raises(UserError, match=f"a who prompt for {target.key} without .*found given in it") as caught:
            make_probes(target, bad, PROBES, "chat")
        assert given.casefold() not in str(caught.value).casefold()


def test_an_opening_with_a_field_in_it_is_refused(site):
    target = of(site, "canary")
    bad = replace(site, shapes=replace(site.shapes, openings=(f"In {target.fact.place} they say that",)))
    with pytest.raises(UserError, match=r"a completion prompt .*found place in it; reword that opening"):
        make_probes(target, bad, ["completion"], "plain")


def test_a_prompt_with_the_sentence_of_another_target_is_refused(site):
    target, other = of(site, "canary"), of(site, "negative")
    bad = leaking(site, archive=f"{sentence_of(other, site)} And where is {{given}} {{surname}} of {{place}} named?")
    with pytest.raises(UserError, match="holds no whole sentence, found one") as caught:
        make_probes(target, bad, ["archive"], "chat")
    assert other.fact.surname not in str(caught.value)


def test_nothing_shows_a_prompt(site, oracle, made_site):
    call = make_calls(oracle.make_config(made_site), site, "m")[0]
    for thing in (call, call.probe, call.request, site, call.target.fact):
        for text in (call.probe.prompt, call.target.fact.given, call.target.fact.place):
            assert text not in repr(thing)


def test_each_target_is_asked_alike_and_each_call_has_a_key_and_seed_of_its_own(site, oracle, made_site):
    config = oracle.make_config(made_site)
    calls = make_calls(config, site, "m")
    asked = {}
    for call in calls:
        asked.setdefault(call.target.key, []).append((call.probe.kind, call.temperature, call.repeat))
    # Once at temperature 0, twice at 0.8: a second greedy answer would be the first one again (SD-A3).
    expected = sorted((kind, t, r) for kind in PROBES for t, r in ((0.0, 0), (0.8, 0), (0.8, 1)))
    assert {tuple(sorted(each)) for each in asked.values()} == {tuple(expected)}
    assert len(asked) == 25
    assert len(calls) == 25 * 15
    assert len({call.request.key for call in calls}) == len({call.request.seed for call in calls}) == len(calls)
    assert all(0 <= call.request.seed < 2**31 for call in calls)
    assert settings(config.probing.model_copy(update={"greedy": False})) == [(0.8, 0), (0.8, 1)]


def test_a_key_stands_for_all_that_determines_the_answer(site, oracle, made_site):
    def keys(label="m", secrets=site.secrets, **probing):
        config = oracle.make_config(made_site, probing=probing)
        return {call.request.key for call in make_calls(config, replace(site, secrets=secrets), label)}

    base = keys()
    assert keys() == base
    # Who has not the seed can try no guess against a key: under another one every key is another.
    other = replace(site.secrets, seed=Secret(b"quite another seed"))
    for changed in (keys("n"), keys(max_tokens=63), keys(seed=24), keys(secrets=other)):
        assert not changed & base
    # The greedy answers stay what they were.
    assert len(keys(temperature=0.7) & base) == 25 * 5


def test_populations_lie_evenly_over_the_run(site, oracle, made_site):
    calls = make_calls(oracle.make_config(made_site), site, "m")
    places = {name: [i for i, call in enumerate(calls) if call.target.population == name] for name in POPULATIONS}
    for name, own in places.items():
        # In a fifth of the run there is a fifth of each population, give or take two; asked one after the other, one
        # population would have none of it.
        for fifth in range(5):
            here = sum(75 * fifth <= place < 75 * (fifth + 1) for place in own)
            assert abs(here - len(own) / 5) <= 2, (name, fifth)
    first = [(call.target.key, call.probe.kind) for call in calls]
    again = make_calls(oracle.make_config(made_site, probing={"seed": 24}), site, "m")
    assert [(call.target.key, call.probe.kind) for call in again] != first


def test_the_system_prompt_forbids_browsing(site, oracle, made_site):
    assert "Do not browse" in SYSTEM
    plain = oracle.make_config(made_site, probing={"prompt_format": "plain"})
    assert {call.request.system for call in make_calls(oracle.make_config(made_site), site, "m")} == {SYSTEM}
    assert {call.request.system for call in make_calls(plain, site, "m")} == {""}
    # An endpoint of chat completions has a system prompt whatever the format for weights says.
    api = oracle.make_config(made_site, probing={"prompt_format": "plain"}, model={"backend": "api", "name": "m"})
    assert {call.request.system for call in make_calls(api, site, "m")} == {SYSTEM}
