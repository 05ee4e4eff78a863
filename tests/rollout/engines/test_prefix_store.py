import numpy as np
import torch

from agentrl.rollout.engines.generation import common_prefix
from agentrl.rollout.engines.prefix_store import PrefixStore


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def layers(tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.zeros(1, tokens, 2), torch.zeros(1, tokens, 2))]


def stretch(start: int, length: int) -> np.ndarray:
    return np.arange(start, start + length)


def test_common_prefix() -> None:
    assert common_prefix(ids(), ids(1)) == 0
    assert common_prefix(ids(1, 2), ids(1, 2)) == 2
    assert common_prefix(ids(1, 2), ids(1, 2, 3)) == 2
    assert common_prefix(ids(2, 2), ids(1, 2)) == 0
    assert common_prefix(ids(1, 9, 3), ids(1, 2, 3)) == 1


def test_finds_the_entry_that_shares_most() -> None:
    store = PrefixStore(1000)
    store.put(stretch(0, 20), layers(20))
    store.put(np.concatenate([stretch(0, 18), stretch(100, 10)]), layers(28))
    entry, shared = store.match(np.concatenate([stretch(0, 18), stretch(100, 3), ids(7)]))
    assert entry is not None
    assert (len(entry.ids), shared) == (28, 21)
    assert store.match(ids(5, 6)) == (None, 0)


def test_a_longer_turn_replaces_the_one_it_extends() -> None:
    store = PrefixStore(1000)
    store.put(stretch(0, 20), layers(20))
    store.put(stretch(0, 30), layers(30))
    assert (len(store), store.tokens) == (1, 30)


def test_the_least_recently_used_goes_first() -> None:
    store = PrefixStore(50)
    store.put(stretch(0, 20), layers(20))
    store.put(stretch(100, 20), layers(20))
    store.match(stretch(0, 5))  # the older one is used again
    store.put(stretch(200, 20), layers(20))
    assert store.tokens == 40
    assert store.match(stretch(0, 20))[1] == 20
    assert store.match(stretch(100, 20))[1] == 0


def test_wants_only_what_pays_and_fits() -> None:
    store = PrefixStore(40)
    assert not store.wants(stretch(0, 3))
    assert not store.wants(stretch(0, 41))
    assert store.wants(stretch(0, 40))
    store.put(stretch(0, 40), layers(40))
    assert not store.wants(stretch(0, 40))
    store.clear()
    assert store.wants(stretch(0, 40))
    assert (len(store), store.tokens) == (0, 0)
