"""What a user waits for on a machine with a GPU, with BLIP-2 of the real size.

    python benchmarks/gpu_machine.py                              this checkout
    python benchmarks/gpu_machine.py --before OTHER_CHECKOUT      another one too, in the same run

Weights are random. The video is one minute of drifting soft noise at 1080p, ten times over. Every number
comes from its own process, with warm file caches and bytecode; each checkout runs its own copy of this script
with its own `src` on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

# No import of a shared module here: a child must import nothing before its clock starts.
QUESTIONS = [
    "what does the potter do after the bowls come out of the kiln ?",
    "who opens the window before it begins to rain ?",
    "what does the potter do before it begins to rain ?",
    "who opens the kiln ?",
    "what comes out of the window after the rain ?",
]
VIDEOS = 12
"""Videos in the folder that is indexed."""
PARTS = ("shell", "server", "load", "session", "encode", "many")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


# ---- children: measured in their own processes, with the code of either checkout


def child_imports() -> dict[str, Any]:
    """Seconds of each part of loading."""
    spent = {}
    for name in ("framenest.cli", "torch"):
        spent[f"import {name}"] = timed(lambda name=name: __import__(name))[0]
    import torch

    spent["CUDA"] = timed(lambda: torch.zeros(1, device="cuda"))[0]
    return spent


def child_load(scorer: str, cache: str) -> dict[str, Any]:
    """Loading a scorer, imports included."""
    from framenest.cache.directory import DirectoryStore
    from framenest.config import ScorerConfig
    from framenest.scorers import load_scorer, wait_until_loaded

    spent, _ = timed(
        lambda: wait_until_loaded(load_scorer(scorer, DirectoryStore(cache), ScorerConfig(device="cuda")))
    )
    heavy = ("transformers", "sklearn", "torch.distributed.tensor", "torch._dynamo", "sympy")
    return {"load": spent, "imported": [name for name in heavy if name in sys.modules]}


def child_session(model: str, video: str, cache: str) -> dict[str, Any]:
    """One process: load the model, ask a first question, further ones; then score new zoom frames."""
    import numpy as np

    from framenest import MEC
    from framenest.method.discovery import zoom
    from framenest.scorers import wait_until_loaded

    mec: Any = MEC(scorer=f"blip2:{model}", store=cache)
    result: dict[str, Any] = {
        "load": timed(lambda: wait_until_loaded(mec.session.scorer))[0],
        "questions": [],
    }
    seen_so_far: list[Any] = []
    for question in QUESTIONS:
        wall, ranking = timed(lambda question=question: mec.rank(video, question))
        seen_so_far.append(ranking.pool.frames)
        told = ranking.stats.to_json()
        result["questions"].append(
            {"wall": wall, "decoded": told["decoded"], "candidates": told["candidates"], **told["seconds"]}
        )
    session = mec.session
    decoder = session.open(video)
    cache_ = session.features(decoder, mec.session.scorer, mec.config.index.thumbnail)
    index = mec.index(video)
    probes = cache_.get(index.frames, "probes")
    rng = np.random.default_rng(0)
    for count in (20, 100):
        anchors = np.sort(rng.choice(np.arange(2, len(index.frames) - 2), count, replace=False))
        frames = zoom(index.frames, anchors.tolist(), 2)
        frames = np.setdiff1d(frames, np.concatenate(seen_so_far))
        frames = np.sort(rng.choice(frames, count, replace=False))
        seen_so_far.append(frames)
        before = session.timing.seconds

        def further(frames: Any = frames, count: int = count) -> None:
            seen = cache_.get(frames, "zoom")
            cache_.relevance(probes, f"who opens the window {count} ?", probes)
            cache_.relevance(seen, f"who opens the window {count} ?", probes)

        wall, _ = timed(further)
        result[f"further_with_{count}_unseen"] = {
            "frames": len(frames), "wall": wall, **session.timing.since(before)
        }  # fmt: skip
    kept = probes.encoded["vision"]
    many = {"vision": kept[np.resize(np.arange(len(kept)), 512)]}
    few = {"vision": kept[:128]}

    def match(question: str) -> None:
        mec.session.scorer.match(many, question, reference=many)
        mec.session.scorer.match(few, question, reference=many)

    result["match_640"] = statistics.median(timed(lambda n=n: match(f"who opens {n} ?"))[0] for n in range(5))
    return result


def child_index(model: str, video: str, cache: str) -> dict[str, Any]:
    """Indexing with features, and decoding alone and encoding alone of the same frames."""
    from framenest import MEC, FrameBatch, ImageSpec
    from framenest.scorers import wait_until_loaded

    mec: Any = MEC(scorer=f"blip2:{model}", store=cache)
    scorer = mec.session.scorer
    wait_until_loaded(scorer)
    bare: Any = MEC(scorer=None, store=Path(cache) / "bare")
    without, index = timed(lambda: bare.index(video))
    decoder = mec.session.open(video)
    sizes = (ImageSpec.short_side(32), *scorer.inputs)
    decode, batches = timed(lambda: [*decoder.read(index.frames, sizes=sizes)])
    frames = FrameBatch.join(batches)
    pictures = FrameBatch(frames.frames, frames.seconds, frames.pixels[1:])
    scorer.encode(pictures)  # warm
    encode, _ = timed(lambda: scorer.encode(pictures))
    whole = {}
    for keep in (False, True):  # features of some 240 MiB
        fresh: Any = MEC(scorer=scorer, store=Path(cache) / f"fresh-{keep}", keep_features=keep)
        fresh.session.open(video)
        whole[keep], _ = timed(lambda fresh=fresh: fresh.index(video))
    return {
        "without_scorer": without, "probes": len(index.frames),
        "decode_alone": decode, "encode_alone": encode,
        "with_scorer_warm": whole[False], "over_the_longer": whole[False] / max(decode, encode),
        "with_features_kept": whole[True],
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def child_encode(model: str, cache: str) -> dict[str, Any]:
    """Encoding noise, as a share of the rate of a large matrix product."""
    import torch

    from framenest.cache.directory import DirectoryStore
    from framenest.config import ScorerConfig
    from framenest.scorers import load_scorer
    from scorers import matrix_rate, noise, seconds, vision_flops

    scorer: Any = load_scorer(f"blip2:{model}", DirectoryStore(cache), ScorerConfig(device="cuda"))
    frames, rounds = noise(512, 224), []
    for _ in range(3):  # in turn, so that both meet the GPU as warm
        rounds.append((matrix_rate(), seconds(lambda: scorer.encode(frames)) / 512))
    rate, spent = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "gpu": torch.cuda.get_device_name(),
        "matrix_tflops": rate, "encode_ms_a_frame": 1000 * spent, "batch": scorer.batch,
        "share_of_matrix_rate": vision_flops(224) / spent / 1e12 / rate,
        "rounds": [{"matrix_tflops": r, "encode_ms_a_frame": 1000 * s} for r, s in rounds],
    }  # fmt: skip


# ---- the driver


class Tree:
    """A checkout of this project, whose code runs in child processes."""

    def __init__(self, root: Path, work: Path, model: Path, duals: dict[str, Path]) -> None:
        from machine import environment

        self.work, self.model, self.duals = work, model, duals
        self.work.mkdir()
        self._script = root / "benchmarks" / Path(__file__).name
        self._environment = environment(root) | {"PYTHONWARNINGS": "ignore"}

    def child(self, name: str, *arguments: object) -> dict[str, Any]:
        command = [sys.executable, str(self._script), "--child", name, *map(str, arguments)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1:]}
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def shell(self, *arguments: object) -> tuple[float, str]:
        command = [sys.executable, "-m", "framenest", *map(str, arguments)]
        wall, done = timed(
            lambda: subprocess.run(
                command, env=self._environment, capture_output=True, text=True, check=False
            )
        )
        if done.returncode:
            print("failed:", *command[2:6], done.stderr.strip()[-400:])
        return wall, done.stdout

    def rank(self, video: Path, question: str, *options: object) -> dict[str, Any]:
        file = self.work / "ranking.json"
        scorer = () if "--server" in options else ("--scorer", f"blip2:{self.model}")
        wall, _ = self.shell("rank", video, question, *scorer, "-o", file, "--quiet", *options)
        if not file.is_file():
            return {"failed": True}
        ranking = json.loads(file.read_text())
        file.unlink()
        ranks = [[rank["frame"], rank["relevance"]] for rank in ranking["ranks"]]
        return {"wall": wall, **ranking["stats"]["seconds"], "_ranks": ranks}

    def serve(self, videos: Path, port: int = 8641) -> tuple[str, subprocess.Popen[bytes]]:
        """The URL and the process of a server, once it answers."""
        command = [sys.executable, "-m", "framenest", "serve", "--videos", videos, "--port", port,
                   "--scorer", f"blip2:{self.model}", "--cache", self.work / "served",
                   "--data", self.work / "data", "--quiet"]  # fmt: skip
        process = subprocess.Popen([*map(str, command)], env=self._environment, stdout=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{url}/health"):
                    return url, process
            except OSError:
                time.sleep(0.1)
        process.kill()
        raise RuntimeError("the server did not start")


class Load:
    """Sampled utilisation of the GPU and the cores."""

    def __enter__(self) -> Load:
        self._gpu: list[float] = []
        self._cpu = _busy()
        self._began = time.perf_counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.wall = time.perf_counter() - self._began
        self.cores = (_busy() - self._cpu) / self.wall / (os.cpu_count() or 1)
        self.gpu = statistics.mean(self._gpu or [0.0]) / 100

    def _sample(self) -> None:
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
        try:
            process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        except OSError:
            return
        threading.Thread(target=lambda: (self._over.wait(), process.kill()), daemon=True).start()
        assert process.stdout is not None
        for line in process.stdout:
            self._gpu += [float(line)] if line.strip().isdigit() else []


def _busy() -> float:
    """CPU seconds of all cores since the machine started."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def make_videos(folder: Path, minutes: int) -> Path:
    """A long video, and a folder `many` of shorter ones, each a different file."""
    from clips import noise, repeat

    minute = folder / "minute.mp4"
    noise(minute, (1920, 1080), 25 * 60, blur=16, preset="superfast", crf="23")
    repeat(minute, folder / "long.mp4", 60 * minutes)
    (folder / "many").mkdir()
    for number in range(VIDEOS):
        repeat(minute, folder / "many" / f"{number}.mp4", 180, title=str(number))
    return folder / "long.mp4"


class Told(dict[str, Any]):
    """Results that are printed and written as they come."""

    def __init__(self, write: Callable[[], object]) -> None:
        super().__init__()
        self._write = write

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if not name.startswith("_"):
            self._write()
            shown = {k: v for k, v in value.items() if k != "_ranks"} if isinstance(value, dict) else value
            print(f"{name}: {json.dumps(shown)}", flush=True)


def middle(runs: list[dict[str, Any]], seconds: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
    """The median run, with the seconds of all; the first failed run if one failed."""
    failed = [run for run in runs if "failed" in run]
    if failed:
        return failed[0]
    ordered = sorted(runs, key=seconds)
    return {**ordered[(len(ordered) - 1) // 2], "rounds": [seconds(run) for run in runs]}


def measure(tree: Tree, video: Path, wanted: list[str], rounds: int, result: Told) -> None:
    cache, ranks = tree.work / "cache", []
    if "shell" in wanted:
        result["first_of_all"] = tree.rank(video, QUESTIONS[0], "--cache", cache)  # hashes the model, too
        ranks.append(result["first_of_all"].pop("_ranks", None))
        shutil.rmtree(cache / "index", ignore_errors=True)
        shutil.rmtree(cache / "features", ignore_errors=True)
        shutil.rmtree(cache / "timeline", ignore_errors=True)
        result["first_question"] = tree.rank(video, QUESTIONS[0], "--cache", cache)
        result["again"] = tree.rank(video, QUESTIONS[0], "--cache", cache)
        ranks += [result[name].pop("_ranks", None) for name in ("first_question", "again")]
        result["rankings_equal_one_another"] = ranks[0] == ranks[1] == ranks[2]
        result["_ranks"] = ranks[0]
    if "server" in wanted:
        url, process = tree.serve(video.parent)
        try:
            asked = [tree.rank(video, question, "--server", url) for question in QUESTIONS]
        finally:
            process.terminate()
            process.wait()
        result["server"] = {"first": asked[0].get("wall"), "further": [one.get("wall") for one in asked[1:]]}
    if "load" in wanted:
        result["imports"] = tree.child("imports")
        for name, folder in {"blip2": tree.model, **tree.duals}.items():
            tree.child("load", f"{name}:{folder}", cache)  # the first of all hashes the folder
            result[f"load_{name}"] = tree.child("load", f"{name}:{folder}", cache)
    if "session" in wanted:
        caches = [(tree.work / f"session-{n}", tree.work / f"indexes-{n}") for n in range(rounds)]
        runs = [tree.child("session", tree.model, video, cache) for cache, _ in caches]
        result["session"] = middle(runs, lambda run: float(run["questions"][0]["wall"]))
        runs = [tree.child("index", tree.model, video, cache) for _, cache in caches]
        result["index"] = middle(runs, lambda run: float(run["without_scorer"]))
    if "encode" in wanted:
        result["encode"] = tree.child("encode", tree.model, cache)
    if "many" in wanted:
        for jobs in ("default", "1"):
            store = tree.work / f"many-{jobs}"
            options = [] if jobs == "default" else ["--jobs", jobs]
            options += ["--scorer", f"blip2:{tree.model}", "--cache", store, "--quiet"]
            with Load() as load:
                tree.shell("index", video.parent / "many", *options)
            shutil.rmtree(store, ignore_errors=True)
            result[f"many_{jobs}"] = {
                "videos_a_minute": 60 * VIDEOS / load.wall, "wall": load.wall, "gpu_share": load.gpu,
                "core_share": load.cores,
            }  # fmt: skip


def compared(before: list[Any], after: list[Any]) -> dict[str, Any]:
    """How far two rankings of (frame, relevance) agree; other kernels round differently."""
    one, other = dict(before), dict(after)
    both = one.keys() & other.keys()
    return {
        "same_order": [*one] == [*other],
        "frames_in_both": len(both) / max(len(one), 1),
        "largest_difference_of_relevance": max((abs(one[frame] - other[frame]) for frame in both), default=0),
    }


def main() -> None:
    from machine import HERE, options, write

    parser = options(__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, measured in the same run")
    parser.add_argument("--minutes", type=int, default=10, help="of the video")
    parser.add_argument("--only", default=",".join(PARTS), metavar="A,B")
    parser.add_argument("--before-only", default=",".join(PARTS), metavar="A,B")
    parser.add_argument(
        "--rounds", type=int, choices=range(1, 10), default=3, help="processes for a first question, an index"
    )
    parser.add_argument("--before-rounds", type=int, choices=range(1, 10), default=1)
    given = parser.parse_args()
    from scorers import random_blip2, random_dual_encoder

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = work / "blip2"
        random_blip2(model, 224)
        duals = {name: random_dual_encoder(work / name, name) for name in ("siglip2", "clip")}
        video = make_videos(work, given.minutes)
        found: dict[str, Any] = {"video": {"minutes": given.minutes, "size": "1920×1080"}}
        trees = [("before", given.before, given.before_only, given.before_rounds)]
        trees = [*(trees if given.before else []), ("after", HERE.parent, given.only, given.rounds)]
        for name, root, wanted, rounds in trees:
            print(name, flush=True)
            found[name] = Told(lambda: write("gpu_machine", found))
            measure(Tree(root, work / name, model, duals), video, wanted.split(","), rounds, found[name])
        ranks = [found[name].pop("_ranks", None) for name in ("before", "after") if name in found]
        if len(ranks) == 2 and all(ranks):
            found["rankings_before_and_after"] = compared(*ranks)
        print(write("gpu_machine", found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(globals()[f"child_{sys.argv[2]}"](*sys.argv[3:])))
    else:
        main()
