"""The rollout manager: keeps groups in flight, holds them to the staleness bound, hands finished ones to a trainer.

Consumes tasks, produces batches of groups. Waits for: groups (each bounded by its episodes' deadlines), at most
`step_timeout`. Unblocked by: a group that ends, a failure of any, `aclose`. Synchronous training is staleness 0.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentrl.episode import Episode, EpisodeGroup, GroupState, RolloutError
from agentrl.errors import UsageError
from agentrl.sandbox import IsolationError
from agentrl.task import Task, TaskSource
from agentrl.whole_write import WriteError

from .group import OnAbort, Setup, Start, Watch, aborted, all_equal, play_group, unusable
from .lag import LoopLag
from .store import GroupStore
from .tally import AbortRate, Tally

WATCHDOG = 60.0
"""Seconds of waiting after which it is said, each time, who waits for whom."""
CLOSE_TIMEOUT = 90.0
"""Seconds that cancelled episodes get to close their environments and sandboxes; above `seat.CLOSE_TIMEOUT` twice."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How many groups there are at a time, and which are good enough."""

    samples_per_prompt: int
    staleness: int
    """Updates that the trained policy may be ahead of any token that it learns from."""
    max_groups: int
    """Groups in flight; 0: as many as staleness allows."""
    on_abort: OnAbort
    max_abort_rate: float
    filter_groups: bool
    """Replace groups in which all rewards are equal."""
    step_timeout: float
    """Seconds that `next_batch` may take."""
    steps: int | None = None
    """The run's last step: no group is started that none would train."""


@dataclass(slots=True)
class _Flight:
    """A group that is being played."""

    watch: Watch
    began: float
    job: asyncio.Task[None] | None = None
    ended: int = 0


class RolloutManager:
    """An `agentrl.episode.EpisodeSource`; use with `async with`.

    `step` and `version` are those of the checkpoint that is gone on from. Batches that were trained after it are handed
    over again, from disk and in their order, before anything is sampled.
    """

    def __init__(
        self, setup: Setup, tasks: TaskSource, store: GroupStore, *, schedule: Schedule, step: int = 0, version: int = 0
    ) -> None:
        store.check_checkpoint(step)
        self._setup = setup
        self._tasks = tasks
        self._store = store
        self._schedule = schedule
        self._step = step
        self._version = version
        self._prompts = 0
        self._again = deque(store.trained_batches_after(step))
        self._waiting = deque(store.numbers(GroupState.WAITING))
        self._flights: dict[int, _Flight] = {}
        self._ready = {n: store.group(n, tasks.get(n)) for n in store.numbers(GroupState.FINISHED)}
        self._handed: set[int] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = False
        self._tally = Tally()
        self._aborts = AbortRate(schedule.max_abort_rate)
        self._lag = LoopLag(busy=lambda: bool(self._flights), env=lambda: type(setup.make_env()).__name__)

    async def __aenter__(self) -> RolloutManager:
        self._spawn(self._lag.watch())
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    async def next_batch(self, prompts: int) -> Sequence[EpisodeGroup]:
        """The oldest `prompts` finished groups, by number. Raises RolloutError, or what else ended the run."""
        began = time.monotonic()
        self._prompts = prompts
        if self._again:
            groups = [self._store.group(n, self._tasks.get(n)) for n in self._again[0].groups]
        else:
            await self._until_ready(prompts, began)
            groups = [self._ready.pop(n) for n in sorted(self._ready)[:prompts]]
            self._handed = {group.number for group in groups}
            self._aborts.check(at_least=prompts * self._schedule.samples_per_prompt, then_reset=True)
        self._tally.add("wait_s", time.monotonic() - began)
        self._tally.handed(groups, self._version)
        return groups

    async def trained(self, groups: Sequence[EpisodeGroup], *, step: int, version: int) -> None:
        """Records the step, gives up what is now too old, and refills to capacity.

        A failure in the background does not keep a step that is done from being recorded: `next_batch` raises it.
        """
        numbers = [group.number for group in groups]
        if self._again:
            batch = self._again.popleft()
            if (batch.step, list(batch.groups)) != (step, numbers):
                raise RolloutError(f"step {batch.step} trains groups {list(batch.groups)} again, not step {step} on {numbers}")
        else:
            self._store.trained(numbers, step=step, version=version)
            for number in sorted(self._handed.difference(numbers)):
                self._drop(number, "not_trained")
            self._handed = set()
        self._step, self._version = step, version
        self._give_up_old()
        self._refill()

    def metrics(self) -> Mapping[str, float]:
        """Since the last call: see `tally`; `loop_lag_s` is the worst. Now: groups_running, groups_ready."""
        return {
            **self._tally.drain(),
            "loop_lag_s": self._lag.drain(),
            "groups_running": float(len(self._flights)),
            "groups_ready": float(len(self._ready)),
        }

    async def aclose(self) -> None:
        """Cancels what is in flight and waits until it has given everything back. Idempotent; the store stays open."""
        self._closed = True
        self._news.set()
        for job in self._jobs:
            job.cancel()
        if self._jobs:
            _, left = await asyncio.wait(self._jobs, timeout=CLOSE_TIMEOUT)
            if left:
                names = ", ".join(sorted(job.get_name() for job in left))
                raise RolloutError(f"{names} did not close within {CLOSE_TIMEOUT:g} s")

    def _spawn(self, work: Any, name: str = "lag") -> asyncio.Task[None]:
        job: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    async def _until_ready(self, prompts: int, began: float) -> None:
        self._give_up_old()  # of a run that was killed, too
        while True:
            self._refill()
            self._raise_failure()
            if len(self._ready) >= prompts:
                return
            waited = time.monotonic() - began
            if waited >= self._schedule.step_timeout or not self._flights:
                raise RolloutError(self._who_waits(waited))
            self._news.clear()
            try:
                async with asyncio.timeout(min(WATCHDOG, self._schedule.step_timeout - waited)):
                    await self._news.wait()
            except TimeoutError:
                log.warning("%s", self._who_waits(time.monotonic() - began))

    def _room(self) -> int:
        """How many groups may be started now.

        A group that is started when n are neither trained nor dropped comes at most n // prompts steps later than the
        next step, so that (staleness + 1) * prompts of them keep the bound. What was handed over counts until trained.
        """
        outstanding = len(self._flights) + len(self._ready) + len(self._handed)
        bound = (self._schedule.staleness + 1) * self._prompts
        if self._schedule.steps is not None:
            bound = min(bound, (self._schedule.steps - self._step) * self._prompts)
        room = bound - outstanding
        return min(room, self._schedule.max_groups - len(self._flights)) if self._schedule.max_groups else room

    def _refill(self) -> None:
        if self._again or self._closed or self._failure is not None:
            return
        try:
            while self._room() > 0:
                self._start(self._waiting.popleft() if self._waiting else self._store.cursor)
        except Exception as error:  # as in `_play`: `next_batch` raises it, `trained` has its step recorded
            self._failure = error

    def _start(self, number: int) -> None:
        task = self._tasks.get(number)
        kept = self._store.episodes(number, task)
        self._store.started(number, task_id=task.id, version=self._version)
        flight = _Flight(watch=Watch(engine=self._setup.engine), began=time.monotonic(), ended=len(kept))
        for episode in kept.values():
            flight.watch.note(episode.versions[0])
        self._flights[number] = flight
        flight.job = self._spawn(self._play(number, task, kept, flight), name=f"group {number}")

    async def _play(self, number: int, task: Task, kept: Mapping[int, Episode], flight: _Flight) -> None:
        """One group, to its end; the waiting trainer is told of any failure."""
        start = Start(id=f"g{number}", task=task, size=self._schedule.samples_per_prompt, number=number, kept=kept)
        try:
            group = await play_group(self._setup, start, engine=flight.watch, report=partial(self._report, number))
            if self._flights.pop(number, None) is not None:
                self._settle(group)
                self._refill()
        except Exception as error:  # raised to the trainer by `_raise_failure`
            self._failure = self._failure or error
        finally:
            self._flights.pop(number, None)
            self._news.set()

    def _report(self, number: int, episode: Episode, final: bool) -> None:
        if number not in self._flights:  # given up meanwhile
            return
        self._tally.episode(episode, final=final)
        if not final:
            return
        if episode.outcome.is_aborted and self._schedule.on_abort == "stop":
            raise aborted(episode)  # before it is stored: a run that is gone on with must play it again
        self._flights[number].ended += 1
        self._store.episode(number, episode)
        self._aborts.note(episode)

    def _settle(self, group: EpisodeGroup) -> None:
        reason = unusable(group, self._schedule.on_abort)
        if not reason and self._schedule.filter_groups and all_equal(group):
            reason = "equal_rewards"
        if not reason and self._too_old(oldest_version(group)):
            reason = "too_old"
        if reason:
            self._drop(group.number, reason)
        else:
            self._store.finished(group.number)
            self._ready[group.number] = group
        self._aborts.check(at_least=self._prompts * self._schedule.samples_per_prompt)

    def _give_up_old(self) -> None:
        for number, group in list(self._ready.items()):
            if self._too_old(oldest_version(group)):
                del self._ready[number]
                self._drop(number, "too_old")
        for number, flight in list(self._flights.items()):
            if self._too_old(flight.watch.oldest):
                del self._flights[number]
                self._drop(number, "too_old")
                assert flight.job is not None, "a flight has its job from the start"
                flight.job.cancel()

    def _too_old(self, version: int | None) -> bool:
        return version is not None and version < self._version - self._schedule.staleness

    def _drop(self, number: int, reason: str) -> None:
        self._store.dropped(number, reason)
        self._tally.dropped(reason)

    def _raise_failure(self) -> None:
        if self._closed:
            raise RolloutError("the rollout manager is closed")
        if isinstance(self._failure, (RolloutError, UsageError, IsolationError, WriteError)):
            raise self._failure
        if self._failure is not None:
            raise RolloutError(f"playing failed: {type(self._failure).__name__}: {self._failure}") from self._failure

    def _who_waits(self, waited: float) -> str:
        """One line: what the trainer lacks, what runs, and what became of the rest."""
        now = time.monotonic()
        size = self._schedule.samples_per_prompt
        running = [
            f"group {n} ({f.ended}/{size} episodes after {now - f.began:.0f} s)" for n, f in sorted(self._flights.items())[:8]
        ]
        dropped = ", ".join(f"{count} {reason}" for reason, count in self._store.dropped_reasons().most_common())
        parts = [
            f"the trainer, at step {self._step}, has waited {waited:.1f} s of {self._schedule.step_timeout:g} s "
            f"for {self._prompts} groups; {len(self._ready)} are finished",
            f"{len(self._flights)} run: {', '.join(running)}" if running else "none runs",
            f"{len(self._handed)} were handed over and not reported as trained" if self._handed else "",
            f"dropped so far: {dropped}" if dropped else "",
            f"the engine is {self._setup.engine.state}, at version {self._setup.engine.version}",
        ]
        return "; ".join(part for part in parts if part)


def oldest_version(group: EpisodeGroup) -> int | None:
    """Of the tokens that would be trained; None when there are none."""
    return min((e.versions[0] for e in group.usable if e.versions[0] >= 0), default=None)
