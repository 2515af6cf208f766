"""The parts of datasets that nodes hold, and the time to bring the rest."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.core.nodes import Node


class Datasets:
    """The nodes that hold each dataset, and how long the rest of it would take to another node.

    Nodes hold what calls have read, so the largest part that any node has held is taken for what a call may read.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._nodes: dict[str, dict[str, Node]] = {}  # nodes that hold a part, by dataset

    def hold(self, node: "Node", dataset: str, size: int) -> None:
        """Record how many bytes of the dataset are on the node."""
        if size:
            node.holdings[dataset] = size
            self._nodes.setdefault(dataset, {})[node.spec.name] = node
            self._sizes[dataset] = max(size, self._sizes.get(dataset, 0))
        else:
            self._drop(node, dataset)

    def forget(self, dataset: str) -> None:
        """Forget a dataset that was removed or has another origin."""
        for node in list(self._nodes.get(dataset, {}).values()):
            self._drop(node, dataset)
        self._sizes.pop(dataset, None)

    def node_lost(self, node: "Node") -> None:
        for dataset in list(node.holdings):
            self._drop(node, dataset)

    def holders(self, dataset: str) -> "Mapping[str, Node]":
        """Return the nodes that hold a part of the dataset, by name."""
        return self._nodes.get(dataset, {})

    def transfer_s(self, names: tuple[str, ...], node: "Node") -> float:
        """Return the seconds to bring the missing parts of these datasets to the node, or 0 if that is unknown."""
        bandwidth = node.spec.bandwidth_bytes_s
        if not bandwidth:
            return 0.0
        return sum(self._sizes.get(name, 0) - node.holdings.get(name, 0) for name in names) / bandwidth

    def _drop(self, node: "Node", dataset: str) -> None:
        if node.holdings.pop(dataset, None) is not None:
            holders = self._nodes[dataset]
            del holders[node.spec.name]
            if not holders:
                del self._nodes[dataset]
