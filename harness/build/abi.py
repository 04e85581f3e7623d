"""One ABI: every language's kernels take the same parameters and see the same volume.

Three checks. Parameters: what the cubin lists, against the kernel's row, when built. Layout: offsets and sizes of the
volume's fields as C++, Rust, Triton and NumPy see them, against the field table, when built. And what the driver
lists, against the manifest, when loaded (`check_loaded`, called by the device layer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.build import cubin as cubin_reader
from harness.build.kernels import Kernel
from harness.build.manifest import Manifest, Parameter
from harness.errors import IrrError
from harness.workload import volume as volume_module
from harness.workload.volume import FIELDS, Field

LAYOUT_SYMBOL = "irr_volume_layout"
"""u32 array in a cubin, in the order of FIELDS: the offset of every field (Rust), or size of Entry, size of Volume,
then offset and size of every field (C++)."""


# --- parameters -------------------------------------------------------------------------------------------------------


def field_size(field: Field) -> int:
    """Bytes of a volume field as a parameter of its own."""
    return np.dtype(field.numpy).itemsize


def _place(sizes: Iterable[tuple[str, int, int]]) -> list[Parameter]:
    """Parameters at their natural alignment; (name, size, alignment) each."""
    placed, offset = [], 0
    for name, size, alignment in sizes:
        offset = -(-offset // alignment) * alignment
        placed.append(Parameter(name, offset, size))
        offset += size
    return placed


def expected_parameters(kernel: Kernel, volume: str, trailing_nulls: int) -> list[Parameter]:
    """What the kernel must take: volume, declared parameters, trailing nulls.

    Args:
        volume: `struct` or `flat`. trailing_nulls: pointers after the declared ones.
    """
    sizes: list[tuple[str, int, int]] = []
    if kernel.takes_volume and volume == "struct":
        sizes.append(("volume", volume_module.VOLUME_DTYPE.itemsize, volume_module.VOLUME_DTYPE.alignment))
    elif kernel.takes_volume:
        sizes += [(field.name, field_size(field), field_size(field)) for field in FIELDS]
    sizes += [(name, size, size) for name, size in kernel.parameters]
    sizes += [(f"null{number}", 8, 8) for number in range(trailing_nulls)]
    return _place(sizes)


def name_parameters(
    kernel: Kernel, found: Sequence[cubin_reader.RawParameter], expected: list[Parameter]
) -> list[Parameter]:
    """The cubin's parameters with their names.

    Raises:
        IrrError: number, place or size differs from the kernel's row; the first difference is named.
    """
    for place, (raw, wanted) in enumerate(zip(found, expected, strict=False)):
        if (raw.offset, raw.size) != (wanted.offset, wanted.size):
            raise IrrError(
                f"{kernel.name}: parameter {place} ({wanted.name}) is {raw.size} bytes at {raw.offset} in the cubin, "
                f"{wanted.size} at {wanted.offset} in the kernel table",
                f"{kernel.source} and PARAMETERS in harness/build/kernels.py must agree",
            )
    if len(found) != len(expected):
        raise IrrError(
            f"{kernel.name}: {len(found)} parameters in the cubin, {len(expected)} in the kernel table",
            f"{kernel.source} and PARAMETERS in harness/build/kernels.py must agree",
        )
    return expected


def check_loaded(manifest: Manifest, driver: Sequence[tuple[int, int]]) -> None:
    """Compare the driver's parameter list of a loaded kernel with the manifest's.

    Args:
        driver: (offset, size) of every parameter, as cuFuncGetParamInfo gives them.

    Raises:
        IrrError: they differ; launching would read the wrong bytes.
    """
    listed = [(parameter.offset, parameter.size) for parameter in manifest.parameters]
    if list(driver) == listed:
        return
    for place, (wanted, found) in enumerate(zip(listed, driver, strict=False)):
        if wanted != found:
            name = manifest.parameters[place].name
            what = f"parameter {place} ({name}) is {found[1]} bytes at {found[0]}, {wanted[1]} at {wanted[0]}"
            break
    else:
        what = f"{len(driver)} parameters, {len(listed)}"
    raise IrrError(
        f"{manifest.name} for sm_{manifest.arch}: the driver says {what} in the manifest",
        "cubin and manifest are not of one build: ./irr build",
    )


# --- the volume's layout ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The volume as one language sees it.

    Attributes:
        language: name for messages.
        entry: bytes of a table entry, None where the language does not say.
        total: bytes of the volume, None for flat parameters.
        fields: name -> (offset, size), in the language's order; a size is None where the language does not say.
    """

    language: str
    entry: int | None
    total: int | None
    fields: dict[str, tuple[int, int | None]]


def table_layout() -> Layout:
    """The layout that the field table asks for, by the C rules: what the others are compared with."""
    placed = _place((field.name, field_size(field), field_size(field)) for field in FIELDS)
    end = placed[-1].offset + placed[-1].size
    fields: dict[str, tuple[int, int | None]] = {p.name: (p.offset, p.size) for p in placed}
    return Layout("field table", 16, -(-end // 8) * 8, fields)


def numpy_layout(dtype: np.dtype | None = None, entry: np.dtype | None = None) -> Layout:
    """NumPy's."""
    dtype = volume_module.VOLUME_DTYPE if dtype is None else dtype
    entry = volume_module.ENTRY_DTYPE if entry is None else entry
    fields = {name: (int(value[1]), int(value[0].itemsize)) for name, value in (dtype.fields or {}).items()}
    return Layout("NumPy", entry.itemsize, dtype.itemsize, {name: fields[name] for name in dtype.names or ()})


def has_layout(cubin: bytes) -> bool:
    """Whether the compiler left its layout in this cubin (the Rust kernels carry it; C++ has a probe of its own)."""
    return cubin_reader.constant(cubin, LAYOUT_SYMBOL) is not None


def cubin_layout(language: str, cubin: bytes) -> Layout:
    """That of a compiler, from the array it left in a cubin.

    Raises:
        IrrError: no array, or one of another length.
    """
    data = cubin_reader.constant(cubin, LAYOUT_SYMBOL)
    if data is None:
        raise IrrError(f"{language}: the cubin has no {LAYOUT_SYMBOL}", "the ABI cannot be checked without it")
    numbers: list[int] = np.frombuffer(data, "<u4").tolist()
    names = [field.name for field in FIELDS]
    if len(numbers) == len(names):
        return Layout(language, None, None, {name: (offset, None) for name, offset in zip(names, numbers, strict=True)})
    if len(numbers) != 2 + 2 * len(names):
        raise IrrError(f"{language}: {LAYOUT_SYMBOL} has {len(numbers)} numbers, {2 + 2 * len(names)} are wanted")
    pairs = zip(numbers[2::2], numbers[3::2], strict=True)
    return Layout(language, numbers[0], numbers[1], dict(zip(names, pairs, strict=True)))


def tuple_layout(language: str, fields: Sequence[str]) -> Layout:
    """Triton's: a NamedTuple compiles to one parameter a field, so its order is the layout.

    Args:
        fields: the tuple's `_fields`. A name that the field table lacks is taken for a pointer.
    """
    sizes = {field.name: field_size(field) for field in FIELDS}
    placed = _place((name, sizes.get(name, 8), sizes.get(name, 8)) for name in fields)
    return Layout(language, None, None, {parameter.name: (parameter.offset, parameter.size) for parameter in placed})


def differences(found: Layout, wanted: Layout | None = None) -> list[str]:
    """How a layout departs from the field table, one line each; empty if it does not."""
    wanted = table_layout() if wanted is None else wanted
    lines = []
    if found.entry not in (None, wanted.entry):
        lines.append(
            f"{found.language}: a table entry has {found.entry} bytes, {wanted.entry} in the {wanted.language}"
        )
    if found.total not in (None, wanted.total):
        lines.append(f"{found.language}: the volume has {found.total} bytes, {wanted.total} in the {wanted.language}")
    for name, (wanted_offset, wanted_size) in wanted.fields.items():
        if name not in found.fields:
            lines.append(f"{found.language}: no field {name}")
            continue
        offset, size = found.fields[name]
        if offset != wanted_offset or size not in (None, wanted_size):
            bytes_there = "" if size is None else f" ({size} bytes)"
            lines.append(
                f"{found.language}: {name} is at {offset}{bytes_there}, "
                f"at {wanted_offset} ({wanted_size} bytes) in the {wanted.language}"
            )
    lines += [
        f"{found.language}: {name} is not in the {wanted.language}"
        for name in found.fields
        if name not in wanted.fields
    ]
    return lines


def check_layouts(layouts: Iterable[Layout]) -> None:
    """Compare every layout with the field table.

    Raises:
        IrrError: one differs; the first differences are named.
    """
    lines = [line for layout in layouts for line in differences(layout)]
    if lines:
        rest = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise IrrError(
            f"ABI: {lines[0]}{rest}", "the field table in harness/workload/volume.py makes every language's volume"
        )
