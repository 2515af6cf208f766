"""Count work exactly, in bytecodes, so that a test of cost passes on a busy machine, too."""

import sys


class BytecodeCounter:
    """Counts the bytecodes that run within its `with` blocks."""

    def __init__(self):
        self.count = 0

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            self.count += 1
        return self._trace
