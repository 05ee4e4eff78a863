"""The number of CPU threads: how it follows from what was measured, and that measuring changes nothing."""

import pytest
import torch

from agentrl.trainers import cpu_threads
from agentrl.trainers.cpu_threads import allowed, set_threads, threads_that_pay


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("most", "seconds", "taken"),
    [
        (1, {1: 1.0}, 1),
        (2, {1: 1.0, 2: 0.5}, 2),  # two cores
        (2, {1: 1.0, 2: 0.97}, 1),  # two halves of one
        (2, {1: 1.0, 2: 3.0}, 1),  # the other is busy
        (6, {1: 1.0, 2: 0.5, 4: 0.3, 6: 0.2}, 6),  # no power of two
        (8, {1: 1.0, 2: 0.5, 4: 0.45, 8: 0.1}, 2),  # stops at the first that does not pay
    ],
)
def test_twice_the_threads_while_they_pay(most, seconds, taken):
    assert threads_that_pay(most, seconds.__getitem__) == taken


def test_measuring_leaves_the_threads_as_they_were():
    torch.set_num_threads(1)
    assert 1 <= threads_that_pay(2) <= 2
    assert torch.get_num_threads() == 1


def test_cores_and_the_environment_bound_them(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert allowed() == 12
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert allowed() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert allowed() == 12
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")  # OpenMP's nested form
    assert allowed() == 12


def test_a_number_is_taken_as_it_is_and_0_asks_the_machine(monkeypatch):
    assert set_threads(1) == 1 == torch.get_num_threads()
    monkeypatch.setattr(cpu_threads, "threads_that_pay", lambda: 2)
    assert set_threads(0) == 2 == torch.get_num_threads()
