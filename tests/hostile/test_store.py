"""What is kept on disk, what strangers may read, and the gateway's addresses: an attacker harms no neighbour."""

import socket
import subprocess
import sys

import httpx
import pytest

from aliquot.testing.client import check
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

LISTENER = """
import socket
def main(args):
    tried = {}
    for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address, args["port"]))
                one.listen()
            tried[address] = "bound"
        except OSError as error:
            tried[address] = error.strerror
    return tried
"""


# --- what strangers may read ---------------------------------------------------------------------------------


def test_strangers_learn_no_names_of_tenants_and_actions(tenants):
    tenants.check_neighbour()
    for path in ("/metrics", "/", "/health", "/openapi.json", "/api/v1", "/docs"):
        page = check(httpx.get(f"{tenants.server.url}{path}")).text
        assert "neighbour" not in page, path
        assert "attacker" not in page, path
    assert 'action="answer",namespace="neighbour"' in tenants.server.metrics()
    assert tenants.attacker.get(f"{tenants.server.url}/metrics").status_code == 401


def test_tenants_learn_no_path_of_the_machine_when_the_store_fails(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        with LiveServer(disk / "data") as server, server.client() as client:
            client.deploy("echo", "def main(args):\n    return {}\n")
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(65536))
                except OSError:
                    pass

            def write():
                answers = [client.post("actions/echo", json={"x": "y" * 10000}), httpx.get(f"{server.url}/health")]
                return [answer for answer in answers if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE]

            refusals = wait_until(write, what="a refusal because the disk is full", pause_s=0)
            for refusal in refusals:
                assert "full" in refusal.text
                assert str(tmp_path) not in refusal.text
                assert "aliquot.db" not in refusal.text
            assert str(disk) in server.log.read_text()  # the operator learns which disk
            filler.unlink()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


# --- the gateway's addresses -----------------------------------------------------------------------------------


def test_a_function_cannot_listen_on_the_other_address_of_localhost(tenants):
    port = int(tenants.server.url.rpartition(":")[2])
    tenants.attacker.deploy("listener", LISTENER)
    tried = tenants.attacker.result("listener", {"port": port})
    # It may bind the port in a network of its own. Clients reach the gateway on both addresses all the same.
    for address in ("127.0.0.1", "[::1]"):
        assert check(httpx.get(f"http://{address}:{port}/health")).json()["status"] == "ok", tried


def test_a_server_does_not_start_where_another_program_has_the_other_address(tmp_path):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "aliquot", "up", "--data", tmp_path / "data", "--port", str(port)]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert f"[::1]:{port} cannot be listened on" in " ".join(refused.stderr.split())


# --- the operator's token and the database file --------------------------------------------------------------------


def test_the_operators_token_survives_a_restart_and_an_emptied_database_is_refused(tmp_path):
    server = LiveServer(tmp_path / "data")
    with server:
        token = server.operator
        assert (tmp_path / "data" / "operator.token").read_text().strip() == token
    with server:
        assert server.operator == token
        new = server.operate("POST", "token")["token"]
        assert server.operator == new != token
        assert server.operate("GET", "namespaces")
    (tmp_path / "data" / "aliquot.db").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"aliquot\.db is empty"):
        server.start()
