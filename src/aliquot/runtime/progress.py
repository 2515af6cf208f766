"""The page on which a sandbox of a kernel graph tells the server which kernel runs."""

from __future__ import annotations

import struct

PROGRESS = struct.Struct("<QQ")  # the kernel that runs, counted from 1, and its iteration, counted from 0
