"""What the driver says of this machine's GPU; importing torch to ask would take seconds."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any


def has_gpu() -> bool:
    """Whether torch would find a CUDA GPU."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:  # then whether there is one of NVIDIA's
        return shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()
    built = runpy.run_path(str(Path(torch.origin).with_name("version.py")))
    if built.get("hip"):
        return bool(importlib.import_module("torch").cuda.is_available())
    driver = _driver() if built.get("cuda") else None
    if driver is None:
        return False
    version, count = ctypes.c_int(), ctypes.c_int()
    asked = (driver.cuDriverGetVersion(ctypes.byref(version)), driver.cuDeviceGetCount(ctypes.byref(count)))
    new_enough = version.value // 1000 >= int(built["cuda"].split(".")[0])
    return not any(asked) and new_enough and count.value > 0


def gpu_memory() -> int:
    """Bytes of memory of the first CUDA GPU; 0 where there is none or it does not tell."""
    driver = _driver()
    device, size = ctypes.c_int(), ctypes.c_size_t()
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), 0):
        return 0
    return 0 if driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) else size.value


def _driver() -> Any | None:
    """NVIDIA's driver, ready for questions."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    return None if driver.cuInit(0) else driver
