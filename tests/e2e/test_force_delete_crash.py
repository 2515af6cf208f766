"""A server killed while it deletes a package by force: the package is gone with all that was in it, or it is whole."""

import contextlib
import random
import threading
import time

import httpx

from aliquot.testing.server import LiveServer

CONTENTS = 12
ROUNDS = 2


def fill(client):
    client.put("packages/p", params={"overwrite": "true"}, json={}).raise_for_status()
    for number in range(CONTENTS):
        body = {"exec": {"kind": "python:3.11", "code": "def main(args): return args"}}
        client.put(f"actions/p/a{number}", params={"overwrite": "true"}, json=body).raise_for_status()


def delete(client, answers):
    with contextlib.suppress(httpx.HTTPError):  # the server is gone before it could answer
        answers.append(client.delete("packages/p", params={"force": "true"}).status_code)


def test_a_package_and_its_contents_outlive_a_crash_together_or_not_at_all(tmp_path):
    chance = random.Random(7)
    server = LiveServer(tmp_path / "data", "--devices", "host:1").start()
    try:
        for _ in range(ROUNDS):
            answers = []
            with server.client() as client:
                fill(client)
                deleting = threading.Thread(target=delete, args=(client, answers))
                deleting.start()
                time.sleep(chance.uniform(0, 0.008))
                server.kill()
                deleting.join()
            server.start()
            with server.client() as client:
                found = client.get("packages/p").status_code, client.get("actions", params={"count": "true"}).json()
            assert found in [(200, {"actions": CONTENTS}), (404, {"actions": 0})]
            assert not answers or found[0] == 404  # what was acknowledged is done
    finally:
        server.stop()
