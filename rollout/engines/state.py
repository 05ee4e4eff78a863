"""Which call is legal in which state of an engine, once for all engines. Holds no engine and runs nothing.

RUNNING --pause--> PAUSED --sleep--> ASLEEP --wake--> PAUSED --resume--> RUNNING
update_weights: PAUSED -> PAUSED, or -> DIRTY when it broke half-way; DIRTY --a good update--> PAUSED
"""

from __future__ import annotations

from agentrl.engine import EngineDead, EngineError, EngineState

LEGAL: dict[str, tuple[EngineState, ...]] = {
    "pause": (EngineState.RUNNING,),
    "resume": (EngineState.PAUSED,),
    "update_weights": (EngineState.PAUSED, EngineState.DIRTY),
    "sleep": (EngineState.PAUSED,),
    "wake": (EngineState.ASLEEP,),
    # While paused or asleep a request waits; from half-updated weights nothing may ever be sampled.
    "generate": (EngineState.RUNNING, EngineState.PAUSED, EngineState.ASLEEP),
}


def require(action: str, state: EngineState) -> None:
    """Raises EngineError, naming what is legal instead, when `action` is not legal in `state`.

    >>> require("resume", EngineState.RUNNING)
    Traceback (most recent call last):
    agentrl.engine.EngineError: resume needs an engine that is paused, this one is running; legal now: pause, generate
    """
    if state is EngineState.CLOSED:
        raise EngineDead(f"{action}: the engine is closed")
    if state in LEGAL[action]:
        return
    legal = ", ".join(name for name, states in LEGAL.items() if state in states) or "aclose only"
    needed = " or ".join(LEGAL[action])
    raise EngineError(f"{action} needs an engine that is {needed}, this one is {state}; legal now: {legal}")
