"""The errors of the storage fabric, by cause. Each has the errno that a reading program sees.

AliquotError
├── InputError
│   └── PathError          a path that leaves its dataset or is malformed
└── StorageError
    ├── AbsentError        the origin has no file of this name
    ├── OriginError        the origin is unreachable, silent, or answers wrongly
    ├── ChangedError       the file has changed since it was opened, or changes faster than it can be copied
    ├── RoomError          the cache is too small or the disk is full, after all possible evictions
    └── CacheRefusedError  the cache refuses: a prefetch with a budget of 0, or anything after it was closed
"""

import errno
from typing import ClassVar

from aliquot.core.errors import AliquotError, InputError


class PathError(InputError):
    """A path is not valid in a dataset. The text names the path and the fault."""

    errno: ClassVar[int] = errno.ENOENT


class StorageError(AliquotError):
    """The root of storage errors. The text names the dataset and the file, never an option of the origin."""

    errno: ClassVar[int] = errno.EIO


class AbsentError(StorageError):
    errno = errno.ENOENT


class OriginError(StorageError):
    errno = errno.EIO


class ChangedError(StorageError):
    errno = errno.ESTALE


class RoomError(StorageError):
    errno = errno.ENOSPC


class CacheRefusedError(StorageError):
    errno = errno.EPERM
