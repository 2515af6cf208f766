"""The launcher at the level of its frames: what the server never asks for, but others of its kind might."""

import json
import pickle
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliquot.runtime import frames

SCRIPT = """
import socket, sys
sys.path.insert(0, sys.argv[1])
from runtime import sdk_support
from runtime.launcher import Launcher
sdk_support.install_finder()
Launcher(socket.socket(fileno=int(sys.argv[2]))).serve()
"""


class Talk:
    def __init__(self):
        self.printed: bool | None = None  # as the last reply said
        self.sock, theirs = socket.socketpair()
        home = Path(frames.__file__).parent.parent
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", SCRIPT, home, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

    def ask(self, what: int, first: object, second: bytes = b"") -> tuple[int, object, bytes]:
        head = json.dumps(first).encode()
        self.sock.sendall(frames.REQUEST.pack(what, 0, len(head), len(second)) + head + second)
        status, self.printed, _, size, pickled = frames.REPLY.unpack(self._exactly(frames.REPLY.size))
        return status, json.loads(self._exactly(size)), self._exactly(pickled)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self.sock.recv(size - len(data))
            assert got, "the launcher has left"
            data += got
        return data

    def init(self, code: str, **settings: object) -> tuple[int, object, bytes]:
        description = {
            "name": "f",
            "code": code,
            "binary": False,
            "main": "main",
            "env": {},
            "sdk": False,
            "init_names": [],
        }
        return self.ask(
            frames.INIT, {**description, "result_bytes": 1000, "command": None, "data_bytes": None, **settings}
        )

    def close(self) -> tuple[bytes, bytes]:
        self.sock.close()
        return self.process.communicate()


@pytest.fixture
def talk():
    talk = Talk()
    yield talk
    talk.close()


def test_a_second_init_is_refused(talk):
    code = "def main(args):\n    return {}"
    assert talk.init(code) == (frames.SUCCESS, {}, b"")
    assert talk.init(code)[:2] == (frames.DEVELOPER_ERROR, {"error": "Cannot initialize the action more than once."})


def test_a_run_before_the_init_is_refused(talk):
    assert talk.ask(frames.RUN, {}, b"{}")[0] == frames.DEVELOPER_ERROR


def test_a_reply_says_that_nothing_was_printed(talk):
    talk.init("def main(args):\n    return {}")
    assert talk.printed is False
    talk.ask(frames.RUN, {}, b"{}")
    assert talk.printed is False


PRINTING = {
    "a line": "print('x')",
    "a line without its end": "import sys\n    sys.stdout.write('x')",
    "on stderr": "import sys\n    sys.stderr.write('x')",
    "on a descriptor": "import os\n    os.write(2, b'x')",
    "a C library": "import ctypes\n    ctypes.CDLL(None).write(1, b'x', 1)",
    "a child process": "import subprocess\n    subprocess.run(['echo', 'x'])",
    "on a copy of a descriptor that is closed": "import os\n    c = os.dup(1)\n    os.close(1)\n    os.write(c, b'x')",
    "on a copy of one that leads elsewhere": (
        "import os\n    c = os.dup(1)\n    os.dup2(os.open('/dev/null', 1), 1)\n    os.write(c, b'x')"
    ),
}


@pytest.mark.parametrize("how", PRINTING)
def test_a_reply_says_that_something_was_printed(talk, how):
    talk.init(f"def main(args):\n    {PRINTING[how]}\n    return {{}}")
    assert talk.printed is False
    talk.ask(frames.RUN, {}, b"{}")
    assert talk.printed is True
    assert b"".join(talk.close()).strip() == b"x"


def test_a_reply_says_that_the_import_printed(talk):
    talk.init("print('import')\ndef main(args):\n    return {}")
    assert talk.printed is True


def test_output_of_a_child_between_two_runs_is_reported_by_the_second(talk, tmp_path):
    go = tmp_path / "go"
    child = f"while [ ! -e {go} ]; do sleep 0.02; done; echo late"
    start = f"import subprocess\n        subprocess.Popen(['sh', '-c', {child!r}])"
    talk.init(f"def main(args):\n    if args:\n        {start}\n    return {{}}")
    talk.ask(frames.RUN, {}, b'{"start": true}')
    assert talk.printed is False
    go.touch()
    assert select.select([talk.process.stdout], [], [], 30)[0], "the child printed nothing"
    talk.ask(frames.RUN, {}, b"{}")
    assert talk.printed is True


def test_a_function_that_closes_every_descriptor_of_its_own_has_its_output_read(talk):
    talk.init("import os\ndef main(args):\n    os.closerange(90, 4096)\n    print('x')\n    return {}")
    talk.ask(frames.RUN, {}, b"{}")
    assert talk.printed is True


def test_a_frame_may_arrive_in_pieces(talk):
    talk.init("def main(args):\n    return {'size': len(args['text'])}")
    body = json.dumps({"text": "x" * 300_000}).encode()
    data = frames.REQUEST.pack(frames.RUN, 0, 2, len(body)) + b"{}" + body
    for start in range(0, len(data), 77_777):
        talk.sock.sendall(data[start : start + 77_777])
    assert talk._exactly(frames.REPLY.size + len('{"size":300000}')).endswith(b'{"size":300000}')


def test_it_leaves_when_the_server_does():
    talk = Talk()
    talk.init("def main(args):\n    return {}")
    talk.close()
    assert talk.process.returncode == 0


APP = """
import aliquot
app = aliquot.App("vision")

class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")

@app.function()
def add(x, y=1):
    return x + y

@app.function()
def fail(how):
    if how == "odd":
        raise Odd(1, 2)
    raise ValueError("no")

if __name__ == "__main__":
    raise SystemExit("run as a script")
"""


def call(talk, *args, **kwargs):
    status, told, pickled = talk.ask(frames.RUN_PICKLED, {}, pickle.dumps((args, kwargs), protocol=5))
    return status, told, pickle.loads(pickled) if pickled else None  # noqa: S301 - our own


def test_python_objects_pass_uncoded(talk):
    assert talk.init(APP, sdk=True, main="add")[0] == frames.SUCCESS
    status, told, value = call(talk, b"\0\xff", y=b"z")
    assert (status, value) == (frames.SUCCESS, b"\0\xffz")
    assert told == {"pickled": True, "size": len(pickle.dumps(value, protocol=5))}


def test_an_exception_is_handed_to_the_caller_with_its_traceback(talk):
    talk.init(APP, sdk=True, main="fail")
    status, told, error = call(talk, "so")
    assert (status, told) == (frames.APPLICATION_ERROR, {"error": "ValueError: no"})
    assert isinstance(error, ValueError)
    assert 'raise ValueError("no")' in error.__notes__[0]


def test_an_exception_that_does_not_travel_is_replaced(talk):
    talk.init(APP, sdk=True, main="fail")
    _, told, error = call(talk, "odd")
    assert told == {"error": "Odd: 1 and 2"}
    assert type(error) is RuntimeError
    assert str(error) == "Odd: 1 and 2"


def test_a_pickled_result_is_bounded_too(talk):
    talk.init(APP, sdk=True, main="add")
    status, told, value = call(talk, bytes(2000), y=b"")
    assert (status, value) == (frames.APPLICATION_ERROR, None)
    assert "exceeded the allowed length" in told["error"]


def test_an_app_function_takes_json_as_keyword_arguments(talk):
    talk.init(APP, sdk=True, main="add")
    assert talk.ask(frames.RUN, {}, b'{"x": 2}') == (frames.SUCCESS, {"value": 3}, b"")
    assert talk.ask(frames.RUN, {}, b'{"x": [1], "y": [2]}') == (frames.SUCCESS, {"value": [1, 2]}, b"")
    status, told, _ = talk.ask(frames.RUN, {}, b'{"z": 2}')
    assert status == frames.APPLICATION_ERROR
    assert "unexpected keyword argument 'z'" in told["error"]


def test_a_run_wakes_its_sandbox_once(talk):
    """A process that waits in `recv` is woken a second time, when the server reads its reply."""
    talk.init("def main(args):\n    return args")

    def waits():
        status = Path(f"/proc/{talk.process.pid}/status").read_text()
        return int(re.search(r"\nvoluntary_ctxt_switches:\t(\d+)", status)[1])

    before, runs = waits(), 100
    for _ in range(runs):
        talk.sock.sendall(frames.REQUEST.pack(frames.RUN, 0, 2, 2) + b"{}{}")
        select.select([talk.sock], [], [], 5)
        time.sleep(0.002)  # so that it waits again
        assert talk.sock.recv(100)[frames.REPLY.size :] == b"{}"
        time.sleep(0.002)
    assert waits() - before < 1.3 * runs
