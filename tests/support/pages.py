"""Pages of the documents, with the lines and blocks of code that readers copy."""

import re
import shlex

from places import DOCS


class DocumentPage:
    """A page, by its path below docs/."""

    def __init__(self, path):
        self.text = (DOCS / path).read_text(encoding="utf-8")

    def section(self, title):
        """Return the page cut to one section."""
        part = DocumentPage.__new__(DocumentPage)
        found = re.search(rf"^##+ {re.escape(title)}$(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert found, f"there is no section '{title}'"
        part.text = found[1]
        return part

    def blocks(self, language):
        """Return the blocks of a language."""
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)

    def commands(self, program="aliquot"):
        """Return the words of each line that runs a program, without its name. Comments and continuations are read."""
        lines = re.sub(r"\\\n\s+", "", self.text)
        found = re.findall(rf"^ {{4}}{program} (.*)$", lines, re.MULTILINE)
        return [shlex.split(line, comments=True) for line in found]
