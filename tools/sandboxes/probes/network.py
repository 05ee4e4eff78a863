# ruff: noqa: E501  # programs in strings
"""Network: none. The host listens for what must not come."""

from __future__ import annotations

import asyncio
import socket

from .probe import Broken, Group, NotApplicable, require
from .target import Target, ending

probe = Group("network")


async def _silent(target: Target, name: str, code: str) -> None:
    """Runs a program that tries to reach one of the bait's sockets."""
    if name not in target.bait.sockets:
        raise NotApplicable(f"this machine has no {name} to reach")
    target.bait.reached(name)
    found, done = await target.attack(code)
    if target.bait.reached(name):
        raise Broken(f"the host got what it sent by {name}")
    require(found == [], f"it got {found}" if found else f"the program ended without an answer: {ending(done)}")


@probe("TCP to the host", "sockets")
async def tcp(target: Target) -> None:
    await _silent(target, "TCP", 'got(connection=lambda: socket.create_connection(("127.0.0.1", TCP), 2))')


@probe("UDP to the host", "sockets")
async def udp(target: Target) -> None:
    code = """
def send(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP))
works(send); tell([])"""
    await _silent(target, "UDP", code)


@probe("IPv6 to the host", "sockets")
async def ipv6(target: Target) -> None:
    await _silent(target, "IPv6", 'got(connection=lambda: socket.create_connection(("::1", TCP6), 2))')


UNIX = """
def connect(): socket.socket(socket.AF_UNIX).connect({address})
got(connection=connect)"""


@probe("unix socket of the host, by path", "sockets")
async def unix(target: Target) -> None:
    await _silent(target, "unix socket", UNIX.format(address="UNIX"))


@probe("unix socket of the host, without a path", "sockets")
async def abstract(target: Target) -> None:
    """Abstract names belong to the network namespace; no file permission guards them."""
    await _silent(target, "abstract socket", UNIX.format(address="ABSTRACT"))


OUTSIDE = """
def route(address, family): # connecting a datagram socket sends nothing: it asks for a way
    def ask():
        with socket.socket(family, socket.SOCK_DGRAM) as s: s.connect((address, 53))
    return ask
got(internet=route("192.0.2.1", socket.AF_INET), private=route("10.0.0.1", socket.AF_INET), cloud_metadata=route("169.254.169.254", socket.AF_INET),
    internet6=route("2001:db8::1", socket.AF_INET6))"""


@probe("a way out", "sockets")
async def outside(target: Target) -> None:
    await target.got_nothing(OUTSIDE)


@probe("metadata of a cloud", "sockets")
async def metadata(target: Target) -> None:
    """Where cloud machines hand out keys."""
    await target.got_nothing('got(metadata=lambda: socket.create_connection(("169.254.169.254", 80), 2))')


@probe("names", "sockets")
async def names(target: Target) -> None:
    """A question for a name is a way to tell something to whoever answers for it."""
    code = 'got(resolver=lambda: any(a[4][0] not in ("127.0.0.1", "::1") for a in socket.getaddrinfo("example.com", 80)))'
    await target.got_nothing(code)


@probe("raw, packet, kernel and machine sockets", "sockets")
async def kinds(target: Target) -> None:
    """Each opens a part of the kernel, whether or not anything is at its other end."""
    code = """got(packet=lambda: socket.socket(17, 3, 0), raw=lambda: socket.socket(2, 3, 1), raw6=lambda: socket.socket(10, 3, 58),
    vsock=lambda: socket.socket(40, 1, 0), bluetooth=lambda: socket.socket(31, 3, 1), can=lambda: socket.socket(29, 3, 1), alg=lambda: socket.socket(38, 5, 0))"""
    await target.got_nothing(code)


@probe("interfaces", "sockets")
async def interfaces(target: Target) -> None:
    code = 'tell([name for _, name in socket.if_nameindex() if name != "lo"] if works(socket.if_nameindex) else [])'
    await target.got_nothing(code)


LISTEN = """
def listen():
    global server
    server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); server.bind(("127.0.0.1", PORT)); server.listen()
tell(works(listen)); time.sleep(2)"""


@probe("a server that the host can reach", "sockets")
async def server(target: Target) -> None:
    """It could stand in for a service that this machine's own programs trust."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    run = asyncio.ensure_future(target.attack(LISTEN, PORT=port))
    reached = False
    while not run.done():
        with socket.socket() as client:
            client.settimeout(1.0)
            reached = reached or client.connect_ex(("127.0.0.1", port)) == 0
        await asyncio.wait([run], timeout=0.05)
    told, done = await run
    require(not reached, "the host reached a server inside, at an address of its own")
    require(told is not None, ending(done))
