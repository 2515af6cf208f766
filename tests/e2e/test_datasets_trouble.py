"""A storage agent that cannot work says why."""

import httpx

from aliquot.testing.server import LiveServer


def test_an_agent_that_cannot_work_says_why(tmp_path):
    with LiveServer(tmp_path / "one", "--cache-dir", str(tmp_path / "cache")) as one:
        add(one)
        with LiveServer(tmp_path / "two", "--cache-dir", str(tmp_path / "cache")) as two:
            answer = add(two)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the storage agent ended; ")
    assert "another" in answer.json()["error"]


def add(server):
    headers = {"authorization": f"Bearer {server.operator}"}
    return httpx.put(f"{server.url}/operator/v1/datasets/here", headers=headers, json={"url": "/tmp"}, timeout=60)  # noqa: S108
