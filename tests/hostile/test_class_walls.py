"""The set-up and the end of a class run behind the same walls as its calls, and cost a neighbour nothing."""

from aliquot.testing.client import to_pairs
from aliquot.testing.waiting import wait_until

CODE = """
import os, time, aliquot
app = aliquot.App("hostile")
def readable(paths):
    found = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                file.read(1)
            found.append(path)
        except OSError:
            pass
    return found
@app.cls
class Thief:
    @aliquot.enter
    def load(self):
        self.user = os.getuid()
        self.found = readable(FILES)
        self.processes = [name for name in os.listdir("/proc") if name.isdigit()]
        SET_UP
    def call(self):
        return [self.found, len(self.processes), self.user]
    @aliquot.exit
    def leave(self):
        while True:
            os.fork()
"""
SDK = to_pairs({"sdk": True, "exit": True})


def deploy(tenants, name, set_up="pass", **limits):
    files = [str(tenants.server.data / name) for name in ("operator.token", "aliquot.db", "local.json")]
    code = CODE.replace("FILES", repr([*files, "/etc/shadow", "/proc/1/mem"])).replace("SET_UP", set_up)
    tenants.attacker.deploy(name, code, main="Thief", annotations=SDK, limits=limits)


def test_a_set_up_sees_no_more_than_a_call(tenants):
    deploy(tenants, "thief")
    files, processes, user = tenants.attacker.result("thief", {})["value"]
    assert [name for name in files if name != "/proc/1/mem"] == []  # its own first process
    assert processes <= 2
    assert user != 0


def test_a_set_up_is_bounded_in_time_and_memory(tenants):
    deploy(tenants, "endless", "time.sleep(1000)", timeout=500)
    endless = tenants.attacker.call("endless", {})
    assert "500 milliseconds during initialization" in endless["response"]["result"]["error"]
    deploy(tenants, "hungry", "self.hoard = bytearray(1 << 30)", memory=128)
    hungry = tenants.attacker.call("hungry", {})
    assert "memory" in hungry["response"]["result"]["error"]
    tenants.check_neighbour()


def test_an_end_that_never_ends_is_ended(tenants):
    deploy(tenants, "forks")
    tenants.attacker.result("forks", {})
    before = set(tenants.server.descendants())
    tenants.attacker.delete("actions/forks").raise_for_status()
    tenants.check_neighbour()
    wait_until(lambda: len(set(tenants.server.descendants()) - before) <= 8, what="the end of the forked processes")
    assert tenants.neighbour.result("answer", {}) == {"answer": 42}


def test_held_sandboxes_of_one_tenant_leave_others_their_first_calls(tenants):
    held = to_pairs({"warm": 100})
    for number in range(4):
        tenants.attacker.deploy(f"held{number}", "def main(args):\n    return {}\n", annotations=held)
    tenants.check_neighbour()
    refused = tenants.attacker.put("actions/more", json={"exec": {"kind": "python:3.11", "code": "def main(a): pass"},
                                                         "annotations": to_pairs({"warm": 101})})  # fmt: skip
    assert "annotation warm: it takes a whole number from 0 to 100" in refused.text
    for number in range(4):
        tenants.attacker.delete(f"actions/held{number}").raise_for_status()
    tenants.check_neighbour()
