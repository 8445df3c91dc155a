"""Decoders by name: those that other packages bring, and NVIDIA's video engine."""

import numpy as np
import pytest

from framenest import ConfigError, ImageSpec, Session, VideoError, open_video
from framenest.processes import gpu_memory
from media import numbered_picture, numbered_video
from plugin_packages import write_metadata

PLUGIN = """
from framenest.testing import ArrayDecoder
import numpy as np

class GreyDecoder:
    name = "grey"

    @classmethod
    def open(cls, path, argument, *, stream, allow_playlists, store, progress):
        return ArrayDecoder(np.full((10, 36, 64, 3), int(argument), np.uint8), fps=5)

class NoDecoder:
    @classmethod
    def open(cls, path, argument, **_):
        return path
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "grey_decoder.py").write_text(PLUGIN)
    points = {"grey": "grey_decoder:GreyDecoder", "no-decoder": "grey_decoder:NoDecoder"}
    write_metadata(tmp_path, "grey-decoder", "1.0", {"framenest.decoders": points})
    monkeypatch.syspath_prepend(tmp_path)


def test_a_decoder_of_another_package(plugin, clip):
    for video in (open_video(clip, decoder="grey:77"), Session(None, decoder="grey:77").open(clip)):
        assert video.info.num_frames == 10
        assert (next(video.read([3])).pixels[0] == 77).all()


def test_what_a_package_calls_a_decoder_must_be_one(plugin, clip):
    with pytest.raises(ConfigError, match="'no-decoder' is not a decoder: it needs info, seconds"):
        open_video(clip, decoder="no-decoder")


def test_an_unknown_decoder_is_refused(clip):
    with pytest.raises(ConfigError, match="there is no decoder 'decord'; choose from pyav, pyav:cuda"):
        open_video(clip, decoder="decord")
    with pytest.raises(ConfigError, match="there is no decoder 'pyav:vaapi'; choose from pyav, pyav:cuda"):
        open_video(clip, decoder="pyav:vaapi")


def test_images_and_arrays_need_no_decoder():
    session = Session(None, decoder="pyav:cuda")
    assert session.open(np.stack([numbered_picture(i) for i in range(5)]), fps=5).info.num_frames == 5


def test_cuda_without_a_gpu_is_refused_with_the_remedy(clip, monkeypatch):
    monkeypatch.setattr("framenest.video.pyav.gpu_memory", lambda: 0)
    with pytest.raises(ConfigError, match=r"pyav:cuda needs an NVIDIA GPU.*; use the decoder pyav"):
        open_video(clip, decoder="pyav:cuda")


on_gpu = pytest.mark.skipif(not gpu_memory(), reason="needs an NVIDIA GPU")


@on_gpu
@pytest.mark.parametrize("beside_torch", [False, True])
def test_cuda_gives_the_same_frames_bit_for_bit(tmp_path, beside_torch):
    if beside_torch:
        torch = pytest.importorskip("torch", reason="needs torch")
        torch.zeros(1, device="cuda")  # sets up the primary context with torch's flags
    path = numbered_video(tmp_path / "clip.mp4", 120, 320, 240, options={"g": "30", "bf": "3"})
    cpu, gpu = open_video(path), open_video(path, decoder="pyav:cuda")
    assert (gpu.name, gpu.info) == ("pyav:cuda", cpu.info)
    sizes = (None, ImageSpec.short_side(32), ImageSpec.squash(224, 224, "bicubic"))
    for wanted in ([0, 7, 31, 32, 95, 119], list(range(120)), [50, 2, 50]):
        frames = [[*video.read(wanted, sizes=sizes)] for video in (cpu, gpu)]
        for ours, theirs in zip(*frames, strict=True):
            assert ours.frames.tolist() == theirs.frames.tolist()
            assert [p.tobytes() for p in ours.pixels] == [p.tobytes() for p in theirs.pixels]


@on_gpu
def test_cuda_refuses_a_codec_that_the_gpu_cannot_decode(tmp_path):
    path = numbered_video(tmp_path / "clip.mkv", 10, 320, 240, codec="ffv1")
    with pytest.raises(VideoError, match=r"the GPU cannot decode this ffv1 video.*; use the decoder pyav"):
        open_video(path, decoder="pyav:cuda")
