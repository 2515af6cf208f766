"""The relay in a process of the test: which networks it takes over, and what it does about strange ones."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest
from sandboxes import strongest

from aliquot.live.node.network.egress import everything, parse_egress
from aliquot.live.node.network.messages import FromRelay, RelaySettings
from aliquot.live.node.network.relay import NetworkRelay
from aliquot.runtime import linux, network
from aliquot.testing.server import open_files
from aliquot.testing.waiting import wait_on_loop

pytestmark = pytest.mark.skipif(not strongest().network, reason="no network namespaces here")

WAIT = "import sys; sys.stdin.read()"


@pytest.fixture
def namespace():
    """Return the pidfd of a process in a new network namespace."""
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


def play(scene, egress="all", connections=64):
    """Run a scene with a relay and the messages that it sends."""
    said = []

    async def played():
        relay = NetworkRelay(RelaySettings(parse_egress(egress, "--egress"), connections=connections), collect)
        try:
            await scene(relay, said)
        finally:
            relay.close()

    def collect(message, descriptor):
        said.append(message)
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
