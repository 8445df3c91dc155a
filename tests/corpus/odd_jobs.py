"""A job whose workers misbehave at certain videos, by their names; the rest is real work."""

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from framenest.corpus.batch_job import BatchJob


def waiting(progress):
    """Goes no further than the first batch of 16 frames, decoded and encoded, until it is cancelled."""

    def report(stage, done, total):
        progress(stage, done, total)
        while 16 <= done < total:
            time.sleep(0.02)
            progress(stage, done, total)

    return report


@dataclass(frozen=True)
class OddJob(BatchJob):
    """first_start: a file that the first worker makes before it is killed, while it still loads.
    only_start: a file that the first worker makes; every other is killed while it still loads.
    """

    first_start: str = ""
    only_start: str = ""

    def open(self, scorer=None):
        if self.first_start and not Path(self.first_start).exists():
            Path(self.first_start).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.only_start:
            try:
                Path(self.only_start).touch(exist_ok=False)
            except FileExistsError:
                os.kill(os.getpid(), signal.SIGKILL)
        work = super().open(scorer)

        def odd(group, **told):
            for item in group:
                what = f"{Path(item.video).name} {item.request.question}"
                if "hang" in what:
                    time.sleep(3600)
                if "crash" in what:
                    ctypes.string_at(0)  # reads where nothing is
                if "greedy" in what:
                    hoard = bytearray(os.urandom(2**20) * 600)
                    time.sleep(3600)
                    del hoard
                if "wait" in what:
                    told["progress"] = waiting(told["progress"])
            return work(group, **told)

        return odd
