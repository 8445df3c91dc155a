"""One of several processes, as torchrun and accelerate start them: scores noise and prints what it used.

python one_rank.py FOLDER [GPUS]: with GPUS, the CPU stands in for so many of them.
"""

import json
import sys

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from framenest import FrameBatch, ScorerConfig
from framenest.cache.directory import DirectoryStore
from framenest.scorers import checkpoint, load_scorer, torch_scorers

QUESTION = "what is the red dog doing?"


class StandIn(TorchFunctionMode):
    """Does on the CPU what torch is told to do on a GPU, and writes down on which."""

    def __init__(self, gpus):
        super().__init__()
        self.used = set()
        torch_scorers.has_gpu = torch.cuda.is_available = lambda: True
        torch.cuda.device_count = lambda: gpus
        torch.cuda.is_initialized = lambda: False  # before accelerate calls set_device
        torch.cuda.mem_get_info = lambda device: (self.cpu(device), (2**30, 2**30))[1]
        torch.cuda.synchronize = self.cpu
        import safetensors

        opened = safetensors.safe_open
        safetensors.safe_open = lambda *args, device, **more: opened(*args, device=self.cpu(device), **more)
        checkpoint._loader().submit(self.__enter__).result()  # a mode holds for one thread
        self.__enter__()

    def leave(self):
        """torch aborts a process if a thread has a mode left while Python ends."""
        self.__exit__(None, None, None)
        checkpoint._loader().submit(self.__exit__, None, None, None).result()

    def cpu(self, device):
        self.used.add(str(device))
        return "cpu"

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.pin_memory:
            return args[0]
        if function is torch.device:
            return function(*args)
        moved = [self.moved(value) for value in args]
        return function(*moved, **{name: self.moved(value) for name, value in (kwargs or {}).items()})

    def moved(self, value):
        is_gpu = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        return self.cpu(value) if is_gpu else value


def relevance(folder, config):
    """(devices, relevance) of eight pictures of noise."""
    scorer = load_scorer(f"blip2:{folder}", DirectoryStore(f"{folder}-store"), config)
    width, height = scorer.inputs[0].size(16, 9)
    pixels = np.random.default_rng(0).integers(0, 256, (8, height, width, 3), np.uint8)
    encoded = scorer.encode(FrameBatch(np.arange(8), np.arange(8) / 10, (pixels,)))
    return scorer.devices, scorer.match(encoded, QUESTION).tolist()


if __name__ == "__main__":
    folder, *gpus = sys.argv[1:]
    stand_in = StandIn(int(gpus[0])) if gpus else None
    devices, found = relevance(folder, ScorerConfig(precision="float32"))
    used = sorted(stand_in.used) if stand_in else None
    if stand_in:
        stand_in.leave()
    sys.stdout.write(json.dumps({"devices": devices, "used": used, "relevance": found}))
