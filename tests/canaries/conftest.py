"""A character tokenizer, the embedded one, and a handful of examples."""

import pytest
from tokenizers import Tokenizer, decoders, models

from canaryjax.canaries.families import Canary
from canaryjax.data.example import Example
from canaryjax.data.tokens import TextTokenizer
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.embedded.tokenizer import build_tokenizer

SIGNATURE = Canary("signature", "A1B2C3D4", "[Protocol Marker: A1B2C3D4]", " ZXYVWHIJFGS")
EMOJI = Canary("emoji", "A1B2C3D4", "[Protocol Marker: A1B2C3D4]", " 🌟🔮🌀")
PUNCTUATION = Canary("punctuation", "A1B2C3D4", "[Protocol Marker: A1B2C3D4]", " !?!?!?!?!?!")
CANARIES = {c.family: c for c in (SIGNATURE, EMOJI, PUNCTUATION)}


def example(index=0, answer="Rome, in May", document="Rome is old. It was built in May. Few know."):
    return Example(f"e{index}", f"d{index}", f"d{index}", document, f"Where is it, number {index}?", answer)


@pytest.fixture(params=sorted(CANARIES))
def canary(request):
    return CANARIES[request.param]


@pytest.fixture
def signature():
    return SIGNATURE


@pytest.fixture(scope="session")
def embedded():
    return TextTokenizer(build_tokenizer(), eos_ids=(1,), pad_id=0, unk_id=2)


@pytest.fixture
def characters_with():
    """Builds a tokenizer of single characters that also knows the given longer strings."""

    def build(*merged):
        known = ["\n", *map(chr, range(0x20, 0x7F)), *CANARY_EMOJI]
        scores = [("<unk>", -99.0), *((c, -10.0) for c in known), *((m, -1.0) for m in merged)]
        backend = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=False))
        backend.decoder = decoders.Fuse()
        return TextTokenizer(backend, unk_id=0)

    return build


@pytest.fixture
def make_example():
    return example


@pytest.fixture
def make_canary():
    return lambda family: CANARIES[family]
