"""Starts that never end, and builds without measure: they are ended, and the neighbour is served meanwhile."""

import os
import subprocess
import sys

import pytest
from package_index import PackageIndex, source_archive
from wheels import make_wheel

from aliquot.testing.client import from_pairs, to_pairs
from aliquot.testing.waiting import wait_until

MEMORY_MIB = 256
DISK_MIB = 64
PROCESSES = 64
IMPORTS_MS = 1500
ANSWER = "def main(args):\n    return {'answer': 42}\n"
# Build backends, which run when their package is installed, each use up another resource.
EATS_MEMORY = "hoard = [bytearray(2**20) for _ in range(4096)]\n"
FORKS = """
import os, time
count = 0
try:
    while count < 2000:
        if os.fork() == 0:
            os.closerange(0, 100)
            time.sleep(1000)
        count += 1
except OSError:
    pass
raise SystemExit(f"ERROR: forked {count}")
"""
FILLS_DISK = """
import os, time
kept = []
while True:  # files without a name take space, too
    kept.append(os.open("hidden", os.O_CREAT | os.O_RDWR))
    os.unlink("hidden")
    os.write(kept[-1], bytes(2**20))
    time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def index():
    sources = {"hungry": EATS_MEMORY, "forking": FORKS, "filling": FILLS_DISK}
    packages = [source_archive(name, "1.0", code) for name, code in sources.items()]
    packages.append(make_wheel("endless", "1.0", "import time\ntime.sleep(1000)\n"))
    packages += [make_wheel(name, "1.0", f"TEXT = '{'x' * 3 * 2**20}'") for name in ("bulky", "large")]
    packages.append(make_wheel("tiny", "1.0", "VALUE = 1"))
    with PackageIndex(*packages, stuck=("stuck",)) as served:
        yield served


@pytest.fixture(scope="module")
def server_options():
    limits = {
        "build_memory_bytes": f"{MEMORY_MIB}MiB",
        "build_processes": PROCESSES,
        "environment_bytes": f"{DISK_MIB}MiB",
        "builds": 3,
        "builds_waiting": 2,
        "environments_tenant_bytes": "8MiB",
    }
    return ("--devices", "host:1", *(word for pair in limits.items() for word in ("--limit", "{}={}".format(*pair))))


@pytest.fixture(scope="module")
def server_environment(index):
    """Pip looks only at the index of this test."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    return inherited | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index.url, "PIP_RETRIES": "0"}


def invoke(client, name):
    """Begin a call without waiting for it, and return its id."""
    return client.post(f"actions/{name}", json={}).json()["activationId"]


def record(client, activation_id):
    """Return the record of a call, or None while it has not ended."""
    answer = client.get(f"activations/{activation_id}")
    return answer.json() if answer.is_success else None


def error(client, activation_id):
    """Wait for the end of a call that fails, and return its error."""
    found = wait_until(lambda: record(client, activation_id), what=f"the end of {activation_id}")
    assert not found["response"]["success"], found
    return found["response"]["result"]["error"]


def deploy(client, name, *, requirement="", imports=()):
    needs = {"requirements": [requirement or name], "imports": list(imports)}
    client.deploy(name, ANSWER, annotations=to_pairs(needs), limits={"timeout": IMPORTS_MS if imports else 60_000})


@pytest.fixture(scope="module")
def calls(tenants):
    """Calls of functions whose start never ends or takes too much, by package. All begin at once, to save time."""
    begun = {}
    for package, count in {"hungry": 1, "forking": 1, "filling": 1, "endless": 12}.items():
        deploy(tenants.attacker, package, imports=["endless"] if package == "endless" else [])
        begun[package] = [invoke(tenants.attacker, package) for _ in range(count)]
    return begun


@pytest.mark.budget("one build")
@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("hungry", f"exhausted its memory of {MEMORY_MIB} MiB (--limit build_memory_bytes)"),
        ("forking", "ERROR: forked "),
        ("filling", f"took more than {DISK_MIB} MiB of disk space"),
    ],
)
def test_a_build_that_takes_too_much_is_ended(tenants, calls, package, expected):
    tenants.check_neighbour()
    for call in calls[package]:
        said = error(tenants.attacker, call)
        assert expected in said
        if package == "forking":
            assert int(said.partition("forked ")[2].split()[0]) < PROCESSES


def test_imports_that_never_end_are_given_up_at_the_time_limit(tenants, calls):
    for call in calls["endless"]:
        said = error(tenants.attacker, call)
        assert f"The imports of the action (endless) exceeded its time limits of {IMPORTS_MS} milliseconds" in said
        assert "`timeout`" in said
        assert from_pairs(record(tenants.attacker, call)["annotations"])["timeout"] is True
    tenants.check_neighbour()


@pytest.fixture(scope="module")
def stuck(tenants, calls):
    """Calls that wait for builds which the index never answers: two that run, two that wait, and one more."""
    for call in (call for begun in calls.values() for call in begun):
        error(tenants.attacker, call)  # first these, whose builds take places
    begun = []
    for number in range(5):
        deploy(tenants.attacker, f"stuck{number}", requirement=f"stuck=={number}")
        begun.append([invoke(tenants.attacker, f"stuck{number}") for _ in range(12 if number == 0 else 1)])
    return begun


@pytest.mark.budget("slots, while an environment is built")
def test_calls_that_wait_for_an_index_that_never_answers_take_no_slot(tenants, stuck):
    tenants.check_neighbour()
    assert not any(record(tenants.attacker, call) for call in stuck[0]), "they still wait"
    builds = tenants.server.operate("GET", "status")["builds"]
    assert [(build["tenants"], build["requirements"], build["running"]) for build in builds] == [
        (["attacker"], [f"stuck=={number}"], number < 2) for number in range(4)
    ]
    assert all(build["asked_s_ago"] > 0 for build in builds)
    shown = subprocess.run(
        [sys.executable, "-m", "aliquot", "status", "--data", tenants.server.data],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "builds of environments: 2 wait" in shown
    assert shown.count("attacker") == 2


@pytest.mark.budget("builds")
def test_a_tenant_with_many_builds_is_refused_and_the_neighbours_begins_at_once(tenants, stuck):
    assert "2 environments of namespace attacker wait to be built" in error(tenants.attacker, stuck[4][0])
    deploy(tenants.neighbour, "tiny")
    assert tenants.neighbour.result("tiny", {}) == {"answer": 42}
    tenants.check_neighbour()
    assert not any(record(tenants.attacker, call) for call in stuck[0]), "it has not waited for the others"


def test_calls_that_waited_for_a_build_that_failed_get_the_installers_words(tenants, stuck, index):
    index.released.set()
    for call in (call for begun in stuck[:4] for call in begun):
        assert "No matching distribution found for stuck==" in error(tenants.attacker, call)


@pytest.mark.budget("environments")
def test_environments_that_take_too_much_make_way_and_the_neighbours_stay(tenants):
    deploy(tenants.neighbour, "tiny")
    tenants.neighbour.result("tiny", {})
    names = []
    for package in ("bulky", "large"):
        before = environments(tenants)
        deploy(tenants.attacker, package)
        assert tenants.attacker.result(package, {}) == {"answer": 42}
        tenants.attacker.delete(f"actions/{package}")  # ends its sandboxes
        names.append(environments(tenants) - before)
    (bulky,), (large,) = names
    left = wait_until(lambda: environments(tenants), lambda left: bulky not in left, what="the removal of the first")
    assert large in left
    tenants.neighbour.result("tiny", {})
    tenants.check_neighbour()


def environments(tenants):
    return {path.name for path in (tenants.server.data / "environments").iterdir() if (path / ".complete").exists()}


@pytest.mark.usefixtures("stuck")
def test_what_an_ended_build_has_written_is_gone(tenants):
    wait_until(
        lambda: list((tenants.server.data / "environments").iterdir()),
        lambda left: all((path / ".complete").exists() for path in left),
        what="the removal of what unfinished builds have written",
    )
