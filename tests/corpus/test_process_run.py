"""Runs over many videos with real worker processes: nothing stops them, nothing is lost or done twice."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from odd_jobs import OddJob

from framenest import MEC, IndexConfig, MECConfig, Ranking
from framenest import processes as machine
from framenest.cache.directory import DirectoryStore
from framenest.cli import many_videos
from framenest.cli.many_videos import ManyVideos
from framenest.config import ScorerConfig
from framenest.corpus.batch_job import BatchJob, ItemOutcome, RunReport, WorkItem, failed
from framenest.corpus.manifest import index_groups, ranking_groups
from framenest.corpus.process_run import run_in_processes
from framenest.errors import FramenestError
from framenest.processes import ProcessLimits, machine_memory, own_memory
from framenest.rank_request import RankRequest
from media import numbered_video
from processes import PATIENCE, children

SMALL = RankRequest(video="", config=MECConfig(IndexConfig(base_probes=12, extra_probes=0)))
FAST = ["--set", "base_probes=12", "--set", "extra_probes=0", "--scorer", "none"]


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(6):
        numbered_video(folder / f"{number}.mp4", 30 + number)
    return folder


def framenest(*arguments, cwd=None, **settings):
    command = [sys.executable, "-m", "framenest", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", cwd=cwd, check=False, **settings
    )


def outcomes_by_name(job, groups, jobs=2, limits=None):
    found = [
        o for outcomes in run_in_processes(job, groups, jobs, limits or ProcessLimits()) for o in outcomes
    ]
    return {Path(o.item.video).name: o for o in found}


def test_no_video_stops_the_run(videos, tmp_path):
    """One worker hangs, one crashes, one takes too much memory, one file is missing; the rest is done."""
    names = [*sorted(videos.glob("*.mp4")), *(tmp_path / f"{w}.mp4" for w in ("hang", "crash", "greedy"))]
    job = OddJob(cache=str(tmp_path / "store"))
    groups = index_groups([str(name) for name in [*names[6:], *names[:6], tmp_path / "missing.mp4"]], SMALL)
    found = outcomes_by_name(job, groups, limits=ProcessLimits(30.0, 400 * 2**20))
    assert {n: o.error for n, o in found.items() if o.status == "failed"} == {
        "hang.mp4": "TimeLimit",
        "crash.mp4": "WorkerDied",
        "greedy.mp4": "MemoryLimit",
        "missing.mp4": "VideoError",
    }
    assert "killed by SIGSEGV" in found["crash.mp4"].text
    assert sum(o.status == "done" for o in found.values()) == 6
    again = outcomes_by_name(OddJob(cache=str(tmp_path / "store")), groups[3:9])
    assert {o.status for o in again.values()} == {"already"}


def test_only_the_question_that_crashes_is_lost(videos, tmp_path):
    manifest = tmp_path / "asked.jsonl"
    asked = ("Where?", "Will it crash?", "When?")
    manifest.write_text("\n".join(json.dumps({"video": str(videos / "0.mp4"), "question": q}) for q in asked))
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n2,0\n3,1\n4,0\n29,0\n")
    job = OddJob(f"table:{tmp_path / 'scores.csv'}", cache=str(tmp_path / "store"))
    groups = ranking_groups(manifest, tmp_path / "rankings", SMALL)
    found = [o for outcomes in run_in_processes(job, groups, 1, ProcessLimits()) for o in outcomes]
    assert {o.item.request.question: o.status for o in found} == {
        "Where?": "done",
        "Will it crash?": "failed",
        "When?": "done",
    }
    assert len(list((tmp_path / "rankings").glob("*.json"))) == 2


def test_a_worker_that_cannot_start_ends_the_run(videos, tmp_path):
    job = OddJob(f"table:{tmp_path / 'none.csv'}", cache=str(tmp_path / "store"))
    with pytest.raises(FramenestError, match=r"none\.csv"):
        outcomes_by_name(job, index_groups([str(videos / "0.mp4")], SMALL))


def test_a_worker_killed_while_it_starts_does_not_end_the_run(videos, tmp_path):
    job = OddJob(cache=str(tmp_path / "store"), first_start=str(tmp_path / "started"))
    found = outcomes_by_name(job, index_groups([str(videos / "0.mp4")], SMALL), jobs=1)
    assert (tmp_path / "started").exists()
    assert {name: outcome.status for name, outcome in found.items()} == {"0.mp4": "done"}


def test_a_worker_that_can_never_start_does_not_end_the_run_of_the_others(videos, tmp_path, caplog):
    job = OddJob(cache=str(tmp_path / "store"), only_start=str(tmp_path / "started"))
    found = outcomes_by_name(job, index_groups([str(path) for path in videos.glob("*.mp4")], SMALL), jobs=2)
    assert sorted(outcome.status for outcome in found.values()) == ["done"] * 6
    assert (
        "a worker could not start: the worker was killed by SIGKILL; the others continue without it"
        in caplog.text
    )


def test_own_memory_counts_what_a_process_holds():
    before = own_memory(os.getpid())
    if before is None:
        pytest.skip("this system has no /proc")
    hoard = bytearray(os.urandom(2**20) * 50)
    assert own_memory(os.getpid()) - before > 40 * 2**20
    del hoard


def test_all_workers_together_leave_the_machine_a_quarter_of_its_memory(monkeypatch):
    given = []
    monkeypatch.setattr(many_videos, "run_in_processes", lambda *what: given.append(what[2:4]))
    groups = index_groups([f"{number}.mp4" for number in range(8)])
    for jobs in (1, 3, 20):
        many_videos.outcomes_of(ManyVideos(jobs, None, None, None, "local", None, None), BatchJob(), groups)
    assert [jobs for jobs, _ in given] == [1, 3, 8]
    for jobs, limits in given:
        assert 0 < jobs * limits.memory <= 3 * machine_memory() // 4


@pytest.mark.parametrize(
    ("gibibytes", "cores", "device", "expected"),
    [
        (139, 16, "auto", 4),
        (24, 16, "auto", 3),
        (6, 16, "auto", 1),
        (139, 2, "auto", 1),
        (139, 16, "cpu", 16),
    ],
)
def test_workers_beside_a_gpu_share_its_memory_and_the_cores(monkeypatch, gibibytes, cores, device, expected):
    given = []
    monkeypatch.setattr(many_videos, "run_in_processes", lambda *what: given.append(what[2]))
    monkeypatch.setattr(many_videos, "runs_on_gpu", lambda name: name == "blip2")
    monkeypatch.setattr(many_videos, "gpu_memory", lambda: gibibytes * 2**30)
    monkeypatch.setattr(many_videos, "cores", lambda: cores)
    job = BatchJob(scorer="blip2", scoring=ScorerConfig(device=device))
    groups = index_groups([f"{number}.mp4" for number in range(40)])
    many_videos.outcomes_of(ManyVideos(None, None, None, None, "local", None, None), job, groups)
    assert given == [expected]


def test_without_a_driver_there_is_no_gpu_memory(monkeypatch):
    def missing(_):
        raise OSError

    monkeypatch.setattr(machine.ctypes, "CDLL", missing)
    assert machine.gpu_memory() == 0


def test_index_of_a_folder_as_a_user_has_it(videos, tmp_path):
    bad = tmp_path / "list.txt"
    bad.write_text("nothing.mp4\n")
    first = framenest("index", videos, bad, "--jobs", "2", "--cache", tmp_path / "c", *FAST, cwd=tmp_path)
    assert first.returncode == 1
    assert "6 videos done in " in first.stdout
    assert "1 failed (VideoError 1), see failures.jsonl" in first.stdout
    (line,) = (tmp_path / "failures.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "video": str(tmp_path / "nothing.mp4"),
        "error": "VideoError",
        "message": f"{tmp_path / 'nothing.mp4'}: no such file",
    }
    again = framenest("index", videos, "--cache", tmp_path / "c", *FAST, cwd=tmp_path)
    assert again.returncode == 0
    assert re.search("0 videos done in .*; 6 already done", again.stdout)
    assert not (tmp_path / "failures.jsonl").exists()


def test_a_name_that_is_no_text_is_a_file_like_any_other(videos, tmp_path):
    folder = os.fsencode(tmp_path / "old")
    (tmp_path / "old").mkdir()
    numbered_video(tmp_path / "cafe.mp4", 50).rename(os.fsdecode(folder + b"/caf\xe9.mp4"))
    Path(os.fsdecode(folder + b"/broken\xe9.mp4")).write_bytes(b"no video")
    run = framenest("index", tmp_path / "old", videos, "--cache", tmp_path / "c", *FAST, cwd=tmp_path)
    assert run.returncode == 1, run.stderr
    assert "7 videos done in " in run.stdout
    (line,) = (tmp_path / "failures.jsonl").read_text().splitlines()
    assert os.fsencode(json.loads(line)["video"]) == folder + b"/broken\xe9.mp4"


def test_rankings_of_another_scorer_are_made_again(videos, tmp_path):
    manifest = tmp_path / "asked.jsonl"
    manifest.write_text(json.dumps({"video": str(videos / "0.mp4"), "question": "Where?"}))
    groups = ranking_groups(manifest, tmp_path / "rankings", SMALL)
    for place, status in ((3, "done"), (3, "already"), (9, "done")):
        (tmp_path / "scores.csv").write_text(f"frame,score\n0,0\n{place},1\n29,0\n")
        job = OddJob(f"table:{tmp_path / 'scores.csv'}", cache=str(tmp_path / "store"))
        assert outcomes_by_name(job, groups, 1)["0.mp4"].status == status


def test_what_cannot_be_kept_ten_times_in_a_row_ends_the_run(tmp_path):
    report = RunReport(tmp_path / "failures.jsonl")
    item = WorkItem(SMALL)
    for _ in range(9):
        report.add(failed(item, "StoreError", "s3://x: cannot be written"))
    report.add(ItemOutcome(item, "done"))
    for _ in range(9):
        report.add(failed(item, "StoreError", "s3://x: cannot be written"))
    assert not report.stopped
    report.add(failed(item, "StoreError", "s3://x: cannot be written"))
    assert report.stopped == "s3://x: cannot be written"


def test_what_was_removed_is_made_again(videos, tmp_path):
    framenest("index", videos, "--cache", tmp_path / "c", *FAST, cwd=tmp_path)
    store = DirectoryStore(tmp_path / "c")
    key = next(entry.key for entry in store.entries() if entry.key.startswith("index/"))
    assert store.remove(key)
    again = framenest("index", videos, "--cache", tmp_path / "c", *FAST, cwd=tmp_path)
    assert "1 video done" in again.stdout
    assert store.has(key)


def test_killed_in_the_middle_a_rerun_does_only_what_is_missing(videos, tmp_path):
    many = tmp_path / "videos"
    many.mkdir()
    for number in range(12):
        numbered_video(many / f"{number}.mp4", 200 + number, 320, 240)
    store, settings = DirectoryStore(tmp_path / "c"), ["--cache", tmp_path / "c", "--scorer", "none"]
    command = [sys.executable, "-m", "framenest", "index", many, "--jobs", "2", *settings]
    with subprocess.Popen(list(map(str, command)), cwd=tmp_path, stdout=subprocess.DEVNULL) as run:
        workers = wait_for(lambda: [p for p in children(run.pid) if finished(store)])
        run.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))  # none is left over
    there = {entry.key for entry in store.entries()}
    before = {key: store.path(key).stat().st_mtime_ns for key in there}
    done = len(finished(store))
    assert 1 <= done < 12
    again = framenest("index", many, "--jobs", "2", *settings, cwd=tmp_path)
    assert again.returncode == 0
    assert f"{done} already done" in again.stdout
    assert len(finished(store)) == 12
    kept = [key for key in there if key.startswith(("finished/", "index/"))]
    assert all(store.path(key).stat().st_mtime_ns == before[key] for key in kept)


def finished(store):
    return list((store.root / "finished").rglob("*.safetensors"))


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def test_rank_manifest_as_a_user_has_it(videos, tmp_path):
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n2,0\n3,1\n4,0\n29,0\n")
    lines = ["video,question", f"{videos / '0.mp4'},Where?", f"{videos / '0.mp4'},When?", "no.mp4,Who?"]
    (tmp_path / "asked.csv").write_text("\n".join(lines))
    command = ["rank", "--manifest", "asked.csv", "-o", "out", "--cache", "c", "--scorer", "table:scores.csv"]
    first = framenest(*command, cwd=tmp_path)
    assert first.returncode == 1
    assert "2 rankings done" in first.stdout
    listed = [json.loads(line) for line in (tmp_path / "out" / "rankings.jsonl").read_text().splitlines()]
    assert [row["question"] for row in listed] == ["Where?", "When?", "Who?"]
    assert Ranking.load(tmp_path / "out" / listed[0]["ranking"]).question == "Where?"
    assert listed[2]["ranking"] is None
    assert json.loads((tmp_path / "failures.jsonl").read_text())["question"] == "Who?"
    again = framenest(*command, cwd=tmp_path)
    assert re.search("0 rankings done in .*; 2 already done; 1 failed", again.stdout)
    other = framenest(*command, "--horizon", "16", cwd=tmp_path)
    assert "2 rankings done" in other.stdout
    where, when = (tmp_path / "out" / row["ranking"] for row in listed[:2])
    shutil.copy(where, when)  # a ranking of this video in the place of another question's
    assert "1 already done" in framenest(*command, cwd=tmp_path).stdout
    assert Ranking.load(when).question == "When?"


def test_wrong_calls_are_refused(tmp_path):
    (tmp_path / "asked.csv").write_text("video,question\na.mp4,Where?\n")
    for arguments, message in [
        (["rank"], "give a VIDEO, or --manifest FILE"),
        (["rank", "--manifest", "asked.csv"], "give -o FOLDER"),
        (["rank", "a.mp4", "--manifest", "asked.csv", "-o", "x"], "--manifest does not go with VIDEO"),
        (["rank", "a.mp4", "Where?", "--jobs", "2"], "needs --manifest"),
        (["index", "asked.csv", "--address", "auto"], "--address and --encoders need --engine ray"),
    ]:
        done = framenest(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr


def test_an_interrupted_run_keeps_what_is_done_of_each_video(tmp_path):
    """The worker stands at 16 of 120 probes until it is cancelled."""
    video = numbered_video(tmp_path / "wait.mp4", 150)
    request = RankRequest(video="", config=MECConfig(IndexConfig(base_probes=120, extra_probes=0)))
    job, watched = OddJob(cache=str(tmp_path / "store")), []

    def press_ctrl_c(video, stage, done, total):
        watched.append((Path(video).name, stage, done, total))
        if 16 <= done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_in_processes(job, index_groups([str(video)], request), 1, ProcessLimits(), press_ctrl_c))
    assert watched == [
        ("wait.mp4", "starting", 0, 0),
        ("wait.mp4", "probes", 0, 120),
        ("wait.mp4", "probes", 8, 120),  # 16 are decoded, none is encoded
        ("wait.mp4", "probes", 16, 120),
    ]
    counted = []
    index = MEC(
        request.config, None, store=tmp_path / "store", progress=lambda *told: counted.append(told)
    ).index(video)
    assert (len(index), counted[0]) == (120, ("probes", 0, 104))
