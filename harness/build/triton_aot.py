"""Triton to PTX, without a GPU, one process a kernel.

The compiler runs in a child: it takes its settings from the environment when it is imported, TRITON_INTERPRET of the
caller must not reach it, and some mistakes in a kernel abort the whole process (P36). The child stops at the PTX; the
assembler is the project's (assemble.py), so every language's PTX meets the same ptxas.

A kernel's launch needs what `Emitted` says and nothing more: threads = 32 * num_warps, no shared memory beyond
`shared`, the volume flat, the declared parameters in order, and two null pointers at the end, where Triton would put
its global and profile scratch (both 0 bytes here, checked).
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import types
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.build.kernels import Kernel
from harness.build.manifest import Emitted, ToolMissing
from harness.build.toolchain import Toolkit, find_toolkit, parse_cuda_version, program_version, triton_tools
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload.volume import FIELDS

PACKAGE = "irr_triton"
"""Name under which the files of triton/ are imported: never `triton`, and no folder on sys.path."""

PARAMETER_TYPES = {
    "points": "*fp32", "colors": "*u8", "n": "i32", "cx": "fp32", "cy": "fp32", "cz": "fp32", "scratch": "*i64",
    "a": "fp32", "x": "*fp32", "y": "*fp32", "width": "i32", "height": "i32", "limit": "i32", "out": "*i32",
}  # fmt: skip
"""Triton's spelling of the parameters after the volume (their sizes stand in the kernel table)."""

TRAILING_NULLS = 2
COMPILE_SECONDS = 3600
"""A bound of 32 takes about half a minute; no kernel of the table comes near this."""

BLACKWELL = 100
"""From here on Triton has a ptxas of its own, and a variable of its own that names another."""

_SIZES = {"*": 8, "i32": 4, "fp32": 4}

Volume = namedtuple("Volume", [field.name for field in FIELDS])
"""The volume as Triton takes it: compiles to one parameter a field."""


# --- the assembler of Triton's PTX ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assembler:
    """The ptxas that Triton's PTX is written for.

    Attributes:
        version: as 13.0.88, or "unknown" where the program does not say.
        name: `pinned` (the toolkit of all arms), `bundled` (Triton's own), or the variable that names it.
    """

    path: Path
    version: str
    name: str


def find_assembler(
    arch: int, *, bundled: bool = False, env: Mapping[str, str] | None = None, toolkit: Toolkit | None = None
) -> Assembler:
    """The ptxas for Triton kernels of `arch`.

    The toolkit's, as for every arm; another where TRITON_PTXAS_PATH (TRITON_PTXAS_BLACKWELL_PATH from sm_100 on) names
    one. Triton itself falls back to its own where the named one does not run; here what was named is what is used.

    Raises:
        ToolMissing: no toolkit, no Triton, or the named file is not there.
    """
    env = os.environ if env is None else env
    blackwell = arch >= BLACKWELL
    if bundled:
        program = triton_tools().get("ptxas-blackwell" if blackwell else "ptxas")
        if program is None:
            raise ToolMissing("Triton's own ptxas is missing", "run ./irr setup, which installs triton")
        return Assembler(program, parse_cuda_version(program_version(program)) or "unknown", "bundled")
    variable = "TRITON_PTXAS_BLACKWELL_PATH" if blackwell else "TRITON_PTXAS_PATH"
    named = env.get(variable, "").strip()
    if named:
        if not Path(named).is_file():
            raise ToolMissing(f"{variable}={named} is not a file", "unset it to use the pinned ptxas")
        return Assembler(Path(named), parse_cuda_version(program_version(named)) or "unknown", variable)
    if toolkit is None:
        try:
            toolkit = find_toolkit(env)
        except IrrError as error:
            raise ToolMissing(error.what, error.cure) from None
    return Assembler(toolkit.ptxas, toolkit.version, "pinned")


def ptx_version(cuda: str) -> int:
    """PTX version (as 90) that a CUDA release reads; releases that do not say, or are newer, get 13.0's.

    12.8 reads 8.7, 12.9 8.8, 13.N 9.N.
    """
    match = re.match(r"(\d+)\.(\d+)", cuda)
    if match is None:
        return 90
    major, minor = int(match.group(1)), int(match.group(2))
    if major == 12:
        return 80 + (minor if minor < 6 else minor - 1)
    return 90


# --- kernels as Python functions ------------------------------------------------------------------------------------


def use_checkout(source: str, root: Path = ROOT) -> types.ModuleType:
    """A file of triton/, imported as part of the package `irr_triton`.

    The package has no file: it is a name with a path, so that the kernels reach their neighbours by relative imports
    and triton/ can never be taken for the compiler.
    """
    folder = str(root / "triton")
    package = sys.modules.get(PACKAGE)
    if package is None or list(package.__path__) != [folder]:
        for name in [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]:
            del sys.modules[name]
        package = types.ModuleType(PACKAGE)
        package.__path__ = [folder]
        sys.modules[PACKAGE] = package
    inside = Path(source).relative_to("triton").with_suffix("")
    return importlib.import_module(".".join([PACKAGE, *inside.parts]))


def load_function(kernel: Kernel, root: Path = ROOT) -> Any:
    """The kernel's @triton.jit function, from the checkout `root`."""
    return getattr(use_checkout(kernel.source, root), kernel.entry)


def loaded_sources(root: Path = ROOT) -> tuple[Path, ...]:
    """Files of triton/ that have been imported, relative to `root`."""
    modules = [module for name, module in sys.modules.items() if name.startswith(PACKAGE + ".")]
    files = [Path(file) for module in modules if (file := getattr(module, "__file__", None))]
    return tuple(sorted(path.relative_to(root) for path in files))


def constants(kernel: Kernel, names: list[str]) -> dict[str, int]:
    """Values of the constexpr parameters `names`, from the row.

    LANES is the points of a program, SLOTS the scratch slots, WAIT whether it waits; the rest stands in `constants`.
    """
    known = {"LANES": kernel.points, "SLOTS": kernel.scratch, "WAIT": int(kernel.waits), **kernel.constants}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise IrrError(f"{kernel.name}: no value for {', '.join(unknown)}", "add it to `constants` of the kernel's row")
    return {name: known[name] for name in names}


def row_to_json(kernel: Kernel) -> dict[str, Any]:
    """The row as a child process gets it."""
    fields = dataclasses.fields(kernel)
    return {field.name: getattr(kernel, field.name) for field in fields} | {"constants": dict(kernel.constants)}


def row_from_json(value: dict[str, Any]) -> Kernel:
    return Kernel(**value)


def flat_sizes(kernel: Kernel) -> list[int]:
    """Bytes of every parameter of the compiled kernel, in order, trailing nulls included."""
    volume = FIELDS if kernel.takes_volume else ()
    fields = [_SIZES["*" if field.triton.startswith("*") else field.triton] for field in volume]
    return [*fields, *(size for _, size in kernel.parameters), *[8] * TRAILING_NULLS]


def ptx_parameter_sizes(ptx: str) -> list[int]:
    """Bytes of every parameter of the (only) entry of a PTX text."""
    header = re.search(r"\.entry\s+\w+\s*\((.*?)\)", ptx, re.DOTALL)
    words = re.findall(r"\.param\s+\.[a-z](\d+)", header.group(1)) if header else []
    return [int(bits) // 8 for bits in words]


# --- the compiler, in the child -------------------------------------------------------------------------------------


def lower(
    function: Any,
    signature: dict[str, Any],
    fixed: dict[str, int],
    arch: int,
    asked: dict[str, Any],
    *,
    lines: bool = False,
) -> tuple[str, dict[str, Any]]:
    """The PTX of a @triton.jit function and Triton's metadata, compiled in this process.

    Args:
        signature: Triton's type of every parameter, in order. fixed: values of the constexpr ones.
        asked: compiler options, as {"num_warps": 8}.
        lines: keep source lines, Triton's default: the PTX then holds the path of the checkout.
    """
    from triton import knobs
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    knobs.compilation.disable_line_info = not lines
    target = GPUTarget("cuda", arch, 32)
    backend: Any = make_backend(target)
    options = backend.parse_options(asked)
    source = ASTSource(fn=function, signature=signature, constexprs=fixed)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    code = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    metadata: dict[str, Any] = dict(options.__dict__)
    for stage in ("ttir", "ttgir", "llir", "ptx"):
        code = stages[stage](code, metadata)
    return str(code), metadata


def compile_ptx(kernel: Kernel, arch: int, contract: bool, version: int, root: Path) -> dict[str, Any]:
    """Compile in this process; see `emit`. Returns ptx, entry, shared, seconds, sources and the options used."""
    function = load_function(kernel, root)
    fixed = constants(kernel, [p.name for p in function.params if p.is_constexpr])
    signature: dict[str, Any] = {}
    if kernel.takes_volume:
        signature["volume"] = Volume(*(field.triton for field in FIELDS))
    signature |= {name: PARAMETER_TYPES[name] for name, _ in kernel.parameters}
    signature |= dict.fromkeys(fixed, "constexpr")
    if list(signature) != function.arg_names:
        raise IrrError(f"{kernel.source}: {kernel.entry} takes {function.arg_names}, its row gives {list(signature)}")

    started = time.process_time()  # of this process alone: the build runs several
    asked = {
        "num_warps": kernel.threads // 32,
        "enable_fp_fusion": contract,
        # On, as Triton has it, floor is cvt.rmi.ftz: -1e-39 would be voxel 0 here and -1 in every other arm.
        "enable_reflect_ftz": False,
        "ptx_version": version,
    }
    ptx, metadata = lower(function, signature, fixed, arch, asked)

    where = f"{kernel.name} for sm_{arch}"
    for name in ("global_scratch_size", "profile_scratch_size"):
        if metadata[name]:
            raise IrrError(f"{where}: wants {metadata[name]} bytes of {name}, the launch gives none")
    if metadata["num_warps"] * 32 != kernel.threads:
        raise IrrError(f"{where}: {metadata['num_warps']} warps, its row says {kernel.threads} threads")
    if ptx_parameter_sizes(ptx) != flat_sizes(kernel):
        found = ptx_parameter_sizes(ptx)
        raise IrrError(f"{where}: parameters of {found} bytes, the field table says {flat_sizes(kernel)}")
    return {
        "ptx": ptx,
        "entry": metadata["name"],
        "shared": metadata["shared"],
        "seconds": time.process_time() - started,
        "sources": [path.as_posix() for path in loaded_sources(root)],
        "options": asked | fixed,
    }


def _child() -> None:
    """Read a job from stdin, write its outcome to stdout: `{"done": ...}` or `{"error": one line}`."""
    job = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the compiler prints on stdout when it fails
    try:
        root = Path(job["root"])
        done = compile_ptx(row_from_json(job["kernel"]), job["arch"], job["contract"], job["ptx_version"], root)
        json.dump({"done": done}, answer)
    except IrrError as error:
        json.dump({"error": error.what, "cure": error.cure}, answer)
    except ImportError as error:
        json.dump({"missing": str(error)}, answer)
    except Exception as error:  # the compiler raises what it likes; the user gets one line
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        json.dump({"error": f"{type(error).__name__}: {'; '.join(lines) or 'no message'}"}, answer)
    answer.close()


def child_environment(work: Path) -> dict[str, str]:
    """This environment without the settings that change what Triton does; its cache in the build's work folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    for name in ("DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "LLVM_IR_ENABLE_DUMP", "NVPTX_ENABLE_DUMP", "MLIR_ENABLE_DUMP"):
        kept.pop(name, None)
    # The caller's own PYTHONPATH stays: a machine that only measures may carry its packages there.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | {"TRITON_CACHE_DIR": str((work / "triton-cache").absolute()), "PYTHONPATH": path}


def _run_child(job: dict[str, Any], work: Path, timeout: float) -> dict[str, Any]:
    name = f"{job['kernel']['name']} for sm_{job['arch']}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "harness.build.triton_aot"],
            input=json.dumps(job), capture_output=True, text=True, errors="replace", timeout=timeout, check=False,
            env=child_environment(work), cwd=work,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise IrrError(f"{name}: Triton did not end within {timeout:.0f} s") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in words if "ssert" in line or "rror" in line), words[-1] if words else "no message")
        raise IrrError(f"{name}: Triton ended with status {done.returncode}: {said.strip()[:300]}") from None
    if "missing" in answer:
        raise ToolMissing(f"Triton is missing ({answer['missing']})", "run ./irr setup, which installs it")
    if "error" in answer:
        raise IrrError(f"{name}: {answer['error'].replace(str(job['root']) + '/', '')}", answer.get("cure"))
    return answer["done"]


def emit(
    kernel: Kernel,
    arch: int,
    contract: bool,
    work: Path,
    *,
    bundled: bool = False,
    root: Path = ROOT,
    timeout: float = COMPILE_SECONDS,
) -> Emitted:
    """PTX of one Triton kernel.

    Args:
        arch: compute capability as 90. Triton writes sm_90a, sm_100a, sm_120a into the PTX from 90 on.
        contract: enable_fp_fusion, Triton's default.
        work: folder of the build; shared, kept. Nothing of Triton's goes elsewhere.
        bundled: write PTX that Triton's own ptxas reads (control `@bundled`); the text differs in `.version` only.
        root: checkout whose triton/ is compiled (tests plant faults in a copy).

    Raises:
        ToolMissing: no Triton, or no ptxas to write for. IrrError: the kernel does not compile.
    """
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise ToolMissing("Triton is missing", "run ./irr setup, which installs it") from None
    assembler = find_assembler(arch, bundled=bundled)
    work.mkdir(parents=True, exist_ok=True)
    job = {
        "kernel": row_to_json(kernel),
        "arch": arch, "contract": contract, "ptx_version": ptx_version(assembler.version), "root": str(root),
    }  # fmt: skip
    done = _run_child(job, work, timeout)
    deviations = []
    if assembler.name not in ("pinned", "bundled"):
        deviations.append(f"unpinned toolchain: ptxas {assembler.version} ({assembler.name})")
    return Emitted(
        ptx=done["ptx"],
        entry=done["entry"],
        compiler="triton",
        version=version,
        flags=tuple(f"{name}={value}" for name, value in done["options"].items()),
        sources=tuple(Path(name) for name in done["sources"]),
        volume="flat",
        trailing_nulls=TRAILING_NULLS,
        threads=kernel.threads,
        points=kernel.points,
        shared=done["shared"],
        extra={"deviations": deviations, "seconds": round(done["seconds"], 2)},
    )


if __name__ == "__main__":
    _child()
