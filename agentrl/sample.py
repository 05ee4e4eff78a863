"""A trainable token sequence: what the trainer sees of an episode. No text, no environment, plain lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentrl.episode import Episode, EpisodeGroup
from agentrl.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sequence. All lists have length [n]; position i of each speaks of ids[i].

    >>> Sample(episode="g0-0", group="g0", ids=(5, 6, 7), mask=(0, 0, 1), logprobs=(0.0, 0.0, -0.3),
    ...        versions=(-1, -1, 4), reward=1.0, prompt_length=2).trained_tokens
    1
    """

    episode: str
    group: str
    """Whose rewards are compared: its siblings', in the same seat where there are several agents."""
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 where the engine sampled the id; only these are trained."""
    logprobs: tuple[float, ...]
    """The engine's, at sampling."""
    versions: tuple[int, ...]
    reward: float
    turn_rewards: tuple[float, ...] = ()
    """One for each run of ones in the mask, where the environment rewards turns."""
    prompt_length: int = 0
    """The first ids, which all siblings of the group share."""
    truncated: bool = False
    weight: float = 1.0
    """1 / the number of samples of its agent in its episode, so that forks of one episode count as one."""

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.mask) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"sample of episode {self.episode}: {len(self.ids)} ids, {len(self.mask)} mask, "
                f"{len(self.logprobs)} logprobs, {len(self.versions)} versions; they must be as many"
            )
        if self.turn_rewards and len(self.turn_rewards) != self.trained_runs:
            raise ValueError(
                f"sample of episode {self.episode}: {len(self.turn_rewards)} rewards of turns for {self.trained_runs} turns"
            )

    @property
    def trained_tokens(self) -> int:
        return sum(self.mask)

    @property
    def trained_runs(self) -> int:
        """Runs of ones in the mask: as many as turns, where each sampled something and was answered."""
        return runs(self.mask)

    def __len__(self) -> int:
        return len(self.ids)


def runs(mask: Sequence[int]) -> int:
    """How many runs of ones a mask has.

    >>> runs((0, 1, 1, 0, 1))
    2
    """
    return sum(now > before for before, now in zip((0, *mask), mask, strict=False))


def samples_of(groups: Iterable[EpisodeGroup]) -> list[Sample]:
    """The usable episodes of the groups as samples, in order. Episodes in which nothing was sampled give none."""
    return [sample for group in groups for episode in group.usable for sample in _samples(episode)]


def _samples(episode: Episode) -> list[Sample]:
    """Those of its own agent, then of each other one that is trained: in a group of their own, since each is compared with its
    siblings in the same seat."""
    own = _of_agent(episode, episode.agent, episode.group, episode.transcripts, episode.reward)
    others = [
        _of_agent(episode, side.name, f"{episode.group}/{side.name}", side.transcripts, side.reward)
        for side in episode.others
        if side.trained
    ]
    return [sample for samples in (own, *others) for sample in samples]


def _of_agent(episode: Episode, agent: str, group: str, transcripts: Sequence[Transcript], reward: float) -> list[Sample]:
    transcripts = [t for t in transcripts if t.sampled_length]
    rewards = [turn.reward for turn in episode.turns if turn.agent == agent]
    return [
        Sample(
            episode=episode.id,
            group=group,
            ids=t.ids,
            mask=t.mask,
            logprobs=t.logprobs,
            versions=t.versions,
            reward=reward,
            # Where turns and runs do not pair up (a fork, a turn without an id), credit cannot go to turns.
            turn_rewards=tuple(rewards) if any(rewards) and len(transcripts) == 1 and len(rewards) == runs(t.mask) else (),
            prompt_length=t.prompt_length,
            truncated=episode.outcome.is_truncated,
            weight=1 / len(transcripts),
        )
        for t in transcripts
    ]
