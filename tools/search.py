"""Search in a corpus, by BM25 here or by a retrieval server: one tool that looks the same to the model either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrl.errors import UsageError
from agentrl.threads import in_thread
from agentrl.tool import tool

from .corpus import Document, index_of
from .retriever import Retriever

TIMEOUT = 120.0  # seconds of a search with all its tries


class Search:
    """Search in a corpus by BM25, or by a retrieval server.

    `corpus` is a folder of texts or a JSONL file, `url` a server that speaks the protocol of Search-R1. Without either it is
    the environment's own `corpus`, a path or a list of texts or dicts that `reset` may set. `top` documents are shown, `length`
    characters of each; `timeout` (seconds) and `retries` are those of a server.
    """

    def __init__(
        self,
        env: Any,
        corpus: str | Path = "",
        url: str = "",
        top: int = 3,
        length: int = 1000,
        timeout: float = 10.0,
        retries: int = 3,
    ) -> None:
        """Raises UsageError when there is nothing to search in."""
        self._top, self._length = top, length
        self._server = Retriever(url, timeout=timeout, retries=retries) if url else None
        if not url:
            where = corpus or getattr(env, "corpus", None)
            if where is None:
                raise UsageError(
                    f"search has nothing to search in: write rl.use('search', corpus='facts.jsonl') or url=..., or set "
                    f"self.corpus in {type(env).__name__}.reset"
                )
            self._index = index_of(where)

    @classmethod
    def prepare(cls, corpus: str | Path = "", url: str = "", top: int = 3, length: int = 1000, **server: Any) -> None:
        """Builds the index before anything is played. Raises UsageError."""
        if corpus and url:
            raise UsageError("search takes a corpus or a url, not both")
        for name, value in {"top": top, "length": length}.items():
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"search: {name}={value!r} must be a whole number of at least 1")
        if corpus:
            index_of(corpus)

    @tool(timeout=TIMEOUT, parallel=True, max_output=20_000)
    async def search(self, query: str) -> str:
        """Search for documents.

        Args:
            query: a few words that the documents hold
        """
        find = self._server.find(query, self._top) if self._server else in_thread(self._index.find, query, self._top)
        found = await find
        return (
            "\n\n".join(self._shown(i, document) for i, (document, _) in enumerate(found, 1))
            or "nothing found; try other words"
        )

    async def close(self) -> None:
        if self._server is not None:
            await self._server.aclose()

    def _shown(self, number: int, document: Document) -> str:
        text = document.text.strip()
        cut = f"{text[: self._length].rstrip()} [...]" if len(text) > self._length else text
        return f"[{number}] {document.title or document.id}\n{cut}"
