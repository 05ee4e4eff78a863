"""What is counted while playing, by hand: how old tokens are when they are trained, and when too much has come to nothing."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.episode import Episode, Outcome, RolloutError
from agentrl.rollout.tally import AbortRate, Tally
from tests.support.episodes import episode, group


def test_staleness_is_of_the_tokens_that_are_trained_and_starts_anew() -> None:
    tally = Tally()
    broken = episode(1, 1, version=0, outcome=Outcome.ENV_ERROR)
    tally.handed([group(0, episode(0, 0, version=3), episode(0, 1, version=5)), group(1, episode(1, 0, version=6), broken)], 6)
    row = tally.drain()
    assert (row["staleness_mean"], row["staleness_max"], row["groups"]) == (pytest.approx(4 / 3), 3.0, 2.0)
    assert {tally.drain()[name] for name in ("staleness_mean", "staleness_max", "groups")} == {0.0}


def test_dropped_groups_are_counted_by_their_reasons() -> None:
    tally = Tally()
    for reason in ("too_old", "equal_rewards", "too_old"):
        tally.dropped(reason)
    row = tally.drain()
    assert (row["dropped"], row["dropped/too_old"], row["dropped/equal_rewards"]) == (3.0, 2.0, 1.0)


def rate(*outcomes: Outcome, most: float = 0.5) -> AbortRate:
    noted = AbortRate(most)
    for index, outcome in enumerate(outcomes):
        noted.note(episode(0, index, outcome=outcome))
    return noted


GOOD, BROKEN = Outcome.TERMINATED, Outcome.TOOL_CRASH


def test_half_may_break_where_half_is_allowed_and_one_more_may_not() -> None:
    rate(GOOD, GOOD, BROKEN, BROKEN).check(4)
    with pytest.raises(RolloutError, match=r"3 of 4 episodes .*\(3 tool_crash\), more than rollout\.max_abort_rate=0\.5"):
        rate(GOOD, BROKEN, BROKEN, BROKEN).check(4)


def test_a_few_episodes_say_nothing_and_are_kept_until_there_are_enough() -> None:
    few = rate(BROKEN, BROKEN)
    few.check(3, then_reset=True)
    few.note(episode(0, 2))
    with pytest.raises(RolloutError, match="2 of 3"):
        few.check(3)


def test_after_a_step_the_count_starts_anew() -> None:
    noted = rate(GOOD, GOOD, BROKEN)
    noted.check(3, then_reset=True)
    for index, outcome in enumerate((GOOD, BROKEN, BROKEN)):
        noted.note(episode(0, index, outcome=outcome))
    with pytest.raises(RolloutError, match="2 of 3"):  # with those of the step before it would be 3 of 6, and pass
        noted.check(3)


@pytest.mark.parametrize(("outcome", "counts"), [(Outcome.DEADLINE, True), (Outcome.MAX_TURNS, False)])
def test_of_cut_episodes_those_count_that_a_deadline_has_cut(outcome: Any, counts: bool) -> None:
    cut: list[Episode] = [episode(0, index, outcome=outcome) for index in range(3)]
    noted = AbortRate(0.5)
    for one in cut:
        noted.note(one)
    if counts:
        with pytest.raises(RolloutError, match="3 of 3"):
            noted.check(3)
    else:
        noted.check(3)
