"""A service under test: real policies, a real store in a folder, a composer, and a node that the test plays."""

import asyncio
import functools
from contextlib import asynccontextmanager

import msgspec

from aliquot.config import PolicySettings
from aliquot.core.model import CPU, DeviceSpec
from aliquot.live.catalogue.catalogue import NAMESPACES, Catalogue
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.device.records import DeviceUsage
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.journal.replay import replay_file
from aliquot.live.invocations.sequences.composer import Composer
from aliquot.live.invocations.service import Service
from aliquot.live.profile.log import MIN_BYTES, ProfileLog
from aliquot.live.store.base import Document
from aliquot.live.store.records import FullName, Namespace
from aliquot.live.store.sqlite import SqliteStore
from aliquot.live.usage.file import MIN_FILE_BYTES, UsageFile
from aliquot.testing.node import ScriptedNode
from aliquot.testing.waiting import wait_on_loop

POLICIES = PolicySettings("fair_resident")
CPU_ONLY = (DeviceSpec(CPU, CPU, None, 4),)


class Rig:
    """Submits calls to `service` or `composer`, plays `node`, and collects ended calls in `ended`.

    `open` makes one. When it closes, the journal must replay to the same commands.
    """

    def __init__(self, folder, store, devices, settings):
        self.folder = folder
        self.store = store
        self.node = ScriptedNode(devices)
        self.service = Service(
            settings,
            self.node,
            store,
            host_memory_bytes=2**40,
            result_cache_bytes=2**20,
            open_usage_file=lambda: UsageFile(folder / "usage.ring", MIN_FILE_BYTES),
            profiles=ProfileLog(folder / "profile", MIN_BYTES),
        )
        self.catalogue = Catalogue(store, self.service)
        self.composer = Composer(self.service, store, self.catalogue.resolve)
        self.sampler = self.service.usage
        self.ended = []
        self._calls = 0
        self._ready = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, folder, *, catalogued=(), deployed=(), devices=CPU_ONLY, settings=POLICIES):
        """Start a service that knows these actions of `guest`, from the catalogue or straight from a deployment."""
        store = await SqliteStore.open(folder)
        rig = cls(folder, store, devices, settings)
        await rig.service.start()
        is_new = not await store.scan(NAMESPACES)
        if catalogued and is_new:  # its records have the owner `guest`
            await store.put(NAMESPACES, Document("guest", "guest", msgspec.json.encode(Namespace("guest"))))
        await rig.catalogue.load()
        if catalogued and is_new:
            async with rig.catalogue.writing("guest"):
                for action in catalogued:
                    await rig.catalogue.put(action)
        for action in deployed:
            rig.service.deploy(ResolvedAction.own(action))
        await rig.turn()
        try:
            yield rig
        finally:
            await rig.service.stop()
            await store.close()
        assert replay_file(folder).differences == []

    async def turn(self):
        for _ in range(5):
            await asyncio.sleep(0)

    async def until_ended(self, *calls):
        await wait_on_loop(
            lambda: self.ended, lambda ended: all(call in ended for call in calls), what="the calls' end"
        )

    def call(self, action, number=None, **more):
        """Make a call of an action, or of the catalogue's action with this name. Its id is made of the number."""
        self._calls += 1
        number = self._calls if number is None else number
        if isinstance(action, str):
            guest, resolved = (
                self.catalogue.namespace("guest"),
                self.catalogue.resolve("guest", FullName("guest", action)),
            )
        else:
            guest, resolved = Namespace("guest"), ResolvedAction.own(action)
        return Call(f"{number:032x}", guest, resolved, b"{}", done=self.ended.append, **more)

    def make_ready(self):
        for sandbox in set(self.node.started) - self._ready:
            self._ready.add(sandbox)
            self.node.ready(sandbox)

    async def running(self):
        """Make sandboxes ready until one has a run, and return its number."""

        def look():
            if not self.node.running:
                self.make_ready()
            return self.node.running

        (sandbox,) = await wait_on_loop(look, what="a run")
        return sandbox

    async def finish(self, result=b"{}", pickled=None):
        self.node.finish(await self.running(), result, pickled=pickled)

    async def finish_all(self):
        """Make every sandbox ready and end every run, until no call is left."""

        def look():
            self.make_ready()
            for sandbox in sorted(self.node.running):
                self.node.finish(sandbox)
            return self.service.calls

        await wait_on_loop(look, lambda calls: not calls, what="the end of all calls")

    async def record(self, call_id):
        found = await self.store.activation("guest", call_id)
        return None if found is None else msgspec.json.decode(found.response)

    async def queue(self):
        return [(one.name, one.started) for one in await self.store.unfinished()]

    async def begin(self, action):
        """Deploy an action, let a call of it run, and return the number of its sandbox."""
        self.service.deploy(ResolvedAction.own(action))
        self.service.submit(self.call(action))
        await self.turn()
        sandbox = self.node.starts[-1]
        self.node.ready(sandbox)
        self._ready.add(sandbox)
        await self.turn()
        return sandbox

    def use(self, sandbox, compute_s, memory_bytes=2**20):
        """Set what the sandbox has used of its accelerator so far."""
        self.node.used_so_far[sandbox] = DeviceUsage(sandbox, compute_s, memory_bytes)


def on_a_rig(**settings):
    """Turn a coroutine that takes a rig into a test, with a rig of its own in `tmp_path`."""

    def decorate(test):
        def in_loop(tmp_path):
            async def whole():
                async with Rig.open(tmp_path, **settings) as rig:
                    await test(rig)

            asyncio.run(whole())

        functools.update_wrapper(in_loop, test)
        del in_loop.__wrapped__  # pytest would take the fixtures from its signature
        return in_loop

    return decorate
