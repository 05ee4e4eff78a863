"""The store: legal states, kills at every byte, and what a resumed run is given."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.episode import EpisodeGroup, GroupState, Outcome
from agentrl.errors import Damaged
from agentrl.rollout.journal import JournalError
from agentrl.rollout.store import GroupStore, StoreError, TrainedBatch
from tests.support.episodes import Numbered, episode

TASKS = Numbered()
FILES = ("groups.jsonl", "episodes.jsonl")


def start(store: GroupStore, number: int, version: int = 0) -> None:
    store.started(number, task_id=f"t{number}", version=version)


def finish(store: GroupStore, number: int, siblings: int = 2) -> None:
    start(store, number)
    for index in range(siblings):
        store.episode(number, episode(number, index))
    store.finished(number)


def test_a_group_comes_back_as_it_was_with_its_secret(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    start(store, 0)
    siblings = [episode(0, 0), episode(0, 1, outcome=Outcome.ENV_ERROR)]
    for sibling in reversed(siblings):
        store.episode(0, sibling)
    store.finished(0)
    store.close()
    loaded = GroupStore(tmp_path).group(0, TASKS.get(0))
    assert loaded == EpisodeGroup(id="g0", number=0, task=TASKS.get(0), episodes=tuple(siblings))
    assert loaded.episodes[0].task.secret["answer"] == 0
    assert b"answer" not in (tmp_path / "episodes.jsonl").read_bytes()


def test_counters_are_derived_from_states(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    assert (store.cursor, store.last_step) == (0, 0)
    for number in range(5):
        start(store, number)
    for number in (0, 1, 2):
        store.episode(number, episode(number))
        store.finished(number)
    store.trained([1, 0], step=1, version=1)
    store.dropped(2, "too_old")
    store.dropped(3, "aborted")
    assert store.counts() == {GroupState.TRAINED: 2, GroupState.DROPPED: 2, GroupState.RUNNING: 1}
    assert (store.cursor, store.last_step, store.numbers(GroupState.RUNNING)) == (5, 1, [4])
    assert store.dropped_reasons() == {"too_old": 1, "aborted": 1}
    store.close()
    again = GroupStore(tmp_path)
    assert again.counts() == {GroupState.TRAINED: 2, GroupState.DROPPED: 2, GroupState.WAITING: 1}
    assert again.trained_batches_after(0) == [TrainedBatch(step=1, version=1, groups=(1, 0))]
    assert again.dropped_reasons() == {"too_old": 1, "aborted": 1}


ILLEGAL: dict[str, Callable[[GroupStore], None]] = {
    "never started": lambda s: s.finished(9),
    "is trained and cannot become trained": lambda s: s.trained([0], step=2, version=2),
    "is trained and cannot become dropped": lambda s: s.dropped(0, "x"),
    "is trained and cannot become running": lambda s: start(s, 0),
    "is running and cannot become trained": lambda s: s.trained([1], step=2, version=2),
    "is running and cannot become running": lambda s: start(s, 1),
    "step 1 was trained before": lambda s: s.trained([2], step=1, version=2),
    "ends while its group is finished": lambda s: s.episode(2, episode(2, 5)),
    "ends twice": lambda s: s.episode(1, episode(1)),
    "was started with task 't1'": lambda s: s.started(1, task_id="other", version=0),
    "group 1 is running, not finished": lambda s: s.group(1, TASKS.get(1)) and None,
    "is of task 't2'": lambda s: s.group(2, TASKS.get(3)) and None,
}


@pytest.mark.parametrize("text", ILLEGAL)
def test_no_group_makes_an_illegal_move(tmp_path: Path, text: str) -> None:
    store = GroupStore(tmp_path)
    finish(store, 0)
    store.trained([0], step=1, version=1)
    start(store, 1)
    store.episode(1, episode(1))
    finish(store, 2)
    before = [(tmp_path / name).read_bytes() for name in FILES]
    with pytest.raises((StoreError, Damaged), match=text):
        ILLEGAL[text](store)
    assert [(tmp_path / name).read_bytes() for name in FILES] == before


def test_a_batch_is_trained_whole_or_not_at_all(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    finish(store, 0)
    start(store, 1)
    with pytest.raises(StoreError):
        store.trained([0, 1], step=1, version=1)
    assert store.state(0) is GroupState.FINISHED


def script(store: GroupStore) -> list[Callable[[], None]]:
    """A life in single writes: two groups trained, one dropped, one finished, one with one of two siblings."""
    return [
        lambda: start(store, 0),
        lambda: start(store, 1),
        lambda: store.episode(0, episode(0, 0)),
        lambda: store.episode(1, episode(1, 1)),
        lambda: store.episode(1, episode(1, 0)),
        lambda: store.finished(1),
        lambda: store.episode(0, episode(0, 1)),
        lambda: store.finished(0),
        lambda: store.trained([0, 1], step=1, version=1),
        lambda: start(store, 2, 1),
        lambda: store.dropped(2, "equal_rewards"),
        lambda: start(store, 3, 1),
        lambda: store.episode(3, episode(3, 0)),
        lambda: store.episode(3, episode(3, 1)),
        lambda: store.finished(3),
        lambda: start(store, 4, 1),
        lambda: store.episode(4, episode(4, 1)),
    ]


def facts(store: GroupStore) -> tuple[object, ...]:
    """What may not be lost."""
    numbers = range(store.cursor)
    states = [GroupState.WAITING if store.state(n) is GroupState.RUNNING else store.state(n) for n in numbers]
    siblings = [list(store.episodes(n, TASKS.get(n))) for n in numbers]
    return states, siblings, store.trained_batches_after(0), store.cursor, store.last_step


def test_killed_at_every_byte_nothing_complete_is_lost(tmp_path: Path) -> None:
    store = GroupStore(tmp_path / "whole")
    moments: list[tuple[tuple[int, int], tuple[object, ...]]] = [((0, 0), facts(store))]
    for write in script(store):
        write()
        sizes = [(tmp_path / "whole" / name).stat().st_size for name in FILES]
        moments.append(((sizes[0], sizes[1]), facts(store)))
    store.close()
    data = [(tmp_path / "whole" / name).read_bytes() for name in FILES]
    cut = tmp_path / "cut"
    for (before, known), (after, _) in itertools.pairwise(moments):
        grown = 0 if after[0] > before[0] else 1
        assert after[1 - grown] == before[1 - grown]  # a change writes to one file only
        step = 1 if grown == 0 else 17  # episodes are long, and test_journal tries every byte of a line
        for size in {*range(before[grown], after[grown], step), after[grown] - 1}:
            sizes = [before[0], before[1]]
            sizes[grown] = size
            cut.mkdir(exist_ok=True)
            for name, content, length in zip(FILES, data, sizes, strict=True):
                (cut / name).write_bytes(content[:length])
            loaded = GroupStore(cut)
            assert facts(loaded) == known
            loaded.close()


def test_a_store_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Killed after each write in turn, reopened, and played to its end: all groups trained or dropped, once."""
    for stop in range(18):
        folder = tmp_path / str(stop)
        store = GroupStore(folder)
        for write in script(store)[:stop]:
            write()
        store.close()
        store = GroupStore(folder)
        for number in range(5):
            if store.state(number) is GroupState.WAITING:
                kept = store.episodes(number, TASKS.get(number))
                start(store, number)
                for index in {0, 1} - kept.keys():
                    store.episode(number, episode(number, index))
                store.finished(number)
        store.trained(store.numbers(GroupState.FINISHED), step=store.last_step + 1, version=9)
        store.close()
        again = GroupStore(folder)
        trained = [n for batch in again.trained_batches_after(0) for n in batch.groups]
        assert sorted(trained + again.numbers(GroupState.DROPPED)) == [0, 1, 2, 3, 4]
        for number in trained:
            assert list(again.episodes(number, TASKS.get(number))) == [0, 1]


def test_a_machine_that_lost_an_episode_plays_it_again(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    finish(store, 0)
    store.close()
    data = (tmp_path / "episodes.jsonl").read_bytes()
    (tmp_path / "episodes.jsonl").write_bytes(data[: len(data) - 5])
    store = GroupStore(tmp_path)
    assert store.state(0) is GroupState.WAITING
    assert list(store.episodes(0, TASKS.get(0))) == [0]
    start(store, 0)
    store.episode(0, episode(0, 1))
    store.finished(0)
    store.close()
    assert GroupStore(tmp_path).state(0) is GroupState.FINISHED


def test_aborted_episodes_of_unfinished_groups_are_played_again(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    start(store, 0)
    store.episode(0, episode(0, 0, outcome=Outcome.ENV_ERROR))
    store.episode(0, episode(0, 1))
    start(store, 1)
    store.episode(1, episode(1, 0, outcome=Outcome.ENV_ERROR))
    store.finished(1)
    store.close()
    store = GroupStore(tmp_path)
    assert list(store.episodes(0, TASKS.get(0))) == [1]
    assert list(store.episodes(1, TASKS.get(1))) == [0]  # a finished one is what it is
    start(store, 0)
    store.episode(0, episode(0, 0, reward=0.25))
    store.close()
    store = GroupStore(tmp_path)
    assert {index: e.reward for index, e in store.episodes(0, TASKS.get(0)).items()} == {0: 0.25, 1: episode(0, 1).reward}


def test_a_lost_episode_that_was_trained_is_an_error(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    finish(store, 0)
    store.trained([0], step=1, version=1)
    store.close()
    (tmp_path / "episodes.jsonl").write_bytes(b"")
    with pytest.raises(Damaged, match=r"episodes\.jsonl lacks episodes of group 0"):
        GroupStore(tmp_path)


def test_damage_names_the_file_and_the_line(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    finish(store, 0)
    store.close()
    data = (tmp_path / "groups.jsonl").read_bytes()
    (tmp_path / "groups.jsonl").write_bytes(data.replace(b"started", b"stirred"))
    with pytest.raises(JournalError, match=r"groups\.jsonl, line 1"):
        GroupStore(tmp_path)


def test_batches_after_a_checkpoint_keep_their_order(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    for step, numbers in enumerate([(1, 0), (3, 2), (5, 4)], start=1):
        for number in numbers:
            finish(store, number)
        store.trained(numbers, step=step, version=step)
    assert [b.groups for b in store.trained_batches_after(1)] == [(3, 2), (5, 4)]
    assert store.trained_batches_after(3) == []


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    finish(store, 0)
    store.trained([0], step=1, version=1)
    store.check_checkpoint(1)  # as it is saved: after its step is recorded
    store.check_checkpoint(0)  # an older one is gone on from
    with pytest.raises(Damaged, match=r"checkpoint is of step 2, but .*groups\.jsonl knows of 1 trained steps"):
        store.check_checkpoint(2)


def test_folders_can_be_copied_while_in_use(tmp_path: Path) -> None:
    store = GroupStore(tmp_path / "a")
    finish(store, 0)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert GroupStore(tmp_path / "b").state(0) is GroupState.FINISHED
