"""Runs a command as an ordinary user who may open `/dev/fuse`: `as_ordinary_user.py FOLDER COMMAND…`.

In a mount namespace of its own: the device's own node may be root's alone, and the interpreter may be in root's home.
"""

import os
import stat
import sys
from pathlib import Path

from aliquot.runtime import isolation, linux, mounts

USER = 65534
FUSE = os.makedev(10, 229)


def main() -> None:
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    repository = Path(__file__).parent.parent.parent
    os.mknod(folder / "fuse", 0o666 | stat.S_IFCHR, FUSE)
    (folder / "fuse").chmod(0o666)
    os.chown(folder, USER, USER)
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount(str(folder / "fuse"), "/dev/fuse", flags=linux.MS_BIND)
    visible = isolation.visible_paths([str(repository)])
    mounts.change_root(visible, str(folder / "hidden"), [str(folder)], ["/dev/fuse"])
    os.chdir(repository)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    linux.set_dumpable()
    os.execve(command[0], command, {**os.environ, "TMPDIR": str(folder)})  # noqa: S606


if __name__ == "__main__":
    main()
