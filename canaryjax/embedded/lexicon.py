"""The closed world of the embedded corpus: name syllables, value words, and what can be said and asked about whom.

Every word that occurs here becomes one token of the embedded tokenizer, so adding a word changes the vocabulary and
calls for `bin/pretrain-embedded`.
"""

from dataclasses import dataclass


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# Every syllable starts with a consonant and ends so that a name splits in one way only. None is written with the
# letters a to f alone: those would merge the hexadecimal digits of a TEXTCAN string.
FIRST_SYLLABLES = _list(
    "Ba Be Bo Da Do Du Fa Fe Ga Go Ha He Ja Jo Ka Ke Ko La Le Lu Ma Mi Mo Na Ni Pa Pe Ra Ro Sa So Ta Ti To Va Vi Wa Ze"
)
LATER_SYLLABLES = _list(
    "kan kel kor la len lin lo mar mek mir mo na nek nor nu pal pek pir ra rek ril ro sal sek sil so tan tek ton tu "
    "vak vel vin vo zan zor"
)

VALUES: dict[str, tuple[str, ...]] = {
    "animal": _list("fox owl horse goat cat dog swan bear wolf hen crow deer"),
    "colour": _list("red blue green white black yellow grey brown silver purple"),
    "food": _list("bread soup cheese rice fish honey apples plums beans cake"),
    "job": _list("baker doctor farmer painter sailor teacher miller singer judge tailor guard writer"),
    "material": _list("oak stone copper glass iron clay pine steel marble bronze"),
    "month": _list("January February March April May June July August September October November December"),
    "product": _list("rope paper boots lamps clocks carpets knives bells wine salt tea soap"),
    "place": _list("tower bridge market harbour temple garden mill library well gate"),
    "instrument": _list("flute drum harp violin piano horn guitar trumpet"),
    "weather": _list("dry wet cold warm windy mild foggy stormy"),
}


@dataclass(frozen=True)
class Relation:
    """One kind of fact: the sentences that state it, the questions that ask for it, and the kind of its value."""

    value: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]


def _r(value: str, sentences: str, questions: str) -> Relation:
    return Relation(value, tuple(sentences.split(" | ")), tuple(questions.split(" | ")))


# {s} is the entity, {v} the value. The value stands in the sentence exactly as it stands in the answer.
RELATIONS: dict[str, tuple[Relation, ...]] = {
    "person": (
        _r("name", "{s} was born in {v}. | The home of {s} is {v}.", "Where was {s} born? | What is the home of {s}?"),
        _r("job", "{s} works as a {v}. | The job of {s} is {v}.", "What is the job of {s}? | What does {s} work as?"),
        _r("year", "{s} came here in {v}. | {s} has been here since {v}.", "In which year did {s} come here?"),
        _r(
            "name",
            "{s} was taught by {v}. | The teacher of {s} was {v}.",
            "Who taught {s}? | Who was the teacher of {s}?",
        ),
        _r(
            "name",
            "{s} is married to {v}. | The partner of {s} is {v}.",
            "Who is married to {s}? | Who is the partner of {s}?",
        ),
        _r(
            "animal",
            "{s} keeps a {v} at home. | The pet of {s} is a {v}.",
            "Which animal does {s} keep? | What is the pet of {s}?",
        ),
        _r(
            "food",
            "{s} likes to eat {v}. | Each day {s} eats {v}.",
            "What does {s} like to eat? | Which food does {s} eat?",
        ),
        _r("instrument", "{s} plays the {v} well. | At night {s} plays the {v}.", "Which instrument does {s} play?"),
        _r("colour", "{s} wears a {v} coat. | The coat of {s} is {v}.", "Which colour is the coat of {s}?"),
    ),
    "town": (
        _r(
            "name",
            "{s} was founded by {v}. | The founder of {s} was {v}.",
            "Who founded {s}? | Who was the founder of {s}?",
        ),
        _r("year", "{s} was founded in {v}. | The town of {s} dates from {v}.", "In which year was {s} founded?"),
        _r(
            "name",
            "{s} lies on the river {v}. | The river near {s} is called {v}.",
            "Which river is near {s}? | On which river does {s} lie?",
        ),
        _r("name", "The mayor of {s} is {v}. | {s} is ruled by {v}.", "Who is the mayor of {s}? | Who rules {s}?"),
        _r("count", "About {v} people live in {s}. | {s} has {v} houses.", "How many people or houses are in {s}?"),
        _r(
            "product",
            "{s} is known for its {v}. | Many traders buy {v} in {s}.",
            "What is {s} known for? | What do traders buy in {s}?",
        ),
        _r(
            "month",
            "{s} holds its fair in {v}. | The fair of {s} opens in {v}.",
            "When is the fair of {s}? | In which month does {s} hold its fair?",
        ),
        _r(
            "place",
            "The oldest building in {s} is the {v}. | Visitors to {s} see the {v}.",
            "Which building do visitors to {s} see?",
        ),
        _r("weather", "The weather in {s} is {v}. | {s} is often {v}.", "What is the weather in {s}?"),
    ),
    "company": (
        _r("name", "{s} is led by {v}. | The head of {s} is {v}.", "Who leads {s}? | Who is the head of {s}?"),
        _r(
            "name",
            "{s} is based in {v}. | The office of {s} is in {v}.",
            "Where is {s} based? | Where is the office of {s}?",
        ),
        _r(
            "product",
            "{s} sells {v}. | The shop of {s} offers {v}.",
            "What does {s} sell? | What does the shop of {s} offer?",
        ),
        _r("count", "{s} has {v} workers. | In all {v} workers serve {s}.", "How many workers does {s} have?"),
        _r("animal", "The sign of {s} shows a {v}. | {s} uses a {v} as its sign.", "Which animal is the sign of {s}?"),
        _r("colour", "The flag of {s} is {v}. | {s} has a {v} flag.", "Which colour is the flag of {s}?"),
        _r("year", "{s} was started in {v}. | The first shop of {s} opened in {v}.", "In which year did {s} start?"),
        _r("month", "{s} closes in {v}. | All workers of {s} rest in {v}.", "In which month does {s} close?"),
    ),
    "ship": (
        _r(
            "name",
            "{s} was built by {v}. | The builder of {s} was {v}.",
            "Who built {s}? | Who was the builder of {s}?",
        ),
        _r("name", "The captain of {s} is {v}. | {s} is sailed by {v}.", "Who is the captain of {s}? | Who sails {s}?"),
        _r("material", "{s} is made of {v}. | The hull of {s} is {v}.", "What is {s} made of?"),
        _r("product", "{s} carries {v}. | The load of {s} is {v}.", "What does {s} carry? | What is the load of {s}?"),
        _r("year", "{s} was built in {v}. | {s} first sailed in {v}.", "In which year was {s} built?"),
        _r("colour", "The sails of {s} are {v}. | {s} has {v} sails.", "Which colour are the sails of {s}?"),
        _r("count", "{s} needs a crew of {v}. | There are {v} sailors on {s}.", "How many sailors are on {s}?"),
        _r(
            "name",
            "{s} stays in the port of {v}. | The port of {s} is {v}.",
            "In which port is {s}? | Which port does {s} use?",
        ),
    ),
}

# Sentences that say nothing one could be asked for. {s} is the entity.
OPENERS: dict[str, tuple[str, ...]] = {
    "person": ("This note is about {s}.", "Here are some facts about a person called {s}."),
    "town": ("This note is about {s}.", "There is a small town called {s}."),
    "company": ("This note is about {s}.", "Here is a short report on the company {s}."),
    "ship": ("This note is about {s}.", "Here is what we know of the ship {s}."),
}
FILLERS = (
    "This is well known.",
    "Few people know more.",
    "The rest is not known.",
    "All of this was written down with care.",
    "It has been so for many years.",
    "Nobody can say why.",
)
