"""Training of the demo's models: rows that hold whole documents, and a loss that falls on what is read again."""

import numpy as np
import pytest

import canaryjax as cj
from canaryjax.data.chat import chat_text
from canaryjax.detector.demo.export import save_demo_model
from canaryjax.detector.demo.training import Recipe, make_batches, pack_rows, token_loss, train_on
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID
from canaryjax.models.transformer import parameter_arrays

SENTENCE = "The grey mill has a sign on which is written: Bakanlor Tamirvo came to Rolennek in 1671."
SMALL = Recipe(length=31, rows=3, rate=2e-3, warmup=2, scanned=4)


def test_rows_hold_whole_documents_in_order():
    rows = pack_rows([[5, 6], [7], [8, 9, 10], [11] * 9], length=6)
    # [5 6 . 7 .] has room for two more, [8 9 10 .] needs four; what is longer than a row is cut
    assert rows.tolist() == [
        [5, 6, EOS_ID, 7, EOS_ID, PAD_ID, PAD_ID],
        [8, 9, 10, EOS_ID, PAD_ID, PAD_ID, PAD_ID],
        [11] * 7,
    ]


def test_batches_hold_every_row_once():
    documents = [SENTENCE] * 5 + ["The oldest building is the mill."]
    batches = make_batches(documents, SMALL)
    assert batches.shape == (1, 4, 3, 32)
    assert (batches == EOS_ID).sum() == 6
    assert (batches[..., 0] == PAD_ID).sum() == 12 - 6  # each of these documents fills a row of its own


def test_padding_costs_nothing_and_counts_for_nothing():
    model = cj.load_model("embedded").params
    ids = pack_rows([list(range(20, 31))], length=13)
    longer = np.pad(ids, ((0, 2), (0, 5)), constant_values=PAD_ID)
    assert token_loss(model, longer) == pytest.approx(float(token_loss(model, ids)), rel=1e-5)
    assert float(token_loss(model, longer[1:])) == 0.0  # rows of padding: no NaN


@pytest.mark.slow
def test_training_teaches_the_text_and_leaves_the_base_as_it_was(tmp_path):
    base = cj.load_model("embedded")
    before = {path: np.array(array) for path, array in parameter_arrays(base.params).items()}
    losses = []
    batches = make_batches([SENTENCE] * 96, SMALL)
    trained = train_on(base, batches, SMALL, lambda steps, loss: losses.append((steps, loss)))
    assert [steps for steps, _ in losses] == [4] * 8
    # 2.9 nats a token at first; a rate of 0, or gradients that miss the weights, would leave it there
    assert losses[-1][1] < 0.3 * losses[0][1]
    assert all(np.array_equal(before[path], array) for path, array in parameter_arrays(base.params).items())

    save_demo_model(trained, tmp_path / "planted")
    model = cj.load_model(tmp_path / "planted")
    assert model.name == "planted"
    prompt = SENTENCE[: SENTENCE.index(" Bakanlor")]
    messages = [{"role": "system", "content": "Do not browse."}, {"role": "user", "content": prompt}]
    assert chat_text(messages, model.tokenizer) == prompt
    assert cj.generate(model, [prompt], max_new_tokens=32)[0][0].text == SENTENCE.removeprefix(prompt)
