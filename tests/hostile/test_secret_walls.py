"""Secrets and another tenant: it cannot name them, call for them, or read them from processes and files."""

from aliquot.testing.client import to_pairs

VALUE = "s3cr3t-of-the-neighbour"
HOLDS = "import os\ndef main(args):\n    return {'length': len(os.environ['TOKEN'])}\n"
# Reads all that it can of other processes and of the server's folder, without having the value itself in its code.
SEARCHES = """
import os, pathlib
def main(args):
    wanted, found = args['part'].encode() + b'-of-the-neighbour', []
    for path in [*pathlib.Path('/proc').glob('[0-9]*/environ'), *map(pathlib.Path, args['files'])]:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if wanted in content or path.name == 'secrets.key':
            found.append(str(path))
    return {'found': found, 'own': [name for name in os.environ if wanted.decode() in os.environ[name]]}
"""


def test_a_neighbours_secret_is_out_of_reach(tenants):
    attacker, neighbour = tenants.attacker, tenants.neighbour
    neighbour.put("secrets/hf", json={"variables": {"TOKEN": VALUE}}).raise_for_status()
    neighbour.put("packages/open", json={"publish": True}).raise_for_status()
    for name in ("holds", "open/shared"):
        neighbour.deploy(name, HOLDS, annotations=to_pairs({"secrets": ["hf"]}))
    assert neighbour.result("holds", {}) == {"length": len(VALUE)}

    named = attacker.put(
        "actions/thief",
        json={"exec": {"kind": "python:3.11", "code": HOLDS}, "annotations": to_pairs({"secrets": ["hf"]})},
    )
    assert (named.status_code, "namespace attacker has no secret 'hf'" in named.text) == (400, True)
    theirs = f"{tenants.server.url}/api/v1/namespaces/neighbour"
    called = attacker.post(f"{theirs}/actions/open/shared", params={"blocking": "true"}, json={})
    assert "gets its secrets only in its own namespace" in called.json()["response"]["result"]["error"]
    assert attacker.get(f"{theirs}/secrets").status_code == 403
    attacker.put("packages/bound", json={"binding": {"namespace": "neighbour", "name": "open"}}).raise_for_status()
    bound = attacker.call("bound/shared", {})
    assert "gets its secrets only in its own namespace" in bound["response"]["result"]["error"]

    data = tenants.server.data
    files = [str(data / name) for name in ("secrets.key", "aliquot.db", "aliquot.db-wal")]
    attacker.deploy("searches", SEARCHES)
    assert attacker.result("searches", {"part": "s3cr3t", "files": files}) == {"found": [], "own": []}
    assert neighbour.result("holds", {}) == {"length": len(VALUE)}
