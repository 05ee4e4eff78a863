"""Why episodes came to nothing, in one line: the commonest way they ended, how many did, and what is to be changed.

For the messages of whoever gives up: the trainer, the rollout manager, evaluations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agentrl.episode import Episode, Outcome

KEYS = {
    Outcome.MAX_TURNS: "env.args.max_turns",
    Outcome.MAX_TOKENS: "sampling.max_episode_tokens (engine.max_context must hold as many)",
}
"""What to raise for an outcome that a limit has brought about."""

NAMED = {
    "request_timeout": "engine.request_timeout",
    "a generation and its continuations took more": "rollout.step_timeout",
    "the episode took longer": "rollout.episode_timeout",
    "grading took longer": "rollout.episode_timeout",
    "took longer than": "rollout.turn_timeout",
}
"""What the text of a deadline that passed says -> the key that sets it; the first that fits."""


def commonest(episodes: Sequence[Episode]) -> str:
    """How most of the episodes ended, how many, what the first of these says, and the key to raise where there is one.

    >>> commonest([])
    'there was no episode'
    """
    if not episodes:
        return "there was no episode"
    one = example(episodes)
    count = sum(e.outcome is one.outcome for e in episodes)
    reason = f": {one.reason}" if one.error else ""
    key = key_for(one.outcome, one.error)
    return f"{count} of {len(episodes)} episodes ended as {one.outcome}{reason}" + (f"; raise {key}" if key else "")


def example(episodes: Sequence[Episode]) -> Episode:
    """The first of those that ended as most did."""
    outcome, _ = Counter(e.outcome for e in episodes).most_common(1)[0]
    return next(e for e in episodes if e.outcome is outcome)


def key_for(outcome: Outcome, text: str) -> str:
    """The key to raise; empty where no key helps, as with an error of the environment's own.

    >>> key_for(Outcome.DEADLINE, "turn 3 took longer than 120 s"), key_for(Outcome.ENV_ERROR, "KeyError: 'x'")
    ('rollout.turn_timeout', '')
    """
    return KEYS.get(outcome) or next((key for words, key in NAMED.items() if words in text), "")
