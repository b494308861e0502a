import pytest

from canaryjax.config import load_config
from canaryjax.errors import UserError


def test_a_provider_does_nothing_unless_asked():
    assert not load_config("quick").provider.active


@pytest.mark.parametrize(
    ("override", "filters", "scores"),
    [
        ("provider.perplexity_quantile=0.9", True, True),
        ("provider.perplexity_bound=4", True, True),
        ("provider.near_duplicate_threshold=0.8", True, False),
        ("provider.keep_share=0.5", True, False),
        ("provider.contradictory_share=0.5", False, False),
    ],
)
def test_each_step_is_a_step(override, filters, scores):
    section = load_config("quick", [override]).provider
    assert (section.active, section.filters, section.reads_perplexity) == (True, filters, scores)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["provider.dilution_share=0.5"], "set both"),
        (["provider.dilution_documents=5"], "set both"),
        (["provider.perplexity_parts=[query,query]"], "correct the list"),
        (["provider.near_duplicate_parts=[]"], "correct the list"),
        (["provider.keep_share=0"], "above 0"),
        (["provider.perplexity_quantile=1.5"], "at most 1"),
    ],
)
def test_a_provider_that_cannot_be_is_refused(overrides, words):
    with pytest.raises(UserError, match=words):
        load_config("quick", overrides)
