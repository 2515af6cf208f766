"""The table of budgets from above: a greedy tenant for each row, and the time that the neighbour's calls take."""

import os
import socket
import time
from contextlib import ExitStack
from statistics import median

import httpx
import psutil
import pytest
from package_index import PackageIndex
from sandboxes import strongest
from tenants import NEIGHBOUR_CODE, SmallServer, Tenants, rows_of_the_page

from aliquot.runtime.frames import REPLY
from aliquot.testing.client import to_pairs
from aliquot.testing.waiting import wait_until

pytestmark = pytest.mark.long

MIB = 2**20
SLOTS = 4
CALLS = 300
MAX_RATIO = 2
CLEAR_RATIO = 1.5  # below which one measurement is enough
SECONDS = 120  # longer than a measurement
SLEEPS = "import time\ndef main(args):\n    time.sleep(args['s'])\n    return {}\n"
PRINTS = """
import time
def main(args):
    for _ in range(5000):
        print("x" * 1000)
    time.sleep(args["s"])
"""
OPENS = """
import time
def main(args):
    held = []
    try:
        while True:
            held.append(open("/datasets/shared/one.txt"))
    except OSError:
        time.sleep(args["s"])
"""
CONNECTS = """
import socket, time
def main(args):
    held = []
    for _ in range(300):
        held.append(socket.socket())
        held[-1].setblocking(False)
        held[-1].connect_ex(tuple(args["place"]))
    time.sleep(args["s"])
"""
TAKES = """
import ctypes, time
def main(args):
    while ctypes.CDLL(None).inotify_init1(0) >= 0:
        pass
    time.sleep(args["s"])
"""
BUFFERS = """
import aliquot, time
from aliquot.sdk.sandbox import sandbox
app = aliquot.App("greedy")
@app.function()
def take(s):
    held = []
    try:
        while True:
            held.append(sandbox.channel.ask({"allocate": 1}))
    except Exception:
        time.sleep(s)
"""
UNFINISHED = (
    f"import os, time\ndef main(args):\n    os.write(3, {REPLY.pack(0, False, 0, 8 * MIB, 0)!r})\n"
    "    os.write(3, b'x' * 100_000)\n    time.sleep(args['s'])\n"
)
# In these rows the greedy tenant is a flood, which also takes the processor time of this test. Their own tests show
# that the neighbour's first call is served.
FLOODS = {
    "one build", "reads of records", "environments", "records", "results that wait for the disk", "disk", "JSON checks",
    "executions", "tasks of workflows", "steps of workflows",
}  # fmt: skip


class LargerServer(SmallServer):
    MAX_FILES = 1024


@pytest.fixture(scope="module")
def tenants(tmp_path_factory, echo):
    limits = {
        "bodies_bytes": 64 * MIB, "replies_bytes": 330 * MIB, "calls_in_flight": 400, "event_streams": 40,
        "unread_bytes": 8 * MIB, "egress_connections": 80, "entities_per_namespace": 200, "kept_bytes": 300 * MIB,
        "alarms_per_namespace": 50, "sessions_per_namespace": 50,
    }  # fmt: skip
    options = [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]
    options += [
        "--devices",
        "host:1",
        "--cpu-slots",
        str(SLOTS),
        "--grace",
        "1",
        "--egress",
        f"all,{echo[0]}:{echo[1]}",
    ]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    with PackageIndex(stuck=("stuck",)) as index:
        env = inherited | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index.url, "PIP_RETRIES": "0"}
        with (
            LargerServer(tmp_path_factory.mktemp("table") / "data", *options, env=env) as server,
            server.client(server.create_namespace("attacker")) as attacker,
            server.client(server.create_namespace("neighbour")) as neighbour,
        ):
            neighbour.deploy("answer", NEIGHBOUR_CODE)
            yield Tenants(server, attacker, neighbour)
        index.released.set()


class Attack:
    """The attacker's ways to take as much as it can of one row. What it holds is returned when `held` is closed."""

    def __init__(self, tenants, place, folder):
        self._server, self._attacker = tenants.server, tenants.attacker
        self._place = place
        self._folder = folder
        self.held = ExitStack()

    def _deploy(self, name, code, **more):
        self._attacker.deploy(name, code, **{"limits": {"timeout": 600_000}, **more})
        self.held.callback(self._attacker.delete, f"actions/{name}")  # ends its calls

    def _begin(self, name, count, **args):
        """Begin calls that last longer than the measurement, until all run or some are refused."""
        for _ in range(count):
            self._attacker.post(f"actions/{name}", json={"s": SECONDS, **args})

    def _connect(self, text):
        url = httpx.URL(self._server.url)
        wire = self.held.enter_context(socket.create_connection((url.host, url.port), timeout=30))
        wire.sendall(text)
        return wire

    def _head(self, method, path, *lines):
        request = next(self._attacker.auth.auth_flow(httpx.Request("GET", self._server.url)))
        signed = f"Authorization: {request.headers['authorization']}"
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", signed, *lines, "", ""]).encode()

    def shared_buffers(self):
        for number in range(SLOTS):
            self._deploy(f"take{number}", BUFFERS, main="take", annotations=to_pairs({"sdk": True}))
            self._begin(f"take{number}", 1)

    def slots_of_the_cpu_device(self):
        self._deploy("sleeps", SLEEPS)
        self._begin("sleeps", 3 * SLOTS)

    def host_memory(self):
        half = (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20) // 2
        for number in range(6):
            self._deploy(f"big{number}", SLEEPS, limits={"memory": half, "timeout": 600_000})
            self._begin(f"big{number}", 1)

    def payload_bytes(self):
        self._deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 600_000})
        self._begin("sleeps", 150, text="x" * 700_000)

    def calls_in_flight(self):
        self._deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 600_000})
        self._begin("sleeps", 250)

    def inotify_instances_and_pending_signals(self):
        self._deploy("takes", TAKES)
        self._begin("takes", 1)

    def reply_bytes(self):
        self._deploy("unfinished", UNFINISHED)
        self._begin("unfinished", 12)

    def connections(self):
        path = "/api/v1/namespaces/_/actions/sleeps?blocking=true&timeout=60000"
        self._deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 600_000})
        body = b'{"s":%d}' % SECONDS
        for _ in range(LargerServer.MAX_FILES // 2):
            self._connect(self._head("POST", path, f"Content-Length: {len(body)}") + body)

    def connections_without_a_key(self):
        for _ in range(LargerServer.MAX_FILES):
            self._connect(b"")

    def _follow(self, code):
        self._deploy("followed", code)
        activation = self._attacker.post("actions/followed", json={"s": SECONDS}).json()["activationId"]
        path = f"/api/v1/namespaces/_/activations/{activation}"
        return [self._connect(self._head("GET", path, "Accept: text/event-stream")) for _ in range(30)]

    def event_streams(self):
        self._follow(SLEEPS)

    def unread_responses(self):
        self._follow(PRINTS)

    def sandboxes(self):
        for number in range(14):
            self._deploy(f"warm{number}", SLEEPS)
            self._attacker.post(f"actions/warm{number}", params={"blocking": "true"}, json={"s": 0})

    def open_files_of_datasets(self):
        (self._folder / "one.txt").write_text("hello")
        self._server.operate("PUT", "datasets/shared", json={"url": str(self._folder)})
        self._deploy("opens", OPENS, annotations=to_pairs({"datasets": ["shared"]}))
        self._begin("opens", 2)

    def slots_while_an_environment_is_built(self):
        self._deploy("stuck", SLEEPS, annotations=to_pairs({"requirements": ["stuck"]}))
        self._begin("stuck", 3 * SLOTS)

    def builds(self):
        for number in range(12):
            self._deploy(f"stuck{number}", SLEEPS, annotations=to_pairs({"requirements": [f"stuck=={number}"]}))
            self._begin(f"stuck{number}", 1)

    def connections_to_the_outside(self):
        self._deploy("connects", CONNECTS)
        self._begin("connects", 2, place=self._place)

    def rules(self):
        self._deploy("slow", SLEEPS, limits={"instances": 1, "timeout": 600_000})
        self._attacker.put("triggers/fired", params={"overwrite": "true"}, json={})
        for number in range(100):
            rule = {"trigger": "/_/fired", "action": "/_/slow"}
            self._attacker.put(f"rules/r{number}", params={"overwrite": "true"}, json=rule)
        self._attacker.post("triggers/fired", json={"s": SECONDS, "text": "x" * 900_000})

    def disk_of_a_namespace(self):
        self._deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 600_000})
        for number in range(8):
            self._deploy_large(number)
        self._begin("sleeps", 150, text="x" * 900_000)

    def _deploy_large(self, number):
        code = f"x = '{'y' * 30_000_000}'\ndef main(args):\n    return {{}}\n"
        self._attacker.put(f"actions/large{number}", json={"exec": {"kind": "python:3.11", "code": code}})
        self.held.callback(self._attacker.delete, f"actions/large{number}")

    def entities(self):
        for number in range(200):
            answer = self._attacker.put(f"triggers/many{number}", json={})
            if answer.is_success:
                self.held.callback(self._attacker.delete, f"triggers/many{number}")

    def timers(self):
        for number in range(60):
            self._attacker.put(f"triggers/timer{number}", params={"overwrite": "true"}, json={})
            self._attacker.put(f"alarms/timer{number}", json={"minutes": 1})
            self.held.callback(self._attacker.delete, f"triggers/timer{number}")

    def sessions(self):
        for number in range(60):
            self._attacker.post(f"{self._server.url}/api/v1/sessions", json={"name": f"s{number}"})

    def names_in_metrics(self):
        for number in range(150):
            self._deploy(f"named{number}", SLEEPS)
            self._attacker.post(f"actions/named{number}", params={"blocking": "true"}, json={"s": 0})

    def zygotes(self):
        for name in ("abc", "ast", "bisect", "calendar", "cmath", "colorsys", "copy", "csv", "dis", "enum"):
            self._deploy(name, SLEEPS, annotations=to_pairs({"imports": [name]}))
            self._attacker.post(f"actions/{name}", params={"blocking": "true"}, json={"s": 0})


def method_of(row):
    return row.replace("`", "").replace(",", "").replace(" ", "_")


def settle(server):
    """Wait until no process of the server computes, so that starts which the attack began have ended."""
    quiet = 0
    for _ in range(200):
        states = [process.status() for process in psutil.Process(server.process.pid).children(recursive=True)]
        quiet = 0 if psutil.STATUS_RUNNING in states else quiet + 1
        if quiet > 10:
            return
        time.sleep(0.05)


def p99(tenants):
    took = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        assert tenants.neighbour.result("answer", {}) == {"answer": 42}
        took.append(time.perf_counter() - begun)
    return sorted(took)[-CALLS // 100]


@pytest.mark.parametrize("row", sorted(set(rows_of_the_page()) - FLOODS))
def test_the_p99_of_the_neighbour_stays_within_twice_its_quiet_value(tenants, echo, tmp_path, row):
    """The machine's own noise comes and goes, the attack's effect would stay: measure in turn, and take a median."""
    if row == "open files of datasets" and not strongest().views:
        pytest.skip("this machine cannot show datasets to functions")
    tmp_path.chmod(0o755)
    ratios = []
    for _ in range(7):
        quiet = p99(tenants)
        attack = Attack(tenants, echo, tmp_path)
        with attack.held:
            getattr(attack, method_of(row))()
            settle(tenants.server)
            ratios.append(p99(tenants) / quiet)
            tenants.check_neighbour()
        wait_until(
            lambda: tenants.server.operate("GET", "status")["flows"],
            lambda flows: not any(flow["in_flight"] for flow in flows),
            what="the end of the attack",
        )
        clear = ratios[0] < CLEAR_RATIO if len(ratios) == 1 else len(ratios) % 2 and median(ratios) < MAX_RATIO
        if clear:
            return
    pytest.fail(f"{row}: the p99 beside the attack was {median(ratios):.1f} times as long ({ratios})")
