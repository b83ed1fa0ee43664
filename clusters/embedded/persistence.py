"""Writes that outlive the process: a SQLite file in write-ahead mode, one transaction for each write.

A write is in the operating system's hands before its client hears of it, so a killed process (SIGKILL, out of memory)
loses nothing that was acknowledged, and SQLite rolls back a write that was cut in half. A power failure may take the
last writes with it, never the file; with `sync=True` each write also waits for the disk, and nothing is lost even then.
Watch history is not kept: clients that resume after a restart are told 410 and list again, as with a restarted API
server.
"""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clusters.fleet import FleetError

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (resource, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO clock VALUES (1, 1);
"""


def private(file: Path) -> None:
    """There, and for its owner alone before anything is in it: Secrets will be. SQLite gives the files that it puts
    beside this one the same mode."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # one of an earlier version was open to all
    finally:
        os.close(descriptor)


class DirectoryInUseError(FleetError):
    """Another server holds the data directory."""


class SqliteJournal:
    """The journal in a data directory; one server at a time."""

    def __init__(self, directory: Path, *, sync: bool = False) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = directory / "objects.sqlite"
        private(file)
        self._connection = sqlite3.connect(file, isolation_level=None, timeout=0)
        execute = self._connection.execute
        try:
            execute("PRAGMA locking_mode = EXCLUSIVE")
            execute("PRAGMA journal_mode = WAL")
            execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            execute("PRAGMA wal_autocheckpoint = 4000")
            self._connection.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            self._connection.close()
            if "locked" in str(error):
                raise DirectoryInUseError(f"{directory} is in use by another server: stop that one first") from error
            raise

    def put(self, resource: str, key: str, version: int, data: bytes) -> None:
        """Keep a version of an object."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (resource, key, version, data))
        execute("UPDATE clock SET version = ?", (version,))
        execute("COMMIT")

    def remove(self, resource: str, key: str, version: int) -> None:
        """Keep that the object is gone."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("DELETE FROM objects WHERE resource = ? AND key = ?", (resource, key))
        execute("UPDATE clock SET version = ?", (version,))
        execute("COMMIT")

    def load(self) -> Iterator[tuple[str, str, int, bytes]]:
        """All objects, as (resource, key, version, data)."""
        yield from self._connection.execute("SELECT resource, key, version, data FROM objects ORDER BY resource, key")

    def version(self) -> int:
        """The last resourceVersion that was given."""
        (version,) = self._connection.execute("SELECT version FROM clock").fetchone()
        return int(version)

    def close(self) -> None:
        """Let go of the directory."""
        self._connection.close()
