"""A client of retrieval servers that speak the protocol of Search-R1, which many of this field's servers share.

POST {"queries": [text], "topk": n, "return_scores": true} is answered with
{"result": [[{"document": {"id": ..., "contents": ...}, "score": s}, ...]]}.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from .corpus import Document, document

AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which a search, which changes nothing, is tried again."""

OTHER = "the retriever's answer is not of the protocol of Search-R1"

FIRST_WAIT = 0.25  # seconds before the second try; doubled each time


class RetrieverFailed(RuntimeError):
    """The server cannot be reached, or its answer is none. This says nothing about the query."""


class Retriever:
    """One server. Connects at the first search; used by one event loop."""

    def __init__(self, url: str, *, timeout: float = 10.0, retries: int = 3) -> None:
        """`timeout`: seconds of one try."""
        self.url = url
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._retries = retries
        self._client: aiohttp.ClientSession | None = None

    async def find(self, query: str, top: int) -> list[tuple[Document, float]]:
        """(document, score), the best first. Raises RetrieverFailed when no try is answered."""
        body = {"queries": [query], "topk": top, "return_scores": True}
        for number in range(self._retries + 1):
            try:
                return found(await self._post(body))
            except RetrieverFailed:
                raise
            except (aiohttp.ClientError, TimeoutError) as error:
                status = getattr(error, "status", None)
                if number == self._retries or (status is not None and status not in AGAIN):
                    raise RetrieverFailed(f"the retriever {self.url} failed: {type(error).__name__}: {error}") from error
            await asyncio.sleep(FIRST_WAIT * 2**number)
        raise AssertionError("the last try returns or raises")

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _post(self, body: Mapping[str, Any]) -> Any:
        if self._client is None:
            self._client = aiohttp.ClientSession(timeout=self._timeout)
        async with self._client.post(self.url, json=body) as response:
            response.raise_for_status()
            text = await response.text()
        try:
            return json.loads(text)
        except ValueError as error:
            raise RetrieverFailed(f"{OTHER}: {text[:120]!r}") from error


def found(answer: Any) -> list[tuple[Document, float]]:
    """The documents of an answer to one query. Scores may be left out, and documents stand for themselves. Raises
    RetrieverFailed.

    >>> found({"result": [[{"document": {"id": "7", "contents": "Tea"}, "score": 2.5}]]})
    [(Document(id='7', title='', text='Tea'), 2.5)]
    """
    try:
        (items,) = answer["result"]
        pairs = [item if isinstance(item, Mapping) else {"document": item} for item in items]
        return [(document(item.get("document", item), i), float(item.get("score", 0.0))) for i, item in enumerate(pairs, 1)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RetrieverFailed(f"{OTHER}: {answer!r:.120}") from error
