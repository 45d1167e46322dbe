"""Text that compresses as English does, made up the same way on every machine.

Words are drawn by Zipf's law from a vocabulary of common English words and of words put together
from syllables. Real text would do as well, but has an owner, and repeats when there is too little
of it. `zstd -1` makes 600-byte pieces some 1.5 times smaller and large blocks at most 3 times.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate


def _split(text: str) -> list[str]:
    return text.split()


COMMON = _split(
    "the of and to a in is it you that he was for on are with as his they be at one have this "
    "from or had by not but what some we can out other were all there when up use your how said "
    "an each she which do their time if will way about many then them write would like so these "
    "her long make thing see him two has look more day could go come did number sound no most "
    "people my over know water than call first who may down side been now find any new work part "
    "take get place made live where after back little only round man year came show every good "
    "me give our under name very through just form sentence great think say help low line differ "
    "turn cause much mean before move right old too same tell does set three want well also play "
    "small end put home read hand large add even here must big high such follow act why ask men "
    "change went light kind off need house picture try us again animal point customer invoice "
    "refund server account message answer search result error request payment order contact "
    "support agent team system update service question document review approve address email"
)
ONSETS = _split(
    "b c d f g h j l m n p r s t v w br ch cl cr dr fl gr pl pr qu sh sl sp st str th tr"
)
NUCLEI = _split("a e i o u ai ea ee ie io oa oo ou ay ow")
CODAS = _split("b d g k l m n p r s t ck ct ll nd ng nt rd rk rn rt sh ss st th x") + [""] * 12
SUFFIXES = ("", "", "", "", "s", "ed", "ing", "er", "ly", "ion", "able", "ment")
VOCABULARY = 20_000
ZIPF = 0.95


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """The words and their cumulated weights, the commonest first."""
    source = random.Random(42)
    words = dict.fromkeys(COMMON)
    while len(words) < VOCABULARY:
        syllables = 1 + int(source.random() * 2.6)
        stem = "".join(_syllable(source) for _ in range(syllables))
        words.setdefault(stem + _pick(source, SUFFIXES))
    return list(words), list(accumulate((rank + 2.7) ** -ZIPF for rank in range(len(words))))


def _pick(source: random.Random, items: Sequence[str]) -> str:
    """One of them, by `random()`: the numbers of the other methods may change with Python."""
    return items[int(source.random() * len(items))]


def _syllable(source: random.Random) -> str:
    return _pick(source, ONSETS) + _pick(source, NUCLEI) + _pick(source, CODAS)


def _sentences(source: random.Random) -> Iterator[str]:
    words, weights = _vocabulary()
    while True:
        count = 4 + int(source.random() * 16)
        drawn = [words[bisect(weights, source.random() * weights[-1])] for _ in range(count)]
        if count > 10:
            drawn[count // 2] += ","
        if source.random() < 0.15:
            drawn[-1] = str(int(source.random() * 10_000))
        yield " ".join(drawn).capitalize() + ("?" if source.random() < 0.15 else ".")


def texts(count: int, size: int = 500, seed: int = 1) -> list[str]:
    """`count` different texts of exactly `size` characters, all ASCII; the same for a seed."""
    sentences = _sentences(random.Random(seed))
    made = []
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += next(sentences) + " "
        made.append(text[: size - 1] + ".")
    return made
