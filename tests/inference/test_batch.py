"""Batches of few shapes give what `generate` and `score` give; and the thread that makes them of single requests."""

import threading

import numpy as np
import pytest

from canaryjax.errors import InvalidScore, UserError
from canaryjax.inference.api import generate, logits, score
from canaryjax.inference.batch import continue_rows, rank_row, sample
from canaryjax.inference.service import Draw, Overloaded, Service
from canaryjax.weights.checkpoint import LoadedModel

pytestmark = pytest.mark.slow  # each shape is compiled
ROWS = [np.array(ids, np.int32) for ids in ([5, 9, 3, 3, 14], [7], [11, 2, 29, 4, 4, 4, 8, 1, 17, 6, 30])]


@pytest.fixture(scope="module")
def shared():
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("inference_conftest", Path(__file__).with_name("conftest.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(shared, tmp_path_factory):
    """47 of its 53 rows are tokens; 13 ends a text."""
    params = shared.make_model("windowed", real_vocab_size=47, stddev=0.3)
    return LoadedModel(params, params.config, None, (13,), None, "tiny", tmp_path_factory.mktemp("model"))


def test_greedy_rows_are_those_of_generate_and_share_one_program(model):
    expected = generate(model, ROWS, max_new_tokens=11)
    before = sample._cache_size()
    found = continue_rows(model, ROWS, [1, 2, 3], 4, [11] * 3, 0.0)
    for mine, (theirs,) in zip(found, expected, strict=True):
        assert mine.ids.tolist() == theirs.ids.tolist()
        np.testing.assert_allclose(mine.logps, theirs.logps, atol=1e-5)
        assert mine.finished == theirs.finished
    # Fewer rows, other lengths, shorter answers: the same program, each answer the beginning of the long one.
    short = continue_rows(model, ROWS[:2], [1, 2], 4, [5, 3], 0.0)
    assert [completion.ids.tolist() for completion in short] == [found[0].ids[:5].tolist(), found[1].ids[:3].tolist()]
    assert sample._cache_size() == before + 1


def test_a_sampled_row_depends_on_its_seed_alone(model):
    together = continue_rows(model, ROWS, [71, 72, 73], 4, [11] * 3, 0.8)
    (alone,) = continue_rows(model, ROWS[1:2], [72], 4, [11], 0.8)
    (other,) = continue_rows(model, ROWS[1:2], [74], 4, [11], 0.8)
    assert alone.ids.tolist() == together[1].ids.tolist() != other.ids.tolist()


def test_a_text_is_ranked_as_it_is_scored(model, shared):
    ids = ROWS[2]
    logps, ranked, of_ranked = rank_row(model, ids)
    np.testing.assert_allclose(logps, score(model, [ids[:1]], [ids[1:]])[0].logps, atol=1e-5)
    (raw,) = logits(model, [ids])
    law = raw - np.log(np.exp(raw).sum(-1, keepdims=True))  # padded rows are in the normaliser, not in the list
    order = np.argsort(-law[:-1, :47], axis=-1)[:, :20]
    assert ranked.tolist() == order.tolist()
    np.testing.assert_allclose(of_ranked, np.take_along_axis(law[:-1], order, -1), atol=1e-5)


def test_an_adapter_is_used(model, shared):
    adapter = shared.make_adapter(model.config, seed=5)
    ids = ROWS[0]
    expected = score(model, [ids[:1]], [ids[1:]], adapter)[0].logps
    np.testing.assert_allclose(rank_row(model, ids, adapter)[0], expected, atol=1e-5)
    assert np.abs(expected - rank_row(model, ids)[0]).max() > 0.01


class Tokens:
    """What a service needs of a tokenizer to start."""

    def decode(self, ids):
        return " ".join(map(str, ids))


def _service(model, size=4):
    import dataclasses

    return Service(dataclasses.replace(model, tokenizer=Tokens()), size=size)


def test_requests_of_many_threads_get_each_its_own(model):
    draws = [Draw(ROWS[i % 3], 100 + i, 3 + i % 5, (0.0, 0.8)[i % 2], 1.0) for i in range(23)]
    service, found = _service(model), {}

    def ask(i):
        (found[i],) = service.draw([draws[i]])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(23)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    service.close()
    for i, draw in enumerate(draws):
        (alone,) = continue_rows(model, [draw.ids], [draw.seed], 4, [draw.most], draw.temperature)
        assert found[i].ids.tolist() == alone.ids.tolist(), i


def test_an_error_reaches_who_asked_and_the_service_goes_on(model, monkeypatch):
    from canaryjax.inference import service as module

    service = _service(model)
    real = module.continue_rows
    monkeypatch.setattr(module, "continue_rows", lambda *_: (_ for _ in ()).throw(InvalidScore("broken")))
    with pytest.raises(InvalidScore, match="broken"):
        service.draw([Draw(ROWS[0], 1, 3, 0.0, 1.0)])
    monkeypatch.setattr(module, "continue_rows", real)
    assert len(service.draw([Draw(ROWS[0], 1, 3, 0.0, 1.0)])) == 1
    service.close()


def test_a_flood_is_turned_away_and_so_is_who_comes_after_the_end(model):
    service = _service(model)
    with pytest.raises(Overloaded):
        service.draw([Draw(ROWS[0], 1, 3, 0.0, 1.0)] * 4097)
    service.close()
    with pytest.raises(Overloaded):
        service.draw([Draw(ROWS[0], 1, 3, 0.0, 1.0)])


def test_a_model_without_a_tokenizer_is_refused(model):
    with pytest.raises(UserError, match="with a tokenizer"):
        Service(model)
