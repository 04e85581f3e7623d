"""Reading a cubin without a driver: parameters, machine code, constants."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from harness.errors import IrrError

KPARAM_INFO = 0x17
"""EIATTR_KPARAM_INFO of .nv.info.<entry>: one record a parameter."""

_VALUE_FORMAT = (
    4  # EIFMT_SVAL: the two bytes after the attribute are the length of what follows; else they are the value.
)


@dataclass(frozen=True)
class RawParameter:
    """A parameter as the cubin lists it: place in the signature, byte offset in the parameter block, bytes."""

    ordinal: int
    offset: int
    size: int


def _open(cubin: bytes) -> ELFFile:
    try:
        return ELFFile(io.BytesIO(cubin))
    except ELFError as error:
        raise IrrError(f"not a cubin: {error}", "build the kernel again") from None


def parameters(cubin: bytes, entry: str) -> list[RawParameter]:
    """The kernel's parameters in the order of its signature.

    Raises:
        IrrError: not a cubin, or no such kernel in it.
    """
    section = _open(cubin).get_section_by_name(f".nv.info.{entry}")
    if section is None:
        raise IrrError(f"the cubin has no kernel named {entry}")
    data, position, found = section.data(), 0, []
    while position + 4 <= len(data):
        kind, attribute, length = struct.unpack_from("<BBH", data, position)
        position += 4
        if kind != _VALUE_FORMAT:
            continue
        if attribute == KPARAM_INFO:
            # index u32, ordinal u16, offset u16, then a word whose upper 14 bits are the size
            _, ordinal, offset, word = struct.unpack_from("<IHHI", data, position)
            found.append(RawParameter(ordinal, offset, word >> 18))
        position += length
    return sorted(found, key=lambda parameter: parameter.ordinal)


def code(cubin: bytes, entry: str) -> bytes:
    """The kernel's machine code, scheduling words included.

    Raises:
        IrrError: no such kernel.
    """
    section = _open(cubin).get_section_by_name(f".text.{entry}")
    if section is None:
        raise IrrError(f"the cubin has no kernel named {entry}")
    return section.data()


def constant(cubin: bytes, symbol: str) -> bytes | None:
    """Initial bytes of a global or constant variable, None if the cubin has none of that name."""
    elf = _open(cubin)
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return None
    for found in table.get_symbol_by_name(symbol) or []:
        index = found["st_shndx"]
        if not isinstance(index, int):
            continue
        section = elf.get_section(index)
        if section["sh_type"] == "SHT_NOBITS":
            return bytes(found["st_size"])
        start = found["st_value"]
        return section.data()[start : start + found["st_size"]]
    return None
