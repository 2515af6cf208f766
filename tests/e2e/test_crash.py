"""`kill -9` at any moment: every acknowledged call gets one record, nothing is half written, no process is left.

`make test` kills a few times; `make test-long` sets ALIQUOT_KILLS to 50.
"""

import json
import os
import threading
import time
from random import Random

import httpx
from awaiting import wait_for_record

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer, alive
from aliquot.testing.waiting import wait_until

KILLS = int(os.environ.get("ALIQUOT_KILLS", "4"))
WORK = """
import time

def main(args):
    time.sleep(args.get("s", 0))
    print("ran", args["n"])
    return {"n": args["n"]}
"""
# Calls `work` once, then returns its result.
LEAD = """
def main(args):
    if args.get("asked"):
        return {"error": args["error"]} if "error" in args else {"n": args["n"]}
    return {"action": "work", "params": args, "state": {"asked": True}}
"""
STATUSES = {"success", "whisk internal error"}


class Load:
    """Calls of one function, of three in a row, and by a trigger, without waiting and while waiting, and deployments.

    Until told to stop; keeps what was acknowledged.
    """

    def __init__(self, server, random):
        self.server = server
        self.random = random
        self.acknowledged = {}  # activation id: n
        self.fired = {}  # the same of triggers
        self.answered = {}  # of blocking calls
        self.versions = {}  # action: the last text whose PUT was acknowledged, and all that were sent later
        self._stop = threading.Event()
        self._numbers = iter(range(10**9))
        self._lock = threading.Lock()

    def number(self):
        with self._lock:
            return next(self._numbers)

    def run(self, seconds):
        """Put load on the server, kill it, and return the processes that it leaves behind."""
        self._stop.clear()
        seeds = [self.random.random() for _ in range(9)]
        threads = [
            threading.Thread(target=work, args=(Random(seed),))
            for work, seed in zip(
                (*[self._spawn] * 3, *[self._compose] * 2, self._fire, self._call, self._call, self._deploy),
                seeds,
                strict=True,
            )
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        orphans = self.server.descendants()
        self.server.kill()
        self._stop.set()
        for thread in threads:
            thread.join()
        return orphans

    def _until_it_dies(self, act):
        with self.server.client() as client:
            while not self._stop.is_set():
                try:
                    act(client)
                except httpx.TransportError:
                    return

    def _spawn(self, random):
        def act(client):
            n = self.number()
            answer = client.post("actions/work", json={"n": n, "s": random.choice([0, 0, 0.01, 0.2])})
            assert answer.status_code == 202, answer.text
            self.acknowledged[answer.json()["activationId"]] = n

        self._until_it_dies(act)

    def _compose(self, random):
        def act(client):
            n = self.number()
            payload = {"n": n, "s": random.choice([0, 0.01, 0.1])}
            answer = client.post(f"actions/{random.choice(['row', 'lead'])}", json=payload)
            assert answer.status_code == 202, answer.text
            self.acknowledged[answer.json()["activationId"]] = n

        self._until_it_dies(act)

    def _fire(self, random):
        def act(client):
            n = self.number()
            answer = client.post("triggers/event", json={"n": n})
            assert answer.status_code == 202, answer.text
            self.fired[answer.json()["activationId"]] = n

        self._until_it_dies(act)

    def _call(self, random):
        def act(client):
            n = self.number()
            answer = client.post("actions/work", params={"blocking": "true"}, json={"n": n})
            assert answer.status_code == 200, answer.text
            record = answer.json()
            assert record["response"]["result"] == {"n": n}
            got = client.get(f"activations/{record['activationId']}")
            assert got.status_code == 200, "the record is readable the moment its answer arrives"

        self._until_it_dies(act)

    def _deploy(self, random):
        def act(client):
            name = f"changing{random.randrange(3)}"
            text = f"# {self.number()} {'x' * random.randrange(20000)}\ndef main(args): return {{}}"
            self.versions.setdefault(name, []).append([text, False])
            body = {"exec": {"kind": "python:3.11", "code": text}}
            answer = client.put(f"actions/{name}", params={"overwrite": "true"}, json=body)
            assert answer.status_code == 200, answer.text
            self.versions[name][-1][1] = True

        self._until_it_dies(act)


def possible(sent):
    """Return the texts that an action may have after a crash: the last acknowledged one, or one sent after it."""
    acknowledged = max((index for index, (_, done) in enumerate(sent) if done), default=0)
    return [text for text, _ in sent[acknowledged:]]


def deploy(server):
    server.deploy("work", WORK)
    server.deploy("lead", LEAD, annotations=[{"key": "conductor", "value": True}])
    with server.client() as client:
        row = {"kind": "sequence", "components": ["/_/work"] * 3}
        for path, body in {
            "actions/row": {"exec": row},
            "triggers/event": {},
            "rules/one": {"trigger": "/_/event", "action": "/_/work"},
            "rules/two": {"trigger": "/_/event", "action": "/_/row"},
        }.items():
            client.put(path, json=body).raise_for_status()


def test_what_was_acknowledged_survives_kills_under_load(tmp_path):
    random = Random(7)
    server = LiveServer(tmp_path / "data").start()
    deploy(server)
    load = Load(server, random)
    for _ in range(KILLS):
        orphans = load.run(random.uniform(0.2, 1.5))
        assert orphans, "there were sandboxes to be orphaned"
        for pid in orphans:
            wait_until(lambda pid=pid: not alive(pid), what=f"the orphaned process {pid} to end")
        server.start()
        with server.client() as client:
            for name, sent in load.versions.items():
                got = client.get(f"actions/{name}")
                if got.status_code == 404:
                    assert not any(done for _, done in sent)
                else:
                    assert got.json()["exec"]["code"] in possible(sent)
                    load.versions[name] = [[got.json()["exec"]["code"], True]]
    with server.client() as client:
        for activation, n in load.fired.items():
            record = client.get(f"activations/{activation}").json()
            assert record["response"]["result"] == {"n": n}, "what was fired is recorded before it is acknowledged"
            lines = [json.loads(line) for line in record["logs"]]
            load.acknowledged.update((line["activationId"], n) for line in lines)
        for activation, n in load.acknowledged.items():
            response = wait_for_record(client, activation)["response"]
            assert response["status"] in STATUSES, response
            if response["success"]:
                assert response["result"] == {"n": n}
            else:
                assert "interrupted" in response["result"]["error"]
    assert load.acknowledged
    assert load.fired
    assert server.stop() == 0
    replayed = replay_file(tmp_path / "data")
    assert replayed.differences == []
    assert replayed.segments >= KILLS + 1, "each start opens a segment, and so does a full one"
