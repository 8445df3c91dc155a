"""Builds the documentation site in build/site: the pages as they are, and the API from docstrings.

Usage: python docs/site/build.py. A link or an anchor that leads nowhere fails it. The pages link to each
other and to files beside them as they do in the repository, so the site has the repository's layout.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
ALSO = ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "Makefile")


def gather() -> None:
    """Copies all that the pages show and link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    shutil.copy(ROOT / "README.md", PAGES / "index.md")
    for name in ALSO:
        shutil.copy(ROOT / name, PAGES / name)
    for folder in ("docs", "examples", "skills", "benchmarks"):
        shutil.copytree(ROOT / folder, PAGES / folder, ignore=shutil.ignore_patterns("site", "__pycache__"))
    shutil.copy(ROOT / "docs" / "site" / "api.md", PAGES / "docs" / "api.md")


def build() -> int:
    """Builds the site; the exit code of the builder."""
    config = BUILD / "mkdocs.yml"
    text = (ROOT / "docs" / "site" / "mkdocs.yml").read_text()
    config.write_text(text.replace("{root}", str(ROOT)))
    builder = Path(sys.executable).parent / "zensical"
    return subprocess.run(
        [builder, "build", "--clean", "--strict", "-f", config], cwd=BUILD, check=False
    ).returncode


if __name__ == "__main__":
    gather()
    sys.exit(build())
