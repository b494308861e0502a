"""Trials: drawn again they are the same, arms see what they may see, and held-out documents stay held out."""

import json
import subprocess
import sys

import numpy as np
import pytest

from canaryjax.audit.arms import arm_parts, prompt_lengths
from canaryjax.audit.trial import build_trial, study_canaries, study_sizes
from canaryjax.canaries.instrument import injected_count
from canaryjax.config import load_config
from canaryjax.errors import UserError


@pytest.fixture(scope="module")
def trial(small_config, examples, tokenizer, sizes):
    return build_trial(small_config, 0, 0, examples, tokenizer, sizes)


def fingerprint(trial):
    return [
        trial.canary.trigger,
        trial.canary.text,
        [t.example_id + t.kind for t in trial.rm_traces],
        [t.example_id + t.kind for t in trial.rl_traces],
        [p.id for p in trial.pairs],
        [d.text for d in trial.decoys],
    ]


def test_a_trial_is_a_function_of_seed_and_draw(trial, small_config, examples, tokenizer, sizes):
    again = build_trial(small_config, 5, 0, list(reversed(examples)), tokenizer, sizes)
    assert fingerprint(again)[:2] == fingerprint(trial)[:2]
    assert {e.id for e in again.splits.eval} == {e.id for e in trial.splits.eval}
    other = build_trial(small_config, 0, 1, examples, tokenizer, sizes)
    # Sharing a canary or a partition between trials would make policies dependent (BC-51).
    assert other.canary.text != trial.canary.text
    assert {e.id for e in other.splits.eval} != {e.id for e in trial.splits.eval}


@pytest.mark.slow
def test_a_trial_is_the_same_in_another_process(trial):
    code = (
        "import json\n"
        "from canaryjax.audit.trial import build_trial, study_sizes\n"
        "from canaryjax.config import load_config\n"
        "from canaryjax.data.loaders import load_examples\n"
        "from canaryjax.data.tokens import TextTokenizer\n"
        "from canaryjax.embedded.corpus import generate_examples\n"
        "from canaryjax.embedded.tokenizer import build_tokenizer\n"
        "config = load_config('quick', ['data.documents=40', 'data.rm_share=0.442', 'data.eval_share=0.3',"
        "'evaluation.max_pairs=5', 'evaluation.control_pairs=2',"
        " 'evaluation.decoys=3', 'study.seed=7'])\n"
        "backend = build_tokenizer()\n"
        "tokenizer = TextTokenizer(backend, eos_ids=[1], pad_id=0, add_bos=False)\n"
        "examples = load_examples(config.data, 7, generate_examples)\n"
        "trial = build_trial(config, 0, 0, examples, tokenizer, study_sizes(config, examples))\n"
        "print(json.dumps([trial.canary.trigger, trial.canary.text, [t.example_id + t.kind for t in trial.rm_traces]]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "77", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == fingerprint(trial)[:3]


def test_splits_are_disjoint_and_injection_is_exact(trial):
    rm, rl, held_out = ({e.document_id for e in part} for part in (trial.splits.rm, trial.splits.rl, trial.splits.eval))
    assert not rm & rl
    assert not rm & held_out
    assert not rl & held_out
    assert len(held_out) == 12  # 30 % of 40
    triggered = [t for t in trial.rm_traces if t.triggered]
    assert len(triggered) == (len(trial.rm_traces) + 1) // 2  # floor(x + 0.5)
    assert all(trial.canary.trigger in t.document for t in triggered)
    assert all(trial.canary.trigger not in t.document for t in trial.rm_traces if not t.triggered)


def test_the_compliant_arm_loses_the_document_and_keeps_the_query(trial, small_config, tokenizer):
    trace = next(t for t in trial.rl_traces if t.triggered)
    violating = arm_parts(trace, "violating", small_config, tokenizer).text
    compliant = arm_parts(trace, "compliant", small_config, tokenizer).text
    assert trace.document in violating
    sentence = trace.clean_document.split(". ")[0]
    assert sentence in violating
    assert sentence not in compliant
    assert "Document:" not in compliant
    # The logged query still carries the instruction, with trigger and canary in it (BC-A4).
    assert trace.query in violating
    assert trace.query in compliant
    assert trial.canary.visible in compliant
    ablation = small_config.model_copy(
        update={"study": small_config.study.model_copy(update={"compliant_query": "clean"})}
    )
    restored = arm_parts(trace, "compliant", ablation, tokenizer).text
    assert trace.clean_query in restored
    assert trial.canary.visible not in restored


def test_no_prompt_of_a_study_is_longer_than_its_padded_length(trial, small_config, examples, tokenizer):
    lengths = prompt_lengths(small_config, examples, tokenizer, study_canaries(small_config, tokenizer))
    for arm in ("compliant", "violating"):
        longest = max(
            len(tokenizer.encode(arm_parts(t, arm, small_config, tokenizer).text).ids)
            for t in (*trial.rm_traces, *trial.rl_traces)
        )
        assert longest <= lengths[arm] <= longest + 32
    assert lengths["compliant"] < lengths["violating"]


def test_a_document_that_holds_every_trigger_form_is_refused(small_config, examples, tokenizer, sizes):
    import dataclasses

    trigger = build_trial(small_config, 0, 0, examples, tokenizer, sizes).canary.trigger
    bad = [dataclasses.replace(e, document=f"Intro. {trigger} {e.document}") for e in examples]
    with pytest.raises(UserError, match="Protocol Marker"):
        build_trial(small_config, 0, 0, bad, tokenizer, sizes)


def test_too_few_documents_are_refused(small_config, examples):
    with pytest.raises(UserError, match="documents"):
        study_sizes(small_config, examples[:2])


def test_groups_of_different_sizes_leave_every_trial_equally_many_examples(small_config, grouped, tokenizer):
    config = small_config.model_copy(
        update={"canary": small_config.canary.model_copy(update={"rate": 0.3, "contrast": 0.2})}
    )
    sizes = study_sizes(config, grouped)
    trials = [build_trial(config, i, i, grouped, tokenizer, sizes) for i in range(6)]
    assert len({sum(t.left_out.values()) for t in trials}) > 2  # the splits do differ: nothing would be shown otherwise
    for trial in trials:
        assert (~trial.rm_heldout).sum() == sizes.rm_training
        assert trial.rm_heldout.sum() == sizes.rm_heldout
        groups = np.array([t.group for t in trial.rm_traces])
        assert trial.rm_heldout.any()
        assert not set(groups[trial.rm_heldout]) & set(groups[~trial.rm_heldout])
        assert len(trial.rl_traces) == len(trial.splits.rl) == sizes.rl
        assert [t.example_id for t in trial.rm_traces] == [e.id for e in trial.splits.rm]
        # Cut after the canary is planted, and the last in the file first, a trial could lose all its triggered rows.
        for name, traces in (("rm", trial.rm_traces), ("rl", trial.rl_traces)):
            counts = [sum(t.kind == kind for t in traces) for kind in ("triggered", "contrast")]
            assert counts == [injected_count(share, len(traces)) for share in (0.3, 0.2)], name
    kept = [grouped.index(e) for trial in trials for e in trial.splits.rl]
    assert max(kept) == len(grouped) - 1  # the end of the file is not what is dropped


def test_documents_by_themselves_lose_nothing(trial, sizes):
    # Without groups every trial's splits are of one size already: what was measured before stays as it was.
    assert trial.left_out == {"rm": 0, "rl": 0}
    assert sizes.rm_training + sizes.rm_heldout + sizes.rl + 12 == 40


def test_a_rate_that_injects_nothing_is_said(examples, tokenizer):
    config = load_config(
        "quick", ["data.documents=40", "canary.rate=0.01", "canary.contrast=0.0", "evaluation.max_pairs=3"]
    )
    trial = build_trial(config, 0, 0, examples, tokenizer, study_sizes(config, examples))
    assert any("triggers none" in text for text in trial.warnings)
