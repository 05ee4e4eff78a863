"""Data that travels between the parts cannot be changed on its way: what one has handed over stays as it was."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agentrl.engine import Completion, GenerateRequest, Sampling
from agentrl.episode import Episode, EpisodeGroup, Turn
from agentrl.messages import Action, Image, Message, Text, ToolCall
from agentrl.sample import Sample
from agentrl.sandbox import Exec, SandboxSpec
from agentrl.task import Task
from agentrl.tool import ToolResult, ToolSpec
from agentrl.transcript import Segment
from agentrl.weights import ShardSpec, WeightUpdate

CARRIERS = [
    *(Completion, GenerateRequest, Sampling, Episode, EpisodeGroup, Turn, Action, Image, Message, Text, ToolCall),
    *(Sample, Exec, SandboxSpec, Task, ToolResult, ToolSpec, Segment, ShardSpec, WeightUpdate),
]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_it_is_frozen_slotted_and_takes_names_only(carrier: Any) -> None:
    assert carrier.__dataclass_params__.frozen
    assert "__slots__" in vars(carrier)
    assert all(field.kw_only for field in dataclasses.fields(carrier))


def test_sampling_parameters_cannot_be_changed_between_two_turns() -> None:
    request = GenerateRequest(prompt_ids=(1, 2), max_new_tokens=3, sampling=Sampling(temperature=0.5, stop_ids=(7,)))
    for part, name in ((request, "max_new_tokens"), (request.sampling, "temperature"), (request.sampling, "stop_ids")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, 9)
    assert hash(request.sampling) == hash(Sampling(temperature=0.5, stop_ids=(7,)))  # nothing in it can grow, either
