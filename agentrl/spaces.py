"""gymnasium's spaces in words: what an action may be, an observation as text, and a text read as an action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from agentrl.answers import last_of, numbers, whole_numbers
from agentrl.errors import UsageError
from agentrl.messages import Image, ParseError

MOST_NUMBERS = 400
"""Of an array that is shown as numbers; a larger one says nothing to a reader."""


def asked(space: spaces.Space[Any], names: Sequence[str] = ()) -> str:
    """What an action must be. Raises UsageError for a space that a text cannot be read as.

    >>> asked(spaces.Discrete(4)), asked(spaces.Discrete(2), ["left", "right"])
    ('a whole number from 0 to 3', 'one of: left, right')
    >>> asked(spaces.Box(-1.0, 1.0, (2,)))
    '2 numbers, each from -1 to 1'
    """
    if isinstance(space, spaces.Discrete):
        _check_names(space, names)
        last = space.start + space.n - 1
        return f"one of: {', '.join(names)}" if names else f"a whole number from {space.start} to {last}"
    if isinstance(space, spaces.MultiDiscrete):
        ranges = [f"{low} to {low + n - 1}" for low, n in zip(space.start.flat, space.nvec.flat, strict=True)]
        return f"{len(ranges)} whole numbers, from {', from '.join(ranges)}"
    if isinstance(space, spaces.MultiBinary):
        return f"{np.prod(space.shape)} numbers, each 0 or 1"
    if isinstance(space, spaces.Box):
        count = int(np.prod(space.shape))
        low, high = float(space.low.min()), float(space.high.max())
        return f"{f'{count} numbers, each' if count > 1 else 'a number'} from {low:g} to {high:g}"
    if isinstance(space, spaces.Text):
        return f"a text of {space.min_length} to {space.max_length} characters"
    raise UsageError(f"an action of the space {space} cannot be read from a text; use Discrete, MultiDiscrete, Box or Text")


def read(space: spaces.Space[Any], text: str, names: Sequence[str] = ()) -> Any:
    """The action that a text says: its last numbers, or its last word of `names`. Raises ParseError.

    >>> read(spaces.Discrete(3), "I take 1, no: 2"), read(spaces.Discrete(2), "Go right!", ["left", "right"])
    (2, 1)
    """
    value = _read(space, text, names)
    if value is None or value not in space:
        raise ParseError(f"Your answer must be {asked(space, names)}.")
    return value


def _read(space: spaces.Space[Any], text: str, names: Sequence[str]) -> Any:
    if isinstance(space, spaces.Discrete):
        if names:
            word = last_of(text, names)
            return None if word is None else int(space.start) + list(names).index(word)
        return next(iter(whole_numbers(text)[-1:]), None)
    if isinstance(space, spaces.Text):
        return text
    found: list[Any] = numbers(text) if isinstance(space, spaces.Box) else whole_numbers(text)
    shape = space.shape or ()
    count = int(np.prod(shape))
    return np.array(found[-count:], dtype=space.dtype).reshape(shape) if len(found) >= count else None


def shown(space: spaces.Space[Any], value: Any) -> Any:
    """An observation as text, or as a picture where it is one; several parts of both as a list.

    >>> shown(spaces.Discrete(16), 3), shown(spaces.Box(-9, 9, (2,)), np.array([0.5, -1.25]))
    ('3 (of 0 to 15)', '[0.5, -1.25]')
    """
    if isinstance(space, spaces.Discrete):
        return f"{int(value)} (of {space.start} to {space.start + space.n - 1})"
    if isinstance(space, spaces.Dict):
        return _listed({name: shown(part, value[name]) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return _listed({str(i): shown(part, value[i]) for i, part in enumerate(space.spaces)})
    if isinstance(value, np.ndarray):
        if value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3:
            return Image.of(value)
        if value.size > MOST_NUMBERS:
            raise UsageError(f"an observation of {value.size} numbers says nothing as text; use observe='rgb_array' or 'ansi'")
        return str(np.round(value.astype(float), 4).tolist() if value.dtype.kind == "f" else value.tolist())
    return str(value)


def _listed(parts: Mapping[str, Any]) -> Any:
    texts = {name: part for name, part in parts.items() if isinstance(part, str)}
    if len(texts) == len(parts):
        return "\n".join(f"{name}: {text}" for name, text in texts.items())
    return [piece for name, part in parts.items() for piece in (f"\n{name}: ", *(part if isinstance(part, list) else [part]))]


def _check_names(space: spaces.Discrete, names: Sequence[str]) -> None:
    if names and len(names) != space.n:
        raise UsageError(f"the environment has {space.n} actions, but {len(names)} names were given: {', '.join(names)}")


Reader = Callable[[str], Any]


def reader(space: spaces.Space[Any], names: Sequence[str] = (), legal: Sequence[int] | None = None) -> Reader:
    """What `Action.parse` takes. `legal`: the only numbers that are allowed now."""

    def form(text: str) -> Any:
        value = read(space, text, names)
        if legal is not None and value not in legal:
            raise ParseError(f"That is not allowed now; allowed: {', '.join(map(str, legal))}.")
        return value

    return form
