"""A platform of its own for tests, and the commands that speak to it. Its journal replays in the end, as all must."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

from command_line import run_here

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer

PROGRAMS = {"aliquot": (sys.executable, "-m", "aliquot"), "python": (sys.executable,)}


class LivePlatform(LiveServer):
    def __init__(self, folder, *options):
        super().__init__(folder / "data", *options)
        self.folder = folder  # where commands run
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ALIQUOT_")}
        self.environment = {**kept, "ALIQUOT_DATA": str(self.data), "COLUMNS": "160", "TERM": "dumb"}

    def begin(self, *command, cwd=None, **environment):
        """`aliquot …` or `python …`, as a shell would."""
        return subprocess.Popen(
            [*PROGRAMS[command[0]], *map(str, command[1:])],
            cwd=cwd or self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command, cwd=None, code=0, given=None, **environment):
        """Return what the command printed to stdout, or to stderr if it is expected to fail."""
        process = self.begin(*command, cwd=cwd, **environment)
        out, err = process.communicate(given)
        assert process.returncode == code, out + err
        return err if code else out

    def aliquot(self, *arguments, **options):
        return self.run("aliquot", *arguments, **options)

    def json(self, *arguments, **options):
        return json.loads(self.run("aliquot", *arguments, "--json", **options))

    @contextmanager
    def repeating(self, *arguments):
        """A command again and again: who follows begins with what ends from then on, and nobody knows when that is."""
        ended = threading.Event()

        def repeat():
            while not ended.is_set():
                LivePlatform.run(self, "aliquot", *arguments)

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __exit__(self, *error):
        super().__exit__(*error)
        replayed = replay_file(self.data)
        assert replayed.steps
        assert not replayed.differences


class QuickPlatform(LivePlatform):
    """A platform whose commands run within the test's process, because starting a process for each is slow."""

    def run(self, *command, cwd=None, code=0, given=None, **environment):
        if command[0] != "aliquot" or given is not None or any(name.startswith("_") for name in environment):
            return super().run(*command, cwd=cwd, code=code, given=given, **environment)
        done = run_here(*command[1:], cwd=cwd or self.folder, environment={**self.environment, **environment})
        assert done.code == code, done.out + done.err
        return done.err if code else done.out
