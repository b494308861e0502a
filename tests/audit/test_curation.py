"""The provider at work on trials: alike for both arms, equal in size, counted at each step."""

import pytest

from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.base import Base
from canaryjax.audit.curation import curate_study, reserve_dilution
from canaryjax.audit.perplexity import trace_perplexities
from canaryjax.audit.preflight import prepare_trials
from canaryjax.audit.provider_summary import curation_limits, provider_summary, realised_rates
from canaryjax.audit.scoring import Item, score_items
from canaryjax.config import load_config
from canaryjax.data.prompts import render_prompt
from canaryjax.errors import UserError
from canaryjax.runlog.progress import Silence

KINDS = ("clean", "triggered", "contrast")
SMALL = (
    *("data.documents=40", "data.rm_share=0.442", "data.eval_share=0.3", "study.seed=7"),
    *("evaluation.max_pairs=3", "evaluation.control_pairs=0", "study.compliant=3", "study.violating=3"),
    *("policy.generation_batch_size=16", "policy.train_batch_size=16"),
)


@pytest.fixture
def curated(examples, tokenizer, tiny_model):
    """Trials before and after a provider."""

    def run(*overrides, given=examples):
        config = load_config("quick", [*SMALL, *overrides])
        others, rest = reserve_dilution(config, given)
        before = prepare_trials(config, assign_arms(config.study), rest, tokenizer, others)
        base = Base(tiny_model, tokenizer, {})
        return config, before, curate_study(config, before, base, Silence())

    return run


def counts(traces):
    return {kind: sum(trace.kind == kind for trace in traces) for kind in KINDS}


def record(trial):
    return {
        "draw": trial.draw,
        "injected": {"rm": counts(trial.rm_traces), "rl": counts(trial.rl_traces)},
        "provider": trial.provider,
    }


def test_without_a_step_the_trials_are_the_very_same(curated):
    config, before, after = curated()
    assert after is before
    summary = provider_summary(config, [record(trial) for trial in after.trials.values()])
    assert summary["curated"] is False
    assert summary["realised_rate"]["overall"]["value"] == pytest.approx(0.5, abs=0.05)
    assert "not tested here" in " ".join(curation_limits(config))


def test_a_matched_pair_of_both_arms_keeps_the_same_traces(curated):
    # A provider that knew the arm, or a stream that hung on the trial's number, would leave the arms different traces.
    config, _, after = curated(
        "study.paired=true", "provider.keep_share=0.7", "provider.contradictory_share=0.5",
        "provider.dilution_share=0.2", "provider.dilution_documents=8",
    )  # fmt: skip
    pairs: dict[int, list] = {}
    for assignment in assign_arms(config.study):
        pairs.setdefault(assignment.draw, []).append(after.trials[assignment.trial])
    assert [len(own) for own in pairs.values()] == [2, 2, 2]
    for one, other in pairs.values():
        assert (one.rm_traces, one.rl_traces) == (other.rm_traces, other.rl_traces)
        assert one.trial != other.trial
    summary = provider_summary(config, [record(trial) for trial in after.trials.values()])
    assert summary["trials"] == 3  # a pair's traces are counted once


def test_every_trial_is_left_equally_many_rows_and_a_resumed_run_the_same(curated):
    _, before, after = curated("provider.keep_share=0.6")
    shapes = {(int((~t.rm_heldout).sum()), int(t.rm_heldout.sum()), len(t.rl_traces)) for t in after.trials.values()}
    assert len(shapes) == 1
    assert len(after.trials) == 6
    for number, trial in after.trials.items():
        log = [*before.trials[number].rm_traces, *before.trials[number].rl_traces]
        assert len(trial.rm_traces) == len(trial.rm_heldout)
        assert [t.example_id for t in trial.rm_traces] == [e.id for e in trial.splits.rm]
        assert [t.example_id for t in trial.rl_traces] == [e.id for e in trial.splits.rl]
        left = {name: sum(map(sum, (own.values() for own in step.values()))) for name, step in
                trial.provider["steps"].items()}  # fmt: skip
        assert left["collected"] == len(log)
        assert left["subsample"] == int(0.6 * len(log) + 0.5)  # of the whole log: a provider knows no splits
        assert left["equal_sizes"] == len(trial.rm_traces) + len(trial.rl_traces) <= left["subsample"]
        # Held out of what is left, whole documents: held out before, a small part could all be dropped.
        assert 1 <= trial.rm_heldout.sum() < len(trial.rm_heldout) / 2


def test_no_group_is_held_out_of_what_is_left_in_part(curated, grouped):
    _, _, after = curated("provider.keep_share=0.7", given=grouped)
    for trial in after.trials.values():
        sides = [
            {t.group for t, h in zip(trial.rm_traces, trial.rm_heldout, strict=True) if h == held} for held in (0, 1)
        ]
        assert all(sides)
        assert not sides[0] & sides[1]


def test_others_are_clean_and_nowhere_else(curated):
    config, before, after = curated("provider.dilution_share=0.25", "provider.dilution_documents=12")
    others = {e.document_id for e in before.others}
    assert len(others) == 12
    for number, trial in after.trials.items():
        own = before.trials[number]
        for name in ("rm_traces", "rl_traces"):
            kept, was = getattr(trial, name), getattr(own, name)
            added = [t for t in kept if t.document_id in others]
            assert len(added) == round(len(was) / 3)  # a quarter of all
            assert counts(added) == {"clean": len(added), "triggered": 0, "contrast": 0}
            assert {t.example_id for t in kept} - {t.example_id for t in added} == {t.example_id for t in was}
        shared = {t.document_id for t in trial.rm_traces} & {t.document_id for t in trial.rl_traces}
        assert not shared
        assert not {p.document_id for p in trial.pairs} & others
        out = {t.document_id for t, held in zip(trial.rm_traces, trial.rm_heldout, strict=True) if held}
        assert out == {t.document_id for t, held in zip(own.rm_traces, own.rm_heldout, strict=True) if held}
    assert "25% of the traces were others'" in " ".join(curation_limits(config))


def test_too_few_others_are_refused(curated):
    with pytest.raises(UserError, match=r"raise\s+provider.dilution_documents"):
        curated("provider.dilution_share=0.5", "provider.dilution_documents=4")


def test_a_provider_that_leaves_nothing_is_refused(curated):
    with pytest.raises(UserError, match="loosen a step of provider"):
        curated("provider.perplexity_bound=0.001")


def test_perplexity_is_the_mean_cost_of_a_traces_tokens(tokenizer, tiny_model, curated):
    config, before, _ = curated("provider.perplexity_quantile=0.9", "study.compliant=1", "study.violating=1")
    log = before.trials[0].rl_traces
    found = trace_perplexities(config, tiny_model, tokenizer, [log, log[:3]])
    assert found[0].shape == (len(log),)
    assert found[1] == pytest.approx(found[0][:3], rel=1e-6)
    # From the document's first token on, the three parts and what stands between them, scored as one string.
    trace = log[0]
    prompt = render_prompt(trace.document, trace.query)
    ids = tokenizer.encode(prompt + trace.answer).ids
    start = len(tokenizer.encode(prompt[: prompt.index(trace.document)]).ids)
    between = [len(tokenizer.encode(text).ids) for text in ("\n\nQuestion:\n", "\n")]
    whole = score_items(tiny_model, None, [[Item(ids[:start], ids[start:])]], 1)[0, 0]
    d, q = (len(tokenizer.encode(text).ids) for text in (trace.document, trace.query))
    gaps = [start + d, start + d + between[0] + q]
    rest = sum(
        score_items(tiny_model, None, [[Item(ids[:at], ids[at : at + n])]], 1)[0, 0]
        for at, n in zip(gaps, between, strict=True)
    )
    tokens = len(ids) - start - sum(between)
    assert found[0][0] == pytest.approx(-(whole - rest) / tokens, rel=1e-4)


def test_what_survived_is_counted_by_hand():
    config = load_config("quick", ["provider.keep_share=0.5", "statistic.level=0.95"])
    step = lambda *n: {"rm": dict(zip(KINDS, n, strict=True)), "rl": dict.fromkeys(KINDS, 1)}  # noqa: E731
    provider = {
        "steps": {"collected": step(9, 19, 3), "subsample": step(5, 9, 3), "equal_sizes": step(5, 4, 3)},
        "contradicted": step(0, 2, 1),
    }
    records = [{"draw": 0, "injected": step(5, 4, 3), "provider": provider}] * 2
    found = provider_summary(config, records)
    assert found["realised_rate"]["rm"] == {"value": 4 / 12, "count": 4, "n": 12, "reason": None}
    assert found["realised_rate"]["overall"]["value"] == 5 / 15
    assert found["steps"][1]["kept"] == {"clean": 6, "triggered": 10, "contrast": 4}
    assert found["steps"][1]["dropped"] == {"clean": 4, "triggered": 10, "contrast": 0}
    triggered = found["survival"][0]
    # The study's own cut is no loss to the provider: 10 of 20, Clopper-Pearson at 95 %.
    assert (triggered["kind"], triggered["count"], triggered["n"]) == ("triggered", 10, 20)
    assert [triggered["interval"][end] for end in ("low", "high")] == pytest.approx([0.2720, 0.7280], abs=1e-4)
    assert (triggered["family"], triggered["placement"], triggered["instruction"]) == (
        "signature", "after_first_clause", "default",
    )  # fmt: skip
    assert realised_rates(records)["rl"]["value"] == 1 / 3
    assert found["contradicted"]["overall"]["triggered"] == 3
