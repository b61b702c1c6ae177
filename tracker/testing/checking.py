"""Does a query lose, double or report too early what it takes, when its driver dies? What `lowmark query check` does.

The query itself is the measure: what it makes of the sample when nobody is killed is what it must make of it when its
driver is killed at each moment of the commit order, and started again. All it reads and writes is apart from what it
has (`Places`), and so is its tracker.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from fronts.files import SLOT_COLUMN, FileFront, Items, PublishedFile
from fronts.front import FrontOptions
from local_tracker.spark.formats.committed import CommittedFiles
from local_tracker.spark.query.logs import CheckpointLog
from tracker.client.embedded import EmbeddedTracker
from tracker.client.pipeline_file import load_pipeline
from tracker.client.updates import slot_time
from tracker.core.model import PipelineSpec
from tracker.errors import StateError, TrackingError
from tracker.files import location
from tracker.testing.asserting import Differences
from tracker.testing.clock import ManualClock
from tracker.testing.drivers import Driver
from tracker.testing.moments import Moment

MOST_SAMPLE_ROWS = 100_000
"""A larger sample is refused: each row is compared, and a kill needs few."""
FILES = 12
"""So many files the sample is cut into, each published under a time of its own."""
TRIES = 3
"""How often a moment is tried that was missed: some are milliseconds long."""
_APART = "1s"
"""Between the times of two files."""
_NO_DIFFERENCES = Differences(0, (), (), ())


@dataclass(frozen=True)
class Fed:
    """Where the sample goes: the folder, the pipeline's front and segment, and whether its rows are items. segments: that
    tracked queries of the program read, of which this is one; is_committed: whether its sink commits: one of files, or what
    `tracked.writer` writes."""

    query: Any
    folder: Path
    spec: PipelineSpec | None
    segment: str = ""
    rows: bool = False
    segments: frozenset[str] = frozenset()
    is_committed: bool = True


@dataclass
class Found:
    """What kills at some moments have come to, in rows. early: input that was reported complete when the query had not
    committed it, and output that was not there when min time had passed it. missed: moments that never came."""

    moments: tuple[Moment, ...]
    killed: list[Moment] = field(default_factory=list)
    differences: Differences = _NO_DIFFERENCES
    early: int = 0

    @property
    def missed(self) -> list[Moment]:
        return [moment for moment in self.moments if moment not in self.killed]

    @property
    def lost(self) -> int:
        return len(self.differences.lost)

    @property
    def doubled(self) -> int:
        return len(self.differences.doubled)

    @property
    def strange(self) -> int:
        return len(self.differences.strange)

    @property
    def ok(self) -> bool:
        return bool(self.killed) and not self.differences and not self.early


@dataclass(frozen=True)
class Checked:
    """A program that was checked. rows: of the sample, and of what the query makes of it; one: all kills one after the
    other; alone: each moment by itself, where that has found anything."""

    program: str
    rows_in: int
    rows_out: int
    is_tracked: bool
    one: Found
    alone: tuple[Found, ...] = ()

    @property
    def ok(self) -> bool:
        return self.one.ok

    def as_json(self) -> str:
        """All that is known."""
        return json.dumps({"ok": self.ok, **asdict(self)})


def check_program(program: Path, sample: Path, at: Sequence[Moment] = tuple(Moment)) -> Checked:
    """Checks the query of a program with a sample of its input, by kills at those of some moments that it comes to. Raises
    TrackingError and StateError where that can't be done, ProgramFailed where the program fails by itself."""
    if not program.is_file():
        raise StateError(f"{program} is no file: name the program that starts the query")
    rows = sample_rows(sample)
    check = _Check(program, rows)
    expected, fed = check.unharmed()
    moments = tuple(moment for moment in at if moment in _moments(fed))
    one = check.killed(moments, fed, expected)
    again = () if one.ok or len(one.killed) == 1 else one.killed
    alone = tuple(check.killed((each,), fed, expected) for each in again)
    return Checked(str(program), len(rows), len(expected), fed.spec is not None, one, alone)


def sample_rows(sample: Path) -> list[dict[str, Any]]:
    """The rows of a file, one JSON object a line. Raises StateError."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(_lines(sample), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise StateError(f"{sample}: line {number} is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise StateError(f"{sample}: line {number} is no object of columns: {line[:100]}")
        rows.append(row)
    if not 2 <= len(rows) <= MOST_SAMPLE_ROWS:
        raise StateError(f"{sample} has {len(rows)} rows; a sample has 2 to {MOST_SAMPLE_ROWS}")
    return rows


def _moments(fed: Fed) -> tuple[Moment, ...]:
    """Those to which a batch of the query comes."""
    of_spark = [Moment.TASKS, Moment.SINK, Moment.COMMIT]
    if not fed.is_committed:
        of_spark.remove(Moment.SINK)
    of_tracker = [Moment.TICK, Moment.SENT, Moment.DURABLE] if fed.spec else []
    return (*of_spark, *of_tracker)


class _Check:
    def __init__(self, program: Path, rows: Sequence[dict[str, Any]]) -> None:
        self._program, self._rows = program, rows
        share = -(-len(rows) // FILES)
        self._portions = [rows[at : at + share] for at in range(0, len(rows), share)]

    def unharmed(self) -> tuple[list[Any], Fed]:
        """The rows that the query makes of the sample when nobody is killed, and where that went in."""
        fed: list[Fed] = []

        with _World(self._program) as world:

            def feed(query: Any) -> None:
                fed.append(world.fed(query))
                world.open(fed[0])
                for portion in self._portions:
                    world.publish(portion)

            queries = world.driver.to_the_end(feed)
            if not fed:
                raise TrackingError(f"{self._program} starts no streaming query")
            fed_places = {place for query in queries for place in query["reads"]}
            written = {query["out"] for query in queries}
            if others := fed_places - written - {str(world.root / fed[0].folder)}:
                raise TrackingError(
                    f"the queries of {self._program} read {len(others) + 1} places that none of them writes, and a check "
                    f"feeds one: check each query by a program of its own"
                )
            found = list(world.found())
            if not found:
                raise TrackingError(
                    f"{self._program} has made no row of {len(self._rows)} rows of the sample: does it fit the query's "
                    f"schema, and are its rows written to files?"
                )
            tracked = (each for each in queries if each["pipeline"] == fed[0].query["pipeline"])
            segments = frozenset(each["segment"] for each in tracked)
            logs = any((place / "_lowmark").exists() for place in world.root.iterdir())
            is_committed = bool(fed[0].query["out"]) or logs
            return found, replace(fed[0], segments=segments, is_committed=is_committed)

    def killed(self, moments: tuple[Moment, ...], fed: Fed, expected: list[Any]) -> Found:
        """What the query makes of it when it is killed at some moments, one after the other."""
        found, portions = Found(moments), iter(self._portions)
        with _World(self._program) as world:
            world.open(fed)
            for moment in moments:
                for _ in range(TRIES):
                    for portion in islice(portions, 1):
                        world.publish(portion)
                    if world.driver.killed_at(moment):
                        found.killed.append(moment)
                        found.early += world.early(expected)
                        break
            for portion in portions:
                world.publish(portion)
            world.driver.to_the_end()
            found.differences = Differences.between(expected, world.found())
        return found


class _World:
    """One run of the program over the sample: a tracker, a front, folders of its own."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._closing = ExitStack()
        self._front: FileFront | None = None
        self._clock = ManualClock()

    def __enter__(self) -> _World:
        folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="lowmark-check-"))
        self.root = Path(folder).resolve()
        self._tracker = self._closing.enter_context(EmbeddedTracker())
        self.spec = _pipeline(self._program)
        if self.spec is not None:
            self._tracker.register(self.spec)
            begins = slot_time(self.spec.start_slot, self.spec.slack_ns)
            self._clock.move_to(begins or self._clock.now)
        self.driver = Driver(self._program, target=self._tracker.target, apart=self.root)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def fed(self, query: Any) -> Fed:
        """Where the sample goes of which this is the first query. Raises TrackingError."""
        if len(query["reads"]) != 1:
            raise TrackingError(f"{self._program} reads {query['named']}: a check feeds one place")
        folder = Path(query["reads"][0]).relative_to(self.root)
        if not query["pipeline"]:
            return Fed(query, folder, None)
        if self.spec is None or self.spec.name != query["pipeline"]:
            raise TrackingError(
                f"{self._program} is tracked in pipeline {query['pipeline']!r}, and there is no pipeline.yaml of that name "
                f"beside it: write one (lowmark init --from {self._program.name})"
            )
        return Fed(query, folder, self.spec, query["segment"], query["rows"])

    def open(self, fed: Fed) -> None:
        """Lets the sample come in."""
        self._fed, self._folder = fed, self.root / fed.folder
        self._folder.mkdir(exist_ok=True)
        if fed.spec is not None:
            (front,) = fed.spec.fronts
            self._front = self._closing.enter_context(
                FileFront(
                    self._tracker.target, fed.spec.name, front, fed.segment, self._folder, format="json",
                    items=Items.ROWS if fed.rows else Items.FILES,
                    options=FrontOptions(clock=self._clock),
                )
            )  # fmt: skip

    def publish(self, rows: Sequence[dict[str, Any]]) -> None:
        """A file of rows, a time behind the one before, and a promise beyond it."""
        if self._front is None:
            number = len(list(self._folder.glob("*.json")))
            unfinished = self._folder / f".{number}"
            unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
            unfinished.rename(self._folder / f"{number:06}.json")
        else:
            self._front.write(list(rows))
            self._front.wait_durable()
        self._clock.advance(_APART)

    def found(self) -> Iterator[Any]:
        """The rows of all that was written, as a reader finds them: what is committed."""
        for place in sorted(self.root.iterdir()):
            if place != self._folder and not (place / "metadata").exists():  # of a checkpoint
                yield from _rows_in(place)

    def early(self, expected: Sequence[Any]) -> int:
        """How many rows, of what came in and of what is to come out, were reported complete too early. The driver is
        dead: nothing moves."""
        if self._front is None or self._fed.spec is None:
            return 0
        with self._tracker.admin() as admin:
            state = admin.pipeline(self._fed.spec.name).state
        times = {each.segment: each.min_time for each in state.segments}
        taken = times[self._fed.segment]
        open_files = [file for file in self._uncommitted() if file.slot < taken]
        taken_early = sum(len(_lines(Path(file.path))) for file in open_files)
        timed = [row for row in expected if isinstance(row, dict) and SLOT_COLUMN in row]
        # What the last of several queries is behind is there, of all that they write.
        min_time = min(times[segment] for segment in self._fed.segments)
        there = [row for row in self.found() if row.get(SLOT_COLUMN, min_time) < min_time]
        missing = Differences.between((r for r in timed if r[SLOT_COLUMN] < min_time), there)
        return taken_early + len(missing.lost)

    def _uncommitted(self) -> list[PublishedFile]:
        """Files that no batch has taken which Spark has committed."""
        assert self._front is not None
        checkpoint = self.root / Path(self._fed.query["checkpoint"]).name
        log, taken = CheckpointLog(str(checkpoint)), set[str]()
        for batch in log.committed():
            for names in log.consumed(batch).values():
                taken.update(location(name) for name in names)
        return [file for file in self._front.published() if file.location not in taken]


def _pipeline(program: Path) -> PipelineSpec | None:
    """The one beside the program, which one front feeds here."""
    file = program.parent / "pipeline.yaml"
    if not file.exists():
        return None
    spec = load_pipeline(file.read_text(), str(file))
    return replace(spec, fronts=(*spec.fronts, "check")[:1], front_count=0, front_policies=())


def _rows_in(place: Path) -> Iterator[dict[str, Any]]:
    """Of files that queries have committed; of a folder without a log of that, of all data in it."""
    logged = any((place / log).exists() for log in ("_spark_metadata", "_lowmark"))
    if logged:
        # Each once: where a batch has published nothing, all files are named before those of the batches behind it.
        found = CommittedFiles(str(place)).after({})
        files = list({Path(location(name)) for batch in found for name in batch.names})
    else:
        files = [
            path for path in place.rglob("*") if path.is_file() and not _is_hidden(path, place)
        ]
    for file in sorted(files):
        yield from _rows_of(file)


def _is_hidden(path: Path, place: Path) -> bool:
    """As Spark has it: a folder of a partition is not, though the name of its column begins so."""
    parts = path.relative_to(place).parts
    return any(part[0] == "." or (part[0] == "_" and "=" not in part) for part in parts)


def _lines(file: Path) -> list[str]:
    """As Spark cuts them: a text in JSON may hold what else ends a line."""
    text = file.read_text()
    return text.removesuffix("\n").split("\n") if text else []


def _rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """Rows of a file of Spark, with the columns of its folders."""
    folders = dict(part.split("=", 1) for part in file.parts if "=" in part)
    match file.suffix:
        case ".parquet":
            import pyarrow.parquet

            rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
        case ".json":
            rows = [json.loads(line) for line in _lines(file)]
        case _:
            try:
                rows = [{"line": line} for line in _lines(file)]
            except UnicodeDecodeError:
                raise TrackingError(
                    f"{file} cannot be compared: a check reads Parquet, JSON and text"
                ) from None
    return ({**row, **folders} for row in rows)
