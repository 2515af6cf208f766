"""The one heap of the server: threads allocate where the main thread does."""

import subprocess
import sys

import pytest

CODE = """
import ctypes, sys, threading
from aliquot.malloc import use_one_heap

if sys.argv[1] == "one":
    use_one_heap()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
found = []
threads = [threading.Thread(target=lambda: found.append(malloc(1000))) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
heap = next(line.split()[0] for line in open("/proc/self/maps") if "[heap]" in line)
begin, end = (int(text, 16) for text in heap.split("-"))
print(all(begin <= address < end for address in found))
"""


@pytest.mark.parametrize(("which", "same"), [("one", "True"), ("each", "False")])
def test_threads_share_the_heap_of_the_main_thread(which, same):
    done = subprocess.run([sys.executable, "-c", CODE, which], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == same
