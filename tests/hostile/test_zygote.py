"""Code that runs when a module is imported: an attacker's package must harm neither the server nor a neighbour."""

from pathlib import Path

import pytest
from wheels import wheel

from aliquot.testing.client import to_pairs

# The modules of the attacker's package. Each attacks when it is imported.
MODULES = {
    # Sends descriptors over every socket that it finds.
    "descriptors": """
import os, socket
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        found = socket.socket(fileno=os.dup(fd))
        for text in (b'{"ready": true}', b'{"ended": 1, "status": 0}', b'{}'):
            socket.send_fds(found, [text] * 1, [os.open("/dev/null", 0)] * 200)
            for _ in range(100):
                socket.send_fds(found, [b'{"ended": 1, "status": 0}'], [os.open("/dev/null", 0)] * 4)
    except OSError:
        pass
""",
    "quiet": "",
}
CODE = "def main(args):\n    return {'ran': True}\n"


@pytest.fixture(scope="module")
def server_options(tmp_path_factory):
    """Options of a server whose operator has a package directory instead of a network."""
    directory = tmp_path_factory.mktemp("index") / "wheels"
    wheel(directory, "attack", "1.0", MODULES)
    for path in (directory, *directory.parents[:3]):
        if path.name.startswith(("index", "wheels", "pytest-")):
            path.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(directory))
        yield ("--devices", "host:1")


def attack(tenants, module, code=CODE, name=None, **limits):
    """Call a function of the attacker's that imports a module of its package. Returns the record."""
    annotations = to_pairs({"requirements": ["attack"], "imports": [module]})
    body = {"limits": limits} if limits else {}
    tenants.attacker.deploy(name or module, code, annotations=annotations, **body)
    return tenants.attacker.call(name or module, {})


def error_of(record):
    assert not record["response"]["success"], record
    return str(record["response"]["result"]["error"])


def descriptors_of(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def test_descriptors_through_the_control_channel_are_closed_and_end_the_zygote(tenants):
    assert attack(tenants, "quiet")["response"]["success"]
    before = descriptors_of(tenants.server)
    for _ in range(5):
        assert "attack" not in error_of(attack(tenants, "descriptors"))
    assert descriptors_of(tenants.server) < before + 20
    tenants.check_neighbour()
