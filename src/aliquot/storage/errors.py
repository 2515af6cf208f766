"""What goes wrong between an origin and a reader, by whose fault it is; each has the errno that a reader of files sees.

AliquotError
├── InputError
│   └── PathError       a path that leaves its dataset, or is none
└── StorageError
    ├── AbsentError     the origin has no file of this name
    ├── OriginError     the origin cannot be reached, does not answer, or answers wrongly
    ├── ChangedError    the file is not any more what was opened, or changes faster than it can be copied
    ├── RoomError       the cache is too small for what is asked, or the disk is full; all that could go has gone
    └── RefusedError    the cache does not do this: prefetches where their budget is 0, anything once it is closed
"""

import errno
from typing import ClassVar

from aliquot.core.errors import AliquotError, InputError


class PathError(InputError):
    """The text names the path and what is wrong with it."""

    errno: ClassVar[int] = errno.ENOENT


class StorageError(AliquotError):
    """The text may be shown to tenants: it names the dataset and the file, never an option of the origin."""

    errno: ClassVar[int] = errno.EIO


class AbsentError(StorageError):
    errno = errno.ENOENT


class OriginError(StorageError):
    errno = errno.EIO


class ChangedError(StorageError):
    errno = errno.ESTALE


class RoomError(StorageError):
    errno = errno.ENOSPC


class RefusedError(StorageError):
    errno = errno.EPERM
