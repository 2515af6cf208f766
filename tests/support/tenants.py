"""Two tenants on one real server: an attacker, and a neighbour who must not notice."""

from typing import NamedTuple

from aliquot.testing.client import NamespaceClient
from aliquot.testing.server import LiveServer

NEIGHBOUR_CODE = "def main(args):\n    return {'answer': 42}\n"


class Tenants(NamedTuple):
    server: LiveServer
    attacker: NamespaceClient
    neighbour: NamespaceClient

    def check_neighbour(self):
        """Deploy a function of the neighbour's and call it: it must be served whatever the attacker does."""
        self.neighbour.deploy("answer", NEIGHBOUR_CODE)
        assert self.neighbour.result("answer", {}) == {"answer": 42}
