"""The first of the three loops: one episode, from reset to its rewards.

Consumes a task, produces an Episode. Who says what when is the environment's affair (`Seat.play`). Limits live in `Policy`
(tokens), `SeatedAgent` (turns) and `Seat` (seconds); this file never learns of them. It is also the one place where a failure
becomes data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agentrl.agent import AgentSpec
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

from .agent import SeatedAgent
from .conversation import Conversation
from .ending import Over
from .limits import LimitReached, Limits
from .policy import Generates, Policy
from .seat import Seat, leaf
from .seeds import derive
from .voices import Sampled, Scripted, Voice

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

    `seed` with the task determines the world's start; `sampling.seed` the agents' draws (one seed per turn is derived).
    """
    limits = own(limits, env)
    seat = Seat(env, task, seed=seed, limits=limits, pool=pool)

    agents = seat.agents(partial(voice, seat, engine, renderer, sampling=sampling, limits=limits, id=id))

    def episode(outcome: Outcome, error: str, trace: Sequence[Frame] = ()) -> Episode:
        sides = {agent.name: agent.side() for agent in agents}
        mine = sides.pop(seat.main)
        return Episode(
            id=id,
            group=group,
            index=index,
            task=task,
            seed=seed,
            transcripts=mine.transcripts,
            messages=mine.messages,
            turns=seat.turns,
            outcome=outcome,
            error=cut(error, LONGEST_ERROR),
            trace=tuple(map(str, trace)),
            opening=mine.opening,
            rewards={} if outcome.is_aborted else mine.rewards,
            metrics=seat.usage,
            wall_s=seat.ending.elapsed,
            agent=mine.name,
            others=tuple(sides.values()),
        )

    try:
        async with seat:
            return await seat.score(episode(*await _converse(seat, agents, limits)))
    except Exception as error:
        cause = leaf(error)
        if isinstance(cause, FATAL):
            raise cause from None
        outcome = outcome_of(cause)
        return episode(outcome, f"{type(cause).__name__}: {cause}", where(cause) if outcome in AUTHORS else ())


def voice(
    seat: Seat,
    engine: Generates,
    renderer: Renderer,
    name: str,
    spec: AgentSpec,
    *,
    sampling: Sampling,
    limits: Limits,
    id: str,
) -> Voice:
    """What speaks for an agent. What the main one draws does not depend on whether there are others."""
    if spec.says is not None:
        return Scripted(seat.env, spec.says)
    if name != seat.main:
        id = f"{id}/{name}"
        sampling = sampling if sampling.seed is None else replace(sampling, seed=derive(sampling.seed, name))
    policy = Policy(engine, renderer, sampling=sampling, limits=limits, session_id=id)
    return Sampled(policy, Conversation(renderer, window=seat.env.history_window))


def own(limits: Limits, env: Env) -> Limits:
    """With the environment's own budget of tokens, where that is less."""
    most = limits.max_episode_tokens
    return replace(limits, max_episode_tokens=min(env.max_tokens or most, most))


def where(error: BaseException) -> Sequence[Frame]:
    """The author's frames; of a fault of ours, which none of theirs is in, the line that raised it. What our typed errors say
    needs no line."""
    return frames(error) or (() if isinstance(error, (RewardError, ToolCrash)) else innermost(error))


async def _converse(seat: Seat, agents: Sequence[SeatedAgent], limits: Limits) -> tuple[Outcome, str]:
    """(how it ended, what limit was hit)."""
    try:
        async with seat.clock.deadline(limits.episode_timeout, "the episode"):
            await seat.play(agents)
    except LimitReached as limit:
        return limit.outcome, str(limit)
    except Over:
        if seat.ending.broken is not None:
            raise seat.ending.broken from None
    finally:
        for agent in agents:
            agent.close()
    assert seat.ending.outcome is not None, "what is over has an outcome"
    return seat.ending.outcome, ""


def outcome_of(error: BaseException) -> Outcome:
    """Which part failed."""
    if isinstance(error, (EngineError, TranscriptError)):  # a ledger refuses only what an engine gave
        return Outcome.ENGINE_ERROR
    if isinstance(error, SandboxError):
        return Outcome.SANDBOX_LOST
    if isinstance(error, ToolCrash):
        return Outcome.TOOL_CRASH
    return Outcome.ENV_ERROR
