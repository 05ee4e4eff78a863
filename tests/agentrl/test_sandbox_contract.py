"""What a sandbox is asked for and what it answers. Implementations are tested in tests/tools/sandboxes."""

from __future__ import annotations

import pytest

from agentrl.sandbox import Exec, IsolationError, SandboxError, SandboxLost, SandboxSpec, Status, cut, size


@pytest.mark.parametrize(
    ("value", "count"),
    [(10, 10), ("10", 10), ("64K", 65536), ("64 kb", 65536), ("1.5M", 1572864), ("2GiB", 2147483648), ("1T", 1 << 40)],
)
def test_sizes(value, count):
    assert size(value) == count


@pytest.mark.parametrize("value", ["", "big", "64X", "M"])
def test_what_is_no_size(value):
    with pytest.raises(ValueError, match="is no size; write bytes or a number with K, M, G"):
        size(value)


def test_a_spec_in_bytes():
    spec = SandboxSpec(memory="512M", disk="64M", output=100)
    assert (spec.memory_bytes, spec.disk_bytes, spec.output_bytes) == (536870912, 67108864, 100)
    assert spec.network is False


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Exec(status=Status.OK), "[no output]"),
        (Exec(status=Status.OK, stdout="1\n"), "1\n"),
        (Exec(status=Status.OK, stdout="1", stderr="warn\n"), "1\nwarn\n"),
        (Exec(status=Status.ERROR, exit_code=3), "[exit code 3]"),
        (Exec(status=Status.ERROR, exit_code=1, stdout="a\n", stderr="Trace"), "a\nTrace"),
        (Exec(status=Status.TIMEOUT, stdout="1\n", wall_s=2.04), "1\n[timed out after 2.0 s]"),
        (Exec(status=Status.MEMORY, stdout="1"), "1\n[stopped: out of memory]"),
        (Exec(status=Status.OUTPUT, stdout="1", stdout_cut=True), "1\n[stopped: too much output]"),
        (Exec(status=Status.KILLED, exit_code=139), "[killed, exit code 139]"),
        (Exec(status=Status.OK, stdout="1", stdout_cut=True), "1\n[output was cut]"),
        (Exec(status=Status.LOST), "[the sandbox was lost]"),
    ],
)
def test_what_a_model_is_shown(result, text):
    assert result.render() == text
    assert result.ok == (result.status is Status.OK)


def test_long_output_keeps_head_and_tail_and_errors_mostly_their_tail():
    assert cut("abcdefghij" * 2, 10) == "abcdefg\n[... 10 characters left out ...]\nhij"
    assert cut("abcdefghij", 10) == "abcdefghij"
    shown = Exec(status=Status.ERROR, stderr="x" * 90 + "ValueError").render(20)
    assert shown == "xxxx\n[... 80 characters left out ...]\nxxxxxxValueError"
    for limit in (0, 1, 2, 7):
        assert cut("y" * 50, limit).replace(f"\n[... {50 - limit} characters left out ...]\n", "") == "y" * limit


def test_kinds_of_failure():
    assert issubclass(IsolationError, SandboxError)
    assert issubclass(SandboxLost, SandboxError)
