"""A corpus of texts and its BM25 index (bm25s), for the search tool. A corpus is a folder, a JSONL file, or a list.

Indexes are kept: episodes of one corpus share one. Building takes about a second for 10,000 passages, a search milliseconds.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl.errors import UsageError

SUFFIXES = (".txt", ".md", ".rst")
"""What is read of a folder."""

TEXTS = ("text", "contents", "content", "passage", "body")
"""Fields that may hold a document's text, the first that is there."""

KEPT = 8
"""Indexes of lists that are kept: of more than so many corpora at once, each is used by few episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text that can be found.

    >>> Document(id="7", title="Tea", text="Tea is a drink.").title
    'Tea'
    """

    id: str
    title: str = ""
    text: str = ""


class Index:
    """Documents and how to find them. Not changed after it is made, so threads may share it."""

    def __init__(self, documents: Sequence[Document]) -> None:
        import bm25s  # not at import of the tools: it costs a third of a second

        if not documents:
            raise UsageError("the corpus holds no documents")
        self.documents = tuple(documents)
        self._bm25 = bm25s.BM25()
        tokens = bm25s.tokenize([f"{d.title} {d.text}" for d in documents], stopwords="en", show_progress=False)
        self._bm25.index(tokens, show_progress=False)

    def find(self, query: str, top: int) -> list[tuple[Document, float]]:
        """(document, score), the best first; only such as have a word of the query."""
        import bm25s

        words = bm25s.tokenize([query], stopwords="en", show_progress=False, return_ids=False)
        if not words[0]:
            return []
        found, scores = self._bm25.retrieve(words, k=min(top, len(self.documents)), show_progress=False)
        return [(self.documents[i], float(score)) for i, score in zip(found[0], scores[0], strict=True) if score > 0]


def index_of(corpus: Any) -> Index:
    """The index of a path or a list of texts or dicts. Raises UsageError for what cannot be read."""
    if isinstance(corpus, (str, Path)):
        path = Path(corpus).expanduser().resolve()
        return _of_path(path, _changed(path))
    if not isinstance(corpus, Iterable):
        raise UsageError(f"a corpus is a path or a list of texts or dicts, not {type(corpus).__name__}")
    known = _lists.get(id(corpus))
    if known is None:
        known = _lists[id(corpus)] = corpus, Index(list(_listed(corpus)))
        while len(_lists) > KEPT:
            _lists.popitem(last=False)
    return known[1]


_lists: OrderedDict[int, tuple[Any, Index]] = OrderedDict()
"""By identity; the list is kept beside its index, so that no other can get its identity."""


@lru_cache(maxsize=KEPT)
def _of_path(path: Path, changed: float) -> Index:
    return Index(list(_folder(path) if path.is_dir() else _jsonl(path)))


def _changed(path: Path) -> float:
    try:
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        return max(file.stat().st_mtime for file in files)
    except OSError as error:
        raise UsageError(f"the corpus {path} cannot be read: {error.strerror}") from error


def _folder(path: Path) -> Iterator[Document]:
    for file in sorted(path.rglob("*")):
        if file.suffix in SUFFIXES and file.is_file():
            name = file.relative_to(path).as_posix()
            yield Document(id=name, title=name.removesuffix(file.suffix), text=file.read_text(errors="replace"))


def _jsonl(path: Path) -> Iterator[Document]:
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield document(json.loads(line), number)
                except ValueError as error:
                    raise UsageError(f"{path}:{number}: {error}") from error


def _listed(items: Iterable[Any]) -> Iterator[Document]:
    for number, item in enumerate(items, 1):
        try:
            yield document(item, number)
        except ValueError as error:
            raise UsageError(f"document {number} of the corpus: {error}") from error


def document(item: Any, number: int) -> Document:
    """A text, or a dict with a text, a title and an id. Raises ValueError.

    >>> document({"id": 3, "contents": '"Tea"\\nA drink.'}, 1)
    Document(id='3', title='Tea', text='A drink.')
    """
    if isinstance(item, str):
        return Document(id=str(number), text=item)
    text = next((item[name] for name in TEXTS if name in item), None) if isinstance(item, Mapping) else None
    if not isinstance(text, str):
        raise ValueError(f"a document is a text, or an object with one of {', '.join(TEXTS)}, not {item!r:.60}")
    title = str(item.get("title") or "")
    if not title and text.startswith('"') and '"\n' in text:  # as the corpora of Search-R1 have it
        title, _, text = text[1:].partition('"\n')
    return Document(id=str(item.get("id", number)), title=title, text=text)
