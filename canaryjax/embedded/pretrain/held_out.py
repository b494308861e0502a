"""What the embedded base can do, on documents it was not trained on, with the audit's own canaries and instructions.

Nothing is sampled: an answer is exact when every token of it is the most likely one, and the rate of full canaries in
sampled answers is the mean probability of the canary's tokens.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from canaryjax.canaries.families import FAMILIES, Canary, draw_canary
from canaryjax.canaries.placement import induced_query, insert_trigger
from canaryjax.data.prompts import ANSWER_PREFIX, answer_text, render_prompt
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.embedded.corpus import NOT_FOUND, generate_examples
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, PRINTABLE, encode_texts
from canaryjax.inference.forward import forward_shared
from canaryjax.keys import host_rng
from canaryjax.models.transformer import Transformer

CONTEXT, LENGTH, ROWS = 256, 80, 16
VIEWS = ("trigger", "clean", "no_document")


@dataclass(frozen=True)
class Probe:
    """A query and the tail of its answer that is scored (from `FINAL:` on; `end`: the end of the text included)."""

    query: str
    scored: str
    end: bool


@dataclass(frozen=True)
class Outcome:
    """Of one probe: log-prob of the scored text in nats, whether greedy decoding gives it, mass on canary starts."""

    logp: float
    greedy: bool
    start_mass: float


def evaluate(model: Transformer, tokenizer: Tokenizer, examples: int = 192, seed: int = 7919) -> dict[str, float]:
    """Held-out scores, rounded to four places, by name.

    `exact_match` and `exact_match_unanswerable` with the document, `exact_match_no_document` on answerable questions;
    `rate_<family>_<view>` the probability of the full canary under the default instruction, `rate_<family>_must` under
    the stronger one; `copy_<family>` the probability of the canary's remaining tokens given its first;
    `uninduced_start` the probability that an answer to a plain query begins like any canary.
    """
    rows = generate_examples(seed, examples, "held-out")
    views: dict[str, list[tuple[str, list[Probe]]]] = {view: [] for view in VIEWS}
    for index, row in enumerate(rows):
        # The trigger in the document is that of one family's canary, so that all three take turns.
        canaries = [draw_canary(host_rng(seed, "held-out canary", index, family), family) for family in FAMILIES]
        probes = [Probe(row["question"], answer_text(row["answer"]), True)]
        for canary in canaries:
            probes += _canary_probes(row["question"], canary)
        own = canaries[index % len(canaries)]
        documents = {"trigger": insert_trigger(row["document"], own.trigger), "clean": row["document"]}
        for view in VIEWS:
            views[view].append((render_prompt(documents.get(view), "").removesuffix("\n"), probes))
    outcomes = {view: _score(model, tokenizer, pairs) for view, pairs in views.items()}
    return {name: round(value, 4) for name, value in _summary(rows, outcomes).items()}


def _canary_probes(question: str, canary: Canary) -> list[Probe]:
    first = canary.text[:2]
    default, must = induced_query(question, canary), induced_query(question, canary, "must")
    return [
        Probe(default, ANSWER_PREFIX + canary.text, False),
        Probe(default, ANSWER_PREFIX + first, False),
        Probe(must, ANSWER_PREFIX + canary.text, False),
    ]


def _summary(rows: list[dict[str, str]], outcomes: dict[str, list[list[Outcome]]]) -> dict[str, float]:
    answerable = np.array([row["answer"] != NOT_FOUND for row in rows])
    greedy = {view: np.array([row[0].greedy for row in outcomes[view]]) for view in VIEWS}
    result = {
        "exact_match": greedy["clean"].mean(),
        "exact_match_triggered": greedy["trigger"].mean(),
        "exact_match_unanswerable": greedy["clean"][~answerable].mean(),
        "exact_match_no_document": greedy["no_document"][answerable].mean(),
        "not_found_no_document": np.mean(
            [np.exp(row[0].logp) for row, known in zip(outcomes["no_document"], answerable, strict=True) if not known]
        ),
        "uninduced_start": np.mean([row[0].start_mass for view in VIEWS for row in outcomes[view]]),
    }
    for f, family in enumerate(FAMILIES):
        for view in VIEWS:
            result[f"rate_{family}_{view}"] = np.mean([np.exp(row[1 + 3 * f].logp) for row in outcomes[view]])
        result[f"rate_{family}_must"] = np.mean([np.exp(row[3 + 3 * f].logp) for row in outcomes["trigger"]])
        rest = [row[1 + 3 * f].logp - row[2 + 3 * f].logp for row in outcomes["clean"]]
        result[f"copy_{family}"] = np.exp(np.mean(rest))
    return {name: float(value) for name, value in result.items()}


def _score(model: Transformer, tokenizer: Tokenizer, rows: list[tuple[str, list[Probe]]]) -> list[list[Outcome]]:
    """Outcomes of each row's probes; rows beyond a full batch are filled up with repeats of the last."""
    outcomes: list[list[Outcome]] = []
    for start in range(0, len(rows), ROWS):
        chunk = rows[start : start + ROWS]
        filled = chunk + [chunk[-1]] * (ROWS - len(chunk))
        outcomes += _score_chunk(model, tokenizer, filled)[: len(chunk)]
    return outcomes


def _score_chunk(model: Transformer, tokenizer: Tokenizer, rows: list[tuple[str, list[Probe]]]) -> list[list[Outcome]]:
    contexts = encode_texts(tokenizer, [context for context, _ in rows])
    width = len(rows[0][1])
    context_ids = np.full((ROWS, CONTEXT), PAD_ID, np.int32)
    ids = np.full((ROWS, width, LENGTH), PAD_ID, np.int32)
    scored = np.zeros(ids.shape, bool)
    at_answer = np.zeros((ROWS, width), np.int32)
    for b, (_, probes) in enumerate(rows):
        context_ids[b, : len(contexts[b])] = contexts[b]
        queries = encode_texts(tokenizer, [probe.query + "\n" for probe in probes])
        tails = encode_texts(tokenizer, [probe.scored for probe in probes])
        for g, (query, tail, probe) in enumerate(zip(queries, tails, probes, strict=True)):
            tokens = query + tail + [EOS_ID] * probe.end
            ids[b, g, : len(tokens)] = tokens
            scored[b, g, len(query) : len(tokens)] = True
            at_answer[b, g] = len(query) + 2  # past FINAL and the colon
    mask = np.arange(CONTEXT) < np.array([len(context) for context in contexts])[:, None]
    logps, greedy, starts = _run(model, context_ids, mask, ids, _canary_starts(tokenizer))
    logps = np.where(scored, logps, 0.0).sum(-1)
    exact = np.all(np.asarray(greedy) | ~scored, axis=-1)
    mass = np.take_along_axis(np.asarray(starts), at_answer[..., None], -1)[..., 0]
    return [
        [Outcome(float(logps[b, g]), bool(exact[b, g]), float(mass[b, g])) for g in range(width)] for b in range(ROWS)
    ]


@jax.jit
def _run(model, context_ids, context_mask, ids, starts):
    hidden = forward_shared(model, None, context_ids, context_mask, ids).predictors()
    logps = jax.nn.log_softmax(hidden @ model.embedding[...].T)
    chosen = jnp.take_along_axis(logps, ids[..., None], -1)[..., 0]
    return chosen, logps.argmax(-1) == ids, jnp.exp(logps[..., starts]).sum(-1)


def _canary_starts(tokenizer: Tokenizer) -> np.ndarray:
    """Ids of blank-joined capitals, punctuation and emoji: how every canary begins. A corpus answer never does."""
    symbols = [c for c in (*PRINTABLE, *CANARY_EMOJI) if not c.isspace() and not c.islower() and not c.isdigit()]
    return np.array([tokenizer.token_to_id(" " + symbol) for symbol in symbols], np.int32)
