"""What every decoder must do, whoever decodes."""

import numpy as np
import pytest
from PIL import Image

from framenest import ImageSpec, VideoError, open_video
from framenest.video.decoder import Decoder
from media import number_in, numbered_picture, numbered_video

COUNT = 60


def from_pyav(folder):
    return open_video(numbered_video(folder / "clip.mp4", COUNT, options={"g": "20", "bf": "2"}))


def from_images(folder):
    for i in range(COUNT):
        Image.fromarray(numbered_picture(i)).save(folder / f"{i}.png")
    return open_video(folder, fps=25)


def from_array(folder):
    return open_video(np.stack([numbered_picture(i) for i in range(COUNT)]), fps=25)


@pytest.fixture(params=[from_pyav, from_images, from_array], ids=lambda f: f.__name__[5:])
def decoder(request, tmp_path):
    return request.param(tmp_path)


class TestEveryDecoder:
    def test_it_keeps_the_protocol(self, decoder):
        assert isinstance(decoder, Decoder)
        assert decoder.name
        assert decoder.version

    def test_it_knows_its_video(self, decoder):
        info = decoder.info
        assert (info.num_frames, info.width, info.height) == (COUNT, 96, 64)
        assert info.fps == pytest.approx(25)
        assert info.duration == pytest.approx(COUNT / 25)
        assert info.constant_rate
        assert len(info.fingerprint) >= 16

    def test_times_ascend_from_zero(self, decoder):
        assert decoder.seconds.shape == (COUNT,)
        assert decoder.seconds[0] == 0
        assert np.allclose(np.diff(decoder.seconds), 1 / 25, atol=1e-6)

    def test_key_frames_are_frames(self, decoder):
        keys = decoder.key_frames
        assert keys[0] == 0
        assert (np.diff(keys) > 0).all()
        assert keys[-1] < COUNT

    @pytest.mark.parametrize(
        "asked", [[0], [COUNT - 1], [3, 4, 5, 41], [50, 2, 50, 0], list(range(COUNT)), []]
    )
    def test_frames_come_as_asked(self, decoder, asked):
        batches = list(decoder.read(asked))
        assert [n for b in batches for n in b.frames.tolist()] == asked
        assert [number_in(p) for b in batches for p in b.pixels[0]] == asked
        for batch in batches:
            assert np.allclose(batch.seconds, decoder.seconds[batch.frames])

    def test_every_size_is_made(self, decoder):
        sizes = (
            None,
            ImageSpec.short_side(32),
            ImageSpec.squash(40, 20),
            ImageSpec.crop(48, 40, 30, "bicubic"),
        )
        batch = next(decoder.read([7, 9], sizes=sizes))
        shapes = [p.shape for p in batch.pixels]
        assert shapes == [(2, 64, 96, 3), (2, 32, 48, 3), (2, 20, 40, 3), (2, 30, 40, 3)]
        assert all(p.dtype == np.uint8 for p in batch.pixels)
        assert [number_in(p) for p in batch.pixels[1]] == [7, 9]

    def test_reading_twice_gives_the_same(self, decoder):
        first, again = (next(decoder.read([11, 30])).pixels[0] for _ in range(2))
        assert (first == again).all()

    def test_reading_can_be_left_early(self, decoder):
        reading = decoder.read(range(COUNT))
        next(reading)
        reading.close()
        assert number_in(next(decoder.read([5])).pixels[0][0]) == 5

    @pytest.mark.parametrize("wrong", [-1, COUNT])
    def test_a_frame_that_is_not_there_is_refused(self, decoder, wrong):
        with pytest.raises(VideoError, match=f"no frame {wrong}"):
            decoder.read([0, wrong])
