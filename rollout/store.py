"""Where every group of a run stands, on disk: the states of `GroupState`, kept by an append-only journal.

`groups.jsonl` holds what happened to groups, `episodes.jsonl` each finished episode. Nothing is counted twice: cursor
and counters are derived from the states. Tasks are stored without their secret; who loads a group derives them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentrl.episode import Episode, EpisodeGroup, GroupState, Outcome, from_json, to_json
from agentrl.errors import Damaged
from agentrl.task import Task

from .journal import Journal

LEGAL: dict[GroupState, tuple[GroupState, ...]] = {
    GroupState.WAITING: (GroupState.RUNNING, GroupState.DROPPED),
    GroupState.RUNNING: (GroupState.FINISHED, GroupState.DROPPED),
    GroupState.FINISHED: (GroupState.TRAINED, GroupState.DROPPED),
    GroupState.TRAINED: (),
    GroupState.DROPPED: (),
}
"""From each state, the next ones. Opening the store is the only other change: what was RUNNING is WAITING again."""


class StoreError(RuntimeError):
    """A change that no group may make: a fault of whoever asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBatch:
    """One step of a trainer.

    >>> TrainedBatch(step=3, version=3, groups=(4, 6)).groups
    (4, 6)
    """

    step: int
    version: int
    groups: tuple[int, ...]  # numbers, in the order in which they were trained


@dataclass(slots=True)
class _Entry:
    """What is known of one group."""

    task: str
    state: GroupState = GroupState.WAITING
    episodes: dict[int, int] = field(default_factory=dict)  # index -> offset in the episodes file
    aborted: set[int] = field(default_factory=set)  # indices that were read from the file and were aborted
    size: int = 0  # episodes that it finished with
    reason: str = ""


class GroupStore:
    """One run's groups. One process writes it at a time.

    >>> store = GroupStore(folder)                            # doctest: +SKIP
    >>> store.started(0, task_id="add-1", version=0)          # doctest: +SKIP
    """

    def __init__(self, folder: Path) -> None:
        """Opens or makes the store in `folder`. Raises Damaged."""
        folder = Path(folder)
        self._entries: dict[int, _Entry] = {}
        self._batches: dict[int, TrainedBatch] = {}
        self._journal = Journal(folder / "groups.jsonl", self._replay_event)
        self._episodes = Journal(folder / "episodes.jsonl", self._replay_episode)
        for number, entry in self._entries.items():
            self._reopen(number, entry)

    @property
    def cursor(self) -> int:
        """The number of the next group that was never started."""
        return max(self._entries, default=-1) + 1

    @property
    def last_step(self) -> int:
        """The last step whose training is recorded; 0 before any."""
        return max(self._batches, default=0)

    def counts(self) -> Counter[GroupState]:
        return Counter(entry.state for entry in self._entries.values())

    def numbers(self, state: GroupState) -> list[int]:
        """The groups in a state, in order."""
        return sorted(number for number, entry in self._entries.items() if entry.state is state)

    def state(self, number: int) -> GroupState:
        """WAITING for one that was never started."""
        return self._entries[number].state if number in self._entries else GroupState.WAITING

    def dropped_reasons(self) -> Counter[str]:
        return Counter(entry.reason for entry in self._entries.values() if entry.state is GroupState.DROPPED)

    def started(self, number: int, *, task_id: str, version: int) -> None:
        """WAITING -> RUNNING. Raises Damaged when the group was started before with another task."""
        known = self._entries.get(number)
        if known is not None and known.task != task_id:
            raise Damaged(
                f"group {number} was started with task {known.task!r} and would go on with {task_id!r}: "
                f"the tasks are not those that {self._journal.path.parent} was begun with"
            )
        self._write({"event": "started", "group": number, "task": task_id, "version": version})

    def episode(self, number: int, episode: Episode) -> None:
        """Takes a sibling down; for good, if it is not aborted or its group finishes. The group must be RUNNING."""
        entry = self._entry(number)
        if entry.state is not GroupState.RUNNING or episode.index in entry.episodes:
            raise StoreError(f"episode {episode.id} ends while its group is {entry.state}, or ends twice")
        record = {"number": number, "index": episode.index, "episode": to_json(episode)}
        entry.episodes[episode.index] = self._episodes.append(record)

    def finished(self, number: int) -> None:
        """RUNNING -> FINISHED."""
        self._write({"event": "finished", "group": number, "episodes": len(self._entry(number).episodes)})

    def dropped(self, number: int, reason: str) -> None:
        """It will never be trained; counted under `reason`."""
        self._write({"event": "dropped", "group": number, "reason": reason})

    def trained(self, numbers: Sequence[int], *, step: int, version: int) -> None:
        """FINISHED -> TRAINED, all at once, and on the disk when this returns."""
        if step <= self.last_step:
            raise StoreError(f"step {step} was trained before; the last one is {self.last_step}")
        self._episodes.sync()
        self._write({"event": "trained", "groups": list(numbers), "step": step, "version": version})
        self._journal.sync()

    def check_checkpoint(self, step: int) -> None:
        """A checkpoint is saved after its steps are recorded here, on the disk. Raises Damaged for one of `step` steps that is
        ahead of them: it belongs to another run, or this file is an old copy."""
        if step > self.last_step:
            raise Damaged(
                f"the checkpoint is of step {step}, but {self._journal.path} knows of {self.last_step} trained steps only"
            )

    def trained_batches_after(self, step: int) -> list[TrainedBatch]:
        """What was trained after a checkpoint of `step`, to be trained again in the same order."""
        return [self._batches[k] for k in sorted(self._batches) if k > step]

    def episodes(self, number: int, task: Task) -> dict[int, Episode]:
        """The finished siblings of a group, by index, with the task (and its secret) put back."""
        entry = self._entries.get(number)
        if entry is None:
            return {}
        if entry.task != task.id:
            raise Damaged(f"group {number} is of task {entry.task!r}, not {task.id!r}, in {self._episodes.path}")
        records = {index: self._episodes.at(offset) for index, offset in sorted(entry.episodes.items())}
        return {index: replace(from_json(record["episode"]), task=task) for index, record in records.items()}

    def group(self, number: int, task: Task) -> EpisodeGroup:
        """A FINISHED or TRAINED group, from disk."""
        if self.state(number) not in (GroupState.FINISHED, GroupState.TRAINED):
            raise StoreError(f"group {number} is {self.state(number)}, not finished")
        episodes = tuple(self.episodes(number, task).values())
        return EpisodeGroup(id=episodes[0].group, number=number, task=task, episodes=episodes)

    def close(self) -> None:
        """Idempotent."""
        self._journal.close()
        self._episodes.close()

    def _write(self, event: dict[str, Any]) -> None:
        self._apply(event)  # raises before anything illegal is written
        self._journal.append(event)

    def _apply(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "started":
                self._entries.setdefault(event["group"], _Entry(task=event["task"]))
                self._move([event["group"]], GroupState.RUNNING)
            case "finished":
                self._move([event["group"]], GroupState.FINISHED)
                self._entry(event["group"]).size = event["episodes"]
            case "dropped":
                self._move([event["group"]], GroupState.DROPPED)
                self._entry(event["group"]).reason = event["reason"]
            case "trained":
                self._move(event["groups"], GroupState.TRAINED)
                batch = TrainedBatch(step=event["step"], version=event["version"], groups=tuple(event["groups"]))
                self._batches[batch.step] = batch
            case other:
                raise Damaged(f"{self._journal.path}: unknown event {other!r}; it was written by another version")

    def _replay_event(self, _: int, event: dict[str, Any]) -> None:
        known = self._entries.get(event.get("group", -1))
        if event["event"] == "started" and known is not None and known.state is not GroupState.DROPPED:
            known.state = GroupState.WAITING  # the process that ran it was killed, and the next one started it again
        self._apply(event)

    def _replay_episode(self, offset: int, record: dict[str, Any]) -> None:
        entry = self._entries.setdefault(record["number"], _Entry(task=record["episode"]["task"]["id"]))
        entry.episodes[record["index"]] = offset
        entry.aborted.discard(record["index"])  # it was played again by the next process
        if Outcome(record["episode"]["outcome"]).is_aborted:
            entry.aborted.add(record["index"])

    def _reopen(self, number: int, entry: _Entry) -> None:
        """What ran is to be played on; so is what finished with an episode that a crash of the machine took.

        Their aborted episodes are played again: what broke them has perhaps ended the run, and is mended now.
        """
        if entry.state is GroupState.RUNNING:
            entry.state = GroupState.WAITING
        if len(entry.episodes) < entry.size:
            if entry.state is GroupState.TRAINED:
                raise Damaged(f"{self._episodes.path} lacks episodes of group {number}, which was trained on")
            if entry.state is GroupState.FINISHED:
                entry.state = GroupState.WAITING
        if entry.state is GroupState.WAITING:
            for index in entry.aborted:
                del entry.episodes[index]

    def _move(self, numbers: Iterable[int], state: GroupState) -> None:
        entries = [(number, self._entry(number)) for number in numbers]
        for number, entry in entries:
            if state not in LEGAL[entry.state]:
                raise StoreError(f"group {number} is {entry.state} and cannot become {state}")
        for _, entry in entries:
            entry.state = state

    def _entry(self, number: int) -> _Entry:
        if number not in self._entries:
            raise StoreError(f"group {number} was never started")
        return self._entries[number]
