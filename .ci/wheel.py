"""Builds the sdist and from it the wheel, looks inside both, installs the wheel alone and works with it.

Run by `make wheel`, from an environment with build and twine; what is built lies in dist/ afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGE = "src/framenest/"
# One of each kind of file that is not Python; that all others are there follows from the comparison with git.
DATA = ["py.typed", "report/assets/page.html", "scorers/labels/imagenet.txt", "server/page/index.html"]

VIDEO = """
import sys, av, numpy
with av.open(sys.argv[1], "w") as file:
    stream = file.add_stream("mpeg4", rate=10)
    stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
    for i in range(60):
        picture = numpy.full((96, 160, 3), (4 * i, 255 - 4 * i, 90), numpy.uint8)
        picture[20:60, i : i + 50] = 255
        file.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
    file.mux(stream.encode(None))
"""


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    look_inside(sdist, wheel)
    with tempfile.TemporaryDirectory() as folder:
        use(wheel, Path(folder))
    print(f"{sdist.name} and {wheel.name} hold what they should; the wheel works on its own")


def look_inside(sdist: Path, wheel: Path) -> None:
    ours = tracked()
    if ours is None:
        print("NOT CHECKED: what is inside, for want of a git checkout to compare with")
        return
    package = {name.removeprefix(PACKAGE) for name in ours if name.startswith(PACKAGE)}
    assert package.issuperset(DATA), f"moved or renamed: {sorted(set(DATA) - package)}"

    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    same(wheel.name, names, {f"framenest/{name}" for name in package})

    with tarfile.open(sdist) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    same(sdist.name, names - {"PKG-INFO"}, ours)


def tracked() -> set[str] | None:
    """The files of the project as git knows them, so that nothing that happens to lie about is published."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return None
    # A checkout that belongs to another user is a checkout, too.
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.split("\0")) - {""}


def same(archive: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        sys.exit(
            f"{archive}: missing {sorted(expected - found)}, foreign {sorted(found - expected)}\n"
            "(what belongs to the project is what git tracks: `git add` new files)"
        )


def use(wheel: Path, folder: Path) -> None:
    """Ranks a video with nothing installed but the wheel and its extra, far from the sources."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, f"{wheel}[tags]")
    (folder / "video.py").write_text(VIDEO)
    run(programs / "python", "video.py", "video.mp4", cwd=folder)
    run(programs / "framenest", "models", "fetch", "tags", cwd=folder)
    rank = [programs / "framenest", "rank", "video.mp4", "Where is the box?", "-k", "4"]
    run(*rank, "-o", "ranking.json", cwd=folder)
    run(programs / "framenest", "report", "ranking.json", "-o", "report.html", cwd=folder)
    assert "</html>" in (folder / "report.html").read_text()


def run(*command: object, cwd: Path = ROOT) -> None:
    # The constraints come in the environment, relative to the project.
    constraints = {
        name: str(ROOT / path)
        for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
        if (path := os.environ.get(name))
    }
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, env=os.environ | constraints)


if __name__ == "__main__":
    main()
