"""What comes out of playing: episodes, how they ended, and the groups that share a task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from agentrl.messages import Message
from agentrl.task import Task
from agentrl.transcript import Transcript


class Outcome(StrEnum):
    """How an episode ended."""

    TERMINATED = "terminated"  # the task came to its end
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"  # the episode's or the context's token budget
    DEADLINE = "deadline"
    ENV_ERROR = "env_error"
    TOOL_CRASH = "tool_crash"
    SANDBOX_LOST = "sandbox_lost"
    ENGINE_ERROR = "engine_error"
    CANCELLED = "cancelled"

    @property
    def is_terminated(self) -> bool:
        return self is Outcome.TERMINATED

    @property
    def is_truncated(self) -> bool:
        """We stopped it: its reward counts, its future does not vanish."""
        return self in (Outcome.MAX_TURNS, Outcome.MAX_TOKENS, Outcome.DEADLINE)

    @property
    def is_aborted(self) -> bool:
        """Something broke: it says nothing about the policy and is never trained on."""
        return not self.is_terminated and not self.is_truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action and the answer to it, as the viewer and the metrics see it. Times in seconds since the episode's start."""

    reward: float = 0.0
    started_s: float = 0.0
    sampled_s: float = 0.0  # when the action was complete
    ended_s: float = 0.0
    parse_error: str = ""
    tool_calls: int = 0
    tool_errors: int = 0
    answer_cut: bool = False  # sampled to the last token of its budget
    agent: str = ""  # whose turn, where the environment names its agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What another agent than the episode's own saw, said and earned.

    >>> Side(name="user", trained=False, transcripts=(), rewards={"env": 0.5}).reward
    0.5
    """

    name: str
    trained: bool
    transcripts: tuple[Transcript, ...]
    """The main one last; empty for a scripted one."""
    messages: tuple[Message, ...] = ()
    opening: int = 0
    rewards: Mapping[str, float] = field(default_factory=dict)

    @property
    def reward(self) -> float:
        return float(sum(self.rewards.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One run of one environment, from reset to an outcome.

    >>> e = Episode(id="g0-1", group="g0", index=1, task=Task(id="t"), seed=7, transcripts=(Transcript(),),
    ...             outcome=Outcome.TERMINATED, rewards={"tests": 1.0})
    >>> e.reward
    1.0
    """

    id: str
    group: str
    index: int
    """Which sibling of its group, from 0."""
    task: Task
    seed: int
    transcripts: tuple[Transcript, ...]
    """The main one last; more than one where history was rewritten and the policy is fork."""
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    outcome: Outcome
    error: str = ""
    """What broke or which limit was hit, as in "KeyError: 'x'"."""
    trace: tuple[str, ...] = ()
    """Where an author's code broke, outermost frame first: "mine.py:4 in Mine.step", and its source in a line below."""
    opening: int = 0
    """How many of `messages` came before the agent's first: the system prompt, demonstrations, the task."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """What each reward function gave, times its weight; "env" is the sum of the turns' rewards."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    agent: str = ""
    """Whose transcripts, messages and rewards these are: the first trained agent's. Empty where agents have no names."""
    others: tuple[Side, ...] = ()
    """The other agents, in their order."""

    def __post_init__(self) -> None:
        for rewards in (self.rewards, *(side.rewards for side in self.others)):
            for name, value in rewards.items():
                if not math.isfinite(value):
                    raise ValueError(f"reward {name!r} of episode {self.id} is {value}; a reward is a finite number")

    @property
    def reason(self) -> str:
        """The error with its place, in one line."""
        place = f" ({self.trace[-1].splitlines()[0]})" if self.trace else ""
        return " ".join(f"{self.error}{place}".split())

    @property
    def reward(self) -> float:
        return float(sum(self.rewards.values()))

    @property
    def all_rewards(self) -> tuple[float, ...]:
        """The reward, and that of each other agent that is trained."""
        return (self.reward, *(side.reward for side in self.others if side.trained))

    @property
    def sampled(self) -> tuple[Transcript, ...]:
        """Of all agents that an engine spoke for, trained or not."""
        return (*self.transcripts, *(t for side in self.others for t in side.transcripts))

    @property
    def trained(self) -> tuple[Transcript, ...]:
        """Of all agents that are trained."""
        return (*self.transcripts, *(t for side in self.others if side.trained for t in side.transcripts))

    @property
    def transcript(self) -> Transcript:
        return self.transcripts[-1]

    @property
    def versions(self) -> tuple[int, int]:
        """The oldest and the newest policy version that sampled a token of it that is trained; (-1, -1) when there is none."""
        seen = [v for t in self.trained for v in t.versions if v >= 0]
        return (min(seen), max(seen)) if seen else (-1, -1)


DEMONSTRATION = "demonstration, part of the prompt"
"""What a message is marked with, for readers, that the agent did not write and could be taken for its own."""


def demonstrated(opening: Sequence[Message]) -> range:
    """Which messages of an episode's opening are there for the agent to follow: those up to the last answer in it.

    >>> example = [Message(role=role, content="x") for role in ("system", "user", "assistant", "user")]
    >>> demonstrated(example), demonstrated(example[:2])
    (range(1, 3), range(0, 0))
    """
    shown = [i for i, message in enumerate(opening, 1) if message.role in ("assistant", "tool")]
    first = next((i for i, message in enumerate(opening) if message.role != "system"), 0)
    return range(first, shown[-1]) if shown else range(0)


class GroupState(StrEnum):
    """Where a group stands. WAITING -> RUNNING -> FINISHED -> TRAINED; DROPPED from any of the first three."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    TRAINED = "trained"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeGroup:
    """Siblings: episodes of one task from one start.

    `number` counts groups from 0 in the order in which they were started; it is also the task cursor.
    """

    id: str
    number: int
    task: Task
    episodes: tuple[Episode, ...]

    @property
    def usable(self) -> tuple[Episode, ...]:
        """Those that may be trained on: not aborted."""
        return tuple(e for e in self.episodes if not e.outcome.is_aborted)


class RolloutError(RuntimeError):
    """No further batch can be had; the text says who waited for whom, or what broke."""


class EpisodeFailed(RuntimeError):
    """How one episode broke: the author's frames, then the error. The cause of a RolloutError, so that it is shown with it.

    >>> print(EpisodeFailed("episode g0-1", ["mine.py:4 in Mine.step"], "KeyError: 'left'"))
    episode g0-1
      mine.py:4 in Mine.step
      KeyError: 'left'
    """

    def __init__(self, what: str, trace: Iterable[str], error: str) -> None:
        super().__init__("\n  ".join([what, *trace, error]))


def as_cause(episode: Episode) -> EpisodeFailed | None:
    """What to raise a RolloutError from that an aborted episode brings about; None where its text says everything."""
    return EpisodeFailed(f"episode {episode.id}", episode.trace, episode.error) if episode.trace else None


class EpisodeSource(Protocol):
    """Where a trainer takes its groups from: the rollout manager, or a folder of finished episodes.

    The order of calls is: `next_batch`, then (after the trainer's step and the engines' update) `trained`.
    """

    async def next_batch(self, prompts: int) -> Sequence[EpisodeGroup]:
        """The next `prompts` finished groups, within the staleness bound. Raises RolloutError, never waits for ever."""
        ...

    async def trained(self, groups: Sequence[EpisodeGroup], *, step: int, version: int) -> None:
        """The policy that has learnt from `groups` is in the engines, as `version`. New episodes may start. `step`: steps done,
        this one included."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Counters since the last call: episodes, tokens, tool calls, aborts, waits in seconds."""
        ...


def to_json(episode: Episode) -> dict[str, Any]:
    """One record of the episodes file. The task's secret is left out: it is derived again from the task's source."""
    return {
        "id": episode.id,
        "group": episode.group,
        "index": episode.index,
        "task": episode.task.to_public_dict(),
        "seed": episode.seed,
        "transcripts": [t.to_list() for t in episode.transcripts],
        "messages": [m.to_dict() for m in episode.messages],
        "turns": [{name: getattr(turn, name) for name in Turn.__slots__} for turn in episode.turns],
        "outcome": episode.outcome.value,
        "error": episode.error,
        "trace": list(episode.trace),
        "opening": episode.opening,
        "rewards": dict(episode.rewards),
        "metrics": dict(episode.metrics),
        "wall_s": episode.wall_s,
        "agent": episode.agent,
        "others": [_side_to_json(side) for side in episode.others],
    }


def from_json(data: Mapping[str, Any]) -> Episode:
    return Episode(
        id=data["id"],
        group=data["group"],
        index=data["index"],
        task=Task(**data["task"]),
        seed=data["seed"],
        transcripts=tuple(Transcript.from_list(t) for t in data["transcripts"]),
        messages=tuple(Message.from_dict(m) for m in data["messages"]),
        turns=tuple(Turn(**turn) for turn in data["turns"]),
        outcome=Outcome(data["outcome"]),
        error=data["error"],
        trace=tuple(data.get("trace", ())),  # records of 0.1 may lack these two
        opening=data.get("opening", 0),
        rewards=data["rewards"],
        metrics=data["metrics"],
        wall_s=data["wall_s"],
        agent=data.get("agent", ""),
        others=tuple(_side_from_json(side) for side in data.get("others", ())),
    )


def _side_to_json(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "trained": side.trained,
        "transcripts": [t.to_list() for t in side.transcripts],
        "messages": [m.to_dict() for m in side.messages],
        "opening": side.opening,
        "rewards": dict(side.rewards),
    }


def _side_from_json(data: Mapping[str, Any]) -> Side:
    return Side(
        name=data["name"],
        trained=data["trained"],
        transcripts=tuple(Transcript.from_list(t) for t in data["transcripts"]),
        messages=tuple(Message.from_dict(m) for m in data["messages"]),
        opening=data["opening"],
        rewards=data["rewards"],
    )
