"""The volume every language shares, from one field table.

The table below makes the C++ header, the Rust struct, the NumPy dtype and the Triton NamedTuple; nothing else in
the repository lists the fields. A volume is passed by value to C++ and Rust kernels (112 bytes) and field by field
to Triton kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

BLOCK_EDGE = 8
BLOCK_VOXELS = BLOCK_EDGE**3
STEPS = 4
KEY_BIAS = 1 << 20
KEY_EMPTY = -1
INDEX_UNPUBLISHED = -1
INDEX_TOMBSTONE = -2
HASH_MULTIPLIERS = (73856093, 19349663, 83492791)

ENTRY_DTYPE = np.dtype([("key", "<i8"), ("index", "<i4"), ("pad", "<i4")])
"""One table slot: 16 bytes, so that key and index share a cache line."""


@dataclass(frozen=True)
class Field:
    """One field of the volume, spelled for every language that sees it."""

    name: str
    cpp: str
    rust: str
    triton: str
    numpy: str
    meaning: str


FIELDS: tuple[Field, ...] = (
    Field("table", "Entry*", "*mut Entry", "*i64", "<u8", "hash table, mask + 1 entries"),
    Field("mask", "unsigned int", "u32", "i32", "<u4", "table size - 1, a power of two less one"),
    Field("capacity", "int", "i32", "i32", "<i4", "blocks in the pool"),
    Field("count", "int*", "*mut i32", "*i32", "<u8", "blocks built"),
    Field(
        "failed_inserts", "unsigned long long*", "*mut u64", "*i64", "<u8", "winners beyond the pool, exhausted probes"
    ),
    Field("dropped_points", "unsigned long long*", "*mut u64", "*i64", "<u8", "update samples that found no index"),
    Field("coords", "int*", "*mut i32", "*i32", "<u8", "block coordinates, three a block"),
    Field("tsdf", "float*", "*mut f32", "*fp32", "<u8", "sum of clamp(sdf / trunc, -1, 1)"),
    Field("weight", "float*", "*mut f32", "*fp32", "<u8", "sum of weights, 1 a sample"),
    Field("r", "float*", "*mut f32", "*fp32", "<u8", "sum of red"),
    Field("g", "float*", "*mut f32", "*fp32", "<u8", "sum of green"),
    Field("b", "float*", "*mut f32", "*fp32", "<u8", "sum of blue"),
    Field("voxel", "float", "f32", "fp32", "<f4", "voxel edge h, metres"),
    Field("inv_voxel", "float", "f32", "fp32", "<f4", "1 / h, rounded once by the host"),
    Field("trunc", "float", "f32", "fp32", "<f4", "truncation, steps * h"),
    Field("inv_trunc", "float", "f32", "fp32", "<f4", "1 / trunc, rounded once by the host"),
    Field("cap", "float", "f32", "fp32", "<f4", "weight cap, 0 = off"),
    Field("steps", "int", "i32", "i32", "<i4", "samples on each side of the point"),
)

VOLUME_DTYPE = np.dtype([(field.name, field.numpy) for field in FIELDS], align=True)
"""The struct as NumPy sees it; `align=True` gives the C layout (offsets compared with every compiler's)."""

VOXEL_FIELDS = ("tsdf", "weight", "r", "g", "b")

GENERATED = "generated from harness/workload/volume.py: change the table there"


def cpp_header() -> str:
    """The C++ header: Entry, Volume, and IRR_VOLUME_LAYOUT, the numbers the ABI check reads back from a cubin.

    The numbers: size of Entry, size of Volume, then offset and size of every field, in the order of FIELDS.
    """
    lines = [f"// {GENERATED}", "#pragma once", "", "struct __align__(16) Entry {"]
    lines += ["  long long key;", "  int index;", "  int pad;", "};", "", "struct Volume {"]
    lines += [f"  {field.cpp} {field.name};  // {field.meaning}" for field in FIELDS]
    lines += ["};", "", "// Size of Entry, size of Volume, then offset and size of every field."]
    numbers = ["sizeof(Entry)", "sizeof(Volume)"]
    numbers += [text for f in FIELDS for text in (f"offsetof(Volume, {f.name})", f"sizeof(Volume::{f.name})")]
    lines += ["#define IRR_VOLUME_LAYOUT \\", *(f"  {number}, \\" for number in numbers[:-1]), f"  {numbers[-1]}"]
    return "\n".join([*lines, ""])


def rust_source() -> str:
    """The Rust structs, `repr(C)`, for `rust/core`."""
    lines = [f"// {GENERATED}", "", "#[repr(C, align(16))]", "#[derive(Clone, Copy)]", "pub struct Entry {"]
    lines += ["    pub key: i64,", "    pub index: i32,", "    pub pad: i32,", "}", ""]
    lines += ["#[repr(C)]", "#[derive(Clone, Copy)]", "pub struct Volume {"]
    for field in FIELDS:
        lines += [f"    /// {field.meaning}", f"    pub {field.name}: {field.rust},"]
    lines += [
        "}",
        "",
        "/// What the ABI check reads back: size of Entry, of Volume, then offset and size of every field.",
    ]
    lines += [f"pub const VOLUME_LAYOUT: [u32; {2 + 2 * len(FIELDS)}] = ["]
    lines += ["    size_of::<Entry>() as u32,", "    size_of::<Volume>() as u32,"]
    for field in FIELDS:
        lines += [f"    core::mem::offset_of!(Volume, {field.name}) as u32,", f"    size_of::<{field.rust}>() as u32,"]
    return "\n".join([*lines, "];", ""])


def table_size(capacity: int) -> int:
    """Slots for a pool: the next power of two of at least twice the pool (algorithm: Table)."""
    return 1 << max(1, (2 * capacity - 1).bit_length())


@dataclass(frozen=True)
class VolumeConfig:
    """Everything that fixes a volume before any point is seen.

    Args:
        capacity: blocks in the pool, at least 1.
        voxel: voxel edge in metres (rounded to float32).
        table: slots, a power of two; None for the next power of two of at least twice the pool.
        cap: weight cap, 0 = off.

    Raises:
        ValueError: no blocks, a table that is no power of two, a voxel or cap that is not a usable number.
    """

    capacity: int
    voxel: float = 0.01
    table: int | None = None
    cap: float = 0.0

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"a pool needs at least 1 block, not {self.capacity}")
        if self.table is not None and (self.table < 2 or self.table & (self.table - 1)):
            raise ValueError(f"a table must be a power of two of at least 2 slots, not {self.table}")
        if not (np.isfinite(np.float32(self.voxel)) and np.float32(self.voxel) > 0):
            raise ValueError(f"a voxel edge must be a positive number of metres, not {self.voxel}")
        if not (np.isfinite(self.cap) and self.cap >= 0):
            raise ValueError(f"a weight cap must be 0 (off) or positive, not {self.cap}")

    @property
    def slots(self) -> int:
        return self.table if self.table is not None else table_size(self.capacity)

    @property
    def mask(self) -> int:
        return self.slots - 1

    @property
    def steps(self) -> int:
        return STEPS

    @property
    def h(self) -> np.float32:
        return np.float32(self.voxel)

    @property
    def inv(self) -> np.float32:
        return np.float32(1) / self.h

    @property
    def trunc(self) -> np.float32:
        return np.float32(STEPS) * self.h

    @property
    def inv_trunc(self) -> np.float32:
        return np.float32(1) / self.trunc

    def scalars(self) -> dict[str, np.generic]:
        """The volume's scalar fields, each in its declared width."""
        return {
            "mask": np.uint32(self.mask),
            "capacity": np.int32(self.capacity),
            "voxel": self.h,
            "inv_voxel": self.inv,
            "trunc": self.trunc,
            "inv_trunc": self.inv_trunc,
            "cap": np.float32(self.cap),
            "steps": np.int32(STEPS),
        }

    def struct(self, pointers: dict[str, int]) -> np.void:
        """The volume as one struct value.

        Args:
            pointers: address of every pointer field, by name.
        """
        value = np.zeros((), VOLUME_DTYPE)
        for name, scalar in {**pointers, **self.scalars()}.items():
            value[name] = scalar
        return cast(np.void, value[()])
