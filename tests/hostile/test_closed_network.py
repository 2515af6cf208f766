"""Networks that the operator has closed, wholly or but for a list: what is not allowed fails at once."""

import socket

import pytest
from network_peers import API, CONNECT, RUN, WITH_KEY, echo_server, found, own_address
from sandboxes import strongest

from aliquot.live.node.network import machine
from aliquot.testing.server import LiveServer

pytestmark = pytest.mark.skipif(not strongest().network, reason="no network namespaces here")

FAILS_AT_ONCE = {"OSError", "ConnectionRefusedError", "ConnectionResetError", "gaierror"}


def test_a_closed_network_leaves_only_the_api(tmp_path, echo):
    with LiveServer(tmp_path / "data", "--egress", "none") as server, server.client() as client:
        client.deploy("run", RUN, **WITH_KEY)
        answers = found(client, CONNECT, places=[echo, ["192.0.2.1", 80], [own_address(), echo[1]], ["pypi.org", 443]])
        assert set(answers) <= FAILS_AT_ONCE
        assert found(client, API) == ["guest"]
        own = """
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
client.sendall(b'own')
found = server.accept()[0].recv(10).decode()
"""
        assert found(client, own) == "own"


DNS = """
import socket, struct
def ask(name):
    question = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + struct.pack('!xHH', 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.sendto(struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + question, (args['server'], 53))
        data = sock.recv(2000)
    number, flags, _, answers, _, _ = struct.unpack_from('!HHHHHH', data)
    assert number == 7
    return [flags & 15, [socket.inet_ntoa(data[len(data) - 16 * n - 4:][:4]) for n in range(answers)]]
found = [ask(name) for name in args['names']]
"""


def test_a_list_answers_only_for_the_names_in_it(tmp_path):
    """Names of other hosts do not leave the machine, because they could carry data out."""
    nameservers = [str(each) for each in machine.nameservers() if each.version == 4]
    name = socket.gethostname().lower()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        pytest.skip("the machine does not know its own name")
    if not nameservers:
        pytest.skip("the machine asks no nameserver")
    with (
        echo_server(address) as listed,
        LiveServer(tmp_path / "data", "--egress", f"{name}:{listed[1]}") as server,
        server.client() as client,
    ):
        client.deploy("run", RUN)
        assert found(client, DNS, server=nameservers[0], names=[name, "pypi.org"]) == [[0, [address]], [3, []]]
        (refused,) = found(client, CONNECT, places=[["192.0.2.1", 80]])
        assert refused in {"ConnectionResetError", "OSError"}  # reset, or unreachable
        if not address.startswith("127."):  # which a sandbox has for itself
            assert found(client, CONNECT, places=[listed]) == ["echo ping"]
