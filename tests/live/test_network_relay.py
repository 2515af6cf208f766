"""The relay in a process of the test: which networks it takes over, and what it does about strange ones."""

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from sandboxes import strongest

from aliquot.live.node.network.egress import everything, parse_egress
from aliquot.live.node.network.messages import ApiAddress, FromRelay, RelaySettings
from aliquot.live.node.network.relay import MAX_LOOKUPS, MAX_UNSENT, NetworkRelay
from aliquot.runtime import linux, network
from aliquot.testing.server import open_files
from aliquot.testing.waiting import wait_on_loop

pytestmark = pytest.mark.skipif(not strongest().network, reason="no network namespaces here")

WAIT = "import sys; sys.stdin.read()"


@contextlib.contextmanager
def new_namespace():
    """Yield the pidfd of a process in a new network namespace."""
    process = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", f"print(1, flush=True); {WAIT}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.read(1)  # it has begun, so it is in the namespace
    pidfd = os.pidfd_open(process.pid)
    yield pidfd
    os.close(pidfd)
    process.kill()
    process.communicate()


@pytest.fixture
def namespace():
    with new_namespace() as pidfd:
        yield pidfd


@pytest.fixture
def other_namespace():
    with new_namespace() as pidfd:
        yield pidfd


def play(scene, egress="all", connections=64, **more):
    """Run a scene with a relay and the messages that it sends."""
    said, held = [], []
    relay_settings = RelaySettings(parse_egress(egress, "--egress"), connections=connections, **more)

    async def played():
        relay = NetworkRelay(relay_settings, collect)
        try:
            await scene(relay, said)
        finally:
            relay.close()

    def collect(message, descriptor, reserved):
        said.append(message)
        held.append(reserved)  # as if the server had not taken it yet
        if descriptor is not None:
            os.close(descriptor)

    asyncio.run(played())


def in_namespace(pidfd, work):
    """Run work in a thread that is in the namespace, and return its result."""

    def enter_and_work():
        linux.enter_namespace(pidfd, linux.CLONE_NEWNET)
        return work()

    return asyncio.to_thread(run_in_new_thread, enter_and_work)


def run_in_new_thread(work):
    """Run work in a thread of its own: a thread that enters a namespace cannot be used for anything else."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_a_process_without_a_network_of_its_own_is_refused(namespace):
    async def scene(relay, said):
        mine = os.pidfd_open(os.getpid())
        relay.add(1, mine, "")
        os.close(mine)
        relay.add(2, namespace, "")
        relay.add(3, namespace, "")  # another sandbox's
        assert said == [
            FromRelay(failed=1, why="the process has no network namespace of its own"),
            FromRelay(added=2),
            FromRelay(failed=3, why="the process has no network namespace of its own"),
        ]
        relay.remove(2)
        relay.add(4, namespace, "")
        assert said[-1].failed == 4, "it was in use: it may be that of a zygote"
        relay.add(5, namespace, "", configured=True)
        assert said[-1] == FromRelay(added=5), "a later relay takes over what an earlier one had"

    play(scene)


def test_a_process_that_has_ended_is_reported(namespace):
    signal.pidfd_send_signal(namespace, signal.SIGKILL)
    os.waitid(os.P_PIDFD, namespace, os.WEXITED | os.WNOWAIT)

    async def scene(relay, said):
        relay.add(1, namespace, "")
        assert said[0].failed == 1
        assert said[0].why

    play(scene)


def test_the_end_of_a_sandbox_leaves_nothing_open(namespace):
    with socket.create_server(("127.0.0.79", 0)) as server:

        async def scene(relay, said):
            before = open_files(os.getpid())
            relay.add(1, namespace, "guest")
            assert said == [FromRelay(added=1)]
            place = server.getsockname()
            client = await in_namespace(namespace, lambda: socket.create_connection(place, timeout=5))
            accepted, _ = await asyncio.to_thread(server.accept)
            with client, accepted:
                relay.remove(1)
                accepted.settimeout(5)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.to_thread(accepted.recv, 1) == b""
            await wait_on_loop(
                lambda: open_files(os.getpid()), lambda now: now <= before, what="all descriptors closed"
            )

        play(scene, f"127.0.0.79:{server.getsockname()[1]}")


def test_flows_of_datagrams_make_room_for_new_ones(namespace):
    """A sandbox that sends from many ports has its newest flows, and never more than its part."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.79", 0))
        server.settimeout(5)
        place = server.getsockname()

        def send_from_many_ports():
            for number in range(200):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                    sock.sendto(struct.pack("!I", number), place)
            last = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            last.settimeout(5)
            last.sendto(b"last", place)
            return last

        async def scene(relay, said):
            before = open_files(os.getpid())
            relay.add(1, namespace, "guest")
            last = await in_namespace(namespace, send_from_many_ports)
            with last:
                while (await asyncio.to_thread(server.recvfrom, 100))[0] != b"last":
                    assert open_files(os.getpid()) < before + 2 * 64 + 20
                relay.remove(1)
            assert said == [FromRelay(added=1)]

        play(scene, f"{place[0]}:{place[1]}", connections=1024)


def test_a_gateway_is_configured_again_by_a_later_relay(namespace):
    for _ in range(2):
        with network.entered(namespace):
            network.make_gateway(everything(version_6=False), []).close()


def test_connections_that_a_busy_server_has_not_taken_are_divided_by_tenant(namespace, other_namespace):
    async def scene(relay, said):
        relay.add(1, namespace, "greedy")
        relay.add(2, other_namespace, "other")

        def connect():
            with socket.socket() as sock:
                sock.settimeout(10)
                with contextlib.suppress(OSError):  # it may be reset at once
                    sock.connect(("127.0.0.1", 9))

        before = open_files(os.getpid())
        for _ in range(MAX_UNSENT):
            await in_namespace(namespace, connect)
        await in_namespace(other_namespace, connect)
        await wait_on_loop(lambda: FromRelay(api=2) in said, what="the other tenant's connection")
        assert said.count(FromRelay(api=1)) == MAX_UNSENT // 2
        assert open_files(os.getpid()) < before + 5

    play(scene, api=ApiAddress("127.0.0.1", 9))


def test_lookups_of_host_names_are_divided_by_tenant(namespace, other_namespace, monkeypatch):
    """A wildcard lets functions ask for names whose lookup takes long."""
    looking, released = [], asyncio.Event()

    async def look_up(_, name):
        looking.append(name)
        await released.wait()
        return []

    monkeypatch.setattr("aliquot.live.node.network.relay.MAX_SANDBOX_LOOKUPS", 1000)
    monkeypatch.setattr("aliquot.live.node.network.names.HostNames.look_up", look_up)
    monkeypatch.setattr("aliquot.live.node.network.machine.nameservers", lambda: [ipaddress.ip_address("192.0.2.53")])

    async def scene(relay, _):
        relay.add(1, namespace, "greedy")
        relay.add(2, other_namespace, "other")

        def ask(prefix, count):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for number in range(count):
                    label = f"{prefix}{number}".encode()
                    name = bytes([len(label)]) + label + b"\x07example\x03com\x00"
                    question = struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + name
                    sock.sendto(question + struct.pack("!HH", 1, 1), ("192.0.2.53", 53))
                    time.sleep(0.001)

        await in_namespace(namespace, lambda: ask("greedy", 2 * MAX_LOOKUPS))
        await in_namespace(other_namespace, lambda: ask("other", 1))
        await wait_on_loop(lambda: "other0.example.com" in looking, what="the other tenant's lookup")
        assert len(looking) <= MAX_LOOKUPS // 2 + 1
        released.set()

    play(scene, "*.example.com:443", connections=1024)


def test_the_program_of_each_sandbox_has_its_own_map_of_sockets():
    first, second = network.assemble(5, []), network.assemble(6, [])
    differing = [place for place, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    assert len(differing) == 1
    assert (first[differing[0]], second[differing[0]]) == (5, 6)
