"""The few driver calls that CuPy does not offer: modules, parameter lists, launches by parameter block.

CuPy owns the context, memory, streams, events and graphs; a launch made here is captured into its graphs like any
other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from harness.device.arguments import ParameterBlock, ParameterLike
from harness.errors import IrrError

LIBRARY = "libcuda.so.1"

NO_GPU = (
    "no NVIDIA GPU here: libcuda.so.1 cannot be loaded, or it shows no device",
    "in a container: docker run --gpus all, with the NVIDIA container toolkit on the host; "
    "else install an NVIDIA driver for CUDA 13.0 (580 or newer)",
)
"""What is said, and the cure, wherever a GPU is needed and there is none."""

INVALID_VALUE = 1
NO_BINARY = 209
INVALID_IMAGE = 200
INVALID_PTX = 218
UNSUPPORTED_PTX = 222
MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
STATIC_SHARED, CONSTANT, LOCAL, REGISTERS = 1, 2, 3, 4
SHARED_WITHOUT_ASKING = 48 * 1024


class DriverError(IrrError):
    """A driver call failed; `code` is its CUresult."""

    def __init__(self, call: str, code: int, text: str, cure: str | None = None) -> None:
        super().__init__(f"{call}: {text}", cure)
        self.code = code


@cache
def library() -> ctypes.CDLL:
    """libcuda.

    Raises:
        IrrError: there is no driver on this machine.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise IrrError(
            f"{LIBRARY} cannot be loaded: {error}", "no NVIDIA driver here; in a container, run with --gpus all"
        ) from None


def check(call: str, code: int, cure: str | None = None) -> None:
    """Raise DriverError unless `code` is success."""
    if code == 0:
        return
    text = ctypes.c_char_p()
    library().cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
    raise DriverError(call, code, (text.value or b"error").decode() + f" ({code})", cure)


def driver_cuda_version() -> int:
    """Highest CUDA version the driver serves, as 13000 for 13.0."""
    version = ctypes.c_int()
    check("cuDriverGetVersion", library().cuDriverGetVersion(ctypes.byref(version)))
    return version.value


def load_module(image: bytes) -> int:
    """A module from a cubin or from PTX text in the current context; its handle.

    Raises:
        DriverError: no code for this device, or PTX that the driver does not read.
    """
    handle = ctypes.c_void_p()
    data = image + b"\0"  # PTX is read to its zero byte
    code = library().cuModuleLoadData(ctypes.byref(handle), data)
    cure = {
        NO_BINARY: "rebuild for this architecture: ./irr build --arch XX",
        INVALID_IMAGE: "rebuild for this architecture: ./irr build --arch XX",
        UNSUPPORTED_PTX: "the driver is older than the toolkit that wrote the PTX; use the cubin",
        INVALID_PTX: "the PTX is not for this device",
    }.get(code)
    check("cuModuleLoadData", code, cure)
    return int(handle.value or 0)


def find_function(module: int, entry: str) -> int:
    """Handle of a kernel in a module."""
    handle = ctypes.c_void_p()
    code = library().cuModuleGetFunction(ctypes.byref(handle), ctypes.c_void_p(module), entry.encode())
    check(f"cuModuleGetFunction({entry})", code, "build the kernel again")
    return int(handle.value or 0)


def parameter_layout(function: int) -> list[tuple[int, int]] | None:
    """(offset, size) of every parameter as the driver sees it; None where the driver cannot say (before 12.4)."""
    call = getattr(library(), "cuFuncGetParamInfo", None)
    if call is None:
        return None
    found: list[tuple[int, int]] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while True:
        code = call(ctypes.c_void_p(function), ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size))
        if code == INVALID_VALUE:  # past the last one
            return found
        check("cuFuncGetParamInfo", code)
        found.append((offset.value, size.value))


def check_parameters(kernel: str, declared: Sequence[ParameterLike], driver: Sequence[tuple[int, int]] | None) -> None:
    """The manifest's parameter list against the driver's.

    Raises:
        IrrError: they differ; names the first difference.
    """
    if driver is None:
        return
    if len(declared) != len(driver):
        raise IrrError(
            f"{kernel}: the manifest lists {len(declared)} parameters, the driver {len(driver)}",
            "build the kernel again",
        )
    for parameter, (offset, size) in zip(declared, driver, strict=True):
        if (parameter.offset, parameter.size) != (offset, size):
            raise IrrError(
                f"{kernel}: parameter {parameter.name}: {parameter.size} bytes at {parameter.offset} in the manifest, "
                f"and {size} at {offset} for the driver",
                "build the kernel again",
            )


def function_attribute(function: int, attribute: int) -> int:
    value = ctypes.c_int()
    code = library().cuFuncGetAttribute(ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_void_p(function))
    check("cuFuncGetAttribute", code)
    return value.value


def allow_shared(function: int, size: int) -> None:
    """Dynamic shared memory beyond 48 KiB has to be asked for before a launch."""
    if size > SHARED_WITHOUT_ASKING:
        code = library().cuFuncSetAttribute(
            ctypes.c_void_p(function), ctypes.c_int(MAX_DYNAMIC_SHARED), ctypes.c_int(size)
        )
        check("cuFuncSetAttribute", code)


def launch(function: int, grid: int, threads: int, shared: int, stream: int, block: ParameterBlock) -> None:
    """Enqueue one launch of `grid` x `threads` on a stream."""
    code = library().cuLaunchKernel(
        ctypes.c_void_p(function),
        ctypes.c_uint(grid),
        ctypes.c_uint(1),
        ctypes.c_uint(1),
        ctypes.c_uint(threads),
        ctypes.c_uint(1),
        ctypes.c_uint(1),
        ctypes.c_uint(shared),
        ctypes.c_void_p(stream),
        block.pointers,
        None,
    )
    check("cuLaunchKernel", code)
