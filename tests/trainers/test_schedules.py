import pytest

from agentrl.trainers.schedules import learning_rate


def rates(schedule, warmup, steps):
    return [learning_rate(k, peak=2.0, schedule=schedule, warmup_steps=warmup, steps=steps) for k in range(steps)]


def test_warm_up_reaches_the_peak_at_its_last_step():
    assert rates("constant", 4, 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert rates("constant", 0, 2) == [2.0, 2.0]


def test_decays():
    assert rates("linear", 0, 4) == pytest.approx([2.0, 1.5, 1.0, 0.5])
    # cosine: 1 + cos(k pi / 4) for k = 0..3
    assert rates("cosine", 0, 4) == pytest.approx([2.0, 1 + 0.7071068, 1.0, 1 - 0.7071068])


def test_warm_up_longer_than_the_run_and_steps_beyond_it():
    assert learning_rate(0, peak=1.0, schedule="linear", warmup_steps=10, steps=5) == 0.1
    assert learning_rate(99, peak=1.0, schedule="linear", warmup_steps=0, steps=5) == 0.0
