"""A platform of its own for tests: `aliquot up` in a process, and the commands that speak to it."""

import json
import os
import signal
import subprocess
import sys
import time

ALIQUOT = (sys.executable, "-c", "from aliquot.cli import main; main()")


class LivePlatform:
    def __init__(self, folder, *options):
        self.data = folder / "data"
        self.errors = (folder / "up.txt").open("w+")
        self.process = subprocess.Popen(
            [*ALIQUOT, "up", "--data", self.data, "--port", "0", *options], stdout=self.errors, stderr=self.errors
        )
        while not (self.data / "local.json").exists():
            assert self.process.poll() is None, (folder / "up.txt").read_text()
            time.sleep(0.02)
        self.local = json.loads((self.data / "local.json").read_text())

    @property
    def environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ALIQUOT_")}
        return {**kept, "ALIQUOT_DATA": str(self.data), "COLUMNS": "160", "TERM": "dumb"}

    def start(self, command, cwd=None, **environment):
        """`aliquot …` or `python …`, as a shell would."""
        program = {"aliquot": ALIQUOT, "python": (sys.executable,)}[command[0]]
        return subprocess.Popen(
            [*program, *map(str, command[1:])],
            cwd=cwd or self.data.parent,
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command, cwd=None, code=0, given=None, **environment):
        """What it printed to stdout, or to stderr if it was to fail."""
        process = self.start(command, cwd, **environment)
        out, err = process.communicate(given)
        assert process.returncode == code, out + err
        return err if code else out

    def aliquot(self, *arguments, **options):
        return self.run("aliquot", *arguments, **options)

    def json(self, *arguments, **options):
        return json.loads(self.run("aliquot", *arguments, "--json", **options))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.errors.close()
