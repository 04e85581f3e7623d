"""What stands in an archive: one struct per JSON file, one column table per CSV file, one schema version.

An archive is a folder:

    SHA256SUMS              digests of everything under raw/, sorted, relative, LF
    raw/run.json            plan, passes, refusals, what was reduced or skipped and why      `Run`
    raw/fingerprint.json    built-on and run-on, see fingerprint.py                           `Fingerprint`
    raw/gates.json          every gate's outcome                                              list of `Gate`
    raw/samples.csv         every timed batch                                                 `SAMPLES`
    raw/telemetry.csv       the device while it ran                                           `TELEMETRY`
    raw/counters.csv        Nsight Compute                                                    `COUNTERS`
    raw/evidence.json       what studies found beside timings                                 list of `Evidence`
    raw/builds/sm_XX/       manifests, PTX, SASS
    derived/                made from raw/ alone, may be thrown away

Columns and fields may be added, never renamed.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from harness.errors import IrrError

SCHEMA = 1
"""Version of everything below; a reader refuses a higher one."""

STAGES = ("allocate", "update", "integrate", "extract", "floor", "fma")
LAUNCHES = ("serial", "concurrent")
TABLES = ("fresh", "filled")
L2_STATES = ("asreset", "flushed")
LOADS = ("aot", "jit")
STATUSES = ("ok", "lossy", "failed", "hung")
KERNEL_STATUSES = ("ok", "unavailable", "unsupported", "toolchain-unsupported", "needs-toolchain", "needs-data")
STATES = ("incomplete", "complete")
EVERY_PASS = "sms"
"""How the variants of a cell begin that stand in every pass (base+sms56); the others are controls, run once."""


# ---------------------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True)
class Column:
    """One CSV column.

    Attributes:
        kind: `int`, `float` or `str`.
        choices: the only values allowed, empty for any.
        nullable: whether it may be empty ("not available"); the reason then stands in run.json's `nulls`.
    """

    name: str
    kind: Literal["int", "float", "str"]
    meaning: str
    choices: tuple[str, ...] = ()
    nullable: bool = False


SAMPLES: tuple[Column, ...] = (
    Column("pass", "int", "walk over the matrix on one device, from 0"),
    Column("device_uuid", "str", "NVML UUID of the device that ran it; 'host' for a host arm"),
    Column("arch", "int", "compute capability x 10, as in sm_90; 0 on the host"),
    Column("cell", "str", "cell, with its variant after a plus, as in base+cap32"),
    Column("kernel", "str", "language/stage/variant, then /fma, @twin or @bundled"),
    Column("stage", "str", "what the kernel does", STAGES),
    Column("launch", "str", "batch on one stream, or one branch a volume", LAUNCHES),
    Column("table", "str", "hash table before the batch", TABLES),
    Column("l2", "str", "L2 before the batch", L2_STATES),
    Column("load", "str", "built ahead of time, or PTX through the driver's JIT", LOADS),
    Column("round", "int", "round of the pass, from 0; every kernel of the cell runs once in it"),
    Column("position", "int", "place in the round's shuffled order, from 0"),
    Column("t_s", "float", "start of the batch, seconds since the pass began"),
    Column("launches", "int", "launches in the batch"),
    Column("us", "float", "microseconds per launch", nullable=True),
    Column("cycles", "float", "SM cycles per launch", nullable=True),
    Column("blocks", "int", "blocks in the volume after the batch", nullable=True),
    Column("lost_blocks", "int", "blocks of the exact set that the volume lacks", nullable=True),
    Column("failed_inserts", "int", "winners beyond the pool and exhausted probes, per launch", nullable=True),
    Column("dropped_points", "int", "update samples that found no index, per launch", nullable=True),
    Column("sm_clock_mhz", "float", "SM clock after the batch", nullable=True),
    Column("temperature_c", "float", "device temperature after the batch", nullable=True),
    Column("power_w", "float", "board power after the batch", nullable=True),
    Column("throttle", "int", "NVML clock event reasons, bit mask; 0 is none", nullable=True),
    Column("status", "str", "whether the sample may stand in a ratio (only ok may)", STATUSES),
)

TELEMETRY: tuple[Column, ...] = (
    Column("pass", "int", "walk over the matrix on one device, from 0"),
    Column("device_uuid", "str", "NVML UUID"),
    Column("t_s", "float", "seconds since the pass began"),
    Column("sm_clock_mhz", "float", "SM clock", nullable=True),
    Column("mem_clock_mhz", "float", "memory clock", nullable=True),
    Column("temperature_c", "float", "device temperature", nullable=True),
    Column("power_w", "float", "board power", nullable=True),
    Column("throttle", "int", "NVML clock event reasons, bit mask; 0 is none", nullable=True),
    Column("utilisation", "float", "percent of time a kernel was running", nullable=True),
    Column("memory_used_mib", "float", "device memory in use, all processes", nullable=True),
)

COUNTERS: tuple[Column, ...] = (
    Column("device_uuid", "str", "NVML UUID"),
    Column("cell", "str", "cell"),
    Column("kernel", "str", "language/stage/variant"),
    Column("metric", "str", "Nsight Compute metric"),
    Column("unit", "str", "unit as Nsight Compute prints it, may be blank"),
    Column("value", "float", "value of one launch", nullable=True),
)

CSV_FILES: dict[str, tuple[Column, ...]] = {
    "samples.csv": SAMPLES,
    "telemetry.csv": TELEMETRY,
    "counters.csv": COUNTERS,
}

# What makes two samples samples of the same thing; `kernel` is then what is compared.
REGIME = ("launch", "table", "l2", "load")


# ---------------------------------------------------------------------------------------------------------- structs


class Null(msgspec.Struct, kw_only=True):
    """A value that is not there, and why. `field` is a CSV column, a JSON key or a path of keys."""

    field: str
    why: str


class Note(msgspec.Struct, kw_only=True):
    """Something refused or flagged, and why."""

    what: str
    why: str


class PlanEntry(msgspec.Struct, kw_only=True):
    """One kernel in one regime on one cell, as planned before anything ran."""

    cell: str
    kernel: str
    stage: str
    launch: str
    table: str
    l2: str
    load: str


class Pass(msgspec.Struct, kw_only=True):
    """One walk over the plan in one worker process on one device."""

    number: int = msgspec.field(name="pass")
    device_uuid: str
    device_name: str
    arch: int
    started_utc: str
    ended_utc: str | None = None
    complete: bool = False


class Reduction(msgspec.Struct, kw_only=True):
    """A cell whose volumes did not fit in memory at the full batch."""

    cell: str
    batch: int
    why: str


class Skipped(msgspec.Struct, kw_only=True):
    """A kernel that was not timed on a cell (`*` for all), and why."""

    kernel: str
    cell: str
    status: str
    why: str


class CellFacts(msgspec.Struct, kw_only=True):
    """What a cell is, so that an archive can be read without the repository that made it."""

    blocks: int
    samples: int
    pool: int
    table: int
    points: int
    load_factor: float
    axis: str = ""


class Run(msgspec.Struct, kw_only=True):
    """raw/run.json. `study` names which study wrote it; `seed` is the seed of the shuffled orders; `at_once`: whether
    several devices ran at the same time or one after another, null where there was one."""

    schema: int
    irr: str
    commit: str
    dirty: bool
    study: str
    quick: bool
    gpu: bool
    created_utc: str
    command: list[str]
    seed: int
    rounds: int
    batch: int
    at_once: bool | None = None
    state: Literal["incomplete", "complete"] = "incomplete"
    plan: list[PlanEntry] = []
    passes: list[Pass] = []
    refusals: list[Note] = []
    reductions: list[Reduction] = []
    skipped: list[Skipped] = []
    nulls: list[Null] = []
    flags: list[Note] = []
    cells: dict[str, CellFacts] = {}


class Fingerprint(msgspec.Struct, kw_only=True):
    """raw/fingerprint.json; its keys are the table of fingerprint.py. `run_on["devices"]` has one entry a device."""

    built_on: dict[str, Any]
    run_on: dict[str, Any]
    nulls: list[Null] = []


class Gate(msgspec.Struct, kw_only=True):
    """One gate's outcome. `compared` is how many things it compared: none is a failure, never a pass.

    Attributes:
        subject: as the gate says it, `arm on cell` or `arm against arm on cell`.
        arm: the arm judged, blank between arms. place: `host`, `gpu`, `interpreter` or `library`.
        when: `before` or `after` timing, blank where nothing was timed.
    """

    gate: str
    tier: str
    subject: str
    ok: bool
    compared: int
    detail: dict[str, Any] = {}
    message: str = ""
    skipped: str | None = None
    arm: str = ""
    place: str = ""
    cell: str = ""
    when: str = ""
    pass_number: int | None = msgspec.field(name="pass", default=None)
    device_uuid: str | None = None

    @property
    def failed(self) -> bool:
        """Neither passed nor skipped."""
        return not self.ok and self.skipped is None


def gate_record(
    result: Mapping[str, Any],
    *,
    arm: str,
    place: str,
    cell: str,
    when: str = "",
    pass_number: int | None = None,
    device_uuid: str | None = None,
) -> Gate:
    """A row of gates.json from what a gate hands over (`GateResult.to_json()`); `ok` says whether it passed, since
    `pass` is the number of the pass, as everywhere in an archive."""
    return Gate(
        gate=result["gate"],
        tier=result["tier"],
        subject=result["subject"],
        ok=bool(result["ok"]),
        compared=int(result["compared"]),
        detail=dict(result.get("detail") or {}),
        message=result.get("message", ""),
        skipped=result.get("skipped"),
        arm=arm,
        place=place,
        cell=cell,
        when=when,
        pass_number=pass_number,
        device_uuid=device_uuid,
    )


class Evidence(msgspec.Struct, kw_only=True):
    """One finding of a study that is not a timing: what was found, in which unit, how."""

    name: str
    value: Any
    unit: str
    how: str


# ------------------------------------------------------------------------------------------------------ strict JSON


def _as_dict(value: msgspec.Struct) -> dict[str, Any]:
    """One level only: what lies inside may be NumPy, which msgspec does not take."""
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return {encoded: getattr(value, name) for name, encoded in names}


def _clean(value: Any, path: str, lost: list[dict[str, str]]) -> Any:
    """`value` in plain JSON types; what is no finite number becomes None and is noted in `lost`."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, msgspec.Struct):
        return _clean(_as_dict(value), path, lost)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        why = "not a number" if math.isnan(value) else "infinite"
        lost.append({"field": path, "why": why})
        return None
    if isinstance(value, Mapping):
        return {str(key): _clean(item, f"{path}.{key}" if path else str(key), lost) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return _clean(value.tolist(), path, lost)
    if isinstance(value, Iterable):
        return [_clean(item, f"{path}[{i}]", lost) for i, item in enumerate(value)]
    raise TypeError(f"{path or 'document'}: {type(value).__name__} has no JSON form")


def strict(document: Any) -> Any:
    """The document in plain JSON types. A number that is NaN or infinite becomes null, and the object at the top (each
    object, where the document is a list) says so in its `nulls`: [{"field", "why"}]."""
    if isinstance(document, msgspec.Struct):
        document = _as_dict(document)
    if isinstance(document, (list, tuple)):
        return [strict(item) if isinstance(item, (Mapping, msgspec.Struct)) else _clean_bare(item) for item in document]
    if not isinstance(document, Mapping):
        return _clean_bare(document)
    lost: list[dict[str, str]] = []
    cleaned = _clean(document, "", lost)
    if lost:
        cleaned["nulls"] = [*(cleaned.get("nulls") or []), *lost]
    return cleaned


def _clean_bare(value: Any) -> Any:
    lost: list[dict[str, str]] = []
    cleaned = _clean(value, "", lost)
    return {"nulls": lost, "value": cleaned} if lost else cleaned


def json_bytes(document: Any) -> bytes:
    """Strict JSON: sorted keys, LF, ASCII (so no locale can matter), no NaN, one newline at the end."""
    text = json.dumps(strict(document), sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return (text + "\n").encode("ascii")


# -------------------------------------------------------------------------------------------------------------- CSV


def number(value: float) -> str:
    """A float as archives spell it: six significant digits, no locale."""
    return f"{value:.6g}"


def cell_text(column: Column, value: Any) -> str:
    """One value as it stands in a CSV file; None, NaN and infinity are empty.

    Raises:
        ValueError: the value is not of the column's kind, not one of its choices, or empty where it may not be.
    """
    if hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or (value == "" and column.nullable):
        if not column.nullable:
            raise ValueError(f"{column.name} may not be empty")
        return ""
    if column.kind == "float":
        return number(float(value))
    if column.kind == "int":
        if isinstance(value, float) and value != int(value):
            raise ValueError(f"{column.name} is a whole number, not {value}")
        return str(int(value))
    text = str(value)
    if column.choices and text not in column.choices:
        raise ValueError(f"{column.name} is one of {', '.join(column.choices)}, not {text!r}")
    return text


def csv_bytes(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as CSV with a header, LF, UTF-8. Keys that are no column are an error, missing ones are empty.

    Raises:
        ValueError: a row does not fit the column table.
    """
    names = [column.name for column in columns]
    known = set(names)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        unknown = set(row) - known
        if unknown:
            raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
        writer.writerow([cell_text(column, row.get(column.name)) for column in columns])
    return stream.getvalue().encode("utf-8", "backslashreplace")


def decode(kind: Any, data: bytes, where: str) -> Any:
    """Parse and check one JSON file.

    Raises:
        IrrError: not JSON (NaN is not JSON), or not what the schema says; one line naming the place.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise IrrError(f"{where} does not fit the schema: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise IrrError(f"{where} is not strict JSON: {error}") from None
