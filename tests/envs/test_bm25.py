"""BM25 against scores worked out by hand from the formula."""

import math

from hypothesis import given
from hypothesis import strategies as st

from agentrl.envs.bm25 import K1, B, Index, words


def test_order_by_hand():
    """Three texts of 2, 2 and 4 words. "tea" stands in two of them, "red" in two, and twice in the last."""
    texts = ("red tea", "green tea", "red red old coat")
    index = Index(texts=texts)
    weight = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 8 / 3
    short = weight * (K1 + 1) / (1 + K1 * (1 - B + B * 2 / mean))
    long = weight * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * 4 / mean))
    assert index._score(index._counts[0], ["red"], mean) == short
    assert index._score(index._counts[2], ["red"], mean) == long
    assert index.search("red", 3) == ([0, 2] if short > long else [2, 0])
    assert index.search("red tea", 3)[0] == 0


def test_rare_words_say_more():
    index = Index(texts=("a city on a river", "a city in a land", "a city by a lake", "a town by a lake"))
    assert index.search("city lake", 1) == [2]
    assert index.search("city town", 1) == [3]


def test_nothing_in_common_is_not_found():
    index = Index(texts=("red tea", "green tea"))
    assert index.search("coffee", 3) == []
    assert index.search("", 3) == []
    assert index.search("tea", 1) == [0]  # ties in order
    assert Index(texts=()).search("tea", 3) == []


def test_words():
    assert words("The Émile-Zola street, No. 5!") == ["the", "émile", "zola", "street", "no", "5"]


@given(st.lists(st.text("abc ", max_size=12), max_size=6), st.text("abc ", max_size=12), st.integers(1, 4))
def test_found_texts_share_a_word_and_come_best_first(texts, query, count):
    index = Index(texts=texts)
    found = index.search(query, count)
    assert len(found) <= count
    assert len(set(found)) == len(found)
    sharing = {place for place, text in enumerate(texts) if set(words(text)) & set(words(query))}
    assert set(found) <= sharing
    assert len(found) == min(count, len(sharing))
