"""Search: BM25 against the formula worked out by hand, corpora of all kinds, and a retrieval server."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import agentrl as rl
from agentrl.errors import UsageError
from agentrl.messages import ToolCall
from agentrl.tool import ToolBox, ToolCrash, ToolResult
from agentrl.toolbox import toolbox
from agentrl.tools import retriever
from agentrl.tools.corpus import Document, document, index_of
from agentrl.tools.retriever import Retriever, RetrieverFailed, found

TEA = [
    {"id": "t", "title": "Tea", "text": "Tea is a hot drink made from leaves."},
    {"id": "c", "title": "Coffee", "text": "Coffee is a hot drink made from beans."},
    {"id": "m", "title": "Moon", "text": "The moon orbits the earth."},
]


class Asks(rl.Env):
    """What may have a corpus of its own."""


def box(env: rl.Env, *tools: Any) -> ToolBox:
    env.tools = tools
    return toolbox(env)


async def say(tools: ToolBox, env: rl.Env, query: str) -> ToolResult:
    ((_, result),) = await tools.run([ToolCall(id="1", name="search", arguments={"query": query})], {"env": env})
    return result


def search(query: str, *, env: rl.Env | None = None, **settings: Any) -> str:
    async def main() -> str:
        asks = env or Asks()
        tools = box(asks, rl.use("search", **settings) if settings else "search")
        try:
            return (await say(tools, asks, query)).text
        finally:
            await tools.aclose()

    return asyncio.run(main())


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    file = tmp_path / "facts.jsonl"
    file.write_text("\n".join(map(json.dumps, TEA)) + "\n\n")
    return file


def test_what_is_found_is_numbered_with_its_title(facts: Path) -> None:
    assert search("hot leaves", corpus=str(facts)) == (
        "[1] Tea\nTea is a hot drink made from leaves.\n\n[2] Coffee\nCoffee is a hot drink made from beans."
    )
    assert search("hot leaves", corpus=str(facts), top=1) == "[1] Tea\nTea is a hot drink made from leaves."
    assert search("moon", corpus=str(facts), length=8) == "[1] Moon\nThe moon [...]"
    assert search("zebra", corpus=str(facts)) == search("the", corpus=str(facts)) == "nothing found; try other words"


def test_scores_are_those_of_the_formula() -> None:
    """Robertson's BM25 with Lucene's idf, k1 = 1.5 and b = 0.75: no stop words, one or two of each word."""
    texts = ["red apple apple", "red pear", "green pear plum grape"]
    ((best, score), (other, second)) = index_of(texts).find("red apple", 3)
    lengths = [3, 2, 4]
    mean = sum(lengths) / 3

    def weight(times: int, length: int, documents: int) -> float:
        idf = math.log(1 + (3 - documents + 0.5) / (documents + 0.5))
        return idf * times / (times + 1.5 * (1 - 0.75 + 0.75 * length / mean))

    assert (best.text, other.text) == ("red apple apple", "red pear")
    assert score == pytest.approx(weight(1, 3, 2) + weight(2, 3, 1), rel=1e-5)
    assert second == pytest.approx(weight(1, 2, 2), rel=1e-5)


def test_a_folder_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "drinks").mkdir()
    (tmp_path / "drinks" / "tea.md").write_text("A hot drink.")
    (tmp_path / "photo.png").write_bytes(b"drink")
    assert search("drink", corpus=str(tmp_path)) == "[1] drinks/tea\nA hot drink."


def test_a_file_that_has_changed_is_read_anew(facts: Path) -> None:
    first = index_of(facts)
    assert index_of(str(facts)) is first
    facts.write_text(json.dumps({"text": "a zebra"}))
    os.utime(facts, (1, 1))
    assert [one.text for one, _ in index_of(facts).find("zebra", 3)] == ["a zebra"]


def test_an_environment_may_bring_its_own_corpus() -> None:
    env = Asks()
    env.corpus = TEA  # type: ignore[attr-defined]
    assert search("beans", env=env) == "[1] Coffee\nCoffee is a hot drink made from beans."
    assert index_of(TEA) is index_of(TEA)
    assert index_of(list(TEA)) is not index_of(TEA)
    for _ in range(20):  # as many episodes, each with a list of its own, that is gone afterwards
        assert index_of([f"only {_}"]).find(f"{_ + 1000}", 1) == []


@pytest.mark.parametrize(
    ("item", "read"),
    [
        ("plain", Document(id="4", text="plain")),
        ({"contents": '"Tea"\nA drink.', "id": 7}, Document(id="7", title="Tea", text="A drink.")),
        ({"title": "T", "passage": "p"}, Document(id="4", title="T", text="p")),
        ({"text": '"quoted" words'}, Document(id="4", text='"quoted" words')),
    ],
)
def test_documents_may_be_written_in_several_ways(item: Any, read: Document) -> None:
    assert document(item, 4) == read


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"corpus": "nowhere.jsonl"}, "the corpus .*nowhere.jsonl cannot be read: No such file"),
        ({"corpus": "facts.jsonl", "url": "http://a"}, "search takes a corpus or a url, not both"),
        ({"corpus": "facts.jsonl", "top": 0}, "search: top=0 must be a whole number of at least 1"),
        ({"corpsu": "facts.jsonl"}, "Search has no setting 'corpsu'; did you mean 'corpus'"),
        ({"corpus": "bad.jsonl"}, r"bad\.jsonl:2: Expecting"),
        ({"corpus": "fields.jsonl"}, r"fields\.jsonl:1: a document is a text, or an object with one of text, contents"),
        ({"corpus": "empty.jsonl"}, "the corpus holds no documents"),
    ],
)
def test_what_cannot_be_searched_is_said_before_anything_is_played(
    facts: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(facts.parent)
    Path("bad.jsonl").write_text('{"text": "a"}\n{"text": \n')
    Path("fields.jsonl").write_text('{"txt": "a"}\n')
    Path("empty.jsonl").write_text("\n")
    with pytest.raises(UsageError, match=problem):
        box(Asks(), rl.use("search", **settings))


def test_without_any_corpus_the_run_stops() -> None:
    with pytest.raises(UsageError, match=r"search has nothing to search in: .* or set self\.corpus in Asks\.reset"):
        search("tea")


Answer = Callable[[dict[str, Any]], Any]


@asynccontextmanager
async def served(*answers: Any) -> AsyncIterator[tuple[str, list[Any]]]:
    """(url, what was asked). Each answer is a status, a text, or JSON; the last is given again."""
    asked: list[Any] = []
    left = list(answers)

    async def retrieve(request: web.Request) -> web.Response:
        asked.append(await request.json())
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, int):
            return web.Response(status=answer)
        if answer == "hang":
            await asyncio.sleep(60)
        return web.Response(text=answer) if isinstance(answer, str) else web.json_response(answer)

    app = web.Application()
    app.router.add_post("/retrieve", retrieve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/retrieve", asked
    finally:
        await runner.cleanup()


RESULT = {"result": [[{"document": {"id": "9", "contents": '"Tea"\nA hot drink.'}, "score": 2.5}]]}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retriever, "FIRST_WAIT", 0.0)


def test_a_retrieval_server_is_asked_in_the_protocol_of_search_r1() -> None:
    async def main() -> None:
        async with served(RESULT) as (url, asked):
            env = Asks()
            tools = box(env, rl.use("search", url=url, top=2))
            assert (await say(tools, env, "hot tea")).text == "[1] Tea\nA hot drink."
            assert asked == [{"queries": ["hot tea"], "topk": 2, "return_scores": True}]
            await tools.aclose()

    asyncio.run(main())


def test_a_search_is_tried_again_while_the_server_is_down() -> None:
    async def main() -> None:
        async with served(503, 429, RESULT) as (url, asked):
            client = Retriever(url)
            ((tea, score),) = await client.find("tea", 1)
            assert (tea.title, score, len(asked)) == ("Tea", 2.5, 3)
            await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(("answer", "tries", "told"), [(503, 3, "503"), (404, 1, "404"), ("no json", 1, "not of the protocol")])
def test_a_server_that_stays_down_aborts_the_episode(answer: Any, tries: int, told: str) -> None:
    async def main() -> None:
        async with served(answer) as (url, asked):
            env = Asks()
            tools = box(env, rl.use("search", url=url, retries=2, timeout=60))
            with pytest.raises(ToolCrash, match=f"tool search raised RetrieverFailed: .*{told}"):
                await say(tools, env, "tea")
            assert len(asked) == tries
            await tools.aclose()

    asyncio.run(main())


def test_a_server_that_hangs_aborts_the_episode() -> None:
    async def main() -> None:
        async with served("hang") as (url, _):
            env = Asks()
            tools = box(env, rl.use("search", url=url, retries=1, timeout=0.05))
            with pytest.raises(ToolCrash, match=r"tool search raised RetrieverFailed: the retriever .* failed: .*Timeout"):
                await say(tools, env, "tea")
            await tools.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [{}, [], {"result": []}, {"result": [[{"document": 3}]]}, {"result": [[{"score": 1}]]}, None]
)
def test_an_answer_of_another_form_is_refused(answer: Any) -> None:
    with pytest.raises(RetrieverFailed, match="is not of the protocol of Search-R1"):
        found(answer)


def test_documents_may_stand_without_scores() -> None:
    assert found({"result": [[{"contents": "a"}, "b"]]}) == [
        (Document(id="1", text="a"), 0.0),
        (Document(id="2", text="b"), 0.0),
    ]
