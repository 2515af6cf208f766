"""Two tenants on one real server: an attacker, and a neighbour who must not notice."""

from typing import NamedTuple

from places import DOCS

from aliquot.testing.client import NamespaceClient
from aliquot.testing.server import LiveServer

NEIGHBOUR_CODE = "def main(args):\n    return {'answer': 42}\n"
PAGE = DOCS / "reference" / "security.md"
served = []  # the server of each first call of a neighbour that was answered


class SmallServer(LiveServer):
    """A server that may open few files."""

    MAX_FILES = 512

    def command(self, command):
        return ["bash", "-c", f'ulimit -n {self.MAX_FILES}; exec "$@"', "bash", *command]


class Tenants(NamedTuple):
    server: LiveServer
    attacker: NamespaceClient
    neighbour: NamespaceClient

    def check_neighbour(self):
        """Deploy a function of the neighbour's and call it: its first call is served whatever the attacker does."""
        self.neighbour.deploy("answer", NEIGHBOUR_CODE)
        assert self.neighbour.result("answer", {}) == {"answer": 42}
        served.append(self.server)


def rows_of_the_page():
    """Return the first column of the table of budgets."""
    section = PAGE.read_text().partition("\n## Budgets\n")[2].partition("\n## ")[0]
    table = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return table[2:]
