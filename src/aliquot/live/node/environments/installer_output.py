"""The lines that an installer prints."""

from collections.abc import Callable

from aliquot.core.units import KIB

READ_BYTES = 64 * KIB
_MAX_LINE_CHARS = 1000
_MAX_REPORTED_LINES = 2000  # of one build
_LAST_LINES = 5
_KEPT_LINES = 200
_PROXY = "index:/"  # instead of the address of the index proxy
_BUILD_FAILED, _END_OF_OUTPUT = "error: subprocess-exited-with-error", "[end of output]"  # as pip writes them


class InstallerOutput:
    """The lines that an installer prints. Their number and length are bounded, because packages may print anything."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._lines: list[str] = []
        self._rest = b""
        self._reported = 0
        self._address = ""

    def hide(self, address: str) -> None:
        """Leave out the address of the index proxy, which means nothing to readers, from now on."""
        self._address = address

    def add(self, chunk: bytes) -> None:
        *whole, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-READ_BYTES:]
        for line in whole:
            text = line.decode(errors="replace").rstrip()[:_MAX_LINE_CHARS]
            if self._address:
                text = text.replace(self._address, _PROXY)
            if text:
                self._lines = [*self._lines[-_KEPT_LINES:], text]
                self._reported += 1
                if self._reported <= _MAX_REPORTED_LINES:
                    self._report(text)

    def last_lines(self) -> str:
        return " ".join((self._lines or ["nothing"])[-_LAST_LINES:])

    def error_lines(self) -> str:
        """Return the installer's errors, the last words of a package's own build, or the last lines."""
        lines = [line.strip() for line in self._lines]
        errors = [line for line in lines if line.startswith(("ERROR", "error:")) and line != _BUILD_FAILED]
        if _END_OF_OUTPUT in lines:
            errors += lines[: lines.index(_END_OF_OUTPUT)][-_LAST_LINES:]
        return " ".join((errors or lines or ["it said nothing"])[-_LAST_LINES:])
