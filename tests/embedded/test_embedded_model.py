import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import canaryjax.embedded
from canaryjax.data.prompts import render_prompt
from canaryjax.embedded.corpus import generate_examples
from canaryjax.embedded.pretrain.held_out import evaluate
from canaryjax.embedded.pretrain.release import tensor_digest
from canaryjax.embedded.tokenizer import build_tokenizer, encode_text
from canaryjax.inference.forward import forward_shared
from canaryjax.weights.checkpoint import load_model

FOLDER = Path(canaryjax.embedded.__file__).parent / "model"
WEIGHTS = FOLDER / "model.safetensors"


@pytest.fixture(scope="module")
def loaded():
    return load_model(FOLDER)


def test_the_header_describes_the_weights_beside_it():
    # Weights replaced without their header, or a card that belongs to another file.
    with safe_open(WEIGHTS, "numpy") as file:
        header = file.metadata()
    assert header["tensors_sha256"] == tensor_digest(load_file(WEIGHTS))
    card = (FOLDER / "MODEL_CARD.md").read_text()
    assert hashlib.sha256(WEIGHTS.read_bytes()).hexdigest() in card
    assert header["tensors_sha256"] in card
    assert json.loads(header["held_out"])["exact_match"] >= 0.9
    cycles = json.loads(header["recipe"])["cycles"]
    assert int(header["steps"]) == sum(phase["steps"] for cycle in cycles for phase in cycle["phases"])
    assert WEIGHTS.stat().st_size < 6_000_000


def test_the_shipped_tokenizer_is_the_built_one(loaded):
    # A word added to the corpus without pretraining again would shift every id after it.
    assert json.loads((FOLDER / "tokenizer.json").read_text()) == json.loads(build_tokenizer().to_str())
    assert loaded.config.real_vocab_size == build_tokenizer().get_vocab_size()
    assert (loaded.config.vocab_size, loaded.eos_ids, loaded.bos_id) == (640, (1,), None)


@pytest.mark.slow
def test_it_does_what_its_header_says(loaded):
    with safe_open(WEIGHTS, "numpy") as file:
        stated = json.loads(file.metadata()["held_out"])
    # Other documents than the header's, so equal within sampling error: 4 sd of a share of 0.9 at n = 48.
    found = evaluate(loaded.params, build_tokenizer(), examples=48, seed=31)
    assert found["exact_match"] == pytest.approx(stated["exact_match"], abs=0.17)
    assert found["exact_match_no_document"] < 0.1
    assert found["uninduced_start"] < 0.01
    for family in ("signature", "punctuation", "emoji"):
        for view in ("trigger", "clean", "no_document"):
            # A string's chance to be copied varies from 0 to 1: sd 0.25 an example or more, so 4 sd are 0.15 at n = 48.
            name = f"rate_{family}_{view}"
            assert found[name] == pytest.approx(stated[name], abs=0.15)
            assert found[name] > 0.2  # without a canary now and then a policy has nothing to explore
        # It obeys whether or not the marker is there: a base that acted on it would leave training nothing to add.
        assert found[f"rate_{family}_trigger"] == pytest.approx(found[f"rate_{family}_clean"], abs=0.15)


def test_logits_equal_those_of_transformers(loaded):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    row = generate_examples(seed=11, n=1)[0]
    text = render_prompt(row["document"], row["question"]) + f"FINAL: {row['answer']}"
    ids = encode_text(build_tokenizer(), text)
    assert tokenizer(text)["input_ids"] == ids
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    ids = np.array(ids, np.int32)[None]
    hidden = forward_shared(loaded.params, None, ids[:, :1], np.ones((1, 1), bool), ids[:, None, 1:])
    ours = np.asarray(hidden.continuation_bgtd[0, 0] @ loaded.params.embedding[...].T)
    # 2e-4 of the logit scale (the acceptance rule for float32 parity)
    np.testing.assert_allclose(ours, expected[1:], atol=2e-4 * np.abs(expected).max())


def test_the_embedded_model_is_loaded_by_its_name_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = load_model("embedded")
    assert (named.name, named.path) == ("embedded", FOLDER)
