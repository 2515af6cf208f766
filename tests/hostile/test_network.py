"""Networks: a function reaches neither another sandbox's ports nor what the operator has closed."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import psutil
import pytest
from network_peers import API, CONNECT, RUN, WITH_KEY, echo_server, found, own_address
from sandboxes import strongest

from aliquot.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(not strongest().network, reason="no network namespaces here")

RELAY = "aliquot.live.node.network.process"

LISTEN = """
import socket, threading, time
def answer(server):
    while True:
        server.accept()[0].sendall(b'secret')
servers = []
for family, host in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):
    server = socket.create_server((host, args['port']), family=family)
    threading.Thread(target=answer, args=(server,), daemon=True).start()
abstract = socket.socket(socket.AF_UNIX)
abstract.bind('\\0aliquot-' + str(args['port']))
abstract.listen()
threading.Thread(target=answer, args=(abstract,), daemon=True).start()
own = socket.create_connection(('127.0.0.1', args['port'])).recv(100).decode()
found = own
time.sleep(args['seconds'])
"""
REACH = """
import socket
def reach(family, address):
    with socket.socket(family) as sock:
        sock.settimeout(5)
        try:
            sock.connect(address)
            return sock.recv(100).decode()
        except OSError as error:
            return type(error).__name__
port = args['port']
found = [reach(socket.AF_INET, (host, port)) for host in args['hosts']]
found += [reach(socket.AF_INET6, ('::1', port)), reach(socket.AF_UNIX, '\\0aliquot-' + str(port))]
"""
NODE = """
const net = require('net');
const connect = ([host, port]) => new Promise((resolve) => {
  const sock = net.connect({ host, port });
  let text = '';
  sock.on('connect', () => sock.end('ping'));
  sock.on('data', (piece) => { text += piece; });
  sock.on('end', () => resolve(text));
  sock.on('error', (error) => resolve(error.code));
});
exports.main = async ({ places }) => ({ found: await Promise.all(places.map(connect)) });
"""


@pytest.fixture(scope="module")
def other_echo():
    with echo_server("127.0.0.78") as address:
        yield address


@pytest.fixture(scope="module")
def server_options(echo):
    return ("--devices", "host:1", "--egress", f"all,{echo[0]}:{echo[1]}", "--limit", "egress_connections=80")


@pytest.fixture(scope="module")
def tenants(tenants):
    for client in (tenants.attacker, tenants.neighbour):
        for name in ("run", "other"):
            client.deploy(name, RUN, limits={"timeout": 60_000}, **WITH_KEY)
    return tenants


def begin(client, code, *, name="run", **args):
    """Call without waiting for the end, and return the activation's id."""
    return client.post(f"actions/{name}", json={"code": code, **args}).json()["activationId"]


def relay_of(server):
    """Return the pid of the server's relay."""
    for pid in server.descendants():
        try:
            if RELAY in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return pid
        except OSError:
            continue
    return None


def test_a_port_that_a_function_opens_is_its_own(tenants):
    """Neither another tenant nor another sandbox of the same one reaches it, nor anybody on the machine."""
    port = 47811
    listening = begin(tenants.attacker, LISTEN, port=port, seconds=2)
    hosts = ["127.0.0.1", "127.0.0.2", own_address()]
    wait_until(lambda: is_listening(tenants.server, port), what="the attacker's server")
    for client in (tenants.neighbour, tenants.attacker):
        answers = found(client, REACH, name="other", port=port, hosts=hosts)
        assert len(answers) == 5
        assert set(answers) <= {"ConnectionRefusedError", "ConnectionResetError"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    record = wait_until(
        lambda: tenants.attacker.get(f"activations/{listening}"), lambda got: got.is_success, what="the end of the call"
    ).json()
    assert record["response"]["result"] == {"found": "secret"}, "or it never listened"


def test_only_families_that_the_network_contains_can_be_used(tenants):
    """The sockets of virtual machines, for one, do not belong to a network namespace."""
    code = """
import socket
found = {}
for name, family in args['families'].items():
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        found[name] = 'open'
    except OSError as error:
        found[name] = error.errno
for family, kind in ((socket.AF_INET, 2), (socket.AF_INET6, 1), (socket.AF_UNIX, 1), (socket.AF_NETLINK, 3)):
    socket.socket(family, kind).close()
"""
    families = {"vsock": socket.AF_VSOCK, "packet": socket.AF_PACKET, "tipc": socket.AF_TIPC, "alg": socket.AF_ALG}
    refused = found(tenants.attacker, code, families={name: int(family) for name, family in families.items()})
    assert refused == dict.fromkeys(families, errno.EAFNOSUPPORT)


def is_listening(server, port):
    """Return whether a process of the server listens on a port in its own network."""
    for pid in server.descendants():
        try:
            if f":{port:04X} " in Path(f"/proc/{pid}/net/tcp").read_text():
                return True
        except OSError:
            continue
    return False


def test_every_zygote_and_sandbox_has_a_network_of_its_own(tenants):
    tenants.check_neighbour()
    machine = Path("/proc/self/ns/net").stat().st_ino
    inside = networks_of_zygotes(psutil.Process(tenants.server.process.pid))
    assert len(inside) > 2
    assert machine not in inside


def networks_of_zygotes(server):
    """Return the networks of zygotes and sandboxes. The guards, which run no code of others, have the machine's."""
    networks = []
    for process in set(server.children(recursive=True)) - set(server.children()):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):  # it has ended meanwhile
            if process.uids().real and any("zygote.py" in word for word in process.cmdline()):
                networks.append(Path(f"/proc/{process.pid}/ns/net").stat().st_ino)
    return networks


@pytest.mark.parametrize("name", ["run", "node"])
def test_a_listed_server_is_reached_and_no_other_of_the_machine(tenants, echo, other_echo, name):
    places = [echo, other_echo, [own_address(), other_echo[1]], ["169.254.169.254", 80], ["0.0.0.0", other_echo[1]]]  # noqa: S104
    if name == "node":
        if not shutil.which("node"):
            pytest.skip("Node.js is not installed")
        tenants.neighbour.deploy("node", NODE, kind="nodejs:20")
        answers = tenants.neighbour.result("node", {"places": places})["found"]
        assert answers[0] == "echo ping"
        assert set(answers[1:]) <= {"ECONNRESET", "ECONNREFUSED"}
    else:
        answers = found(tenants.neighbour, CONNECT, places=places)
        assert answers[0] == "echo ping"
        assert set(answers[1:]) <= {"ConnectionRefusedError", "ConnectionResetError"}


def test_large_transfers_arrive_whole(tenants, echo):
    code = """
import socket, hashlib, random
sent = random.Random(1).randbytes(4_000_000)
with socket.create_connection(args['place'], timeout=30) as sock:
    sock.sendall(sent)
    sock.shutdown(socket.SHUT_WR)
    with sock.makefile('rb') as file:
        got = file.read()
found = [len(got), got == b'echo ' + sent]
"""
    assert found(tenants.neighbour, code, place=echo) == [4_000_005, True]


def test_datagrams_reach_a_listed_port(tenants, echo):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(echo)

        def answer():
            for _ in range(4):
                data, source = server.recvfrom(2000)
                server.sendto(b"echo " + data, source)

        threading.Thread(target=answer, daemon=True).start()
        code = """
import socket
found = []
connected, other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
connected.connect(tuple(args['place']))
for text in (b'one', b'two'):
    connected.settimeout(10)
    connected.send(text)
    found.append(connected.recv(100).decode())
    other.settimeout(10)
    other.sendto(text, tuple(args['place']))
    data, source = other.recvfrom(100)
    found.append([data.decode(), list(source)])
"""
        one, two = (["echo one", ["echo one", list(echo)]], ["echo two", ["echo two", list(echo)]])
        assert found(tenants.neighbour, code, place=echo) == [*one, *two]


def test_functions_call_the_platform(tenants):
    assert found(tenants.neighbour, API) == ["neighbour"]
    assert found(tenants.attacker, API) == ["attacker"]


def test_a_dead_relay_ends_connections_only(tenants, echo):
    """Sandboxes live on, calls go on, and the next relay takes over the networks that there are."""
    pid = found(tenants.neighbour, "import os; found = os.getpid(), os.stat('/proc/self/ns/net').st_ino")
    relay = relay_of(tenants.server)
    code = """
import socket
with socket.create_connection(args['place'], timeout=30) as sock:
    sock.sendall(b'begun')
    try:
        found = sock.recv(100).decode()
    except OSError as error:
        found = type(error).__name__
"""
    call = begin(tenants.neighbour, code, place=echo)
    wait_until(lambda: connections_of(relay), what="the function's connection")
    os.kill(relay, signal.SIGKILL)
    record = wait_until(
        lambda: tenants.neighbour.get(f"activations/{call}"), lambda got: got.is_success, what="the end of the call"
    ).json()
    assert record["response"]["result"]["found"] in ("", "ConnectionResetError")
    wait_until(
        lambda: found(tenants.neighbour, CONNECT, places=[echo]), lambda got: got == ["echo ping"], what="a new relay"
    )
    assert relay_of(tenants.server) not in (None, relay)
    assert found(tenants.neighbour, API) == ["neighbour"]
    tenants.check_neighbour()
    assert found(tenants.neighbour, "import os; found = os.getpid(), os.stat('/proc/self/ns/net').st_ino") == pid


def connections_of(pid):
    """Return the established connections of a process to the outside."""
    process = psutil.Process(pid)
    return [each for each in process.net_connections("tcp4") if each.status == psutil.CONN_ESTABLISHED]


FLOOD = """
import socket, time
held = []
deadline = time.monotonic() + args['seconds']
while time.monotonic() < deadline:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(tuple(args['place']))
    held.append(sock)
    if len(held) > 1000:
        for old in held[:500]:
            old.close()
        del held[:500]
    time.sleep(0.0005)
found = len(held)
"""


@pytest.mark.budget("connections to the outside")
def test_a_flood_of_connections_harms_only_its_tenant(tenants, echo):
    """The attacker is stopped at the tenant's limit, in two sandboxes, while the neighbour connects as before."""
    tenants.check_neighbour()
    calls = [begin(tenants.attacker, FLOOD, name=name, place=echo, seconds=2) for name in ("run", "other")]
    relay = relay_of(tenants.server)
    most = 0
    for _ in range(20):
        assert found(tenants.neighbour, CONNECT, places=[echo]) == ["echo ping"]
        most = max(most, len(connections_of(relay)))
    tenants.check_neighbour()
    assert 20 < most <= 41, "40 of the attacker, and one of the neighbour"
    for call in calls:
        wait_until(
            lambda call=call: tenants.attacker.get(f"activations/{call}").is_success, what="the end of the flood"
        )
    wait_until(lambda: len(connections_of(relay)), lambda left: left == 0, what="the end of all connections")
    assert found(tenants.attacker, CONNECT, places=[echo]) == ["echo ping"]
