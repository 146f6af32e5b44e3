"""The file of all runs: SQLite, one row a run, one a request, one a sample of the timeline.

A run is written while it goes on, so that one that dies in the middle is there as far as it came; whoever
reads it next sees that its process is gone and marks it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from trtbuild.errors import MeasureError
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.records.record import Record, TimelineRow

DEFAULT_FILE = Path("runs") / "records.sqlite"
_VERSION = 1
_SCHEMA = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, series TEXT, kind TEXT NOT NULL, label TEXT NOT NULL, state TEXT NOT NULL,
    why TEXT NOT NULL, begun_unix_s REAL NOT NULL, duration_s REAL NOT NULL, window_begin_s REAL NOT NULL,
    window_end_s REAL NOT NULL, seed INTEGER NOT NULL, load TEXT NOT NULL, deployment TEXT NOT NULL,
    machine TEXT NOT NULL, versions TEXT NOT NULL, notes TEXT NOT NULL, generator TEXT NOT NULL,
    metrics TEXT NOT NULL, changed TEXT NOT NULL, owner_pid INTEGER NOT NULL, owner_started_s REAL NOT NULL
);
CREATE TABLE requests (
    run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, number INTEGER NOT NULL, traffic TEXT NOT NULL,
    model TEXT NOT NULL, kind TEXT NOT NULL, phase TEXT NOT NULL, intended_s REAL NOT NULL, sent_s REAL,
    first_s REAL, end_s REAL, outcome TEXT NOT NULL, prompt_tokens INTEGER, output_tokens INTEGER,
    max_tokens INTEGER, prefix_tokens INTEGER NOT NULL, degrade_step INTEGER NOT NULL, error TEXT NOT NULL,
    arrivals BLOB NOT NULL, PRIMARY KEY (run_id, number)
) WITHOUT ROWID;
CREATE TABLE timeline (
    run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, t_s REAL NOT NULL, model TEXT NOT NULL,
    series TEXT NOT NULL, value REAL NOT NULL
);
CREATE INDEX timeline_of_run ON timeline (run_id, series, t_s);
"""
_JSON = ("load", "deployment", "machine", "versions", "notes", "generator", "metrics", "changed")
_PLAIN = ("run_id", "series", "kind", "label", "state", "why", "begun_unix_s", "duration_s", "seed")
RequestRow = tuple[Any, ...]
_REQUEST = (
    "number", "traffic", "model", "kind", "phase", "intended_s", "sent_s", "first_s", "end_s", "outcome",
    "prompt_tokens", "output_tokens", "max_tokens", "prefix_tokens", "degrade_step", "error",
)  # fmt: skip
_values = attrgetter(*_REQUEST)


class Store:
    """Runs in one file, which is made when it is first written to.

    Args:
        path: default ``runs/records.sqlite`` in the working folder, or the file that ``TRTBUILD_RUNS`` names.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(os.environ.get("TRTBUILD_RUNS") or DEFAULT_FILE)

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        if write:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.is_file():
            raise MeasureError(
                f"{self.path} does not exist: no run was recorded here", "measure one: trtbuild bench"
            )
        try:
            if write:
                self._make()
            with closing(sqlite3.connect(self.path, timeout=30)) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA foreign_keys = ON")
                self._check_version(connection)
                with connection:
                    yield connection
        except (sqlite3.DatabaseError, OSError) as error:
            raise MeasureError(
                f"{self.path} cannot be used as a file of runs: {error}", "name another: --runs FILE"
            ) from error

    def _make(self) -> None:
        """Makes the file in another place and moves it in, so that nobody finds half of one.

        SQLite does not wait for others when it changes a file's journal, so one process makes it at a time.
        """
        path = self.path.resolve()  # a link stays one
        if not _is_to_be_made(path):
            return
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_to_be_made(path):
                return
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                made = Path(folder) / path.name
                with closing(sqlite3.connect(made)) as connection:
                    connection.executescript(
                        f"PRAGMA journal_mode = WAL; {_SCHEMA} PRAGMA user_version = {_VERSION};"
                    )
                made.replace(path)
        finally:
            os.close(descriptor)

    def _check_version(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise MeasureError(f"{self.path} holds no run yet", "measure one: trtbuild bench")
        if version != _VERSION:
            raise MeasureError(
                f"{self.path} has version {version} of the file of runs, and this trtbuild reads {_VERSION}",
                "name another: --runs FILE",
            )

    # Writing

    def begin(self, record: Record) -> None:
        """Puts a run there, in the state it has."""
        with self._open(write=True) as connection:
            self._put_run(connection, record)

    def add(self, record: Record, rows: Sequence[RequestRow], timeline: Sequence[TimelineRow]) -> None:
        """Adds what came since the last time; ``rows`` are of `request_row`."""
        with self._open(write=True) as connection:
            self._put_details(connection, record.run_id, rows, timeline)

    def finish(self, record: Record) -> None:
        """Writes the run's final state; its requests and timeline were added before."""
        with self._open(write=True) as connection:
            self._put_run(connection, record)

    def put(self, record: Record) -> None:
        """Writes a whole record, such as one that was imported."""
        with self._open(write=True) as connection:
            connection.execute("DELETE FROM runs WHERE run_id = ?", (record.run_id,))
            self._put_run(connection, record)
            self._put_details(connection, record.run_id, map(request_row, record.requests), record.timeline)

    def _put_run(self, connection: sqlite3.Connection, record: Record) -> None:
        from trtbuild.serve.process import started_s

        row: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
        row |= {name: json.dumps(getattr(record, name)) for name in _JSON}
        row["window_begin_s"], row["window_end_s"] = record.window_s
        row["owner_pid"], row["owner_started_s"] = os.getpid(), started_s(os.getpid())
        changes = ", ".join(f"{name} = excluded.{name}" for name in row if name != "run_id")
        connection.execute(
            f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))}) "
            f"ON CONFLICT (run_id) DO UPDATE SET {changes}",
            tuple(row.values()),
        )

    def _put_details(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        rows: Iterable[RequestRow],
        timeline: Iterable[TimelineRow],
    ) -> None:
        connection.executemany(
            f"INSERT OR REPLACE INTO requests VALUES ({', '.join('?' * (len(_REQUEST) + 2))})",
            [(run_id, *row) for row in rows],
        )
        connection.executemany(
            "INSERT INTO timeline VALUES (?, ?, ?, ?, ?)", [(run_id, *row) for row in timeline]
        )

    # Reading

    def runs(self) -> list[Record]:
        """All runs without requests and timelines, oldest first. Those whose process is gone are marked."""
        self._mark_dead()
        with self._open() as connection:
            return [
                _record(row) for row in connection.execute("SELECT * FROM runs ORDER BY begun_unix_s, run_id")
            ]

    def read(self, name: str) -> Record:
        """A whole run.

        Args:
            name: its id or the beginning of it, its label (the newest of that label), ``last``, or ``last~2``
                for the second before it.

        Raises:
            MeasureError: no such run, or several.
        """
        record = self._find(name)
        with self._open() as connection:
            rows = connection.execute(
                "SELECT * FROM requests WHERE run_id = ? ORDER BY number", (record.run_id,)
            )
            record.requests = [_sample(row) for row in rows]
            rows = connection.execute(
                "SELECT t_s, model, series, value FROM timeline WHERE run_id = ? ORDER BY t_s",
                (record.run_id,),
            )
            record.timeline = [tuple(row) for row in rows]
        if record.state == "died" and not record.metrics and record.requests:
            _sum_up(record)
        return record

    def delete(self, name: str) -> Record:
        """Removes a run for good, and returns what it was."""
        record = self._find(name)
        with self._open(write=True) as connection:
            connection.execute("DELETE FROM runs WHERE run_id = ?", (record.run_id,))
        return record

    def _find(self, name: str) -> Record:
        runs = self.runs()
        if name == "last" or name.startswith("last~"):
            back = int(name[5:] or 1) if name[5:].isdigit() or name == "last~" else 0
            if back < len(runs):
                return runs[-1 - back]
        found = [run for run in runs if run.run_id == name] or [run for run in runs if run.label == name][-1:]
        found = found or [run for run in runs if run.run_id.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise MeasureError(f"{len(found)} runs begin with {name!r}", *(run.run_id for run in found))
        known = ", ".join(run.run_id for run in runs[-5:]) or "none"
        raise MeasureError(
            f"{self.path} has no run {name!r}", f"the latest are {known}", "all: trtbuild runs"
        )

    def _mark_dead(self) -> None:
        from trtbuild.serve.process import is_alive

        with self._open() as connection:
            rows = connection.execute(
                "SELECT run_id, owner_pid, owner_started_s FROM runs WHERE state = 'running'"
            )
            dead = [row["run_id"] for row in rows if not is_alive(row["owner_pid"], row["owner_started_s"])]
            connection.executemany(
                "UPDATE runs SET state = 'died', why = ? WHERE run_id = ?",
                [("its process ended without finishing it", run_id) for run_id in dead],
            )


def _is_to_be_made(path: Path) -> bool:
    """Nothing, or an empty file; SQLite refuses what is neither that nor its own."""
    return not path.exists() or (path.is_file() and path.stat().st_size == 0)


def _sum_up(record: Record) -> None:
    """What a run that was killed came to, which it could not say itself: of the requests that were over."""
    from trtbuild.measure.metrics import summarise

    record.duration_s = max(one.end_s or one.intended_s for one in record.requests)
    warmup_s = min(float(record.load.get("warmup_s", 0.0)), record.duration_s)
    record.window_s = (warmup_s, record.duration_s)
    record.metrics = summarise(record)


def request_row(sample: RequestSample) -> RequestRow:
    """A request as it is stored; arrivals: float32 seconds after ``intended_s``, uint16 counts, deflated."""
    count = len(sample.arrival_s)
    offsets = [at_s - sample.intended_s for at_s in sample.arrival_s]
    arrivals = zlib.compress(struct.pack(f"<{count}f{count}H", *offsets, *sample.arrival_tokens), 1)
    return (*_values(sample), arrivals)


def _sample(row: sqlite3.Row) -> RequestSample:
    data = zlib.decompress(row["arrivals"])
    count = len(data) // 6
    values = struct.unpack(f"<{count}f{count}H", data)
    arrivals = [row["intended_s"] + offset for offset in values[:count]]
    return RequestSample(
        **{name: row[name] for name in _REQUEST}, arrival_s=arrivals, arrival_tokens=list(values[count:])
    )


def _record(row: sqlite3.Row) -> Record:
    values = {name: row[name] for name in _PLAIN}
    values |= {name: json.loads(row[name]) for name in _JSON}
    return Record(**values, window_s=(row["window_begin_s"], row["window_end_s"]))
