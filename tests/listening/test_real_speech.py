"""Real speech, or a synthesiser's, through a real recognizer: pocketsphinx. It is small, so half is right."""

import io
import shutil
import subprocess

import av
import numpy as np
import pytest

from framenest.cache.directory import DirectoryStore
from framenest.listening import transcribe
from framenest.video.opening import open_video
from media import talking_video
from recognizers import pocketsphinx

pytest.importorskip("pocketsphinx", reason="needs pocketsphinx; make test-models installs it")

SPOKEN = "The captain of the ship was a woman from Boston."
NASA = (
    "this is the optical and science segment of the webb space telescope in one of the largest clean rooms "
    "in the world at nasa's goddard space flight center in greenbelt maryland"
)


def listen(path, cache):
    return transcribe(open_video(path), pocketsphinx("", None, None), DirectoryStore(cache), lambda *_: None)


def words(text):
    return set(text.casefold().replace(".", "").split())


def test_a_synthesised_sentence_is_heard_when_it_is_said(tmp_path, cache):
    if shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng; make system-espeak installs it")
    said = subprocess.run(
        ["espeak-ng", "-v", "en-us+f2", "-s", "120", "--stdout", SPOKEN], capture_output=True, check=True
    )
    with av.open(io.BytesIO(said.stdout)) as container:
        resampler = av.AudioResampler("s16", "mono", 16_000)
        blocks = [piece for frame in container.decode(audio=0) for piece in resampler.resample(frame)]
    samples = np.concatenate([block.to_ndarray()[0] for block in blocks]) / 32768
    sound = np.concatenate([np.zeros(10 * 16_000), samples, np.zeros(5 * 16_000)]).astype(np.float32)
    transcript = listen(talking_video(tmp_path / "talk.mkv", sound), cache)
    heard = words(" ".join(line.text for line in transcript.lines))
    assert len(words(SPOKEN) & heard) >= len(words(SPOKEN)) / 2, heard
    assert 9 < transcript.lines[0].start < 12
    assert 11 < transcript.lines[-1].end < 10 + len(samples) / 16_000 + 1


def test_a_real_voice_is_heard(shared_data, cache):
    transcript = listen(shared_data / "video" / "nasa_13013.mp4", cache)
    heard = words(" ".join(line.text for line in transcript.lines))
    assert len(words(NASA) & heard) >= len(words(NASA)) / 2, heard
    (place,) = [line for line in transcript.lines if "space flight center" in line.text]
    assert 8 < place.start < place.end < 13, "the second sentence, after 8.5 s"
