"""One sandbox's view: answer the kernel's requests on one descriptor of `/dev/fuse`.

Everything runs on the views' thread. A request that must wait for a file, a piece or a first listing is put aside and
answered later, so that no other request waits for it.
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from aliquot.core.units import KIB
from aliquot.storage.cache import Cache, FileHandle
from aliquot.storage.errors import StorageError
from aliquot.storage.records import FileKey
from aliquot.storage.view import wire
from aliquot.storage.view.contents import NodeContents
from aliquot.storage.view.directories import Directories
from aliquot.storage.view.events import FileOpened, OnViewEvent, PieceWaited, PostWork
from aliquot.storage.view.file_operations import FileOperations, OpenCallbacks
from aliquot.storage.view.files import OpenFiles
from aliquot.storage.view.handles import TenantHandles
from aliquot.storage.view.inodes import Inode, InodeTable
from aliquot.storage.view.name_operations import NameOperations
from aliquot.storage.view.requests import FuseDevice, ViewRequests
from aliquot.storage.view.wire import Operation

log = structlog.get_logger("aliquot.view")

_PIECE_BYTES = 128 * KIB  # preferred size of reads where each read is a request


class ViewConnection:
    """The operations of one view, and the events that it reports."""

    def __init__(
        self, sandbox: int, device: int, datasets: Sequence[str], *, cache: Cache, names: NodeContents,
        on_event: OnViewEvent, post: PostWork, passthrough: bool, handles: TenantHandles,
    ) -> None:  # fmt: skip
        self.sandbox = sandbox
        self.device = device
        self._passthrough = passthrough
        self._on_event = on_event
        self._requests = ViewRequests(FuseDevice(device), post)
        inodes = InodeTable()
        self._directories = Directories(names, inodes, datasets, handles)
        self._files = OpenFiles(device, passthrough=passthrough)
        self._naming = NameOperations(self._requests, inodes, self._directories, names, self._failed)
        self._file_operations = FileOperations(
            self._requests,
            inodes,
            self._files,
            self._directories,
            cache,
            names,
            handles,
            OpenCallbacks(self._succeeded, self._failed, self._waited),
        )
        self._operations = self._make_operations()
        for dataset in datasets:
            if not names.is_known(dataset):
                names.learn(dataset)  # in parallel with the start of the function
        # An earlier agent may have left requests unanswered: the kernel sends them again.
        self._requests.device.send(wire.resend())

    def _make_operations(self) -> dict[int, Callable[[int, int, bytes], None]]:
        """Return the table of FUSE operations and the methods that perform them."""
        naming, files = self._naming, self._file_operations
        return {
            Operation.INIT: self._init,
            Operation.LOOKUP: naming.look_up,
            Operation.FORGET: naming.forget,
            Operation.BATCH_FORGET: naming.forget_many,
            Operation.GETATTR: naming.get_attributes,
            Operation.OPENDIR: naming.open_directory,
            Operation.READDIR: partial(naming.read_directory, plus=False),
            Operation.READDIRPLUS: partial(naming.read_directory, plus=True),
            Operation.RELEASEDIR: naming.release_directory,
            Operation.STATFS: naming.describe,
            Operation.OPEN: files.open,
            Operation.READ: files.read,
            Operation.RELEASE: files.release,
            Operation.INTERRUPT: self._interrupt,
            Operation.DESTROY: lambda _unique, _inode, _body: None,
        }

    def serve(self) -> None:
        """Perform the next request. Raises `UnmountedError`."""
        request = self._requests.device.receive()
        if request is None:
            return
        operation, unique, inode, body = request
        perform = self._operations.get(operation)
        if perform is None:
            self._requests.refuse(unique, errno.EROFS if operation in wire.CHANGES else errno.ENOSYS)
            return
        try:
            perform(unique, inode, body)
        except StorageError as error:
            self._requests.refuse(unique, error.errno)
        except Exception:  # the reader must get an answer in any case
            log.exception("a view's request failed", operation=operation, sandbox=self.sandbox)
            self._requests.refuse(unique, errno.EIO)

    def hide(self, dataset: str) -> None:
        """Hide a dataset for good. Open files stay readable."""
        self._directories.hide(dataset)

    def close(self) -> None:
        """Release all resources. Readers of a view that is still mounted get errors."""
        self._file_operations.close()
        self._requests.close()

    def _init(self, unique: int, _inode: int, body: bytes) -> None:
        agreed, answer = wire.init(body)
        passthrough = bool(agreed & wire.PASSTHROUGH) and self._passthrough
        self._files.negotiated(passthrough=passthrough, direct=bool(agreed & wire.DIRECT_MAPPABLE))
        if not passthrough:
            self._directories.set_block_bytes(_PIECE_BYTES)
        self._requests.answer(unique, answer)

    def _interrupt(self, _unique: int, _inode: int, body: bytes) -> None:
        self._requests.interrupt(*wire.HANDLE.unpack_from(body))

    def _succeeded(self, opened: FileHandle) -> None:
        waited_s = opened.waited_s + self._naming.waited_s()
        self._on_event(FileOpened(self.sandbox, opened.key, opened.listed.size, waited_s, opened.found))

    def _failed(self, node: Inode, error: BaseException, waited_s: float = 0.0) -> None:
        self._on_event(FileOpened(self.sandbox, node.key, 0, waited_s, None, str(error) or type(error).__name__))

    def _waited(self, key: FileKey, waited_s: float) -> None:
        self._on_event(PieceWaited(self.sandbox, key, waited_s))
