"""The agent on an event loop of this process: an origin that hangs blocks only requests that need it."""

import asyncio
import contextlib
import socket
import subprocess
import threading

import pytest

from aliquot.storage.agent import agent as agents
from aliquot.storage.messages import (
    EndSession,
    EvictDataset,
    Predicted,
    PredictFiles,
    RemoveDataset,
    ShowDataset,
    ShowModels,
    StartAgent,
)
from aliquot.storage.records import Dataset
from aliquot.storage.settings import FabricSettings


@contextlib.asynccontextmanager
async def agent_of(directory, *datasets):
    """Return an agent and a queue of the messages that it sends."""
    told = asyncio.Queue()
    settings = FabricSettings(str(directory / "fabric"), str(directory / "cache"), 2**20)
    agent = agents.StorageAgent(StartAgent(settings, datasets), told.put_nowait)
    try:
        yield agent, told
    finally:
        await asyncio.to_thread(agent.close)


def test_an_origin_that_hangs_keeps_one_thread_and_everything_else_is_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "LOOKUP_TIMEOUT_S", 0.5)

    async def run(url):
        async with agent_of(tmp_path, Dataset("stuck", url)) as (agent, told):
            for request in range(20):
                agent.handle(ShowDataset(request, "stuck"))
            agent.handle(ShowModels(100))
            agent.handle(EvictDataset(101, "stuck"))
            first = {(await told.get()).request for _ in range(2)}
            assert sum(thread.name == "dataset lookup" for thread in threading.enumerate()) == 1
            shown = [await told.get() for _ in range(20)]
            agent.handle(RemoveDataset(102, "stuck"))
            assert (await told.get()).request == 102
            server.close()  # ends the requests that hang
            return first, shown

    with socket.create_server(("127.0.0.1", 0)) as server:
        first, shown = asyncio.run(run(f"http://127.0.0.1:{server.getsockname()[1]}"))
    assert first == {100, 101}
    assert {answer.request for answer in shown} == set(range(20))
    for answer in shown:
        assert answer.value == {"cached_files": 0, "cached_bytes": 0, "trouble": agents.STILL_LISTING}


def test_what_the_model_says_of_a_session_that_has_ended_is_not_kept(tmp_path):
    async def run():
        async with agent_of(tmp_path) as (agent, told):
            agent.handle(PredictFiles("ann", "s", ""))
            agent.handle(EndSession("ann", "s"))
            assert isinstance(await told.get(), Predicted)
            assert not agent._predictions._expected
            agent.handle(PredictFiles("ann", "s", ""))  # its name is used again
            assert isinstance(await told.get(), Predicted)
            assert list(agent._predictions._expected) == [("ann", "s")]

    asyncio.run(run())


@pytest.mark.parametrize("before", [True, False])
def test_an_agent_works_where_the_disk_has_been_filled(tmp_path, before):
    place = tmp_path / "disk"
    place.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("hello")
    dataset = Dataset("data", str(tmp_path / "data"))

    async def run():
        async with agent_of(place, dataset) as (agent, told):
            agent.handle(ShowModels(1))
            agent.handle(ShowDataset(2, "data"))
            return {(said := await told.get()).request: said.error for _ in range(2)}

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=True)
    try:
        if before:
            asyncio.run(run())
        with contextlib.suppress(OSError), (place / "of others").open("wb", buffering=0) as others:
            while True:
                others.write(bytes(4096))
        assert asyncio.run(run()) == {1: "", 2: ""}
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
