"""Runs probes one after the other on one backend. After each, the backend must still do ordinary work."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

from agentrl.errors import UsageError, nearest
from agentrl.sandbox import SandboxSpec

from . import files, graders, lifecycle, marks, network, output, processes, resources, secrets, timing
from .bait import Bait
from .probe import FEATURES, Broken, Finding, NotApplicable, Outcome, Probe
from .target import SLOTS, SPEC, Backend, Target

GROUPS = [module.probe for module in (processes, resources, output, files, network, secrets, graders, timing, lifecycle)]
PROBES: tuple[Probe, ...] = tuple(probe for group in GROUPS for probe in group.probes)
DEADLINE = 180.0
"""Seconds of one probe. Each has shorter ones of its own; this one is for a backend that hangs in a way nobody thought of."""
UNSEEN = "the sandbox's processes cannot be seen from this machine, so nobody could tell"

Progress = Callable[[Probe], None]


def chosen(only: Sequence[str]) -> tuple[Probe, ...]:
    """Those whose group or name is in `only`; all when it is empty. An entry may be several, separated by commas.

    Raises UsageError for what is neither.
    """
    known = {name for probe in PROBES for name in (probe.group, probe.name)}
    only = [name.strip() for text in only for name in ([text] if text in known else text.split(","))]
    for name in only:
        if name not in known:
            raise UsageError(f"there is no group or probe {name!r}; {nearest(name, known)}")
    return tuple(probe for probe in PROBES if not only or probe.group in only or probe.name in only)


async def check(
    backend: Backend,
    probes: Iterable[Probe] = PROBES,
    *,
    spec: SandboxSpec = SPEC,
    begin: Progress = lambda probe: None,
    end: Callable[[Finding], None] = lambda finding: None,
) -> tuple[str, list[Finding]]:
    """(the isolation that the backend says it gives, what was found). Raises UsageError, IsolationError, SandboxError when
    it cannot be opened or does not run a harmless program."""
    findings = []
    with Bait() as bait:
        pool = await backend.open(spec, SLOTS)
        target = Target(backend=backend, spec=spec, pool=pool, bait=bait)
        try:
            await target.look_around()
            for probe in probes:
                begin(probe)
                findings.append(await try_one(target, probe))
                end(findings[-1])
            return pool.isolation, findings
        finally:
            await _close(target)


async def try_one(target: Target, probe: Probe) -> Finding:
    """Tries one probe, cleans up what it may have left, and sees that the backend still works."""
    begun = time.monotonic()
    outcome, reason = await _outcome(target, probe)
    await asyncio.to_thread(marks.kill_marked, target.bait.mark)
    await asyncio.to_thread(marks.remove_marked, target.bait.mark)
    if outcome is not Outcome.NOT_APPLICABLE:
        try:
            await target.works()
        except Exception as error:
            outcome, reason = Outcome.FAILED, "; ".join(filter(None, [reason, str(error) or "afterwards the backend hung"]))
            await _replace(target)
    seconds = time.monotonic() - begun
    return Finding(group=probe.group, name=probe.name, outcome=outcome, reason=reason, seconds=seconds)


async def _outcome(target: Target, probe: Probe) -> tuple[Outcome, str]:
    missing = next((need for need in probe.needs if need not in target.features), None)
    if missing is not None:
        return Outcome.NOT_APPLICABLE, FEATURES[missing]
    if probe.seen and not target.sees_processes:
        return Outcome.NOT_APPLICABLE, UNSEEN
    try:
        async with asyncio.timeout(DEADLINE):
            return Outcome.PASSED, await probe.check(target) or ""
    except NotApplicable as error:
        return Outcome.NOT_APPLICABLE, str(error)
    except NotImplementedError as error:
        return Outcome.NOT_APPLICABLE, f"the backend does not offer it{f': {error}' if str(error) else ''}"
    except Broken as error:
        return Outcome.FAILED, str(error)
    except TimeoutError:
        return Outcome.FAILED, f"no answer within {DEADLINE:.0f} s"
    except Exception as error:  # whatever a backend of someone's raises, where it should have given a result, is a finding
        return Outcome.FAILED, f"{type(error).__name__}: {error}"


async def _replace(target: Target) -> None:
    """A new pool for the next probes."""
    await _close(target)
    target.pool = await target.backend.open(target.spec, SLOTS)


async def _close(target: Target) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(target.pool.aclose(), 60)
