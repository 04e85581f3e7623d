"""What a revision of cuda-oxide makes of one scoped atomic operation: its PTX, and whether libNVVM takes its IR.

The claim (P39) is about two revisions, the fix and its parent, so this is asked of each and written to one JSON file:

    IRR_OXIDE=FOLDER python -m harness.build.lowering FILE.json     (once a revision; results are merged by revision)

Two ways lead from cuda-oxide's IR to machine code. With llc an atomic load has always become PTX; libNVVM, the way of
`--materialize-cubin`, refused it before the fix. So PTX alone cannot show the defect, and libNVVM is asked directly.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path
from typing import Any

from harness.build import oxide
from harness.build.assemble import only_entry
from harness.build.manifest import ToolMissing, replace_file
from harness.build.toolchain import find_toolkit
from harness.environment import ROOT, pins
from harness.errors import IrrError

SOURCE = "rust/probes/lowering.rs"
PROBES = tuple(
    f"{operation}-{ordering}"
    for operation, orderings in (
        ("load", ("relaxed", "acquire", "seqcst")),
        ("store", ("relaxed", "release", "seqcst")),
        ("add", ("relaxed", "acqrel", "seqcst")),
    )
    for ordering in orderings
)
"""Names of --cfg irr_probe; every ordering that the operation may have and the paper names."""

ARCHITECTURES = (90, 120)
"""libNVVM takes an older IR below Blackwell: both dialects are asked."""

_ATOMIC = re.compile(
    r"(?:^|;)[ \t]*((?:atom|red|ld\.(?:relaxed|acquire)|st\.(?:relaxed|release)|fence|membar)[.\w]*)", re.MULTILINE
)


class LibNvvm:
    """libNVVM of the toolkit, as far as verifying and compiling a module goes.

    Raises:
        ToolMissing: the toolkit has none.
    """

    def __init__(self) -> None:
        root = find_toolkit().root
        found = sorted({*root.glob("lib*/libnvvm.so*"), *root.glob("nvvm/lib*/libnvvm.so*")})
        if not found:
            raise ToolMissing(f"{root} has no libnvvm.so", "the pinned wheels have it: ./irr setup")
        self._library = ctypes.CDLL(str(found[0]))

    def version(self) -> str:
        """Of the library's IR and debug format, as `2.0`."""
        numbers = [ctypes.c_int() for _ in range(4)]
        self._library.nvvmIRVersion(*(ctypes.byref(number) for number in numbers))
        return f"{numbers[0].value}.{numbers[1].value}"

    def compile(self, module: bytes, arch: int) -> str:
        """ "" if libNVVM verifies and compiles the module, else what it says, without lines that name the module."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._library.nvvmCreateProgram(ctypes.byref(program))
        try:
            length = ctypes.c_size_t(len(module))
            self._library.nvvmAddModuleToProgram(program, module, length, b"probe")
            options = (ctypes.c_char_p * 1)(f"-arch=compute_{arch}".encode())
            failed = self._library.nvvmVerifyProgram(program, 1, options)
            failed = failed or self._library.nvvmCompileProgram(program, 1, options)
            if not failed:
                return ""
            self._library.nvvmGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self._library.nvvmGetProgramLog(program, log)
            words = [line.strip() for line in log.value.decode(errors="replace").splitlines() if line.strip()]
            return " | ".join(words) or f"error {failed}"
        finally:
            self._library.nvvmDestroyProgram(ctypes.byref(program))


def probe(name: str, arch: int, work: Path) -> dict[str, object]:
    """One operation under the cuda-oxide that IRR_OXIDE names.

    Returns:
        `ptx`: its atomic instructions and fences, in order; `refused_by_oxide`: its message, where it compiled nothing;
        `ir`: the lines of its IR that libNVVM judges; `libnvvm`: "" or what libNVVM says.
    """
    cfg = (f'--cfg=irr_probe="{name}"',)
    result: dict[str, object] = {"ptx": [], "ir": [], "refused_by_oxide": "", "libnvvm": ""}
    try:
        ptx = oxide.compile_crate(SOURCE, arch, False, work, options=cfg)[".ptx"].decode()
        result["ptx"] = _ATOMIC.findall(only_entry(ptx, "probe"))
        module = oxide.compile_crate(SOURCE, arch, False, work, options=cfg, nvvm_ir=True)[".ll"]
    except IrrError as error:
        return {**result, "refused_by_oxide": error.what}
    lines = [line.strip() for line in module.decode(errors="replace").splitlines()]
    result["ir"] = [line for line in lines if re.search(r"\batomic\b|^fence|atomicrmw|asm sideeffect|membar", line)]
    return {**result, "libnvvm": LibNvvm().compile(module, arch)}


def probe_all(work: Path) -> dict[str, object]:
    """Every operation, for both dialects of libNVVM."""
    found = oxide.find_oxide()
    return {
        "contains_fix": not found.missing,
        "deviations": found.deviations(),
        "llc": found.llc.version,
        "libnvvm_ir": LibNvvm().version(),
        "toolkit": find_toolkit().version,
        "operations": {name: {f"sm_{arch}": probe(name, arch, work) for arch in ARCHITECTURES} for name in PROBES},
    }


def _builds(operations: dict, names: tuple[str, ...]) -> bool:
    """Whether libNVVM takes all of them, in the dialect that cuda-oxide writes for the newest architecture."""
    answers = [operations[name][f"sm_{ARCHITECTURES[-1]}"] for name in names]
    return not any(answer["refused_by_oxide"] or answer["libnvvm"] for answer in answers)


def findings(document: dict) -> dict[str, bool]:
    """What P39 asks, from the answers of the pinned revision and of its parent.

    Raises:
        KeyError: one of the two has not been asked.
    """
    pinned = pins()["oxide"]
    found: dict[str, bool] = {}
    for side, commit in (("parent", pinned["parent"]), ("fix", pinned["revision"])):
        operations = document[commit]["operations"]
        found[f"oxide.{side}.load.builds"] = _builds(operations, ("load-relaxed", "load-acquire"))
        found[f"oxide.{side}.store.builds"] = _builds(operations, ("store-relaxed", "store-release"))
        found[f"oxide.{side}.acqrel.builds"] = _builds(operations, ("add-acqrel",))
        found[f"oxide.{side}.seqcst.builds"] = _builds(operations, ("load-seqcst", "store-seqcst", "add-seqcst"))
    operations = document[pinned["revision"]]["operations"]
    lines = {
        name: line
        for name in PROBES
        if name.startswith(("load", "store"))
        for answer in operations[name].values()
        for line in answer["ir"]
    }
    found["oxide.fix.clobber_unconditional"] = len(lines) == 6 and all("~{memory}" in line for line in lines.values())
    fused = {"load-seqcst": r"fence\.sc\.gpu; ld\.acquire\.", "store-seqcst": r"fence\.sc\.gpu; st\.release\."}
    found["oxide.fix.seqcst_fused"] = all(re.search(words, lines.get(name, "")) for name, words in fused.items())
    return found


KEPT = ROOT / "data" / "oxide-lowering.json"
"""The answers of both revisions, kept because building two compilers is not part of a run; made by `main`."""


def evidence(path: Path = KEPT) -> list[dict[str, Any]]:
    """The findings as an archive's evidence, each with the toolchain that gave it; [] where nobody has asked.

    Raises:
        IrrError: the file is not what `main` writes, or one of the two revisions is missing from it.
    """
    if not path.is_file():
        return []
    pinned = pins()["oxide"]
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = findings(document)
        sides = {"parent": document[pinned["parent"]], "fix": document[pinned["revision"]]}
        how = {
            side: f"harness.build.lowering: cuda-oxide {commit[:12]} ({'; '.join(said['deviations']) or 'as pinned'}), "
            f"libNVVM of CUDA {said['toolkit']}, sm_{ARCHITECTURES[-1]}"
            for (side, said), commit in zip(sides.items(), (pinned["parent"], pinned["revision"]), strict=True)
        }
        rows = [
            {"name": name, "value": value, "unit": "bool", "how": how[name.split(".")[1]]}
            for name, value in found.items()
        ]
        for name in PROBES:
            for side, said in sides.items():
                answer = said["operations"][name][f"sm_{ARCHITECTURES[-1]}"]
                words = answer["refused_by_oxide"] or answer["libnvvm"] or "; ".join(answer["ptx"])
                rows.append({"name": f"oxide.{side}.{name}.says", "value": words, "unit": "text", "how": how[side]})
    except (ValueError, KeyError, TypeError) as error:
        raise IrrError(f"{path.name} lacks {error}", "make it again: see harness/build/lowering.py") from None
    return rows


def main(path: Path) -> None:
    """Ask the cuda-oxide of IRR_OXIDE and put its answers under its revision in the file."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    # The build's own work folder: cuda_device is there already where kernels were built.
    kept[oxide.find_oxide().revision] = probe_all(ROOT / "build" / "work")
    replace_file(path, (json.dumps(kept, indent=1, sort_keys=True) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
