"""Nothing that the command line prints is cut on a terminal of 80 columns."""

import io
import re
from itertools import pairwise

import pytest
import typer
from rich.console import Console

from aliquot.cli import status
from aliquot.cli.app import app
from aliquot.cli.results import table
from aliquot.tables import FittedTable

COLUMNS = 80
LONG = "a-function-with-a-name-of-39-characters"


def printed(made, width=COLUMNS):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(made)
    return console.file.getvalue()


def commands(group=None, path=()):
    """Yield the path of every command of `aliquot`."""
    group = group or typer.main.get_command(app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))


def help_of(path):
    command, context = typer.main.get_command(app), None
    for name in path:
        command = command.get_command(context, name)
    with typer.Context(command, info_name=" ".join(path), terminal_width=COLUMNS) as context:
        return command.get_help(context)


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_the_help_of_a_command_is_not_cut(path, monkeypatch, capsys):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", COLUMNS)
    text = help_of(path) + capsys.readouterr().out
    assert text.strip()
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert "…" not in text, [line for line in text.splitlines() if "…" in line]


@pytest.mark.parametrize("path", [(), *commands()], ids=" ".join)
def test_lines_of_a_help_text_break_only_where_the_terminal_ends(path, monkeypatch, capsys):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", COLUMNS)
    text = (help_of(path) + capsys.readouterr().out).split("╭")[0]
    for line, following in pairwise(line.strip() for line in text.splitlines()):
        if line and following and not following.startswith(("-", "*")):
            assert len(line) + 1 + len(following.split()[0]) > COLUMNS - 2, text


@pytest.mark.parametrize("boxed", [True, False])
def test_a_table_that_is_too_wide_is_shown_in_parts_that_repeat_the_name(boxed):
    made = FittedTable() if boxed else table("", "name", *(f">number {column}" for column in range(12)))
    if boxed:
        for column in ("name", *(f"number {column}" for column in range(12))):
            made.add_column(column)
    for row in range(3):
        made.add_row(f"row-{row}", *(str(10**6 * (row + 1) + column) for column in range(12)))
    text = printed(made)
    assert max(map(len, text.splitlines())) <= COLUMNS
    for row in range(3):
        for column in range(12):
            assert str(10**6 * (row + 1) + column) in text
        assert text.count(f"row-{row}") > 1
    assert printed(made, 300).count("row-1") == 1


def test_a_table_that_would_need_many_parts_is_turned():
    headers = ["name", *(f"number {column}" for column in range(8))]
    made = table("", *headers)
    for row in range(2):
        made.add_row(f"{row}-{LONG}-{LONG[:10]}", *(str(10**6 * (row + 1) + column) for column in range(8)))
    lines = printed(made).splitlines()
    assert [line.split()[-1] for line in lines[1:9]] == [str(10**6 + column) for column in range(8)]
    assert [line.strip() for line in lines].count("") == 1, "between two rows"
    assert lines[10].split() == ["name", f"1-{LONG}-{LONG[:10]}"]


def test_rows_are_named_by_the_columns_that_name_them():
    made = table("", "began", "function", "took", "activation", names=[3])
    for row in range(2):
        made.add_row("2026-01-01 12:00:00", "resize-all-images-of-a-user", "12 ms", f"{row}" * 32)
    text = printed(made)
    assert text.count("0" * 32) == text.count("1" * 32) == 2
    assert text.splitlines()[0].split() == ["activation", "began"]
    assert printed(made, 200).splitlines()[0].split() == ["began", "function", "took", "activation"]


def test_a_name_that_is_wider_than_the_terminal_is_folded_and_not_cut():
    made = table("", "name", ">calls")
    made.add_row("x" * 100, "123456")
    text = printed(made)
    assert "…" not in text
    assert text.count("x") == 100
    assert "123456" in text


def test_top_shows_every_name_and_number():
    flow = {
        "tenant": "a-tenant-with-a-long-name", "function": LONG, "weight": 1.25, "queued": 11111, "in_flight": 22222,
        "virtual_time": 333333.333, "run_estimate_s": 0.5, "arrivals": 4444444, "sandboxes": 55,
        "misfit": "no device has 64 GiB",
    }  # fmt: skip
    sandbox = {
        "sandbox": 1234567, "tenant": "a-tenant-with-a-long-name", "function": LONG, "device": "gpu-17",
        "state": "host-warm", "share": 0.25, "share_ceiling": 0.5, "share_used": 0.125, "device_bytes": 3 << 30,
        "uses": 7654321, "pid": 4194304, "processes": 999, "rss_bytes": 5 << 30, "cpu_s": 98765.4,
    }  # fmt: skip
    device = {
        "name": "gpu-17", "kind": "nvidia-a100", "running": 12, "slots": 100, "shares_used": 0.75,
        "utilisation": 0.5, "borrowed": 0.25, "lent": 0.125, "resident_bytes": 7 << 30, "memory_bytes": 80 << 30,
        "sandboxes": 64,
    }  # fmt: skip
    found = {"flows": [flow], "sandboxes": [sandbox], "devices": [device]}
    for made in (status._flows(found, 20), status._sandboxes(found, 20), status._devices(found)):
        text = printed(made)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= COLUMNS
    text = re.sub(r"\s", "", printed(status._flows(found, 20)))
    for word in (LONG, "11111", "22222", "333333.333", "4444444"):
        assert word in text
