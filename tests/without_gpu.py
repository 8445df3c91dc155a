"""Programs on a machine without a GPU: `python without_gpu.py lmms_eval --model …`, or a file.

Nothing of lmms-eval is replaced. PyPI's torchvision is built for CUDA, and its compiled operators do not load
beside a CPU build of torch. Nothing here calls them, but torchvision's import asks for the names of two. And
lmms-eval's models of a server refuse several processes that are not said to have a GPU each.

$ANSWERS_A_STEP: as in the plug-in, smaller for a test that kills it.
"""

import os
import runpy
import sys


def declare_torchvision_operators() -> None:
    """Names that torchvision's import asks for, if it cannot load its operators; a call raises an error."""
    import torch  # only this needs it

    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # operator torchvision::nms does not exist
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", schema)


def allow_processes_on_a_cpu() -> None:
    """Processes without GPUs pass for those with one; ranks and gathering stay accelerate's own."""
    from accelerate import Accelerator, DistributedType

    Accelerator.distributed_type = property(lambda _: DistributedType.MULTI_GPU)


if __name__ == "__main__":
    declare_torchvision_operators()
    allow_processes_on_a_cpu()
    from framenest.evaluation.lmms_eval import hook

    hook.ANSWERS_A_STEP = int(os.environ.get("ANSWERS_A_STEP", hook.ANSWERS_A_STEP))
    del sys.argv[0]
    run = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
    run(sys.argv[0], run_name="__main__")
