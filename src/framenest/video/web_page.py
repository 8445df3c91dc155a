"""The video of a web page, which yt-dlp (extra `web`) fetches into the cache.

yt-dlp runs in a process of its own, where its plug-ins can be kept out and its connections restricted.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Timer
from typing import Any

from framenest.cache.directory import DOWNLOADS, DirectoryStore
from framenest.cache.files import alone
from framenest.cache.hashes import digest
from framenest.errors import CacheWarning, VideoError, install_hint
from framenest.processes import DOWNLOAD_VARIABLE, limit_in
from framenest.progress import ShowProgress, shown
from framenest.text import one_line, size_text

PAGES = ("text/html", "application/xhtml+xml")  # content types
Hosts = list[str] | None
MAX_DOWNLOAD_BYTES = 20 * 2**30
PAGE_BYTES, PAGE_SECONDS = 2**30, 60.0  # of memory, and to find the video of a page
_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.sendto")


def check_size(url: str, size: int, most: int = sys.maxsize) -> None:
    """Refuse a download of more bytes than `most` or $FRAMENEST_MAX_DOWNLOAD."""
    chosen = limit_in(DOWNLOAD_VARIABLE)
    limit = min(most, MAX_DOWNLOAD_BYTES if chosen is None else chosen)
    if size > limit:
        hint = "" if limit == most else f"; ${DOWNLOAD_VARIABLE} sets another limit"
        raise VideoError(f"{url}: larger than {size_text(limit)}, the limit for downloads{hint}")


def fetch_page(
    url: str,
    local: DirectoryStore,
    progress: ShowProgress,
    most: Callable[[int], int] = lambda _: sys.maxsize,
    hosts: Hosts = None,
) -> Path:
    """Fetch the video of a page and its captions into the cache, unless they are there.

    An interrupted download resumes. If another process is fetching this page, this one waits for it.
    most(done): bytes that the video may have, of which `done` are here. hosts: see `guard`; None: no guard.
    """
    if importlib.util.find_spec("yt_dlp") is None:
        raise VideoError(f"{url}: a web page, not a video; to fetch the video on it, {install_hint('web')}")
    listed = local.root / DOWNLOADS / digest("page", url) / "files.txt"  # written last
    message: dict[str, Any] = {}
    try:
        listed.parent.mkdir(parents=True, exist_ok=True)
        with alone(listed), shown(progress) as show:
            names = os.fsdecode(listed.read_bytes()).split("\n")
            files = [listed.with_name(name) for name in names if name]
            if files and all(file.is_file() for file in files):
                return files[0]
            for message in _run(url, listed.parent, hosts, most):
                if "done" in message:
                    show("download (MiB)", message["done"] >> 20, message["total"] >> 20)
            why = one_line(message.get("why", f"yt-dlp broke down, or took over {PAGE_SECONDS:.0f} s"))
            why = why.removeprefix("ERROR: ").partition("; please report")[0]
            if "files" not in message:
                raise VideoError(f"{url}: no video can be fetched from this page ({why})")
            if "why" not in message:
                listed.write_bytes(os.fsencode("\n".join(message["files"])))
            else:
                text = f"{url}: its captions cannot be fetched; the next run tries again ({why})"
                warnings.warn(text, CacheWarning, stacklevel=2)
            return listed.with_name(message["files"][0])
    except OSError as error:
        raise VideoError(f"{url}: could not be fetched ({error})") from error


def _run(url: str, folder: Path, hosts: Hosts, most: Callable[[int], int]) -> Iterator[dict[str, Any]]:
    """Run this module as a process; yields its progress, then the files' names, and why any is missing."""
    request = json.dumps([url, str(folder), hosts])  # other users could see it in the command
    environment = os.environ | {"YTDLP_NO_PLUGINS": "1", "FRAMENEST_PAGE": request}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # "" is the working directory
    command = [sys.executable, "-P", "-m", __name__]
    with Popen(command, env=environment, text=True, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL) as child:
        too_long = Timer(PAGE_SECONDS, child.kill)
        too_long.start()
        try:
            for message in map(json.loads, child.stdout or ()):
                too_long.cancel()
                check_size(url, message.get("size", 0), most(message.get("done", 0)))
                yield message
        except VideoError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            too_long.cancel()
            child.kill()


def guard(hosts: list[str]) -> None:
    """From now on, connect only to public addresses and to these hosts, start no program, exit in an hour.

    Python's audit events have the address of every connection, so no redirect and no name reaches an
    internal address. The host name is that of the last lookup, right before the connection.
    """
    allowed, looked_up = set[tuple[str, int]](), ""
    for name, _, port in (host.partition(":") for host in hosts):
        allowed |= {(name, int(port))} if port.isdecimal() else {(name, 80), (name, 443)}

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal looked_up
        if event == "socket.getaddrinfo":
            looked_up = str(arguments[0]).lower()
        other = event == "socket.connect" and (looked_up, arguments[1][1]) not in allowed
        if event in _FORBIDDEN or (other and not ipaddress.ip_address(arguments[1][0]).is_global):
            raise PermissionError(f"not allowed on this server: {event} {arguments[1:2]}")

    sys.modules["curl_cffi"] = None  # type: ignore[assignment]  # connects without audit events
    sys.addaudithook(check)
    signal.alarm(3600)


def download(url: str, folder: str, guarded: bool) -> dict[str, Any]:
    """The names of a page's files, the video first, and why captions are missing, if they are."""
    import yt_dlp

    def watch(state: dict[str, Any]) -> None:
        done, total = state.get("downloaded_bytes") or 0, state.get("total_bytes") or 0
        _tell(done=done, size=max(done, total), total=int(total or state.get("total_bytes_estimate") or 0))

    settings: dict[str, Any] = {
        "format": "bv*",  # one file, with or without sound; two would need ffmpeg to be merged
        "format_sort": ["res:720"],  # the largest up to that, otherwise the smallest
        "outtmpl": f"{folder.replace('%', '%%')}/%(title).80B-%(format_id).40B.%(ext)s",
        "playlist_items": "1-2",  # enough to see that there are several
        "external_downloader": {"default": "native"}, "fixup": "never",  # no ffmpeg
        "noplaylist": True, "cachedir": False, "updatetime": False, "socket_timeout": 30, "retries": 3,
        "quiet": True, "noprogress": True, "progress_hooks": [watch], "logger": _Log(),
        **({"proxy": "", "js_runtimes": {}} if guarded else {}),
    }  # fmt: skip
    with yt_dlp.YoutubeDL(settings) as tool:
        page = tool.extract_info(url, download=False)
        _tell(done=0, size=0, total=0)
        videos = [video for video in page.get("entries", [page]) if video]
        if len(videos) != 1:
            raise ValueError("it shows several; give the URL of one" if videos else "it shows none")
        (info,) = videos
        if info.get("is_live") or info.get("live_status") == "is_upcoming":
            raise ValueError("it is a live stream; it can be fetched when it is over")
        tool.process_info(info)
        video = Path(info["filepath"])
        # English captions before others, written before automatic ones.
        kinds = [info.get(kind) or {} for kind in ("subtitles", "automatic_captions")]
        every = [(name or "", file) for kind in kinds for name, files in kind.items() for file in files]
        spoken = [
            one for one in every if "tlang=" not in str(one[1].get("url"))
        ]  # not YouTube's translations
        usable = [one for one in spoken if one[1].get("ext") in ("vtt", "srt", "ass", "ssa")]
        if not usable:
            return {"files": [video.name]}
        name, captions = max(usable, key=lambda one: one[0].startswith("en"))
        tool.params |= {"skip_download": True, "writesubtitles": True}
        try:
            tool.process_info(info | {"requested_subtitles": {"captions": captions}})
        except yt_dlp.utils.YoutubeDLError as error:
            return {"files": [video.name], "why": str(error)}
        beside = video.with_suffix(f"{'.en' if name.startswith('en') else ''}.{captions['ext']}")
        return {"files": [video.name, Path(captions["filepath"]).replace(beside).name]}


_runtime_warnings: list[str] = []
"""What yt-dlp says of a missing JavaScript runtime, the usual cause of what fails then."""


class _Log:
    """Where yt-dlp writes."""

    def debug(self, text: str) -> None: ...

    error = info = debug

    def warning(self, text: str) -> None:
        if "JavaScript runtime" in text and not _runtime_warnings:
            _runtime_warnings.append(text)


def _tell(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.stdout = sys.stderr  # what an extractor prints is not ours
    page, target, hosts = json.loads(os.environ["FRAMENEST_PAGE"])
    with suppress(ImportError):  # on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (PAGE_BYTES, PAGE_BYTES))
    if hosts is not None:
        guard(hosts)
    try:
        _tell(**download(page, target, hosts is not None))
    except MemoryError:
        _tell(why=f"reading it takes more than {size_text(PAGE_BYTES)} of memory")
    except Exception as error:  # an extractor may raise anything
        _tell(why=". ".join([str(error) or repr(error), *_runtime_warnings]))
