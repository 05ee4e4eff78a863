"""Environments written as a coroutine: several agents, users that are simulated, self-play, and what ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentrl as rl
from agentrl.engine import GenerateRequest
from agentrl.episode import EpisodeGroup, Outcome, from_json, to_json
from agentrl.rollout.group import all_equal
from agentrl.sample import samples_of
from agentrl.transcript import Segment, Transcript
from tests.support.chat import ASSISTANT, END, SYSTEM, TOOL, USER, encode
from tests.support.engine import FakeEngine
from tests.support.playing import CALL, Closing, played, run
from tests.support.rollouts import limited


def by_agent(**lines: Any) -> FakeEngine:
    """Each agent says its own lines, one after the other; the main one is called `main`."""
    rest = {name: iter(texts) for name, texts in lines.items()}

    def script(request: GenerateRequest) -> str:
        return str(next(rest[request.session_id.partition("/")[2] or "main"]))

    return FakeEngine(script)


class Greets(Closing):
    """One agent, two turns."""

    system_prompt = "Be kind."

    async def play(self, task: rl.Task, agent: rl.Agent) -> Any:
        first = await agent.say(task.prompt)
        agent.add_reward(0.5)
        await agent.say(f"You said {first.text}.")
        return rl.done("Bye.", reward=0.25)


def test_one_agent_by_hand() -> None:
    env = Greets()
    episode = run(env, "a", "b")
    assert episode.transcripts == (
        Transcript(
            [
                Segment(role="prompt", ids=(SYSTEM, *encode("Be kind."), END, USER, *encode("Hi"), END, ASSISTANT)),
                Segment(role="sampled", ids=(*encode("a"), END), logprobs=(-0.5,) * 2, versions=(0,) * 2),
                Segment(role="observation", ids=(USER, *encode("You said a."), END, ASSISTANT)),
                Segment(role="sampled", ids=(*encode("b"), END), logprobs=(-0.5,) * 2, versions=(0,) * 2),
            ]
        ),
    )
    assert [(m.role, m.text) for m in episode.messages] == [
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "a"),
        ("user", "You said a."),
        ("assistant", "b"),
        ("user", "Bye."),
    ]
    assert [(turn.agent, turn.reward) for turn in episode.turns] == [("agent", 0.5), ("agent", 0.25)]
    assert (episode.outcome, episode.reward, episode.agent, episode.others) == (Outcome.TERMINATED, 0.75, "agent", ())
    assert (episode.opening, env.closed) == (2, 1)


class Bids(rl.Env):
    """Two of the policy: each names a number in its own conversation, the larger one wins."""

    agents = ("low", "high")
    max_turns = 2

    async def play(self, task: rl.Task, *agents: rl.Agent) -> Any:
        bids = [await agent.ask(f"You are {agent.name}. Bid.", int) for agent in agents]
        best = max(bids)
        return {agent.name: 1.0 if bid == best else -1.0 for agent, bid in zip(agents, bids, strict=True)}


def test_each_seat_has_its_own_transcript_reward_and_group() -> None:
    episode = run(Bids(), engine=by_agent(main=["3"], high=["none", "9"]))
    assert (episode.agent, episode.reward) == ("low", -1.0)
    (high,) = episode.others
    assert (high.name, high.reward, high.trained) == ("high", 1.0, True)
    assert [m.text for m in high.messages] == ["You are high. Bid.", "none", "Your answer must hold a whole number.", "9"]
    assert [(turn.agent, bool(turn.parse_error)) for turn in episode.turns] == [("low", False), ("high", True), ("high", False)]
    group = EpisodeGroup(id="g", number=0, task=episode.task, episodes=(episode,))
    samples = samples_of([group])
    assert [(s.group, s.reward, s.weight, s.turn_rewards) for s in samples] == [
        ("g", -1.0, 1.0, (-1.0,)),
        ("g/high", 1.0, 1.0, (0.0, 1.0)),
    ]
    assert [s.ids for s in samples] == [t.ids for t in episode.trained]
    assert samples[1].mask == (0,) * (len(encode("You are high. Bid.")) + 3) + (1,) * 5 + (0,) * 40 + (1,) * 2


def test_agents_draw_from_streams_of_their_own_and_the_main_one_from_the_same_as_alone() -> None:
    engine = by_agent(main=["3"], high=["9"])
    run(Bids(), engine=engine)
    mine, other = engine.requests
    assert mine.sampling.seed != other.sampling.seed
    assert (mine.session_id, other.session_id) == ("e", "e/high")

    class Alone(rl.Env):
        async def play(self, task: rl.Task, low: rl.Agent) -> None:
            await low.say("Bid.")

    alone = by_agent(main=["3"])
    run(Alone(), engine=alone)
    assert alone.requests[0].sampling.seed == mine.sampling.seed


def test_an_episode_with_several_agents_is_written_and_read_whole() -> None:
    episode = run(Bids(), engine=by_agent(main=["3"], high=["9"]))
    assert from_json(to_json(episode)) == episode
    old = {name: value for name, value in to_json(episode).items() if name not in ("agent", "others")}
    old["turns"] = [{name: value for name, value in turn.items() if name != "agent"} for turn in old["turns"]]
    assert from_json(old).others == ()


def test_a_group_whose_main_rewards_are_equal_may_differ_in_another_seat() -> None:
    class Gives(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent, b: rl.Agent) -> Any:
            await a.say("Hi")
            return {"b": float((await b.say("Hi")).parse(int))}

    one, other = (run(Gives(), engine=by_agent(main=["x"], b=[text])) for text in ("1", "0"))
    assert one.reward == other.reward == 0.0
    assert not all_equal(EpisodeGroup(id="g", number=0, task=one.task, episodes=(one, other)))
    assert all_equal(EpisodeGroup(id="g", number=0, task=one.task, episodes=(one, one)))


# Users that are simulated.


class Sells(rl.Env):
    """The seller is trained, the buyer is a script that knows the environment."""

    def wants(self, messages: Any) -> str:
        return f"{self.task.public['wanted']} after {len(messages)}"

    agents = {"buyer": rl.AgentSpec(says=wants)}

    async def play(self, task: rl.Task, buyer: rl.Agent, seller: rl.Agent) -> Any:
        wish = await buyer.say("What do you want?")
        offer = await seller.say(wish.text)
        await buyer.say(offer.text)
        return float(offer.text == "tea")


def test_a_scripted_user_has_a_conversation_and_no_tokens() -> None:
    episode = run(Sells(), "tea", task=rl.Task(id="t", public={"wanted": "tea"}))
    assert (episode.agent, episode.reward) == ("seller", 1.0)
    (buyer,) = episode.others
    assert [m.text for m in buyer.messages] == ["What do you want?", "tea after 1", "tea", "tea after 3"]
    assert (buyer.transcripts, buyer.trained, buyer.rewards) == ((), False, {})
    assert [m.text for m in episode.messages] == ["tea after 1", "tea"]
    assert len(samples_of([EpisodeGroup(id="g", number=0, task=episode.task, episodes=(episode,))])) == 1


def test_the_policy_may_speak_for_a_user_that_is_not_trained() -> None:
    class Talks(rl.Env):
        system_prompt = "You help."
        agents = {"user": rl.AgentSpec(train=False)}

        async def play(self, task: rl.Task, user: rl.Agent, helper: rl.Agent) -> Any:
            user.system_prompt = f"You are {task.id}."
            wish = await user.say("Begin.")
            await helper.say(wish.text)
            return 1.0

    episode = run(Talks(), engine=by_agent(user=["Help!"], main=["Here."]))
    (user,) = episode.others
    assert [m.text for m in user.messages] == ["You are t.", "Begin.", "Help!"]
    assert [m.text for m in episode.messages] == ["You help.", "Help!", "Here."]
    assert (user.transcripts[0].sampled_length, len(episode.trained), len(episode.sampled)) == (6, 1, 2)
    assert len(samples_of([EpisodeGroup(id="g", number=0, task=episode.task, episodes=(episode,))])) == 1


# Tools.


class Counts(rl.Env):
    agents = {"user": rl.AgentSpec(train=False), "clerk": rl.AgentSpec(tools=["add"])}

    @rl.tool
    def add(self, a: int, b: int) -> int:
        """Adds."""
        return a + b

    @rl.tool
    def end(self) -> rl.Step:
        """Ends it."""
        return rl.done("Over.", reward=2.0)

    async def play(self, task: rl.Task, user: rl.Agent, clerk: rl.Agent, boss: rl.Agent) -> Any:
        await user.say("Hi")
        await clerk.say("Add 2 and 3.")
        await boss.say("And now?")
        raise AssertionError("a tool has ended the episode")


def test_tools_run_inside_of_say_and_each_agent_has_its_own() -> None:
    end = CALL.replace("add", "end").replace('{"a": 2, "b": 3}', "{}")
    episode = run(Counts(), engine=by_agent(user=[CALL], main=[CALL, end, "5"], boss=[end]))
    user, boss = episode.others
    assert [m.role for m in user.messages] == ["user", "assistant"]  # without tools nothing is read as a call
    assert [(m.role, m.text) for m in episode.messages if m.role == "tool"] == [
        ("tool", "5"),
        ("tool", "Error: there is no tool 'end'; valid: 'add'"),
    ]
    assert [(m.role, m.text) for m in boss.messages][-1] == ("tool", "Over.")
    assert (boss.reward, episode.reward, episode.outcome) == (2.0, 0.0, Outcome.TERMINATED)
    assert [(turn.agent, turn.tool_calls, turn.tool_errors) for turn in episode.turns] == [
        ("user", 0, 0),
        ("clerk", 1, 0),
        ("clerk", 1, 1),
        ("clerk", 0, 0),
        ("boss", 1, 0),
    ]
    assert episode.transcript.segments[2].ids[0] == TOOL


# Endings.


def test_the_turns_of_each_agent_are_counted_by_themselves() -> None:
    class Endless(rl.Env):
        max_turns = 2

        async def play(self, task: rl.Task, a: rl.Agent, b: rl.Agent) -> None:
            while True:
                await a.say("a")
                a.add_reward(1.0)
                await b.say("b")

    episode = run(Endless(), "x")
    assert (episode.outcome, episode.reward, len(episode.turns)) == (Outcome.MAX_TURNS, 2.0, 4)
    assert episode.messages[-1].text == "a"  # what it is told last, and does not answer


def test_a_limit_that_an_author_catches_still_ends_the_episode() -> None:
    class Stubborn(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent) -> float:
            while True:
                try:
                    await a.say("more")
                except Exception:
                    return 1.0

    episode = run(Stubborn(), "abcdef", limits=limited(max_episode_tokens=20))
    assert (episode.outcome, episode.reward) == (Outcome.MAX_TOKENS, 0.0)


def test_an_answer_that_is_not_read_and_not_asked_for_again_ends_the_episode() -> None:
    class Once(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent) -> float:
            return float((await a.say("A number?")).parse(int))

    assert run(Once(), "7").reward == 7.0
    episode = run(Once(), "seven")
    assert (episode.outcome, episode.reward, bool(episode.turns[0].parse_error)) == (Outcome.TERMINATED, 0.0, True)


@pytest.mark.parametrize(
    ("gives", "error"),
    [
        ("yes", "TypeError: play may return nothing"),
        ({"aa": 1.0}, "ValueError: play gave a reward to 'aa'; did you mean 'a'?"),
        (float("nan"), "RewardError: the agent 'a' was given the reward nan"),
    ],
)
def test_what_play_may_not_return(gives: Any, error: str) -> None:
    class Gives(Closing):
        async def play(self, task: rl.Task, a: rl.Agent) -> Any:
            await a.say("Hi")
            return gives

    env = Gives()
    episode = run(env, "x")
    assert (episode.outcome, env.closed) == (Outcome.ENV_ERROR, 1)
    assert episode.error.startswith(error)


def test_a_fault_in_play_is_the_authors_with_its_line() -> None:
    class Faulty(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent) -> Any:
            await a.say("Hi")
            return {}["left"]

    episode = run(Faulty(), "x")
    assert (episode.outcome, episode.error, episode.rewards) == (Outcome.ENV_ERROR, "KeyError: 'left'", {})
    assert "Faulty.play" in episode.trace[-1]
    assert len(episode.turns) == 1


def test_agents_may_speak_at_the_same_time_and_what_is_left_running_is_cancelled() -> None:
    left: list[asyncio.Task[Any]] = []

    class Together(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent, b: rl.Agent) -> Any:
            await asyncio.gather(a.say("Hi"), b.say("Hi"))
            left.append(asyncio.create_task(b.say("Still there?")))
            await asyncio.sleep(0)
            return 1.0

    async def main() -> rl.Episode:
        engine = FakeEngine(lambda request: "ab", tick=0.01)
        episode = await played(Together(), engine=engine)
        assert engine.most_running == 2
        assert engine.running == 0
        return episode

    episode = asyncio.run(main())
    assert left[0].cancelled()
    assert (episode.outcome, len(episode.turns)) == (Outcome.TERMINATED, 2)


def test_one_agent_answers_one_question_at_a_time() -> None:
    class Twice(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent) -> None:
            await asyncio.gather(a.say("1"), a.say("2"))

    assert "asked again before it has answered" in run(Twice(), "x").error


def test_a_reward_before_the_first_turn_is_kept() -> None:
    class Forfeit(rl.Env):
        async def play(self, task: rl.Task, a: rl.Agent, b: rl.Agent) -> Any:
            await a.say("Hi")
            return {"a": -1.0, "b": 1.0}

    episode = run(Forfeit(), "x")
    assert (episode.reward, episode.others[0].reward) == (-1.0, 1.0)


# Rewards of functions.


def test_a_reward_function_rewards_all_that_are_trained_or_each_by_its_name() -> None:
    class Judged(Bids):
        agents = {"low": rl.AgentSpec(), "high": rl.AgentSpec()}

        @rl.reward(weight=0.5)
        def team(self) -> float:
            return 1.0

        @rl.reward
        def one(self) -> dict[str, float]:
            return {"high": 3.0}

        @rl.metric
        def gap(self) -> float:
            return 6.0

    episode = run(Judged(), engine=by_agent(main=["3"], high=["9"]))
    assert episode.rewards == {"env": -1.0, "team": 0.5}
    assert episode.others[0].rewards == {"env": 1.0, "team": 0.5, "one": 3.0}
    assert episode.metrics["gap"] == 6.0


def test_a_finished_episode_is_shown_to_its_environment_once() -> None:
    seen: list[rl.Episode] = []

    class Watches(Greets):
        async def finished(self, episode: rl.Episode) -> None:
            seen.append(episode)

    episode = run(Watches(), "a")
    assert seen == [episode]
