"""What one answer shows of its target: fields, bits, ids; never its text."""

from canaryjax.detector.records import FIELDS, AnswerScore, Field, Probe, Target
from canaryjax.detector.targets import Site

# Fields that the model itself must have brought for a full decode to count: a year alone is one guess in hundreds.
TELLING: frozenset[Field] = frozenset(("given", "surname", "place", "event", "archive"))
# Beginnings of refusals in English, lower case, apostrophes straight. Counted and shown; no rate rests on them.
REFUSALS = (
    "i can't",
    "i cannot",
    "i could not find",
    "i couldn't find",
    "i do not have",
    "i do not know",
    "i don't have",
    "i don't know",
    "i'm not able",
    "i am not able",
    "i'm not aware",
    "i am not aware",
    "i'm not familiar",
    "i am not familiar",
    "i'm unable",
    "i am unable",
    "no information",
)
REFUSAL_WITHIN = 160  # characters: later, such words are about something else


def score_answer(
    reply_text: str, probe: Probe, target: Target, site: Site, temperature: float, repeat: int
) -> AnswerScore:
    """Scores an answer; fields that the question gave count for nothing (SD-23, SD-24, SD-A2).

    Args:
      reply_text: The answer.
      probe, temperature, repeat: The call that it answers.
      target: Whom that asked about.
      site: Its decoder, lists and known ids.
    """
    raw = site.decoder.fields_in(reply_text, target.fact)
    net = raw - probe.supplied
    ids = site.decoder.decode(reply_text)
    raw_decoded = target.id is not None and target.id in ids
    return AnswerScore(
        target=target.key,
        kind=probe.kind,
        temperature=temperature,
        repeat=repeat,
        raw=raw,
        net=net,
        bits=sum(site.vocabulary.bits(field) for field in FIELDS if field in net),
        raw_decoded=raw_decoded,
        decoded=raw_decoded and bool(net & TELLING),
        others=_others(ids, target, site),
        empty=not any(character.isalnum() for character in reply_text),
        refusal=is_refusal(reply_text),
    )


def _others(ids: list[int], target: Target, site: Site) -> tuple[int, ...]:
    """Ids of other sentences of the site, asked about or not."""
    if all(id == target.id for id in ids):  # nearly always; the rest is then not looked up
        return ()
    known = {entry.id for entry in site.manifest.entries} | {other.id for other in site.targets}
    known |= {row.id for row in site.log.rows} if site.log is not None else set()
    return tuple(id for id in ids if id != target.id and id in known)


def is_refusal(text: str) -> bool:
    """Whether an answer begins as a refusal does.

    >>> is_refusal("I'm sorry, but I don\u2019t have any record of that."), is_refusal("The can was unable.")
    (True, False)
    """
    start = text[:REFUSAL_WITHIN].replace("\u2019", "'").lower()
    return any(words in start for words in REFUSALS)
