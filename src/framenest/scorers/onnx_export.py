"""SigLIP or CLIP of transformers as ONNX, for machines without torch."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

from framenest.errors import MissingExtra, ScorerError
from framenest.models import Checkpoint

BESIDE = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json",
          "tokenizer_config.json")  # fmt: skip


def export_onnx(checkpoint: Checkpoint, folder: Path) -> None:
    """Write vision_model.onnx, text_model.onnx and what `onnx:FOLDER` needs beside them.

    The exported models take any number of frames and give the projected vectors.
    """
    try:
        import onnxscript  # noqa: F401 - what torch's exporter needs
        import torch
        from transformers import AutoModel
    except ImportError as error:
        raise MissingExtra("export", error.name or "torch") from error
    model = AutoModel.from_pretrained(checkpoint.path, dtype=torch.float32).eval()
    if not hasattr(model, "get_image_features") or not hasattr(model, "logit_scale"):
        raise ScorerError(f"{checkpoint.name}: only dual encoders (SigLIP, CLIP) can be exported")
    if not (checkpoint.path / "tokenizer.json").is_file():
        raise ScorerError(f"{checkpoint.name}: it has no tokenizer.json, which the export needs")
    folder.mkdir(parents=True, exist_ok=True)
    vision, text = model.config.vision_config, model.config.text_config
    pixels = torch.zeros(2, 3, vision.image_size, vision.image_size)
    tokens = torch.ones(2, text.max_position_embeddings, dtype=torch.long)
    _write(model, "get_image_features", "pixel_values", pixels, "image_embeds", folder / "vision_model.onnx")
    # Neither model looks at padding after a text's end: SigLIP was trained with it, CLIP attends backwards.
    _write(model, "get_text_features", "input_ids", tokens, "text_embeds", folder / "text_model.onnx")
    for name in BESIDE:
        if (checkpoint.path / name).is_file():
            shutil.copyfile(checkpoint.path / name, folder / name)
    bias = getattr(model, "logit_bias", None)
    logit = {"scale": math.exp(model.logit_scale.item()), "bias": 0.0 if bias is None else bias.item()}
    (folder / "framenest.json").write_text(json.dumps(logit | {"from": str(checkpoint)}) + "\n")


def _write(model: Any, method: str, takes: str, example: Any, gives: str, path: Path) -> None:
    import torch

    module: Any = torch.nn.Module  # Any, so that types are the same where torch is not installed

    class Side(module):  # type: ignore[misc]  # of the Any above
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            return getattr(self.model, method)(**{takes: given}).pooler_output

    with warnings.catch_warnings():
        # The exporter of torch itself uses parts of torch that are deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        torch.onnx.export(
            Side().eval(),
            (example,),
            str(path),
            input_names=[takes],
            output_names=[gives],
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
