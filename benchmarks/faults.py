"""Faults at random, for some minutes: what is lost? (The goal: nothing.)

    python benchmarks/faults.py --minutes 10 [--seed 1]

Kills rank, index, rank --manifest and serve at random moments, damages, swaps and links cache entries, fills
disks, hands over bombs and fuzzed videos, and asks a server without reading its answers. Clients of the
gateway send small JSON, bodies that do not end, the turns of others, conversations of hundreds of videos and
more videos than a request may show.
After every fault all videos are asked for again: each ranking must be the one from an untouched cache. Needs
Linux and the extras `server` and `test`.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from machine import options, write
from PIL import Image

from framenest.processes import own_memory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import bombs
from media import numbered_video
from served import Server
from upstream import Upstream, upstream_server

FAST = ["--set", "base_probes=16", "--set", "extra_probes=8", "--scorer", "none"]
VIDEOS = 3
MIB = 2**20
WAIT_SECONDS = 5.0  # that a page may take to answer while others attack, on a busy machine


class Run:
    """The videos, one cache that is never cleaned, the true rankings, and what happened."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.cache, self.media = folder / "cache", folder / "media"
        self.media.mkdir()
        self.videos = [numbered_video(self.media / f"{n}.mp4", 90 + 40 * n) for n in range(VIDEOS)]
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []
        self.longest_wait, self.most_memory = 0.0, 0  # of a server that is attacked
        self.truth = [self.frames(video, folder / "clean") for video in self.videos]
        wrong = [truth for truth in self.truth if isinstance(truth, str)]
        if wrong:
            sys.exit(f"nothing to compare with: {wrong[0]}")
        rows = [json.dumps({"video": str(video), "question": None}) for video in self.videos]
        (folder / "asked.jsonl").write_text("\n".join(rows))

    def command(self, *arguments: object, cache: Path | None = None) -> list[str]:
        return [sys.executable, "-m", "framenest", *map(str, arguments), "--cache", str(cache or self.cache)]

    def rank(self, video: Path, cache: Path | None = None) -> list[str]:
        target = self.folder / "ranking.json"
        return self.command("rank", video, "--no-question", "-o", target, "--quiet", *FAST, cache=cache)

    def frames(self, video: Path, cache: Path | None = None) -> list[int] | str:
        """The ranks of a video; a line where there are none."""
        (self.folder / "ranking.json").unlink(missing_ok=True)
        done = subprocess.run(self.rank(video, cache), capture_output=True, text=True, check=False)
        if done.returncode:
            return f"exit {done.returncode}: {done.stderr[-300:]}"
        rows = json.loads((self.folder / "ranking.json").read_text())["ranks"]
        return [row["frame"] for row in rows]

    def check(self, after: str) -> None:
        """Every ranking is the true one."""
        for video, truth in zip(self.videos, self.truth, strict=True):
            found = self.frames(video)
            if found != truth:
                self.lost.append(f"after {after}: {video.name}: {found}")

    def killed(self, command: list[str]) -> None:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.rng.uniform(0.3, 4.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def refused(
        self, command: list[str], codes: tuple[int, ...], full: bool = False, memory: int | None = None
    ) -> None:
        """A command that must end by itself, with one of these codes and no traceback.

        full: on a full disk; memory: bytes that each of its processes may take.
        """

        def limit() -> None:
            if full:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

        before = limit if full or memory is not None else None
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=before)
        if done.returncode not in codes or "Traceback" in done.stderr:
            self.lost.append(f"{command[3]} ended with {done.returncode}: {done.stderr[-300:]}")

    def kill_rank(self) -> None:
        self.killed(self.rank(self.rng.choice(self.videos)))

    def kill_index(self) -> None:
        self.killed(
            self.command("index", self.media, "--jobs", 2, *FAST, "--failures", self.folder / "f.jsonl")
        )

    def kill_manifest(self) -> None:
        out, failures = self.folder / "rankings", self.folder / "f.jsonl"
        given = [
            "--manifest",
            self.folder / "asked.jsonl",
            "--no-question",
            "-o",
            out,
            "--failures",
            failures,
        ]
        self.killed(self.command("rank", *given, *FAST))
        for file in out.glob("*.json") if out.exists() else ():
            json.loads(file.read_text())  # whole, or not there

    def kill_serve(self) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "scores.csv").write_text("frame,score\n0,0\n8,0\n9,1\n10,0\n89,0\n")
        server = Server(folder, "--scorer", f"table:{folder / 'scores.csv'}", videos=self.media).start()
        video = server.register("0.mp4")["video"]["id"]
        server.http.post("/rankings", json={"video": video, "question": "Where?"})
        time.sleep(self.rng.uniform(0, 2))
        server.stop(signal.SIGKILL)
        server.start()
        try:
            ranking = server.ask(video, "Where?")
            if len(server.http.get(f"/rankings/{ranking}/prefix", params={"k": 4}).json()["frames"]) != 4:
                self.lost.append("serve: a prefix after a kill")
        except AssertionError as error:
            self.lost.append(f"serve: {error}")
        finally:
            server.stop()

    def damage(self) -> None:
        for file in self.some_entries(3):
            data = bytearray(file.read_bytes())
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            file.write_bytes(data)

    def swap(self) -> None:
        entries = self.some_entries(2)
        if len(entries) == 2:
            one, other = (file.read_bytes() for file in entries)
            entries[0].write_bytes(other)
            entries[1].write_bytes(one)

    def links(self) -> None:
        """Entries become links to a file of ours, which must stay as it is."""
        precious = self.folder / "precious"
        precious.write_text("precious")
        for file in self.some_entries(3):
            file.unlink()
            file.symlink_to(precious)
        self.check("links")
        if precious.read_bytes() != b"precious":
            self.lost.append("a file behind a link in the cache")

    def unread(self) -> None:
        """Strangers pipeline requests and never read an answer."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "scores.csv").write_text("frame,score\n0,0\n9,1\n")
        server = Server(folder, "--scorer", f"table:{folder / 'scores.csv'}").start()
        before, many = own_memory(server.process.pid), []
        try:
            for _ in range(600):
                many.append(socket.create_connection(("127.0.0.1", server.port)))
                many[-1].setblocking(False)
                with suppress(OSError):
                    many[-1].send(5000 * b"GET /assets/view.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if server.http.get("/health").status_code != 200:
                self.lost.append("serve: shut by strangers")
            if own_memory(server.process.pid) - before > 200 * 2**20:
                self.lost.append("serve: filled by strangers")
        finally:
            for one in many:
                one.close()
            server.stop()

    @contextmanager
    def attacked(self, most: int) -> Iterator[tuple[Server, Upstream, list[Any]]]:
        """A gateway, and the ids of the videos; it may take `most` more bytes, and must always answer."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "scores.csv").write_text("frame,score\n0,0\n9,1\n")
        scorer = f"table:{folder / 'scores.csv'}"
        with upstream_server() as upstream:
            server = Server(folder, "--scorer", scorer, "--upstream", upstream.url, videos=self.media).start()
            over, url = threading.Event(), server.url
            watching = threading.Thread(target=lambda: self.watch(url, server.process.pid, most, over))
            try:
                ids = [server.indexed(video.name) for video in self.videos]
                watching.start()
                yield server, upstream, ids
                server.http.get("/health").raise_for_status()
            except (AssertionError, httpx.HTTPError) as error:
                self.lost.append(f"serve: {error!r}")
            finally:
                over.set()
                watching.join()
                server.stop()

    def watch(self, url: str, pid: int, most: int, over: threading.Event) -> None:
        """Ask for the smallest page over and over, and note the longest wait and the most memory."""
        before, wait, memory = own_memory(pid), 0.0, 0
        with httpx.Client(base_url=url, timeout=600) as client:
            while not over.wait(0.02):
                began = time.monotonic()
                client.get("/health")
                wait, memory = max(wait, time.monotonic() - began), max(memory, own_memory(pid) - before)
        self.longest_wait, self.most_memory = max(self.longest_wait, wait), max(self.most_memory, memory)
        if wait > WAIT_SECONDS or memory > most:
            self.lost.append(f"serve: a wait of {wait:.1f} s and {memory / MIB:.0f} MiB while attacked")

    def small_json(self) -> None:
        """Bodies of small JSON, three at once, some just below the limit on commas and brackets."""
        unit = self.rng.choice([b"{},", b'"",', b"[],", b"0,", b'{"role":"user","content":"x"},'])
        below = 240_000 // sum(unit.count(mark) for mark in b",{[") * len(unit)
        head = b'{"model":"video","messages":['
        if self.rng.random() < 0.5:
            head += b'{"role":"user","content":['
        content = head + unit * (self.rng.choice([below, 8 * MIB, 16 * MIB - 5000]) // len(unit))
        with self.attacked(200 * MIB) as (server, _, _):
            statuses = []

            def send() -> None:
                answer = httpx.post(
                    f"{server.url}/v1/chat/completions", content=content + b"0]}", timeout=600
                )
                statuses.append(answer.status_code)

            senders = [threading.Thread(target=send) for _ in range(3)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            if not statuses or not {*statuses} <= {200, 400, 413}:
                self.lost.append(f"serve: small JSON, {statuses}")

    def unfinished(self) -> None:
        """60 bodies that do not end, of which 768 MiB may stay; another client sends a video."""
        sent = b'{"model":"video","x":"' + self.rng.choice([b"A", b" ", b"{"]) * (16 * MIB - 1000)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
        with self.attacked(1000 * MIB) as (server, _, _):
            many = []
            for _ in range(60):
                many.append(socket.create_connection(("127.0.0.1", server.port), 60))
                with suppress(OSError):  # it was refused
                    many[-1].sendall(head % (16 * MIB) + sent)
            data = base64.b64encode(self.videos[0].read_bytes()).decode()
            answer = chat(server, [asked(f"data:video/mp4;base64,{data}", "And mine?")])
            if answer.status_code != 200:
                self.lost.append(
                    f"serve: shut by unfinished bodies, {answer.status_code}: {answer.text[:200]}"
                )
            for one in many:
                one.close()

    def turns_of_others(self) -> None:
        """A client asks what another has asked, with other settings and parts that read like its videos."""
        with self.attacked(200 * MIB) as (server, upstream, ids):
            mine, other = self.rng.sample(ids, 2)
            text, k = f"Where is it? {self.rng.random()}", self.rng.randint(1, 16)
            turn = asked(mine, text)
            turn["content"].insert(1, other)
            assert chat(server, [turn], k=k).status_code == 200
            (before,) = upstream.messages
            for _ in range(3):
                stranger = asked(other, text)
                stranger["content"].insert(0, mine)
                chat(server, [self.rng.choice([stranger, turn])], k=self.rng.randint(17, 64))
                chat(server, [asked(f"a:{json.dumps([turn])}", text)])
            further = [turn, {"role": "assistant", "content": "Here."}, {"role": "user", "content": "And?"}]
            assert chat(server, further, k=k).status_code == 200
            if upstream.messages[0] != before:
                self.lost.append("serve: a stranger changed a conversation")

    def many_frames(self) -> None:
        """More videos than a request may show at their budgets."""
        with self.attacked(600 * MIB) as (server, upstream, ids):
            turn = asked(ids[0], "Where?")
            turn["content"] += [part for id_ in ids[1:] for part in asked(id_, "Where?")["content"]]
            answer = chat(server, [turn], k=256)
            images = sum(part.get("type") == "image_url" for part in upstream.messages[0]["content"])
            size = len(upstream.requests[-1].body)
            if answer.status_code != 200 or not 0 < images <= 256 or size > 64 * MIB:
                self.lost.append(f"serve: {answer.status_code}, {images} images, {size} bytes")

    def many_turns(self) -> None:
        """A conversation of hundreds of turns, the first of them with a video each."""
        with self.attacked(600 * MIB) as (server, upstream, ids):
            answer = {"role": "assistant", "content": "Here."}
            turns = [asked(self.rng.choice(ids), f"Where? {n}") for n in range(self.rng.randint(1, 250))]
            turns += [{"role": "user", "content": f"And {n}?"} for n in range(self.rng.randint(1, 250))]
            reply = chat(server, [one for turn in turns for one in (turn, answer)][:-1], k=8)
            if reply.status_code != 200:
                self.lost.append(f"serve: {len(turns)} turns, {reply.status_code}: {reply.text[:200]}")
                return
            parts = [part for turn in upstream.messages for part in turn["content"] if isinstance(part, dict)]
            images = sum(part.get("type") == "image_url" for part in parts)
            if not 0 < images <= 256:
                self.lost.append(f"serve: {len(turns)} turns, {images} images")

    def some_entries(self, count: int) -> list[Path]:
        every = sorted(self.cache.rglob("*.safetensors"))
        return self.rng.sample(every, min(count, len(every)))

    def full_disk(self) -> None:
        self.refused(self.rank(self.rng.choice(self.videos), self.folder / "full"), (0, 2), full=True)

    def bomb(self) -> None:
        path = self.folder / "bomb.gif"
        Image.new("P", (self.rng.choice([1, 2]), 32000)).save(path)
        self.refused(self.rank(path), (2,))

    def header_bomb(self) -> None:
        path = self.folder / "bomb.mov"
        path.write_bytes(bombs.MOVIES[self.rng.choice(sorted(bombs.MOVIES))]())
        self.refused(self.rank(path), (2,), memory=2 * 2**30)

    def large_frames(self) -> None:
        size = self.rng.choice([(8191, 8191), (57000, 1150)])
        path = bombs.large_gif(self.folder / "large.gif", *size)
        self.refused(self.rank(path), (0,), memory=3 * 2**30)

    def fuzzed(self) -> None:
        data = bytearray(self.rng.choice(self.videos).read_bytes())
        for _ in range(self.rng.randint(1, 200)):
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        path = self.folder / "fuzzed.mp4"
        path.write_bytes(data)
        self.refused(self.rank(path), (0, 2))


def asked(address: str, text: str) -> dict[str, Any]:
    """A turn about a video."""
    video = {"type": "video_url", "video_url": {"url": address}}
    return {"role": "user", "content": [video, {"type": "text", "text": text}]}


def chat(server: Server, messages: list[Any], **settings: int) -> httpx.Response:
    """A chat completion through the gateway."""
    body = {"model": "m", "messages": messages, "framenest": settings}
    return server.http.post("/v1/chat/completions", json=body)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), random.Random(given.seed))
        faults: list[Callable[[], None]] = [
            run.kill_rank, run.kill_index, run.kill_manifest, run.kill_serve, run.damage, run.swap,
            run.full_disk, run.bomb, run.header_bomb, run.large_frames, run.fuzzed, run.links, run.unread,
            run.small_json, run.unfinished, run.turns_of_others, run.many_frames, run.many_turns,
        ]  # fmt: skip
        began = time.monotonic()
        while (minutes := round((time.monotonic() - began) / 60, 1)) < given.minutes:
            fault = run.rng.choice(faults)
            fault()
            run.counts[fault.__name__] += 1
            run.check(fault.__name__)
        counts = dict(sorted(run.counts.items()))
        print(counts, f"; lost: {len(run.lost)}", *run.lost, sep="\n")
        attacked = {"longest_wait_s": round(run.longest_wait, 2), "memory_mib": run.most_memory // MIB}
        result = {
            "minutes": minutes,
            "seed": given.seed,
            "faults": counts,
            "attacked": attacked,
            "lost": run.lost,
        }
        write("faults", result)


if __name__ == "__main__":
    main()
