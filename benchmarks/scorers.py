"""What a first and a further question about a video cost with each scorer.

    python benchmarks/scorers.py gpu                 BLIP-2 at full size with random weights, on a CUDA GPU
    python benchmarks/scorers.py cpu                 tags and an ONNX SigLIP 2 of base size, on this CPU

BLIP-2's two sizes are measured against the straightforward way in the same run: transformers' processor
and full forward, batch by batch, once per question. Both get frames already at the model's size.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from machine import options, write
from PIL import Image

from framenest import FrameBatch
from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.scorers import load_scorer

PROBES, ZOOM, UNSEEN = 512, 128, 100
QUESTION = "what does the potter do after the bowls come out of the kiln ?"
OTHER = "who opens the window before it begins to rain ?"
RUNS = 5


def seconds(call: Callable[[], Any], runs: int = RUNS) -> float:
    """Median wall-clock seconds after one warm-up; the call must end with its work done."""
    call()
    spent = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def noise(count: int, size: int) -> FrameBatch:
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return FrameBatch(np.arange(count), np.arange(count) / 2, (pixels,))


def part(frames: FrameBatch, rows: slice) -> FrameBatch:
    return FrameBatch(frames.frames[rows], frames.seconds[rows], (frames.pixels[0][rows],))


def random_blip2(folder: Path, size: int) -> Any:
    """BLIP-2 ITM of the real sizes with random weights, saved as the real checkpoint is."""
    import torch
    import transformers
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys((QUESTION + " " + OTHER).split())]
    backend = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    processor = transformers.Blip2Processor(
        BlipImageProcessorPil(size={"height": size, "width": size}), tokenizer, num_query_tokens=32
    )
    config = transformers.Blip2Config(
        vision_config={"image_size": size, "initializer_range": 0.02},  # the default, 1e-10, is 0 in float16
        qformer_config={"vocab_size": 30523, "use_qformer_text_input": True},
        image_token_index=30522,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.Blip2ForImageTextRetrieval(config).half()
        torch.nn.init.normal_(model.query_tokens)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return processor


PRODUCTS = 240
"""Of 8192 × 8192 matrices: as many operations as BLIP-2 needs for 512 frames. A GPU that computes for so
long is slower than in a short burst, whatever it computes."""


def matrix_rate() -> float:
    """TFLOP/s of a float16 product of two 8192 × 8192 matrices of random numbers, for about half a second."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))

    def products() -> None:
        for _ in range(PRODUCTS):
            a @ b
        torch.cuda.synchronize()

    return PRODUCTS * 2 * 8192**3 / seconds(products) / 1e12


def vision_flops(size: int) -> float:
    """Multiplications and additions of the vision model for one frame, counted by torch."""
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers.Blip2Config(vision_config={"image_size": size}).vision_config
    with torch.device("meta"):
        model = transformers.Blip2VisionModel(config)
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            model(pixel_values=torch.zeros(1, 3, size, size))
    return float(counter.get_total_flops())


def straightforward(folder: Path, processor: Any, frames: FrameBatch, batch: int = 32) -> Callable[[], None]:
    """transformers' processor and full forward over all frames."""
    import torch
    from transformers import Blip2ForImageTextRetrieval

    model = Blip2ForImageTextRetrieval.from_pretrained(folder, dtype=torch.float16).eval().cuda()

    def question() -> None:
        for start in range(0, len(frames), batch):
            pictures = [Image.fromarray(p) for p in frames.pixels[0][start : start + batch]]
            inputs = processor(images=pictures, text=[QUESTION] * len(pictures), return_tensors="pt")
            inputs = inputs.to("cuda", torch.float16)
            with torch.inference_mode():
                logits = model(**inputs, use_image_text_matching_head=True).logits_per_image
            logits.softmax(dim=-1)[:, 1].cpu()

    return question


def blip2(size: int, rate: float, folder: Path) -> dict[str, Any]:
    processor = random_blip2(folder, size)
    scorer: Any = load_scorer(f"blip2:{folder}", DirectoryStore(folder.parent), ScorerConfig(device="cuda"))
    frames = noise(PROBES + ZOOM, size)
    probes, zoom, unseen = slice(0, PROBES), slice(PROBES, None), slice(0, UNSEEN)
    kept = [scorer.encode(part(frames, rows)) for rows in (probes, zoom)]
    few = np.asarray(kept[1]["vision"])
    assert few.std(axis=0).mean() > 0.01, "the features of all frames are alike"

    def match(question: str = OTHER) -> None:
        for encoded in kept:
            scorer.match(encoded, question, reference=kept[0])

    def first() -> None:
        made = [scorer.encode(part(frames, rows)) for rows in (probes, zoom)]
        for encoded in made:
            scorer.match(encoded, QUESTION, reference=made[0])

    def further() -> None:
        scorer.encode(part(frames, unseen))
        match()

    encode = seconds(lambda: scorer.encode(part(frames, probes))) / PROBES
    result = {
        "candidates": len(frames),
        "encode_ms_a_frame": 1000 * encode,
        "encode_tflops": vision_flops(size) / encode / 1e12,
        "share_of_matrix_rate": vision_flops(size) / encode / 1e12 / rate,
        "match_ms_a_frame": 1000 * seconds(match) / len(frames),
        "first_question": seconds(first),
        "further_question_with_unseen_zoom_frames": seconds(further),
        "unseen_zoom_frames": UNSEEN,
        "further_question_all_kept": seconds(match),
        "straightforward_question": seconds(straightforward(folder, processor, frames), runs=3),
        "probability_moved_by_half_precision": half_precision_moves(scorer, {"vision": few}, folder),
        "features_mib": sum(encoded["vision"].nbytes for encoded in kept) / 2**20,
        "batch": scorer.batch,
        "precision": scorer.version.split()[-1],
    }
    for name in ("further_question_with_unseen_zoom_frames", "further_question_all_kept"):
        result[f"first_over_{name}"] = result["first_question"] / result[name]
    result["straightforward_over_first"] = result["straightforward_question"] / result["first_question"]
    result["straightforward_over_further"] = (
        result["straightforward_question"] / result["further_question_all_kept"]
    )
    return result


def half_precision_moves(scorer: Any, encoded: dict[str, Any], folder: Path) -> float:
    """How far matching in float32 throughout is from the scorer's, from the same features."""
    exact = load_scorer(
        f"blip2:{folder}", DirectoryStore(folder.parent), ScorerConfig(device="cuda", precision="float32")
    )
    moved = scorer.match(encoded, OTHER) - exact.match(encoded, OTHER)
    return float(np.abs(moved).max())


def gpu() -> dict[str, Any]:
    import torch
    import transformers

    rate = matrix_rate()
    result: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "matrix_tflops": rate,
        "weights": "random, of the real sizes",
    }
    for size in (224, 364):
        with tempfile.TemporaryDirectory() as folder:
            result[f"blip2_{size}"] = blip2(size, rate, Path(folder) / "blip2")
        torch.cuda.empty_cache()
    return result


def random_dual_encoder(folder: Path, kind: Literal["siglip2", "clip"]) -> Path:
    """SigLIP 2 base (224 px) or CLIP ViT-B/32: real sizes, random weights, saved as the real ones are."""
    import transformers
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    words = ["<pad>", "<eos>", "<unk>", *dict.fromkeys((QUESTION + " " + OTHER).split())]
    backend = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>"
    )
    text = {"pad_token_id": 0, "eos_token_id": 1}
    if kind == "siglip2":
        text |= {"vocab_size": 256000, "max_position_embeddings": 64}
        model = transformers.SiglipModel(
            transformers.SiglipConfig(text_config=text, vision_config={"image_size": 224, "patch_size": 16})
        )
        parts = (model, tokenizer, SiglipImageProcessorPil())
    else:
        model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text | {"bos_token_id": 2}))
        parts = (model, tokenizer, CLIPImageProcessorPil())
    for made in parts:
        made.save_pretrained(folder)
    return folder


def random_siglip2_onnx(folder: Path) -> Path:
    """SigLIP 2 base with random weights, exported to ONNX as the tests export theirs."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "scorers"))
    import tiny

    tiny.export_onnx(random_dual_encoder(folder / "torch", "siglip2"), folder / "onnx")
    return folder / "onnx"


def cpu() -> dict[str, Any]:
    store = DirectoryStore()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        onnx = random_siglip2_onnx(Path(folder))
        for name, wanted, count in (("tags", "tags", 64), ("siglip2_onnx", f"onnx:{onnx}", 32)):
            scorer = load_scorer(wanted, store, ScorerConfig(device="cpu"))
            rng = np.random.default_rng(0)
            sizes = [spec.size(640, 360) for spec in scorer.inputs]
            pixels = tuple(rng.integers(0, 256, (count, h, w, 3), dtype=np.uint8) for w, h in sizes)
            frames = FrameBatch(np.arange(count), np.arange(count) / 2, pixels)
            encoded = scorer.encode(frames)
            encode = seconds(lambda scorer=scorer, frames=frames: scorer.encode(frames), runs=3)
            match = seconds(lambda scorer=scorer, encoded=encoded: scorer.match(encoded, OTHER), runs=3)
            result[name] = {
                "encode_frames_a_second": count / encode,
                "match_frames_a_second": count / match,
                "weights": "real" if name == "tags" else "random, of the real size",
            }
    return result


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("machine", choices=("gpu", "cpu"))
    chosen = parser.parse_args().machine
    result = gpu() if chosen == "gpu" else cpu()
    print(write(f"scorers-{chosen}", result).read_text())


if __name__ == "__main__":
    main()
