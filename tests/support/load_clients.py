"""Clients that call a real server at random, hang up, cancel and kill its sandboxes. They keep every answer.

Raw connections: a client that costs more than the server would measure itself.
"""

import asyncio
import base64
import contextlib
import json
from urllib.parse import quote

import httptools
import psutil

EVENTS = {"Accept": "text/event-stream"}
API = "/api/v1/namespaces/_"
ID = "x-openwhisk-activation-id"

TRIGGER = "load-trigger"

# What an action of each sort does with {"n": n}. "crash" ends its process, "fail" answers with an error.
SORTS = {
    "echo": "def main(args): return {'n': args['n']}",
    "sleep": "import time\ndef main(args):\n    time.sleep(args['n'] % 20 / 1000)\n    return {'n': args['n']}",
    "print": "def main(args):\n    print('x' * 200)\n    return {'n': args['n']}",
    "large": "def main(args): return {'n': args['n'], 'text': 'x' * 20_000}",
    "fail": "def main(args): return {'error': f\"no {args['n']}\"}",
    "crash": "import os\ndef main(args): os._exit(args['n'] % 3)",
    "conductor": "def main(args):\n    n = args['n']\n    if 'called' in args: return {'params': {'n': n}}\n"
    "    return {'action': 'load-echo-0', 'params': {'n': n}, 'state': {'called': True}}",
    "slow": "import time\ndef main(args):\n    time.sleep(30)\n    return {'n': args['n']}",  # its limit is shorter
}
MIX = ("echo", "echo", "sleep", "print", "sequence", "large", "fail", "conductor", "crash", "slow")
SLOW_LIMIT_MS = 150
ERROR_SORTS = {"fail", "crash", "slow"}


def sort_of(name):
    return name.split("-")[1]


def action_names(count):
    return [f"load-{MIX[number % len(MIX)]}-{number}" for number in range(count)]


def entity(name, sequence):
    """Return the body to PUT for an action of that name. A sequence consists of these components."""
    sort = sort_of(name)
    if sort == "sequence":
        return {"exec": {"kind": "sequence", "components": sequence}}
    limits = {"timeout": SLOW_LIMIT_MS} if sort == "slow" else {}
    annotations = [{"key": "conductor", "value": True}] if sort == "conductor" else []
    return {"exec": {"kind": "python:3.11", "code": SORTS[sort]}, "limits": limits, "annotations": annotations}


class Answer:
    """One response, as httptools reads it."""

    def __init__(self):
        self.status, self.headers, self.body, self.whole = 0, {}, b"", False

    def on_header(self, name, value):
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.whole = True

    def json(self):
        return json.loads(self.body)


class Connection:
    """One HTTP connection, opened when needed. It is closed after each answer unless it is `kept`."""

    def __init__(self, host, port, authorization, *, kept=False):
        self._where = (host, port)
        self._kept = kept
        self._authorization = authorization
        self._reader = self._writer = None

    async def ask(self, method, path, body=None, **headers):
        await self._send(method, path, body, headers)
        answer = Answer()
        parser = httptools.HttpResponseParser(answer)
        while not answer.whole:
            data = await self._reader.read(65536)
            if not data:
                raise ConnectionResetError(f"{method} {path}: the server closed before its answer was whole")
            parser.feed_data(data)
        answer.status = parser.get_status_code()
        if not self._kept or answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def hang_up_on(self, method, path, body, seconds, **headers):
        """Ask, and go away before the answer is whole."""
        await self._send(method, path, body, headers)
        await asyncio.sleep(seconds)
        self.close()

    async def _send(self, method, path, body, headers):
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._where)
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Host": "load", "Authorization": self._authorization, "Content-Length": len(content)} | headers
        if content:
            headers["Content-Type"] = "application/json"
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
        await self._writer.drain()

    def close(self):
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None


def connection_to(server, *, kept=False):
    """Return a connection with the key of the server's first namespace."""
    host, port = server.url.removeprefix("http://").split(":")
    authorization = "Basic " + base64.b64encode(server.key.encode()).decode()
    return Connection(host, int(port), authorization, kept=kept)


class Load:
    """Many clients at once on one server, for a while. What was acknowledged is kept by activation id."""

    def __init__(self, server, names, random):
        self.server, self.names, self.random = server, names, random
        self.acknowledged = {}  # activation id: (action, n)
        self.answered = {}  # activation id: the response that a blocking caller got
        self.counts = dict.fromkeys((act.__name__ for act, _ in self._acts()), 0) | {"killed": 0}
        self._numbers = iter(range(10**9))
        self._stop = False

    def connection(self):
        return connection_to(self.server)

    async def run(self, clients, seconds):
        self._stop = False
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, setattr, self, "_stop", True)
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client())
            group.create_task(self._killer())

    def _acts(self):
        """Return what a client may do, with weights."""
        return [
            (self.wait, 35),
            (self.wait_a_moment, 20),
            (self.not_wait, 20),
            (self.hang_up, 5),
            (self.follow, 5),
            (self.cancel, 10),
            (self.fire, 4),
            (self.replace, 1),
        ]

    async def _client(self):
        connection = self.connection()
        acts, weights = zip(*self._acts(), strict=True)
        try:
            while not self._stop:
                (act,) = self.random.choices(acts, weights)
                await act(connection)
                self.counts[act.__name__] += 1
        finally:
            connection.close()

    def _call(self):
        name, n = self.random.choice(self.names), next(self._numbers)
        return name, n, f"{API}/actions/{quote(name)}"

    def _keep(self, answer, name, n):
        activation = answer.headers[ID]
        assert activation not in self.acknowledged, "ids are given once"
        self.acknowledged[activation] = (name, n)
        return activation

    async def wait(self, connection, query="", statuses=(200, 500, 502)):
        name, n, path = self._call()
        answer = await connection.ask("POST", f"{path}?blocking=true{query}", {"n": n})
        assert answer.status in statuses, (name, answer.status, answer.body)
        activation = self._keep(answer, name, n)
        if answer.status == 202:
            assert answer.json() == {"activationId": activation}
            return
        self.answered[activation] = answer.json()["response"]
        if self.random.random() < 0.2:
            record = await connection.ask("GET", f"{API}/activations/{activation}")
            assert record.status == 200, "the record is readable the moment its answer arrives"

    async def wait_a_moment(self, connection):
        await self.wait(connection, f"&timeout={self.random.randint(1, 40)}", (200, 202, 500, 502))

    async def not_wait(self, connection):
        name, n, path = self._call()
        answer = await connection.ask("POST", path, {"n": n})
        assert answer.status == 202, (name, answer.status, answer.body)
        assert answer.json() == {"activationId": self._keep(answer, name, n)}

    async def hang_up(self, connection):
        _, n, path = self._call()
        headers = self.random.choice([{}, EVENTS])
        await connection.hang_up_on("POST", f"{path}?blocking=true", {"n": n}, self.random.random() / 50, **headers)

    async def follow(self, connection):
        """A call as events, to its end."""
        name, n, path = self._call()
        answer = await connection.ask("POST", f"{path}?blocking=true", {"n": n}, **EVENTS)
        assert answer.status == 200, (name, answer.status, answer.body)
        result = answer.body.partition(b"event: result\nid: end\ndata: ")[2]
        assert result, (name, answer.body)
        record = json.loads(result)
        assert record["activationId"].encode() in answer.body.splitlines()[2], "it was accepted first"
        assert record["activationId"] not in self.acknowledged, "ids are given once"
        self.acknowledged[record["activationId"]] = (name, n)
        self.answered[record["activationId"]] = record["response"]

    async def cancel(self, connection):
        """One of the last: it may wait, run, or have ended."""
        recent = list(self.acknowledged)[-300:]
        if recent:
            answer = await connection.ask("DELETE", f"{API}/activations/{self.random.choice(recent)}")
            assert answer.status == 202, (answer.status, answer.body)

    async def fire(self, connection):
        n = next(self._numbers)
        answer = await connection.ask("POST", f"{API}/triggers/{TRIGGER}", {"n": n})
        assert answer.status == 202, (answer.status, answer.body)
        self._keep(answer, TRIGGER, n)

    async def replace(self, connection):
        """A new revision of an action that others are calling."""
        name = self.random.choice([name for name in self.names if sort_of(name) != "sequence"])
        answer = await connection.ask("PUT", f"{API}/actions/{name}?overwrite=true", entity(name, []))
        assert answer.status == 200, (name, answer.status, answer.body)

    async def _killer(self):
        """SIGKILL to a sandbox now and then, whatever it does."""
        host, port = self.server.url.removeprefix("http://").split(":")
        connection = Connection(host, int(port), f"Bearer {self.server.operator}")
        while not self._stop:
            await asyncio.sleep(self.random.random() / 5)
            status = (await connection.ask("GET", "/operator/v1/status")).json()
            pids = [sandbox["pid"] for sandbox in status["sandboxes"] if sandbox["pid"]]
            if pids:
                self.counts["killed"] += kill(self.random.choice(pids), self.server.process.pid)
        connection.close()


def kill(pid, server):
    """Only what is still the server's: numbers are given again."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if any(parent.pid == server for parent in process.parents()):
            process.kill()
            return 1
    return 0
