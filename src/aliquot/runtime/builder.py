"""Builds an environment for functions: `python -I builder.py SETTINGS`, behind the walls that zygotes have.

An installation runs code of whoever wrote the packages. It gets a root of its own in which nothing can be written but
the environment and a scratch directory, and no privileges. SETTINGS is a JSON object: walls, directory, scratch, pip
(the command), requirements.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import linux, seccomp, walls
else:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from runtime import linux, seccomp, walls


def main() -> None:
    settings = json.loads(sys.argv[1])
    around = settings["walls"]
    os.umask(0o022)  # sandboxes are other users
    walls.enclose(around)
    linux.renounce_capabilities()
    if around["uids"] and not around["user"]:
        user = around["uids"][0]
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if around["user"] or around["uids"]:
        linux.drop_capabilities()
    linux.forbid_new_privileges()
    if around["seccomp"]:
        seccomp.install()
    os.environ["TMPDIR"] = os.environ["HOME"] = settings["scratch"]
    os.chdir(settings["scratch"])
    directory = settings["directory"]
    venv = [sys.executable, "-m", "venv", "--without-pip", directory]
    pip = [sys.executable, "-m", "pip", "--python", str(Path(directory, "bin", "python"))]
    if not settings["has_pip"]:
        venv.remove("--without-pip")
        pip = [str(Path(directory, "bin", "python")), "-m", "pip"]
    for command in (venv, [*pip, *settings["install"], *settings["requirements"]]):
        status = subprocess.call(command)  # noqa: S603 - no shell, and behind walls
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()
