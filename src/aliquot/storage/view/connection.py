"""One sandbox's view: answers what the kernel asks on one descriptor of `/dev/fuse`.

All of it happens on the views' one thread. What must be waited for, a file, a piece or a first listing, is waited for
aside, and its request answered when it is there: no other one waits with it.
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from aliquot.storage.cache import Cache, FileHandle
from aliquot.storage.errors import StorageError
from aliquot.storage.records import FileKey
from aliquot.storage.view import wire
from aliquot.storage.view.channel import FuseDevice
from aliquot.storage.view.contents import NodeContents
from aliquot.storage.view.directories import Directories
from aliquot.storage.view.events import FileOpened, OnViewEvent, PieceWaited, PostWork
from aliquot.storage.view.file_operations import FileOperations, OpenCallbacks
from aliquot.storage.view.files import OpenFiles
from aliquot.storage.view.inodes import Inode, InodeTable
from aliquot.storage.view.name_operations import NameOperations
from aliquot.storage.view.requests import ViewRequests
from aliquot.storage.view.wire import Operation

log = structlog.get_logger("aliquot.view")

_PIECE_BYTES = 128 * 1024  # what programs are told to read at a time where each piece is asked for


class ViewConnection:
    def __init__(
        self, sandbox: int, device: int, datasets: Sequence[str], *, cache: Cache, names: NodeContents,
        tell: OnViewEvent, post: PostWork, passthrough: bool,
    ) -> None:  # fmt: skip
        self.sandbox = sandbox
        self.device = device
        self._passthrough = passthrough
        self._tell = tell
        self._requests = ViewRequests(FuseDevice(device), post)
        inodes = InodeTable()
        self._directories = Directories(names, inodes, datasets)
        self._files = OpenFiles(device)
        self._files.passes = passthrough
        self._naming = naming = NameOperations(self._requests, inodes, self._directories, names, self._failed)
        self._reading = FileOperations(
            self._requests,
            inodes,
            self._files,
            self._directories,
            cache,
            names,
            OpenCallbacks(self._succeeded, self._failed, self._waited),
        )
        self._operations: dict[int, Callable[[int, int, bytes], None]] = {
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
            Operation.OPEN: self._reading.open,
            Operation.READ: self._reading.read,
            Operation.RELEASE: self._reading.release,
            Operation.INTERRUPT: self._interrupt,
            Operation.DESTROY: lambda _unique, _inode, _body: None,
        }
        for dataset in datasets:
            if not names.is_known(dataset):
                names.learn(dataset)  # while the function starts
        # If another agent has answered here before: what it read and left unanswered is asked again.
        self._requests.channel.send(wire.resend())

    def serve(self) -> None:
        """The next request. `GoneError` when there will be none."""
        request = self._requests.channel.receive()
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
        except Exception:  # whatever it is, whoever asked must not wait for ever
            log.exception("a view's request failed", operation=operation, sandbox=self.sandbox)
            self._requests.refuse(unique, errno.EIO)

    def hide(self, dataset: str) -> None:
        """It is not shown here any more, whatever becomes of its name; what is open stays readable."""
        self._directories.hide(dataset)

    def close(self) -> None:
        """Nothing is held for it any more; if it is still mounted somewhere, whoever reads there gets an error."""
        self._reading.close()
        self._requests.close()

    def _init(self, unique: int, _inode: int, body: bytes) -> None:
        agreed, said = wire.init(body)
        self._files.passes = bool(agreed & wire.PASSTHROUGH) and self._passthrough
        if not self._files.passes:
            self._files.direct = bool(agreed & wire.DIRECT_MAPPABLE)
            self._directories.block = _PIECE_BYTES
        self._requests.answer(unique, said)

    def _interrupt(self, _unique: int, _inode: int, body: bytes) -> None:
        self._requests.interrupt(*wire.HANDLE.unpack_from(body))

    def _succeeded(self, opened: FileHandle) -> None:
        waited_s = opened.waited_s + self._naming.waited_s()
        self._tell(FileOpened(self.sandbox, opened.key, opened.listed.size, waited_s, opened.found))

    def _failed(self, node: Inode, error: BaseException, waited_s: float = 0.0) -> None:
        self._tell(FileOpened(self.sandbox, node.key, 0, waited_s, None, str(error) or type(error).__name__))

    def _waited(self, key: FileKey, waited_s: float) -> None:
        self._tell(PieceWaited(self.sandbox, key, waited_s))
