"""The server's side of the storage agent, with agents that misbehave."""

import asyncio
import os

from gateway_client import on_a_loop

from aliquot import worker_process
from aliquot.live.datasets import agent_process
from aliquot.live.datasets import fabric as fabrics
from aliquot.live.datasets.descriptor_channel import DescriptorChannel
from aliquot.live.datasets.readers import DatasetReaders
from aliquot.live.node.base import Launch
from aliquot.storage.frames import view_message_decoder
from aliquot.storage.messages import HideDataset, OpenView, StartAgent
from aliquot.storage.records import Dataset
from aliquot.storage.settings import FabricSettings
from aliquot.testing.store import MemoryStore
from aliquot.testing.waiting import wait_on_loop

GARBLED = """
import os, sys, time
os.write(int(sys.argv[1]), b"\\x04\\x00\\x00\\x00\\xc1\\xc1\\xc1\\xc1")
time.sleep(60)
"""


class CountingListener:
    def __init__(self):
        self.losses = 0

    def start_message(self):
        return StartAgent(FabricSettings(), ())

    def message_received(self, message):
        raise AssertionError(message)

    def agent_lost(self):
        self.losses += 1


@on_a_loop
async def test_an_agent_that_sends_an_invalid_message_is_restarted(tmp_path, monkeypatch):
    (tmp_path / "garbled_agent.py").write_text(GARBLED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(agent_process, "_MODULE", "garbled_agent")
    monkeypatch.setattr(worker_process, "STOP_TIMEOUT_S", 0.1)
    listener = CountingListener()
    agent = agent_process.StorageAgentProcess(listener, lambda _: None)
    agent.start()
    await wait_on_loop(lambda: listener.losses, lambda losses: losses >= 2, what="the agent to be lost twice")
    await agent.stop()


@on_a_loop
async def test_the_wait_for_a_removed_dataset_has_a_timeout(tmp_path, monkeypatch):
    (tmp_path / "silent_agent.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(agent_process, "_MODULE", "silent_agent")
    monkeypatch.setattr(worker_process, "STOP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(fabrics, "_REMOVAL_TIMEOUT_S", 0.2)
    fabric = fabrics.Fabric(MemoryStore(), FabricSettings())
    await fabric.datasets.put(Dataset("gone", "/srv"))
    await fabric.datasets.remove("gone")
    await fabric.wait_until_removed("gone")
    await fabric.stop()


@on_a_loop
async def test_a_sandbox_that_starts_while_a_dataset_is_taken_from_it_never_sees_it():
    sent, blind = [], []
    descriptors = DescriptorChannel(lambda: None)
    readers = DatasetReaders(
        sent.append,
        descriptors,
        lambda tenant, name: (tenant, name) == ("ann", "mine"),
        view_lost=blind.append,
        user_of=lambda *_: "",
    )
    launch = Launch(
        "ann", "f", "1", "0.0.1", "python:3.11", "", binary=False, main="main", env={}, timeout_ms=1, memory_bytes=1,
        logs_bytes=1, datasets=("mine", "theirs"),
    )  # fmt: skip
    readers.open(7, launch, os.open(os.devnull, os.O_RDONLY))
    (view,) = [view_message_decoder.decode(data) for data, _ in descriptors._waiting]
    assert view == OpenView(7, ("mine",), "ann")
    await asyncio.sleep(0)
    assert blind == [7]
    readers.retire(Dataset("mine", "/srv"), Dataset("mine", "/srv", tenants=("bob",)))
    assert sent == [HideDataset("mine", (7,))]
    readers.stop()
    descriptors.close()
