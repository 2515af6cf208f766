"""Build a Python environment for functions, isolated like a zygote: `python -I builder.py SETTINGS`.

An installation runs code from the packages' authors. It gets its own root directory, where only the environment and a
scratch directory can be written, and no privileges. SETTINGS is a JSON object: isolation, directory, scratch, has_pip,
install (the arguments of pip), requirements.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import isolation, linux, seccomp
else:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from runtime import isolation, linux, seccomp


def main() -> None:
    settings = json.loads(sys.argv[1])
    layers = settings["isolation"]
    os.umask(0o022)  # sandboxes run as other users
    isolation.enclose(layers)
    linux.renounce_capabilities()
    if layers["uids"] and not layers["user"]:
        user = layers["uids"][0]
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if layers["user"] or layers["uids"]:
        linux.drop_capabilities()
    linux.forbid_new_privileges()
    if layers["seccomp"]:
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
        status = subprocess.call(command)  # noqa: S603 - no shell, and isolated
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()
