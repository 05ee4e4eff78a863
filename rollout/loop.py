"""The first of the three loops: one episode, from reset to its rewards.

Consumes a task, produces an Episode. Limits live in `Policy` (tokens) and `Seat` (turns, seconds); this file never
learns of them. It is also the one place where a failure becomes data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentrl.blame import Frame, frames, innermost
from agentrl.engine import EngineDead, EngineError, Sampling
from agentrl.env import Env
from agentrl.episode import Episode, Outcome
from agentrl.errors import UsageError
from agentrl.renderer import Renderer
from agentrl.reward import RewardError
from agentrl.sandbox import IsolationError, SandboxError, SandboxPool, cut
from agentrl.task import Task
from agentrl.tool import ToolCrash
from agentrl.transcript import TranscriptError

from .conversation import Conversation
from .limits import LimitReached, Limits
from .policy import Generates, Policy
from .seat import Seat, leaf

FATAL = (UsageError, IsolationError, EngineDead)
"""No episode of the run can do better: these are raised, and end the run."""


AUTHORS = (Outcome.ENV_ERROR, Outcome.TOOL_CRASH)
"""Outcomes that an author's code brings about: the place is kept."""

LONGEST_ERROR = 2000
"""Characters of an error that are kept: an exception may hold a whole array."""


async def play(
    env: Env,
    engine: Generates,
    renderer: Renderer,
    task: Task,
    *,
    seed: int,
    sampling: Sampling,
    limits: Limits,
    pool: SandboxPool | None = None,
    id: str = "",
    group: str = "",
    index: int = 0,
) -> Episode:
    """Plays `env` once. A failure gives an aborted episode; FATAL ones, and cancellation, are raised after the cleanup.

    `seed` with the task determines the world's start; `sampling.seed` the agent's draws (one seed per turn is derived).
    """
    talk = Conversation(renderer)
    policy = Policy(engine, renderer, sampling=sampling, limits=limits, session_id=id)
    seat = Seat(env, task, seed=seed, limits=limits, pool=pool)

    def episode(outcome: Outcome, error: str, trace: Sequence[Frame] = ()) -> Episode:
        return Episode(
            id=id,
            group=group,
            index=index,
            task=task,
            seed=seed,
            transcripts=tuple(talk.transcripts),
            messages=tuple(talk.messages),
            turns=tuple(seat.turns),
            outcome=outcome,
            error=cut(error, LONGEST_ERROR),
            trace=tuple(map(str, trace)),
            opening=seat.opening,
            metrics=seat.usage,
            wall_s=seat.elapsed,
        )

    try:
        async with seat:
            played = episode(*await _converse(seat, policy, talk, limits))
            rewards, metrics = await seat.score(played)
            return replace(played, rewards=rewards, metrics=metrics, wall_s=seat.elapsed)
    except Exception as error:
        cause = leaf(error)
        if isinstance(cause, FATAL):
            raise cause from None
        outcome = outcome_of(cause)
        return episode(outcome, f"{type(cause).__name__}: {cause}", where(cause) if outcome in AUTHORS else ())


def where(error: BaseException) -> Sequence[Frame]:
    """The author's frames; of a fault of ours, which none of theirs is in, the line that raised it. What our typed errors say
    needs no line."""
    return frames(error) or (() if isinstance(error, (RewardError, ToolCrash)) else innermost(error))


async def _converse(seat: Seat, policy: Policy, talk: Conversation, limits: Limits) -> tuple[Outcome, str]:
    """(how it ended, what limit was hit)."""
    try:
        async with seat.clock.deadline(limits.episode_timeout, "the episode"):
            talk.begin(await seat.reset(), seat.tools)
            while True:
                completion = await policy.generate(talk.prompt)
                answer = await seat.answer(talk.hear(completion), cut=completion.finish == "length")
                if seat.outcome is not None:
                    talk.close(answer)
                    return seat.outcome, ""
                talk.tell(answer)
    except LimitReached as limit:
        return limit.outcome, str(limit)


def outcome_of(error: BaseException) -> Outcome:
    """Which part failed."""
    if isinstance(error, (EngineError, TranscriptError)):  # a ledger refuses only what an engine gave
        return Outcome.ENGINE_ERROR
    if isinstance(error, SandboxError):
        return Outcome.SANDBOX_LOST
    if isinstance(error, ToolCrash):
        return Outcome.TOOL_CRASH
    return Outcome.ENV_ERROR
