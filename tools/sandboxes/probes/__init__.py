"""`agentrl sandbox check`: what a sandbox must withstand and what it must do, tried on any backend.

Each probe is bounded (400 processes, 1 GB, 200 MB of files, 100 MB of output) and harms nothing where it succeeds: it aims at
bait that is put out for it, sets things to what they are, and what it leaves is removed. Where it can, the host decides
by what it sees itself (bait.py, marks.py); what the hostile code says is believed only where it says that it got through.

    probe.py   what a probe is            target.py  the backend, and how a program is run in it
    bait.py    what must not be reached   marks.py   what the host sees of processes and left-overs
    run.py     all probes, in order       the others: one file per group
"""

from .probe import Finding, Outcome, Probe
from .run import GROUPS, PROBES, check, chosen, try_one
from .target import SLOTS, SPEC, Backend, Target

__all__ = [
    "GROUPS",
    "PROBES",
    "SLOTS",
    "SPEC",
    "Backend",
    "Finding",
    "Outcome",
    "Probe",
    "Target",
    "check",
    "chosen",
    "try_one",
]
