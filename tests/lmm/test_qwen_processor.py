"""Time markers through the code of transformers itself: what Qwen3-VL and Qwen3.5 will read."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from framenest import Prefix, lmm, open_video
from media import growing_ticks, numbered_video

processing = pytest.importorskip(
    "transformers.models.qwen3_vl.processing_qwen3_vl", reason="needs transformers; run: make test-ask"
)
CHOICES = [[7], [3, 59], [0, 10, 40], [0, 1, 2, 30, 58, 59], list(range(0, 55, 5))]


@pytest.fixture(scope="module", params=["constant", "variable"])
def decoder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "constant":
        return open_video(numbered_video(folder / "c.mp4", 60))
    return open_video(numbered_video(folder / "v.mkv", 60, ticks=growing_ticks(60)))


def written(metadata, frames):
    """What the processor's own function puts in the place of a video, without the pictures' tokens."""
    fields = metadata | {"frames_indices": list(metadata["frames_indices"])}
    processor = SimpleNamespace(
        video_processor=SimpleNamespace(merge_size=2, temporal_patch_size=2),
        vision_start_token="",
        vision_end_token="",
        video_token="",
        _calculate_timestamps=lambda *a: processing.Qwen3VLProcessor._calculate_timestamps(None, *a),
    )
    grid = np.array([[-(-frames // 2), 4, 4]])
    videos = {"video_grid_thw": grid, "video_metadata": [SimpleNamespace(**fields)]}
    return re.findall(r"<[^>]*>", processing.Qwen3VLProcessor.replace_video_token(processor, videos, 0))


@pytest.mark.parametrize("frames", CHOICES, ids=lambda f: f"K={len(f)}")
@pytest.mark.parametrize("pairing", ["auto", "pairs", "duplicate"])
def test_the_processor_writes_the_true_times(decoder, frames, pairing):
    numbers = np.array(frames, dtype=np.int64)
    prefix = Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)
    request = lmm.messages(prefix, "What?", "qwen", pairing=pairing, video=decoder)
    inputs = request.inputs
    markers = written(inputs["video_metadata"][0], len(inputs["videos"][0]))
    assert markers == request.markers
    seconds = np.array([float(marker[1:].split()[0]) for marker in markers])
    if pairing == "duplicate" or len(frames) == 1:
        assert np.abs(seconds - prefix.seconds).max() <= 0.0506
    elif pairing == "auto":
        nearest = np.abs(seconds[:, None] - prefix.seconds).min(axis=1)
        assert nearest.max() <= 1.0506
        assert len(markers) == len(inputs["videos"][0]) / 2
    else:
        true = [*prefix.seconds, *prefix.seconds[-1:]][: len(frames) + len(frames) % 2]
        assert np.abs(seconds - np.array(true).reshape(-1, 2).mean(axis=1)).max() <= 0.0506


def test_metadata_is_what_transformers_takes(decoder):
    from transformers.video_utils import VideoMetadata

    prefix = Prefix(decoder.info, 1, np.array([5]), decoder.seconds[[5]], None)
    fields = lmm.messages(prefix, "What?", "qwen", video=decoder).inputs["video_metadata"][0]
    assert VideoMetadata(**fields).frames_indices == fields["frames_indices"]
