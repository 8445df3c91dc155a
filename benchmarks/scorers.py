"""What a first and a further question about a video cost with each scorer.

    python benchmarks/scorers.py gpu                 BLIP-2 at full size with random weights, on a CUDA GPU
    python benchmarks/scorers.py cpu                 tags and SigLIP 2 base as ONNX with patches of 16 and 32
                                                     pixels, in three precisions, on this CPU
    python benchmarks/scorers.py text VIDEO…         reading text on screen, with and without looking first

BLIP-2's two sizes are measured against the straightforward way in the same run: transformers' processor
and full forward, batch by batch, once per question. Both get frames already at the model's size.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from machine import RESULTS, options, write
from PIL import Image

from framenest import MEC, FrameBatch, ImageSpec, Session
from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.evaluation.grounded_questions import NoStore
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


def random_dual_encoder(
    folder: Path, kind: Literal["siglip2", "clip"], patch: int = 16, image: int = 224
) -> Path:
    """SigLIP 2 base or CLIP ViT-B/32: real sizes, random weights, saved as the real ones are.

    patch, image: of SigLIP, in pixels.
    """
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
            transformers.SiglipConfig(
                text_config=text, vision_config={"image_size": image, "patch_size": patch}
            )
        )
        parts = (model, tokenizer, SiglipImageProcessorPil(size={"height": image, "width": image}))
    else:
        model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text | {"bos_token_id": 2}))
        parts = (model, tokenizer, CLIPImageProcessorPil())
    for made in parts:
        made.save_pretrained(folder)
    return folder


PRECISIONS = ("float32", "float16", "int8")


def random_siglip2_onnx(folder: Path, patch: int, image: int) -> dict[str, Path]:
    """SigLIP 2 base with random weights as ONNX, exported as the tests export theirs, in each precision.

    int8 is onnxruntime's dynamic quantisation of the matrix products. What the folder has is not made again.
    """
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "scorers"))
    import onnx
    import tiny
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = {precision: folder / precision for precision in PRECISIONS}
    if not made["float32"].exists():
        tiny.export_onnx(random_dual_encoder(folder / "torch", "siglip2", patch, image), made["float32"])
        shutil.rmtree(folder / "torch")
    for precision in PRECISIONS[1:]:
        ignored = shutil.ignore_patterns("*.onnx")
        shutil.copytree(made["float32"], made[precision], ignore=ignored, dirs_exist_ok=True)
    for side in ("vision_model", "text_model"):
        whole = made["float32"] / f"{side}.onnx"
        half, quantised = made["float16"] / f"{side}_fp16.onnx", made["int8"] / whole.name
        if not half.exists():
            onnx.save(convert_float_to_float16(onnx.load(whole), keep_io_types=True), half)
        if not quantised.exists():
            quantize_dynamic(whole, quantised, ["MatMul", "Gemm"], weight_type=QuantType.QInt8)
    return made


def pictures(count: int, scorer: Any) -> FrameBatch:
    """Blurred random colours with some noise; random pixels alone all look the same to a network."""
    rng, pixels = np.random.default_rng(1), []
    colours = rng.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    for spec in scorer.inputs:
        size = spec.size(640, 360)
        smooth = np.stack([np.asarray(Image.fromarray(one).resize(size)) for one in colours])
        noisy = smooth.astype(np.int16) + rng.integers(-20, 21, smooth.shape, dtype=np.int16)
        pixels.append(noisy.clip(0, 255).astype(np.uint8))
    return FrameBatch(np.arange(count), np.arange(count) / 2, tuple(pixels))


def rank_correlation(one: Any, other: Any) -> float:
    """Spearman's, over the frames, of (frames, questions) scores; the mean over the questions."""
    ranks = [np.argsort(np.argsort(scores, axis=0), axis=0).T for scores in (one, other)]
    return statistics.mean(float(np.corrcoef(*pair)[0, 1]) for pair in zip(*ranks, strict=True))


ROUNDS, A_ROUND = 3, 16
IMAGE_SIZES = {16: 224, 32: 256}
"""By patch size."""


def cpu(patch: int, kept: Path | None = None) -> dict[str, Any]:
    """`tags` and SigLIP 2 in turns, so that their ratios hold on a machine that does other work too.

    kept: a folder for the models, by default a temporary one.
    """
    words = [*dict.fromkeys((QUESTION + " " + OTHER).split())]
    questions = [" ".join(words[at : at + 6]) for at in range(0, 15, 2)]
    with tempfile.TemporaryDirectory() as folder:
        made = random_siglip2_onnx((kept or Path(folder)) / f"patch{patch}", patch, IMAGE_SIZES[patch])
        store = DirectoryStore(Path(folder) / "cache")
        scorers: dict[str, Any] = {"tags": load_scorer("tags", DirectoryStore())}
        scorers |= {name: load_scorer(f"onnx:{path}", store) for name, path in made.items()}
        frames = {name: pictures(ROUNDS * A_ROUND, scorer) for name, scorer in scorers.items()}
        spent: dict[str, list[float]] = {name: [] for name in scorers}
        vectors: dict[str, list[Any]] = {name: [] for name in scorers}
        which = np.arange(ROUNDS * A_ROUND)
        for name, scorer in scorers.items():
            scorer.encode(frames[name].rows(which < 4))
        for turn in range(ROUNDS):
            for name, scorer in scorers.items():
                part = frames[name].rows(which // A_ROUND == turn)
                began = time.perf_counter()
                encoded = scorer.encode(part)
                spent[name].append(time.perf_counter() - began)
                vectors[name].append(scorer.frame_vectors(encoded))
        found: dict[str, Any] = {}
        for name, seconds_spent in spent.items():
            ratios = [tags / mine for tags, mine in zip(spent["tags"], seconds_spent, strict=True)]
            found[name] = {
                "frames_a_second": A_ROUND / statistics.median(seconds_spent),
                "times_tags": statistics.median(ratios),
            }
        scores = {
            name: np.concatenate(vectors[name])
            @ np.stack([scorers[name].text_vector(q) for q in questions]).T
            for name in made
        }
        for name, folder_of in made.items():
            found[name] |= {
                "rank_correlation": rank_correlation(scores["float32"], scores[name]),
                "megabytes": sum(file.stat().st_size for file in folder_of.glob("*.onnx")) / 1e6,
            }
    return found


EVERY_EIGHTH = 8


def reading(video: Path) -> dict[str, Any]:
    """Processor time of reading all probes of a video on one core, and of the reader's own way.

    The latter is rapidocr with its defaults, which finds lines at 736 pixels or more, on every eighth probe.
    """
    import rapidocr

    from framenest.scorers.ocr import OCR_PIXELS, OcrScorer, is_line, texts

    one = {f"EngineConfig.onnxruntime.{which}_op_num_threads": 1 for which in ("intra", "inter")}
    plain = rapidocr.RapidOCR(params={"Global.log_level": "critical"} | one)
    scorer = OcrScorer()
    session = Session(None, store=NoStore(), progress=False)
    decoder = session.open(video)
    probes = MEC(session=session).index(video).frames
    spent: dict[str, list[float]] = {"framenest": [], "rapidocr": []}
    lines, also = 0, 0
    for batch in decoder.read(probes, sizes=(ImageSpec.short_side(OCR_PIXELS),)):
        for row, frame in enumerate(batch.frames):
            part = batch.rows(np.arange(len(batch)) == row)
            began = time.process_time()
            text = texts(scorer.encode(part))[0].split("\n")
            spent["framenest"].append(time.process_time() - began)
            if np.searchsorted(probes, frame) % EVERY_EIGHTH == 0:
                began = time.process_time()
                read = plain(np.ascontiguousarray(part.pixels[0][0][:, :, ::-1]))
                spent["rapidocr"].append(time.process_time() - began)
                clear = [
                    line
                    for line, sure in zip(read.txts or (), read.scores or (), strict=True)
                    if is_line(line, sure)
                ]
                lines, also = lines + len(clear), also + len({*clear} & {*text})
    mean = {way: 1000 * statistics.mean(each[1:]) for way, each in spent.items()}  # the first one loads
    return {
        "probes": len(probes),
        "ms_a_frame": mean,
        "times_cheaper": mean["rapidocr"] / mean["framenest"],
        "lines_of_rapidocr": lines,
        "share_also_read": also / max(1, lines),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("machine", choices=("gpu", "cpu", "text"))
    parser.add_argument("videos", type=Path, nargs="*", help="for text")
    parser.add_argument("--patch", type=int, choices=IMAGE_SIZES, help="only this one; the other is kept")
    parser.add_argument("--models", type=Path, help="a folder that keeps the models of the CPU's runs")
    given = parser.parse_args()
    path = RESULTS / f"scorers-{given.machine}.json"
    if given.machine == "gpu":
        result = gpu()
    elif given.machine == "text":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the threads of both readers follow
        kept = json.loads(path.read_text())["videos"] if path.exists() else {}
        read = {video.stem: reading(video) for video in given.videos}
        result = {"every": EVERY_EIGHTH, "videos": kept | read}
    else:
        result = json.loads(path.read_text()) if given.patch else {}
        result.pop("machine", None)
        result |= {"frames": ROUNDS * A_ROUND, "weights": "random, of the real sizes; of tags, real"}
        for patch in [given.patch] if given.patch else IMAGE_SIZES:
            result[f"patch{patch}"] = cpu(patch, given.models)
    print(write(path.stem, result).read_text())


if __name__ == "__main__":
    main()
