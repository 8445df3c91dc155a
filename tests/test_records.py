"""Typed values from JSON."""

import subprocess
import sys

IN_THREADS = """
import sys, threading
from dataclasses import make_dataclass
from framenest.records import convert

found = []
sys.setswitchinterval(1e-6)
for _ in range(100):
    inner = make_dataclass("Inner", [(f"b{i}", int) for i in range(20)])
    kind = make_dataclass("Outer", [*((f"a{i}", int) for i in range(30)), ("inner", inner)])
    data = {f"a{i}": i for i in range(30)} | {"inner": {f"b{i}": i for i in range(20)}}
    together = threading.Barrier(4)

    def read():
        together.wait()
        found.append(convert(data, kind).inner.b7)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(found), set(found))
"""


def test_threads_may_read_the_first_file_of_a_kind_at_once():
    """msgspec alone ends in a segmentation fault; the server died of it."""
    done = subprocess.run([sys.executable, "-c", IN_THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "400 {7}\n"), done.stderr
