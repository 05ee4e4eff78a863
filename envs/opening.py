"""The first messages of an episode: a solved puzzle, where one is to be shown, and the real one."""

from __future__ import annotations

from agentrl.messages import Message, as_messages


def opening(prompt: str, solved: tuple[str, str], *, shown: bool) -> list[Message]:
    """`solved`: (a puzzle as it would be put, the answer to it). Some 50 to 150 tokens of prompt, which siblings share; a small
    instruct model explains itself at length without it, and is cut.

    >>> [message.role for message in opening("2 + 2?", ("1 + 1?", "2"), shown=True)]
    ['user', 'assistant', 'user']
    """
    example = (*as_messages(solved[0]), *as_messages(solved[1], role="assistant")) if shown else ()
    return [*example, *as_messages(prompt)]
