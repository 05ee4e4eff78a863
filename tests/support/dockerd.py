"""A docker daemon for the tests alone: installed where it is missing, started by hand, ended by its own process id.

It makes no network and touches no firewall rule. Where that cannot be (not root, not Debian), `unavailable` says why.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

INSTALL_TIMEOUT, START_TIMEOUT, STOP_TIMEOUT = 400.0, 60.0, 30.0
APT = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]


class Unavailable(RuntimeError):
    """No daemon can be started here; the text says why."""


@contextlib.contextmanager
def docker_daemon(folder: Path, *extra: str) -> Iterator[str]:
    """Its address, as in DOCKER_HOST. Raises Unavailable. `folder` must have a short path: a socket lies in it."""
    _install()
    address = f"unix://{folder}/docker.sock"
    command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "-H", address]
    command += ["-p", f"{folder}/docker.pid", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none"]
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen([*command, *extra], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        _await(daemon, folder)
        yield address
    finally:
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(STOP_TIMEOUT)
        daemon.kill()
        daemon.wait()
        subprocess.run(["umount", f"{folder}/exec/netns/default"], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _install() -> None:
    if shutil.which("dockerd"):
        if os.getuid() != 0:
            raise Unavailable("a docker daemon of our own needs root")
        return
    if os.getuid() != 0 or not shutil.which("apt-get"):
        raise Unavailable("dockerd is not installed, and only root on Debian can install it here")
    for words in (["update"], ["install", "-y", "--no-install-recommends", "docker.io", "iptables"]):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        done = subprocess.run(
            [*APT, *words], capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False, env=environment
        )
        if done.returncode:
            raise Unavailable(f"apt-get {words[0]} failed: {done.stderr.strip()[-300:]}")


def _await(daemon: subprocess.Popen[bytes], folder: Path) -> None:
    import docker

    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and daemon.poll() is None:
        try:
            with contextlib.closing(docker.APIClient(base_url=f"unix://{folder}/docker.sock", version="auto")) as api:
                api.ping()
                return
        except docker.errors.DockerException:
            time.sleep(0.1)
    raise Unavailable(f"dockerd did not come up: {(folder / 'log').read_text()[-500:]}")
