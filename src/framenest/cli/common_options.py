"""Common: the options of every command."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from framenest.cli.options import option
from framenest.cli.terminal import detail, err, set_level
from framenest.errors import ConfigError
from framenest.progress_bars import Bars

if TYPE_CHECKING:  # a store is imported when it is opened
    from framenest.cache.directory import DirectoryStore
    from framenest.protocols import ManagedStore


@dataclass(frozen=True)
class Common:
    """What every command takes: the cache, and whether to show progress."""

    cache_place: str | None = option(
        "Where indexes, features and models are kept; s3:// and other addresses with the extra "
        "`remote`, then without models. [default: $FRAMENEST_CACHE, or the user's cache]",
        flag="--cache",
        metavar="DIR|URL",
    )
    quiet: bool = option("Print results and errors only: no facts, notes or progress bars.", short="-q")
    verbose: bool = option("Say more: which cache and scorer, and every warning.", short="-v")
    debug: bool = option("Show the traceback of an error.")

    def __post_init__(self) -> None:
        if self.quiet and self.verbose:
            raise ConfigError("give --quiet or --verbose, not both")
        set_level(self.verbose - self.quiet)
        if self.verbose:
            detail(f"cache {self.cache.location}")

    @cached_property
    def cache(self) -> ManagedStore:
        """Where indexes, features and models are kept."""
        from framenest.cache.remote import open_store

        return open_store(self.cache_place)

    @property
    def local(self) -> DirectoryStore:
        """The directory for what is never at an address: models, fingerprints, downloads."""
        from framenest.cache.directory import local_directory

        return local_directory(self.cache)

    def bars(self) -> Bars:
        """Progress bars, as asked for."""
        return Bars(off=self.quiet, console=err)
