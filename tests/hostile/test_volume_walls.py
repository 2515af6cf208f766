"""Volumes and another tenant: an attacker neither reads a neighbour's, nor leaves its own, nor fills the disk."""

import pytest

from aliquot.testing.client import to_pairs

MIB = 2**20
NOTE = "the neighbour's own words"
KEEPS = """
import os
def main(args):
    path = os.environ['ALIQUOT_VOLUMES'] + '/own/note'
    if 'note' in args:
        open(path, 'w').write(args['note'])
    return {'note': open(path).read()}
"""
ATTACKS = """
import errno, os, pathlib
def refused(work, *args, **more):
    try:
        work(*args, **more)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 'allowed'

def main(args):
    here = '/volumes/loot'
    open(here + '/x', 'w').write('mine')
    os.chmod(here + '/x', 0o6777)
    tries = {
        'symlink': refused(os.symlink, '/', here + '/root'),
        'hard link': refused(os.link, '/etc/passwd', here + '/passwd'),
        'own hard link': refused(os.link, here + '/x', here + '/y'),
        'device': refused(os.mknod, here + '/null', 0o020666, os.makedev(1, 3)),
        'pipe': refused(os.mkfifo, here + '/pipe'),
        'another volume': refused(os.mkdir, '/volumes/own'),
        'above': refused(open, here + '/../../' + args['data'].strip('/') + '/aliquot.db'),
        'xattr': refused(os.setxattr, here + '/x', 'security.capability', b'x'),
        'no name': refused(lambda: os.open(here, os.O_TMPFILE | os.O_RDWR)),
    }
    deep = here
    for _ in range(500):
        deep += '/d'
        try:
            os.mkdir(deep)
        except OSError as error:
            tries['depth'] = errno.errorcode[error.errno]
            break
    found = [str(path) for path in pathlib.Path('/').rglob('note') if 'proc' not in path.parts]
    special = oct(os.stat(here + '/x').st_mode & 0o7000)
    return {'tries': tries, 'found': found, 'special': special, 'listing': os.listdir('/volumes')}
"""
FILLS = """
import os
def main(args):
    block, written = bytes(2**20), 0
    held = []
    try:
        for number in range(args['files']):
            held.append(open(f'/volumes/loot/{number}', 'wb', buffering=0))
            os.unlink(f'/volumes/loot/{number}')
            while True:
                written += held[-1].write(block)
    except OSError as error:
        return {'why': error.strerror, 'written': written}
"""
HOLDS = """
import os
def main(args):
    held = []
    try:
        for number in range(100_000):
            held.append(os.open('/volumes/loot/one', os.O_CREAT | os.O_RDWR))
    except OSError as error:
        return {'why': error.strerror, 'held': len(held)}
"""


@pytest.fixture(scope="module")
def tenants_with_volumes(tenants):
    tenants.attacker.put("volumes/loot", json={"size": 4 * MIB}).raise_for_status()
    tenants.neighbour.put("volumes/own", json={"size": 4 * MIB}).raise_for_status()
    tenants.neighbour.deploy("keeps", KEEPS, annotations=to_pairs({"volumes": ["own"]}))
    assert tenants.neighbour.result("keeps", {"note": NOTE}) == {"note": NOTE}
    return tenants


@pytest.fixture(scope="module")
def server_options():
    return ("--devices", "host:1", "--limit", "volumes_per_namespace=3", "--limit", f"volume_bytes={16 * MIB}")


def deploy(tenants, name, code):
    tenants.attacker.deploy(name, code, annotations=to_pairs({"volumes": ["loot"]}))


def test_a_sandbox_cannot_leave_its_volume(tenants_with_volumes):
    tenants = tenants_with_volumes
    deploy(tenants, "attacks", ATTACKS)
    answer = tenants.attacker.result("attacks", {"data": str(tenants.server.data)})
    tries = answer.pop("tries")
    assert answer == {"found": [], "special": "0o0", "listing": ["loot"]}
    assert all(value != "allowed" for value in tries.values()), tries
    assert (tries["symlink"], tries["own hard link"], tries["depth"]) == ("EPERM", "EPERM", "ENAMETOOLONG")
    assert tenants.neighbour.result("keeps", {}) == {"note": NOTE}


def test_a_neighbours_volume_is_out_of_reach_of_keys_names_and_paths(tenants_with_volumes):
    attacker, neighbour = tenants_with_volumes.attacker, tenants_with_volumes.neighbour
    theirs = f"{tenants_with_volumes.server.url}/api/v1/namespaces/neighbour"
    for method, path in (("GET", ""), ("GET", "/own"), ("DELETE", "/own"), ("GET", "/own/files?path=note")):
        assert attacker.request(method, f"{theirs}/volumes{path}").status_code == 403
    assert attacker.get("volumes/own").status_code == 404
    body = {"exec": {"kind": "python:3.11", "code": KEEPS}, "annotations": to_pairs({"volumes": ["own"]})}
    named = attacker.put("actions/thief", json=body)
    assert (named.status_code, "namespace attacker has no volume 'own'" in named.text) == (400, True)
    neighbour.put("packages/open", json={"publish": True}).raise_for_status()
    neighbour.deploy("open/shared", KEEPS, annotations=to_pairs({"volumes": ["own"]}))
    called = attacker.post(f"{theirs}/actions/open/shared", params={"blocking": "true"}, json={})
    assert "gets its volumes only in its own namespace" in called.json()["response"]["result"]["error"]
    for path in ("../../own/files/note", "..", "/../x", "a/../../x", "a\0", "."):
        for method in ("GET", "PUT", "DELETE"):
            answer = attacker.request(method, "volumes/loot/files", params={"path": path})
            assert answer.status_code in {400, 404}, (method, path, answer.text)


@pytest.mark.budget("volumes")
def test_a_tenant_that_fills_its_volumes_leaves_the_disk_to_others(tenants_with_volumes):
    tenants = tenants_with_volumes
    deploy(tenants, "fills", FILLS)
    used = tenants.attacker.get("volumes/loot").json()["used"]
    answer = tenants.attacker.result("fills", {"files": 50})
    assert answer["why"] == "Disk quota exceeded"
    assert used + answer["written"] <= 4 * MIB
    sizes = [tenants.attacker.put(f"volumes/more{number}", json={"size": 6 * MIB}) for number in range(4)]
    assert [answer.status_code for answer in sizes] == [200, 200, 429, 429]
    assert tenants.attacker.put("volumes/more0?overwrite=true", json={"size": 7 * MIB}).status_code == 413
    assert tenants.neighbour.result("keeps", {"note": NOTE * 1000}) == {"note": NOTE * 1000}
    tenants.check_neighbour()


@pytest.mark.budget("open files of volumes")
def test_a_tenant_that_holds_files_open_leaves_others_theirs(tenants_with_volumes):
    tenants = tenants_with_volumes
    deploy(tenants, "holds", HOLDS)
    answer = tenants.attacker.result("holds", {})
    assert answer["why"] in {"Too many open files", "Too many open files in system"}
    assert answer["held"] < 4096
    assert tenants.neighbour.result("keeps", {"note": NOTE}) == {"note": NOTE}
    tenants.check_neighbour()
