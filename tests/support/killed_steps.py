"""Run a script in a process that is killed before its first change of a file, before its second, and so on."""

import os
import signal
import subprocess
import sys

TIMEOUT_S = 30
MAX_STEPS = 200
# Python announces each change of the file system before it makes it (an audit event).
_PREAMBLE = """
import os, signal, sys
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}
left = -1
def count(event, arguments):
    global left
    written = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if left >= 0 and (event in CHANGES or written):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
sys.addaudithook(count)
def arm():
    global left
    left = int(sys.argv[1])
folder = __import__("pathlib").Path(sys.argv[2])
"""


def child_environment():
    """Return an environment in which a child process imports the modules of the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def kill_at_each_step(script, root, check):
    """Run the script once for each step that it takes after `arm()`, in a folder of its own, and check what is left.

    The script finds its folder as `folder`. `check(folder)` is called after each kill, and after the whole run.
    Returns the number of steps.
    """
    for step in range(MAX_STEPS):
        folder = root / f"step-{step}"
        folder.mkdir(parents=True)
        command = [sys.executable, "-B", "-c", _PREAMBLE + script, str(step), str(folder)]
        ran = subprocess.run(
            command, env=child_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert ran.returncode in {0, -signal.SIGKILL}, ran.stderr
        check(folder)
        if ran.returncode == 0:
            assert step, "the script changes no file after arm()"
            return step
    raise AssertionError(f"the script takes more than {MAX_STEPS} steps")
