"""Small episodes and groups, as if they had been played."""

from __future__ import annotations

from agentrl.episode import Episode, EpisodeGroup, Outcome
from agentrl.messages import Message
from agentrl.task import Secret, Task
from agentrl.transcript import Segment, Transcript


class Numbered:
    """Task i is called t<i> and has a secret."""

    def get(self, index: int) -> Task:
        return Task(id=f"t{index}", prompt=f"Task {index}", secret=Secret({"answer": index}))

    def held_out(self, count: int) -> list[Task]:
        return [Task(id=f"h{i}", prompt=f"Held out {i}") for i in range(count)]


def episode(
    number: int = 0, index: int = 0, *, reward: float = 1.0, version: int = 0, outcome: Outcome = Outcome.TERMINATED
) -> Episode:
    """Two prompt ids and one sampled."""
    sampled = Segment(role="sampled", ids=(7,), logprobs=(-0.25,), versions=(version,))
    return Episode(
        id=f"g{number}-{index}",
        group=f"g{number}",
        index=index,
        task=Numbered().get(number),
        seed=number,
        transcripts=(Transcript([Segment(role="prompt", ids=(1, 2)), sampled]),),
        messages=(Message(role="user", content="é"),),
        outcome=outcome,
        error="it broke" if outcome.is_aborted else "",
        rewards={} if outcome.is_aborted else {"env": reward},
    )


def group(number: int, *episodes: Episode) -> EpisodeGroup:
    return EpisodeGroup(id=f"g{number}", number=number, task=Numbered().get(number), episodes=episodes)
