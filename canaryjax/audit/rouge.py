"""ROUGE-L through rouge-score, with words of any alphabet."""

import unicodedata

from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

# Scripts that are written without blanks: each character is a word, or a sentence would be a single one.
UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai and Lao, Burmese, Khmer
    *((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # kana, Han
)


class UnicodeTokenizer(Tokenizer):
    """Words as rouge-score's own tokenizer cuts them, English stemmed, but of every letter and digit of Unicode.

    Its own keeps a to z and 0 to 9 alone: an answer in Greek or Chinese then scores 0 against itself.

    >>> UnicodeTokenizer().tokenize("The barns of Örebro, 3")
    ['the', 'barn', 'of', 'örebro', '3']
    """

    def __init__(self) -> None:
        self._ascii = DefaultTokenizer(use_stemmer=True)

    def tokenize(self, text: str) -> list[str]:
        words: list[str] = []
        before = ""  # what the next character follows: a letter, a character that is a word alone, or nothing
        for character in unicodedata.normalize("NFC", text.lower()):
            if character.isalnum():
                kind = "alone" if _unspaced(character) else "letter"
                if before == kind == "letter":
                    words[-1] += character
                else:
                    words.append(character)
                before = kind
            elif unicodedata.category(character) in ("Mn", "Mc", "Cf"):  # vowel signs, joiners: no end of a word
                if before:
                    words[-1] += character
            else:
                before = ""
        return [token for word in words for token in (self._ascii.tokenize(word) if word.isascii() else [word])]


def _unspaced(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in UNSPACED)


_scorer = RougeScorer(["rougeL"], tokenizer=UnicodeTokenizer())


def rouge_l(found: str, wanted: str) -> float:
    """ROUGE-L's F measure of a text against a reference, from 0 to 1; of ASCII texts rouge-score's own, with stemming.

    Source: Lin, "ROUGE" (2004).

    >>> rouge_l("the red barn", "red barns"), rouge_l("στη Ρώμη", "στη Ρώμη")
    (0.8, 1.0)
    """
    return float(_scorer.score(wanted, found)["rougeL"].fmeasure)
