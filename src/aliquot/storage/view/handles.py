"""The files and directories that sandboxes may have open through their views, by sandbox and by tenant."""

import errno

from aliquot.budgets import Budget, BudgetError, Reservation
from aliquot.storage.errors import StorageError
from aliquot.storage.view.inodes import Inode

MAX_OPEN_FILES = 4096  # per sandbox, and as many directories; the agent holds a descriptor for each file


class TooManyFilesError(StorageError):
    errno = errno.ENFILE


class TenantHandles:
    """The open files of one view, counted in its tenant's part."""

    def __init__(self, budget: Budget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant

    def reserve(self, node: Inode, already_open: int) -> Reservation:
        """Count another open file, beside those that the view has already. Raises `TooManyFilesError`."""
        if already_open >= MAX_OPEN_FILES:
            raise TooManyFilesError(f"{node.key}: the function has {MAX_OPEN_FILES} files of datasets open already")
        try:
            return self._budget.reserve(self._tenant, 1)
        except BudgetError as error:
            raise TooManyFilesError(f"{node.key}: {error}") from error
