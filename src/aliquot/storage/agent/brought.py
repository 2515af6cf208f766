"""What is here because it was predicted, and has not been opened since: by audience, and found by file."""

from collections.abc import Set as AbstractSet

from aliquot.core.prefetching.records import AudienceKey
from aliquot.storage.records import FileKey


class UnopenedPrefetches:
    def __init__(self) -> None:
        self._files: dict[AudienceKey, dict[FileKey, tuple[int, float]]] = {}  # bytes, seconds it took
        self._audiences: dict[FileKey, set[AudienceKey]] = {}  # that it was brought for

    def add(self, audience: AudienceKey, key: FileKey, size: int, seconds: float) -> None:
        self._files.setdefault(audience, {})[key] = (size, seconds)
        self._audiences.setdefault(key, set()).add(audience)

    def opened(self, key: FileKey) -> tuple[AudienceKey, int, float] | None:
        """Who it was brought for, or one of them, its bytes, and how long that took; None: it was not brought."""
        if key not in self._audiences:
            return None
        audiences = sorted(self._audiences[key])
        taken = [self._take(audience, key) for audience in audiences]
        return audiences[0], taken[0][0], max(seconds for _, seconds in taken)

    def give_up(self, audience: AudienceKey, keep: AbstractSet[FileKey] = frozenset()) -> int:
        """The bytes that were brought for this audience for nothing; what is to be kept may still be opened."""
        return sum(self._take(audience, key)[0] for key in list(self._files.get(audience, ())) if key not in keep)

    def _take(self, audience: AudienceKey, key: FileKey) -> tuple[int, float]:
        files, audiences = self._files[audience], self._audiences[key]
        taken = files.pop(key)
        audiences.remove(audience)
        if not files:
            del self._files[audience]
        if not audiences:
            del self._audiences[key]
        return taken
