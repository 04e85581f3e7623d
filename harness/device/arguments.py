"""A kernel's parameter block, byte by byte, from named values: strict where a silent conversion would be wrong.

A launch that trusts Python's types passes a float as a double, an int at the host's width, a float64 array as float32
memory, and the kernel computes something else without an error. Here every parameter has one declared type, a value
that does not have it exactly is converted where nothing is lost and refused otherwise, and the block is laid out by
the manifest's offsets and sizes, which the loader compares with the driver's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from harness.errors import IrrError
from harness.workload.volume import FIELDS, VOLUME_DTYPE

POINTEES: dict[str, str] = {
    "points": "<f4",
    "colors": "|u1",
    "offsets": "<i8",
    "scratch": "<i8",
    "vertices": "<f4",
    "triangles": "<u8",
    "x": "<f4",
    "y": "<f4",
    "out": "<i4",
}
"""What a pointer parameter points to. A new kernel parameter gets a row here or in SCALARS."""

SCALARS: dict[str, str] = {
    "n": "<i4",
    "cx": "<f4",
    "cy": "<f4",
    "cz": "<f4",
    "a": "<f4",
    "width": "<i4",
    "height": "<i4",
    "limit": "<i4",
}

VOLUME_FIELDS: dict[str, str] = {field.name: field.numpy for field in FIELDS}
"""Fields of the volume where a kernel takes them one by one; pointers are addresses."""

VOLUME = "volume"


class ParameterLike(Protocol):
    """One row of a manifest's parameter list."""

    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...


def scalar(name: str, dtype: str | np.dtype, value: Any) -> np.generic:
    """`value` as one number of the declared type.

    Raises:
        TypeError: not a number, or a fraction where an integer is declared.
        OverflowError: it does not fit.
    """
    kind = np.dtype(dtype)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} is a {kind.name}, not a {type(value).__name__}")
    if kind.kind in "iu":
        if float(value) != int(value):
            raise TypeError(f"{name} is a {kind.name}, not {value}")
        limits = np.iinfo(kind)
        if not limits.min <= int(value) <= limits.max:
            raise OverflowError(f"{name} is a {kind.name}: {value} does not fit")
        return kind.type(int(value))
    with np.errstate(over="ignore"):
        number = kind.type(value)
    if math.isfinite(float(value)) and not math.isfinite(float(number)):
        raise OverflowError(f"{name} is a {kind.name}: {value} does not fit")
    return number


def address(name: str, dtype: str | np.dtype, array: Any) -> np.uint64:
    """Where an array's memory begins, if it is the memory that the kernel expects.

    Args:
        array: a CuPy or NumPy array, or None for a null pointer.

    Raises:
        TypeError: another element type, or not an array.
        ValueError: not contiguous, so that the kernel would read other elements.
    """
    if array is None:
        return np.uint64(0)
    found = getattr(array, "dtype", None)
    if found is None:
        raise TypeError(f"{name} is an array of {np.dtype(dtype).name}, not a {type(array).__name__}")
    if np.dtype(found) != np.dtype(dtype):
        raise TypeError(f"{name} is an array of {np.dtype(dtype).name}, not of {np.dtype(found).name}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous: a kernel sees addresses, not strides")
    data = array.data
    pointer = data.ptr if hasattr(data, "ptr") else array.ctypes.data
    return np.uint64(pointer)


class ParameterBlock:
    """The bytes of one launch's parameters and the array of pointers into them that the driver wants.

    Keeps a reference to every array, so that memory a captured graph will touch is not given back before the graph.
    """

    def __init__(self, parameters: Sequence[ParameterLike], trailing_nulls: int, values: Mapping[str, Any]) -> None:
        """
        Args:
            parameters: the manifest's list, in order, with offsets and sizes.
            trailing_nulls: parameters at the end that get a null pointer.
            values: by parameter name; `volume` is a VOLUME_DTYPE struct, also where the kernel takes it field by field.

        Raises:
            IrrError: a parameter that nobody gave a value or a type, or whose size is not its type's.
            TypeError, ValueError, OverflowError: a value that is not what its parameter is.
        """
        size = max((p.offset + p.size for p in parameters), default=0)
        self.parameters = list(parameters)
        self.bytes = np.zeros(max(size, 1), np.uint8)
        self.keep = list(values.values())
        named = len(parameters) - trailing_nulls
        for place, parameter in enumerate(parameters):
            piece = np.uint64(0) if place >= named else self._value(parameter.name, values)
            raw = np.frombuffer(np.asarray(piece).tobytes(), np.uint8)
            if len(raw) != parameter.size:
                raise IrrError(
                    f"parameter {parameter.name} is {parameter.size} bytes in the kernel and {len(raw)} here",
                    "build the kernel again",
                )
            self.bytes[parameter.offset : parameter.offset + parameter.size] = raw
        base = self.bytes.ctypes.data
        self.pointers = (ctypes.c_void_p * max(len(parameters), 1))(*(base + p.offset for p in parameters))

    @staticmethod
    def _value(name: str, values: Mapping[str, Any]) -> Any:
        field = name.removeprefix(f"{VOLUME}.")
        if name == VOLUME:
            struct = np.asarray(values[VOLUME])
            if struct.dtype != VOLUME_DTYPE:
                raise TypeError(f"volume is the struct of the field table, not {struct.dtype}")
            return struct
        if field in VOLUME_FIELDS and field not in values:
            return np.asarray(values[VOLUME])[field][()]
        if name not in values:
            raise IrrError(f"the kernel has a parameter {name!r} that this launch does not know")
        if name in POINTEES:
            return address(name, POINTEES[name], values[name])
        if name in SCALARS:
            return scalar(name, SCALARS[name], values[name])
        raise IrrError(f"parameter {name!r} has no declared type", "give it a row in harness/device/arguments.py")
