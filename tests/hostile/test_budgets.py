"""One greedy tenant for each row of the table of budgets, and a neighbour who is served all the same."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aliquot.runtime.frames import REPLY
from aliquot.testing.server import open_files
from aliquot.testing.waiting import wait_until

MIB = 2**20
RESULT_BYTES = 8 * MIB
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "security.md"
MARKED = re.compile(r'^@pytest\.mark\.budget\("([^"]+)"\)', re.MULTILINE)
SDK = [{"key": "sdk", "value": True}]
BUFFERS = """
import aliquot
from aliquot.sdk.sandbox import sandbox
app = aliquot.App("greedy")
@app.function()
def take(count, size):
    fds = []
    try:
        for _ in range(count):
            fds.append(sandbox.channel.ask({"allocate": size})[1])
    except Exception as error:
        return {"held": len(fds), "why": str(error)}
    return {"held": len(fds), "why": ""}
"""
UNFINISHED = (
    f"import os, time\ndef main(args):\n    os.write(3, {REPLY.pack(0, False, 0, RESULT_BYTES, 0)!r})\n"
    "    os.write(3, b'x' * 100_000)\n    time.sleep(1000)\n"
)
LARGE = "def main(args):\n    return {'text': 'x' * args['size'], 'given': len(args.get('given', ''))}\n"


@pytest.fixture(scope="module")
def server_options():
    limits = {"payload_bytes": RESULT_BYTES, "bodies_bytes": 64 * MIB, "replies_bytes": 64 * MIB}
    options = [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]
    return ("--devices", "host:1", "--cpu-slots", "16", *options)


def rows_of_the_page():
    """Return the first column of the table of budgets."""
    section = PAGE.read_text().partition("\n## Budgets\n")[2].partition("\n## ")[0]
    table = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return table[2:]


def test_every_row_of_the_table_of_budgets_has_a_test_and_every_test_a_row():
    marked = {name for path in Path(__file__).parent.glob("test_*.py") for name in MARKED.findall(path.read_text())}
    rows = rows_of_the_page()
    assert len(rows) == len(set(rows))
    assert set(rows) == marked, 'each row needs a test with `@pytest.mark.budget("ROW")`, and each such test a row'


@pytest.mark.budget("shared buffers")
def test_shared_buffers_of_one_tenant_leave_those_of_others_and_the_server_its_descriptors(tenants):
    for client in (tenants.attacker, tenants.neighbour):
        for number in range(8 if client is tenants.attacker else 1):
            client.deploy(f"take{number}", BUFFERS, main="take", annotations=SDK, limits={"memory": 512})
    took = tenants.attacker.result("take0", {"count": 128, "size": 64 * MIB})
    assert took["held"] == 8  # within the sandbox's memory limit
    assert "memory limit" in took["why"]
    before = open_files(tenants.server.process.pid)
    for number in range(8):
        assert tenants.attacker.result(f"take{number}", {"count": 128, "size": 1})["held"] == 128
    held = wait_until(
        lambda: open_files(tenants.server.process.pid) - before,
        lambda more: more < 128,
        what="the shared buffers of ended runs to be closed",
    )
    assert held < 128
    assert tenants.neighbour.result("take0", {"count": 100, "size": 1})["held"] == 100


@pytest.mark.budget("reply bytes")
def test_unfinished_replies_of_one_tenant_delay_no_other_tenants_replies(tenants):
    tenants.attacker.deploy("unfinished", UNFINISHED, limits={"timeout": 60_000})
    started = [tenants.attacker.post("actions/unfinished").json()["activationId"] for _ in range(12)]
    tenants.neighbour.deploy("large", LARGE)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda _: tenants.neighbour.result("large", {"size": 2 * MIB}), range(8))
        assert [len(answer["text"]) for answer in answers] == [2 * MIB] * 8
    assert tenants.neighbour.result("large", {"size": 1, "given": "x" * 2 * MIB})["given"] == 2 * MIB
    for activation in started:
        tenants.attacker.delete(f"activations/{activation}").raise_for_status()
