"""The sandboxes that have volumes mounted. A next storage agent takes their mounts over when one dies."""

import asyncio
from collections.abc import Callable

from aliquot.live.datasets.descriptor_channel import DescriptorChannel
from aliquot.live.datasets.kept_views import KeptViews
from aliquot.live.datasets.volumes import Volume, VolumeRegistry
from aliquot.live.node.base import Launch
from aliquot.storage.volumes.messages import MountVolumes, UnmountVolumes


class VolumeMounts:
    """Mounts volumes into sandboxes. Implements the node's `ViewProvider`."""

    def __init__(
        self, descriptors: DescriptorChannel, registry: VolumeRegistry, mount_lost: Callable[[int], None]
    ) -> None:
        self._registry = registry
        self._mounted: dict[int, MountVolumes] = {}  # by sandbox
        self._mount_lost = mount_lost
        self._views = KeptViews(descriptors, self._mounted.__getitem__, UnmountVolumes, self._lost)

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        found = self._registry.ids(launch.tenant, launch.volumes)
        self._mounted[sandbox] = MountVolumes(sandbox, found, launch.tenant)
        self._views.open(sandbox, device)
        if len(found) < len(launch.volumes):  # one was deleted while it started
            asyncio.get_running_loop().call_soon(self._mount_lost, sandbox)

    def close(self, sandbox: int) -> None:
        self._views.close(sandbox)
        self._mounted.pop(sandbox, None)

    def retire(self, volume: Volume) -> None:
        """Stop the sandboxes that have a deleted volume mounted. Runs may finish, without the volume's files."""
        for sandbox, mounted in list(self._mounted.items()):
            if volume.id in mounted.volumes.values():
                self._mount_lost(sandbox)

    def agent_lost(self) -> None:
        self._views.agent_lost()

    def stop(self) -> None:
        self._views.stop()

    def _lost(self, sandbox: int) -> None:
        self._mounted.pop(sandbox, None)
        self._mount_lost(sandbox)
