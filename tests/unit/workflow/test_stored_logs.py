"""Logs that an earlier version wrote replay to the commands that it gave."""

import json
from pathlib import Path

import msgspec
import pytest

from aliquot.testing.workflow import compiled
from aliquot.workflow.interpreter import Event, Execution

LOGS = sorted((Path(__file__).parent / "logs").glob("*.json"))


def test_there_are_logs():
    assert LOGS


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_stored_log_replays_to_its_commands(path):
    stored = json.loads(path.read_text(encoding="utf-8"))
    execution = Execution(compiled(stored["definition"]), secret=stored["secret"].encode())
    for (now, event), expected in zip(stored["log"], stored["commands"], strict=True):
        commands = execution.step([msgspec.convert(event, Event)], now)
        assert [msgspec.to_builtins(command) for command in commands] == expected
    assert execution.status == "SUCCEEDED"
