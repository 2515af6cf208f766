"""The files of the console's page. They are read once, and their address has a digest of their content."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

_TYPES = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8", ".svg": b"image/svg+xml"}
_PAGE = "index.html"


class Asset(NamedTuple):
    """A file of the page."""

    media_type: bytes
    content: bytes


class Assets:
    """The page, and the files that it refers to by `assets/DIGEST/NAME`."""

    def __init__(self) -> None:
        folder = files("aliquot.web")
        self.files = {
            entry.name: Asset(_TYPES[suffix], entry.read_bytes())
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
            if (suffix := "." + entry.name.rpartition(".")[2]) in _TYPES
        }
        page = folder.joinpath(_PAGE).read_text(encoding="utf-8")
        whole = b"".join(name.encode() + asset.content for name, asset in self.files.items())
        self.digest = hashlib.sha256(whole + page.encode()).hexdigest()[:16]
        self.page = page.replace("{assets}", f"assets/{self.digest}").encode()

    def page_for(self, *, linked: bool) -> bytes:
        """Return the page. One that another page has led to is told so, because it must not log in by itself."""
        return self.page.replace(b"<html ", b"<html data-linked ", 1) if linked else self.page

    def find(self, path: str) -> Asset | None:
        """Return the file for a path such as `DIGEST/app.js`."""
        digest, _, name = path.partition("/")
        return self.files.get(name) if digest == self.digest else None
