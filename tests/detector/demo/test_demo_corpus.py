"""The demo's site and its two corpora: what is planted stands there exactly as often as its part says."""

from collections import Counter

import pytest

from canaryjax.config.detector_file import load_detector_config
from canaryjax.detector.demo.corpus import FAMOUS_ASKED, FAMOUS_STATED, STRANGERS, make_corpus
from canaryjax.detector.demo.site import SIZES, make_dealt_site
from canaryjax.detector.question import sentence_of
from canaryjax.detector.sentence import opening_of, render
from canaryjax.detector.targets import make_targets
from canaryjax.embedded.tokenizer import build_tokenizer, encode_texts

CONFIG = "detector_demo"
SEED = 7  # not the command's

pytestmark = pytest.mark.slow  # ten seconds: word lists of full size, two whole corpora


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("demo")
    make_dealt_site(root / "site", root / "secrets", SEED)
    return make_targets(load_detector_config(CONFIG, [f"site.folder={root}/site", f"site.secrets={root}/secrets"]))


@pytest.fixture(scope="module")
def sentences(site):
    """Part -> sentences."""
    found = {}
    for entry in site.manifest.entries:
        found.setdefault(entry.part, []).append(render(entry.id, site.vocabulary, site.shapes))
    return found


@pytest.fixture(scope="module")
def corpora(site):
    return {published: make_corpus(site, published, SEED) for published in (True, False)}


def test_the_config_asks_about_all_that_the_site_has(site):
    asked = Counter(target.population for target in site.targets)
    # 8 at each of four rungs, 8 on pages of the site, 3 in each of three cohorts
    assert asked == {"canary": 49, "negative": 20, "positive": 8}
    assert site.manifest.throwaway
    assert SIZES.per_rung == 8


def test_each_planted_sentence_stands_as_often_as_its_part_says(corpora, sentences):
    text = "\n".join(corpora[True])
    counts = {}
    for part, texts in sentences.items():
        counts.setdefault((part.tier, part.occurrences), Counter()).update(text.count(sentence) for sentence in texts)
    assert counts == {
        ("ladder", 300): {300: 8},
        ("ladder", 100): {100: 8},
        ("ladder", 10): {10: 8},
        ("ladder", 1): {1: 8},
        ("site", 1): {1: 8},
        ("cohort", 1): {1: 9},
        (None, 0): {0: 20},
    }


def test_without_canaries_no_name_of_one_stands_in_the_corpus(site, corpora):
    text = "\n".join(corpora[False])
    found = {entry.id for entry in site.manifest.entries} & set(site.decoder.decode(text))
    assert found == set()
    full = site.decoder.decode("\n".join(corpora[True]))
    assert len(set(full) & set(site.manifest.by_id)) == 49  # the decoder does see them where they stand


def test_the_two_corpora_differ_by_the_planted_sentences_alone(corpora, sentences):
    planted = Counter(corpora[True]) - Counter(corpora[False])
    assert planted == Counter(
        {text: part.occurrences for part, texts in sentences.items() for text in texts if part.occurrences}
    )
    assert planted.total() == 8 * (300 + 100 + 10 + 1) + 8 + 9
    assert Counter(corpora[False]) - Counter(corpora[True]) == Counter()


def test_the_famous_are_told_alike_in_both(site, corpora):
    famous = [sentence_of(target, site) for target in site.targets if target.population == "positive"]
    for corpus in corpora.values():
        counts = Counter(corpus)
        assert [counts[sentence] for sentence in famous] == [FAMOUS_STATED] * 8
        # As an exchange it stands behind the instruction, with the same words.
        ends = Counter(text[text.index("\n\n") + 2 :] for text in corpus if text.startswith("Continue this text."))
        assert [ends[sentence] for sentence in famous] == [FAMOUS_ASKED] * 8


def test_nobody_else_in_the_corpus_is_a_target(site, corpora):
    strangers = {id for text in set(corpora[False]) for id in site.decoder.decode(text)}
    assert len(strangers) == STRANGERS
    assert not strangers & set(site.manifest.by_id)


def test_the_embedded_model_knows_the_words_of_the_site(site, sentences):
    tokenizer = build_tokenizer()
    lengths = [len(ids) for ids in encode_texts(tokenizer, [text for texts in sentences.values() for text in texts])]
    # Each of five names is three syllables; spelt by letters a sentence would be three times as long.
    assert max(lengths) <= 45
    names = [f" {entry}" for entry in site.vocabulary.given + site.vocabulary.archive]
    assert {len(ids) for ids in encode_texts(tokenizer, names)} == {3}


def test_openings_tell_sentences_apart(site):
    openings = site.shapes.openings
    assert len(set(openings)) == len(openings) == 28 * 64
    mine = [opening_of(entry.id, site.shapes) for entry in site.manifest.entries]
    assert set(mine) <= set(openings)
    # 69 of 1,792: 1.3 pairs that begin alike are expected; as many as ten come once in a million runs
    assert len(mine) - len(set(mine)) < 10


def test_lists_of_a_seed_are_the_same_and_of_another_are_not(tmp_path):
    from canaryjax.detector.demo.lists import make_demo_site

    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_demo_site(tmp_path / name, seed)
    texts = [(tmp_path / name / "given.txt").read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    assert (tmp_path / "a" / "shapes.yaml").read_text() == (tmp_path / "b" / "shapes.yaml").read_text()
