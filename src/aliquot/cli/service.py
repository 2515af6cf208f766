"""`aliquot service`: runs the platform as a service of systemd."""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import say
from aliquot.cli.up import DEFAULT_DATA
from aliquot.core.errors import InputError

NAME = "aliquot.service"
app = typer.Typer(help="Run the platform as a service of systemd, from the machine's start on.", no_args_is_help=True)

# Running calls end within `--grace` seconds. systemd kills what is left after that, and some time for the store.
_STOP_MARGIN_S = 30
_UNIT = """\
[Unit]
Description=Aliquot, serverless functions on shared GPUs
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command}
Environment=PYTHONUNBUFFERED=1
Restart=on-failure
RestartSec=2
TimeoutStopSec={stop_s}
KillMode=mixed
Delegate=yes
LimitNOFILE=1000000
TasksMax=infinity

[Install]
WantedBy={target}
"""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def install(
    context: typer.Context,
    data: Annotated[Path, typer.Option(envvar="ALIQUOT_DATA", help="The data folder.")] = DEFAULT_DATA,
    grace: Annotated[float, typer.Option(min=0, help="The seconds that running calls get when it stops.")] = 30,
    show: Annotated[bool, typer.Option("--show", help="Print the unit file and change nothing.")] = False,
) -> None:
    """Install and start the service. As root it is one of the machine, otherwise one of the user.

    Further options are those of [bold]aliquot up[/], for example: [bold]aliquot service install --port 8080[/]
    """
    folder = data.expanduser().absolute()
    up = [sys.executable, "-m", "aliquot", "up", "--data", str(folder), "--grace", f"{grace:g}", *context.args]
    unit = _UNIT.format(
        command=" ".join(_quoted(word) for word in up),
        stop_s=f"{grace + _STOP_MARGIN_S:g}",
        target="multi-user.target" if _is_root() else "default.target",
    )
    if show:
        say(unit.rstrip())
        return
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    say(f"wrote {path}")
    if not _systemctl("daemon-reload", "enable --now"):
        return
    if not _is_root():
        say(f"it ends when you log out, unless you run: loginctl enable-linger {pwd.getpwuid(os.getuid()).pw_name}")
    say(f"it runs; its output: {_journal()}")


@app.command()
def remove() -> None:
    """Stop the service and remove it. The data folder stays."""
    path = _path()
    if not path.exists():
        raise InputError(f"there is no service of this user: {path} does not exist")
    _systemctl("disable --now")
    path.unlink()
    _systemctl("daemon-reload")
    say(f"removed {path}; the data folder stays")


def _is_root() -> bool:
    return os.geteuid() == 0


def _path() -> Path:
    """Return the unit's file: of the machine for root, of the user otherwise."""
    if _is_root():
        return Path("/etc/systemd/system") / NAME
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(config) if Path(config).is_absolute() else Path("~/.config").expanduser()
    return base / "systemd" / "user" / NAME


def _quoted(word: str) -> str:
    """Quote a word as systemd reads it, which also expands % and $."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or shlex.quote(word) != word else word


def _systemctl(*requests: str) -> bool:
    """Run systemctl. Where systemd does not run, print what to run later and return False."""
    user = [] if _is_root() else ["--user"]
    commands = [
        ["systemctl", *user, *request.split(), *([] if request == "daemon-reload" else [NAME])] for request in requests
    ]
    if shutil.which("systemctl") is None or not Path("/run/systemd/system").is_dir():
        say("systemd does not run here; where it does, run: " + " && ".join(shlex.join(words) for words in commands))
        return False
    for words in commands:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - words of our own
        if done.returncode:
            raise InputError(f"{shlex.join(words)} failed: {done.stderr.strip()}")
    return True


def _journal() -> str:
    return f"journalctl {'' if _is_root() else '--user '}-u {NAME} -f"
