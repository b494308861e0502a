"""Text, however it is encoded, as the plain words that are compared: what lists, pages and answers all pass through."""

import html
import re
import unicodedata

HIDDEN = frozenset({"script", "style"})  # elements whose content no reader sees
# A tag of these stands inside a word; any other known tag parts words. Footnote marks (sup, sub) part them on purpose.
INLINE_NAMES = """
a abbr b bdi bdo big cite code data del dfn em font i ins kbd mark q s samp small span strike strong time tt u var wbr
"""
OTHER_NAMES = """
address area article aside audio base blockquote body br button canvas caption center col colgroup datalist dd details
dialog dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup
hr html iframe img input label legend li link main map menu meta meter nav noframes noscript object ol optgroup option
output p param picture pre progress rp rt ruby script search section select slot source style sub summary sup svg table
tbody td template textarea tfoot th thead title tr track ul video
"""
INLINE = frozenset(INLINE_NAMES.split())
OTHER = frozenset(OTHER_NAMES.split())
# `[^<>]` ends at the next bracket, so that text of brackets alone is read in linear time.
MARKUP = re.compile(r"<!--|<![a-zA-Z][^<>]*>|<\?[^<>]*>|<(/?)([a-zA-Z][a-zA-Z0-9]*)(?=[\s/>])[^<>]*>")
ENDS = {name: re.compile(f"</{name}", re.IGNORECASE | re.ASCII) for name in HIDDEN}
ENDLESS = re.compile(r"&#(?:[0-9]{9,}|[xX][0-9a-fA-F]{9,});?")  # no character; Python refuses to read the longest
POSSESSIVE = re.compile(r"(?<=[^\s'])'s(?='*(?:\s|$))")
HYPHENS = re.compile(r"(?<=\w)[-\u2010\u2011](?=\w)")
# Two spacing accents that stand for an apostrophe, and that NFKD would make a blank with an accent.
ACCENTS = str.maketrans({"\u00b4": "'", "\u1ffd": "'"})
APOSTROPHES = frozenset(
    "'`\u2018\u2019\u201a\u201b\u02b9\u02bb\u02bc\u02bd\u02be\u02bf\u02c8\u2032\u2035\u055a\u05f3\ua78b\ua78c"
)
BARE = dict.fromkeys(map(ord, APOSTROPHES))
LETTERS = {  # what Unicode does not take apart, written as others write it who lack the letter
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "đ": "d",
    "ð": "d",
    "þ": "th",
    "ł": "l",
    "ħ": "h",
    "\u0131": "i",  # dotless
    "ŧ": "t",
    "ŋ": "n",
    "ĸ": "k",
}


class _Marks(dict[int, str | None]):
    """Marks above, below and after letters, which go before Unicode puts them in order: that takes n^2 steps for n."""

    def __missing__(self, code: int) -> str | None:
        # The Greek iota below becomes a letter when its case is folded.
        character = chr(code)
        mark = unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me")
        mark = mark and code != 0x345
        self[code] = found = None if mark else character
        return found


class _Characters(dict[int, str | None]):
    """What each character becomes, found out when it is first met."""

    def __missing__(self, code: int) -> str | None:
        self[code] = found = self._become(chr(code))
        return found

    def _become(self, character: str) -> str | None:
        if character in APOSTROPHES:
            return "'"
        if character in LETTERS:
            return LETTERS[character]
        category = unicodedata.category(character)
        if category in ("Mn", "Me", "Cf") or unicodedata.combining(
            character
        ):  # accents; soft hyphens, zero-width characters, byte-order marks
            return None
        if category == "Nd":
            return str(unicodedata.decimal(character))
        return character if category[0] in "LNM" else " "


_MARKS, _CHARACTERS = _Marks(), _Characters()


def fold(text: str) -> str:
    """The words of a text in plain letters, parted by single blanks.

    HTML comments, scripts, tags and entities are read as a browser reads them (twice over, as in feeds that hold a page
    as text); then case, accents, width and other Unicode forms, soft hyphens and zero-width characters go. A hyphen
    parts words, an apostrophe within one is left out, and a possessive 's goes with it. Takes time in proportion to
    the text, whatever it is.

    >>> fold("<p>Zo\\u00eb&nbsp;O\\u2019Brien\\u2019s <b>ga</b>te\\u2014Stow-on-Sea</p>")
    'zoe obrien gate stow on sea'
    """
    if text.isascii() and text.isalpha():  # one plain word, as most entries are
        return text.lower()
    for _ in range(2):
        text = html.unescape(ENDLESS.sub(" ", _without_markup(text)))
    text = text.translate(_MARKS)
    for _ in range(2):  # folding a case can leave a form that has parts, and parts a letter that has a case
        text = unicodedata.normalize("NFKD", text.translate(ACCENTS)).casefold()
    text = unicodedata.normalize("NFKD", text).translate(_CHARACTERS)
    return " ".join(POSSESSIVE.sub("", text).replace("'", "").split())


def spellings(entry: str) -> tuple[str, ...]:
    """The ways, one or more, in which a text may spell an entry of a list, folded; the first is the usual one.

    Without the apostrophe of a possessive, and with hyphens left out.

    >>> spellings("King's Co-op")
    ('king co op', 'kings co op', 'king coop', 'kings coop')
    """
    joined = HYPHENS.sub("", entry)
    texts = dict.fromkeys((entry, entry.translate(BARE), joined, joined.translate(BARE)))
    return tuple(dict.fromkeys(fold(text) for text in texts))


def _without_markup(text: str) -> str:
    if "<" not in text:
        return text
    parts: list[str] = []
    open_ended: set[str] = set()  # what no longer closes from here on; not looked for again
    at = 0
    while found := MARKUP.search(text, at):
        parts.append(text[at : found.start()])
        at, replacement = _skip(text, found, open_ended)
        parts.append(replacement)
    return "".join([*parts, text[at:]])


def _skip(text: str, found: re.Match[str], open_ended: set[str]) -> tuple[int, str]:
    """Where reading goes on after a piece of markup, and what stands in its stead."""
    name = (found[2] or "").lower()
    if found[0] == "<!--":
        end = -1 if "-->" in open_ended else text.find("-->", found.end() - 2)  # `<!-->` is a whole comment
        if end >= 0:
            return end + 3, ""
        open_ended.add("-->")
        return found.end(), " "
    if name in HIDDEN and not found[1] and name not in open_ended:
        close = ENDS[name].search(text, found.end())
        if close:
            return close.start(), " "
        open_ended.add(name)
    if name in INLINE:
        return found.end(), ""
    if name in OTHER or not name:
        return found.end(), " "
    return found.end(), found[0].replace("<", " ")  # no tag of HTML: what stands in brackets is text
