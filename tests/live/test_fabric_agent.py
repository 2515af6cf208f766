"""The server's side of the storage agent, with agents that do what none should."""

import asyncio

from gateway_client import on_a_loop

from aliquot.live.fabric import agent as fabric_agent
from aliquot.storage.messages import Begin
from aliquot.storage.settings import FabricSettings

GARBLED = """
import os, sys, time
os.write(int(sys.argv[1]), b"\\x04\\x00\\x00\\x00\\xc1\\xc1\\xc1\\xc1")
time.sleep(60)
"""


class Peer:
    def __init__(self):
        self.lives = 0

    def greeting(self):
        return Begin(FabricSettings(), ())

    def heard(self, message):
        raise AssertionError(message)

    def lost(self):
        self.lives += 1


@on_a_loop
async def test_an_agent_that_says_what_is_no_message_is_followed_by_another(tmp_path, monkeypatch):
    (tmp_path / "garbled_agent.py").write_text(GARBLED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(fabric_agent, "_MODULE", "garbled_agent")
    monkeypatch.setattr(fabric_agent, "_STOP_S", 0.1)
    peer = Peer()
    agent = fabric_agent.Agent(peer)
    agent.start()
    while peer.lives < 2:
        await asyncio.sleep(0.02)
    await agent.stop()
