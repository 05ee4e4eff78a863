"""Full-text search by BM25 [Robertson and Zaragoza 2009, The Probabilistic Relevance Framework]: small, in memory, exact."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

K1 = 1.5
"""How soon more of a word stops to matter."""
B = 0.75
"""How much a text's length counts against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Texts that can be searched.

    >>> Index(texts=("red tea", "green tea", "a red red coat")).search("red coat", count=2)
    [2, 0]
    """

    texts: Sequence[str]
    _counts: tuple[Counter[str], ...] = field(init=False)
    _weights: dict[str, float] = field(init=False)
    """word -> how much it says: rare ones say more."""

    def __post_init__(self) -> None:
        counts = tuple(Counter(words(text)) for text in self.texts)
        having = Counter(word for count in counts for word in count)
        total = len(counts)
        weights = {word: math.log(1 + (total - n + 0.5) / (n + 0.5)) for word, n in having.items()}
        object.__setattr__(self, "_counts", counts)
        object.__setattr__(self, "_weights", weights)

    def search(self, query: str, count: int) -> list[int]:
        """The places of the texts that fit best, best first; those that share no word with the query are left out."""
        asked = [word for word in dict.fromkeys(words(query)) if word in self._weights]
        if not asked:
            return []
        mean = sum(map(Counter.total, self._counts)) / len(self._counts)
        scores = [self._score(text, asked, mean) for text in self._counts]
        ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
        return [place for place in ranked[:count] if scores[place] > 0]

    def _score(self, text: Counter[str], asked: Sequence[str], mean: float) -> float:
        length = K1 * (1 - B + B * text.total() / mean)
        return sum(self._weights[word] * text[word] * (K1 + 1) / (text[word] + length) for word in asked if word in text)


def words(text: str) -> list[str]:
    """In small letters, without signs.

    >>> words("Who's the Mayor?")
    ['who', 's', 'the', 'mayor']
    """
    return re.findall(r"\w+", text.lower())
