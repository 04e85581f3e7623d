"""The contraction study: do two compilers' programs compute the same image, and which fusion makes the difference?

Without a GPU the emulation's images stand for the compilers' (its patterns name which pairs each fuses); on a GPU the
real kernels' images join them as further patterns, and the kernels are timed (device/programs.py). Every comparison is
repeated with one pixel computed from a constant one ulp away, and counts only if that is found.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.archive.write import write_whole
from harness.build.contraction import loop_findings, rustc_findings
from harness.build.emulation import PATTERNS, Emulation, load_emulation
from harness.environment import ROOT
from harness.errors import IrrError, UsageError
from harness.gates.images import ImageDifference, border, compare_images, detects, image_hash, plant_one_ulp
from harness.gates.result import GateResult
from harness.measure.plan import TWIN
from harness.workload.programs import FUSED, SEPARATE, A, Program, Y

SIZE, LIMIT = 4096, 500
"""The blog's image: 4096 x 4096 pixels, 500 iterations."""

BUILD = ROOT / "build"

MAX_SIZE = 16384
"""Pixels an edge: above this five images and their comparisons pass 8 GB."""

Document = dict[str, Any]
Finding = dict[str, Any]


def emulate(
    emulation: Emulation, size: int, limit: int, progress: Callable[[str], None] | None = None
) -> dict[str, np.ndarray]:
    """Images (size, size) i32 by pattern name."""
    images = {}
    for number, name in enumerate(PATTERNS, 1):
        if progress is not None:
            progress(f"emulating {name} ({number} of {len(PATTERNS)})")
        images[name] = emulation.image(name, size, limit)
    return images


def compare_all(images: Mapping[str, np.ndarray], limit: int) -> tuple[Document, list[GateResult]]:
    """Every pair of images, each comparison with its planted change. Images of one hash are compared once.

    Returns:
        The document of `fma --json` (with `size` and `iterations`), and one gate a pair: whether the comparison saw
        the planted change.
    """
    hashes = {name: image_hash(image) for name, image in images.items()}
    distinct = {hashes[name]: image for name, image in images.items()}
    candidates = border(distinct.values(), limit)
    planted = {key: plant_one_ulp(image, candidates, limit) for key, image in distinct.items()}
    compared: dict[tuple[str, str], tuple[ImageDifference, bool]] = {}
    pairs, gates = [], []
    for a, b in itertools.combinations(images, 2):
        key = (hashes[a], hashes[b])
        copy, (row, column) = planted[key[1]]
        if key not in compared:
            difference = compare_images(images[a], images[b], limit)
            compared[key] = difference, detects(images[a], images[b], copy, limit)
        difference, seen = compared[key]
        gates.append(
            GateResult(
                "image",
                "cross-arm",
                f"{a} against {b}",
                seen,
                difference.compared,
                {**difference.as_json(), "planted_row": row, "planted_column": column},
                "" if seen else f"{a} against {b}: one ulp in pixel ({row}, {column}) is not seen",
            )
        )
        pairs.append({"a": a, "b": b, **difference.as_json()})
    patterns = {name: {"sum": int(image.sum(dtype=np.int64)), "hash": hashes[name]} for name, image in images.items()}
    size = next(iter(images.values())).shape[0]
    return {"size": size, "iterations": limit, "patterns": patterns, "pairs": pairs}, gates


def packed_difference(a: str, b: str, images: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Which pixels of image b depart from image a: little-endian (row u2, column u2, change i2), zlib and base64."""
    change = images[b] - images[a]
    rows, columns = np.nonzero(change)
    table = np.stack([rows, columns, change[rows, columns]], axis=1).astype("<i2")
    packed = base64.b64encode(zlib.compress(table.tobytes(), 9)).decode("ascii")
    return {"a": a, "b": b, "size": images[a].shape[0], "pixels": packed}


def evidence(document: Document, images: Mapping[str, np.ndarray], a: str, b: str, how: str) -> list[dict[str, Any]]:
    """The findings that claims and figures read: the document, where images a and b differ, the two-pixel check (B15).

    Args:
        a, b: the images of nvcc's and of cuda-oxide's chain.
        how: what made them.
    """
    first, last = images[a], images[b]
    corners = [(0, 0), (0, first.shape[1] - 1)]
    what = f"{document['size']} x {document['size']}, {document['iterations']} iterations; {how}"
    return [
        {"name": "fma.images", "value": document, "unit": "", "how": what},
        {"name": "fma.difference", "value": packed_difference(a, b, images), "unit": "", "how": what},
        {
            "name": "fma.trivial_pixels.equal",
            "value": bool(all(first[pixel] == last[pixel] for pixel in corners)),
            "unit": "",
            "how": f"two corner pixels, which escape at once, of {a} and {b}; {how}",
        },
        {
            "name": "fma.trivial_pixels.images_differ",
            "value": int((first != last).sum()),
            "unit": "pixels",
            "how": f"all pixels of the same two images; {how}",
        },
    ]


def study(
    size: int, limit: int, progress: Callable[[str], None] | None = None
) -> tuple[list[Finding], list[GateResult]]:
    """The CPU part on this machine: findings, the document of `fma --json` first (`fma.images`), and gates.

    Raises:
        UsageError: an image that is too small or too large to be one.
        IrrError: the emulation cannot be built here, or a comparison cannot see a planted change.
    """
    if not 64 <= size <= MAX_SIZE:
        raise UsageError(f"--size {size} is not between 64 and {MAX_SIZE} pixels an edge")
    if limit < 2:
        raise UsageError(f"--iterations {limit} leaves nothing to iterate", "take at least 2; the blog takes 500")
    emulation = load_emulation(ROOT / "build" / "host")
    images = emulate(emulation, size, limit, progress)
    document, gates = compare_all(images, limit)
    blind = [gate.message for gate in gates if not gate.ok]
    if blind:
        raise IrrError(f"{len(blind)} of {len(gates)} comparisons cannot be trusted: {blind[0]}")
    how = f"emulation by {emulation.compiler} {' '.join(emulation.flags)}"
    fused = [
        {"name": f"emulation.{name}.fused_instructions", "value": n, "unit": "instructions", "how": f"objdump; {how}"}
        for name, n in emulation.fused.items()
    ]
    return evidence(document, images, "nvcc", "oxide", how) + fused + _compiler_findings(), gates


def _compiler_findings() -> list[Finding]:
    """What the compilers here fuse; nothing where a compiler or its kernels are absent."""
    found: list[Finding] = []
    with contextlib.suppress(IrrError):
        found += rustc_findings()
    archs = built_archs()
    return found + loop_findings(BUILD, archs, archs[-1] if archs else None)


def built_archs() -> list[int]:
    """Architectures for which anything is built here, ascending."""
    return sorted(int(path.name[3:]) for path in BUILD.glob("sm_*") if path.name[3:].isdigit())


def images_name(program: Program) -> str:
    """File that says which emulated images lie beside it; written last."""
    return f"{program.name}-images.json"


def write_images(program: Program, folder: Path) -> None:
    """Emulate a program's images once for every worker of a run, or say why there are none (no g++ here)."""
    marker = folder / images_name(program)
    if marker.exists():
        return
    told: dict[str, Any] = {"patterns": [], "how": "no emulation: the program writes no image"}
    if program.edge:
        try:
            emulation = load_emulation(ROOT / "build" / "host")
            for name, image in emulate(emulation, program.edge, program.limit).items():
                np.save(folder / f"{program.name}-{name}.npy", image)
            how = f"emulation by {emulation.compiler} {' '.join(emulation.flags)}"
            told = {"patterns": list(PATTERNS), "how": how}
        except IrrError as error:
            told["how"] = f"not emulated here: {error.what}"
    write_whole(marker, json.dumps(told).encode())


def gpu_findings(
    cell: Any, station: Any, labels: Sequence[str], references: Path
) -> tuple[list[Finding], list[GateResult]]:
    """What the kernels of a program compute on this GPU, beside the emulation's images; clocks and bandwidth; and one
    gate a comparison: whether it saw its planted change.

    Args:
        cell: device.programs.ProgramCell. station: its GpuStation. labels: sample names of the program's entries.
    """
    kernels = {
        label: station.kernels[label] for label in labels if label in station.kernels and not label.endswith(TWIN)
    }
    program = cell.program
    found = [
        {
            "name": f"clock.bias.{program.name}",
            "value": cell.wall_bias(next(iter(kernels.values()))),
            "unit": "",
            "how": "wall clock / CUDA events - 1 over one batch, median of 5",
        }
    ]
    if program.edge:
        images, gates = _image_findings(cell, kernels, references)
        return found + images + _jit_findings(station), gates
    return found + _saxpy_findings(cell, station, kernels), []


def _image_findings(cell: Any, kernels: Mapping[str, Any], references: Path) -> tuple[list[Finding], list[GateResult]]:
    program = cell.program
    told = json.loads((references / images_name(program)).read_text())
    images = {name: np.load(references / f"{program.name}-{name}.npy") for name in told["patterns"]}
    images |= {name: cell.image(kernel) for name, kernel in kernels.items()}
    document, gates = compare_all(images, program.limit)
    names = [f"{language}/fma/mandelbrot-default-b256" for language in ("cuda", "rust-oxide")]
    a, b = (name if name in images else other for name, other in zip(names, ("nvcc", "oxide"), strict=True))
    if b not in images:  # neither the compiler nor its emulation is here
        b = a
    return evidence(document, images, a, b, f"kernels on the GPU; {told['how']}"), gates


def _jit_findings(station: Any) -> list[Finding]:
    times = list(station.jit_ms.values())
    how = "loading PTX through the driver, its cache as it was found; the longest of the study's"
    return [{"name": "jit.ms", "value": max(times), "unit": "ms", "how": how}] if times else []


def _saxpy_findings(cell: Any, station: Any, kernels: Mapping[str, Any]) -> list[Finding]:
    from harness.device.programs import copy_bandwidth, theoretical_bandwidth

    found: list[Finding] = [
        {"name": "saxpy.elements", "value": cell.program.elements, "unit": "elements", "how": "data/cells.toml"},
        {
            "name": "device.bandwidth_gb_s",
            "value": theoretical_bandwidth(station.gpu),
            "unit": "GB/s",
            "how": "2 x memory clock x bus width, as the driver states them",
        },
        {
            "name": "device.copy_gb_s",
            "value": copy_bandwidth(station.gpu),
            "unit": "GB/s",
            "how": "device-to-device copy of 1 GiB, bytes read plus written, median of 20",
        },
    ]
    for name, kernel in kernels.items():
        value = cell.rounding(kernel)
        words = {SEPARATE: "separate", FUSED: "fused"}
        how = f"a x + y with a = x = {A!s}, y = {Y!s}: two roundings give 0, one 2^-24"
        found.append({"name": f"rounding.{name}", "value": words.get(value, str(value)), "unit": "", "how": how})
    return found


def as_text(document: Document) -> str:
    """The study as a person reads it: images, then pairs."""
    total = document["size"] ** 2
    lines = [f"Mandelbrot {document['size']} x {document['size']}, {document['iterations']} iterations", ""]
    width = max(map(len, document["patterns"]))
    lines += [f"{'image':{width}}  {'iterations':>14}  sha256"]
    lines += [f"{name:{width}}  {p['sum']:>14,}  {p['hash'][:16]}" for name, p in document["patterns"].items()]
    lines += ["", f"{'a':{width}}  {'b':{width}}  {'pixels':>9} {'share':>8} {'max':>5} {'class':>6} {'net':>8}"]
    for pair in document["pairs"]:
        share = f"{100 * pair['pixels'] / total:.3f}%"
        lines.append(
            f"{pair['a']:{width}}  {pair['b']:{width}}  {pair['pixels']:>9,} {share:>8} {pair['max']:>5} "
            f"{pair['class']:>6,} {pair['net']:>+8,}"
        )
    lines += ["", "Every comparison also found one pixel computed one ulp away. max: iterations; class: pixels where"]
    lines += ["exactly one image reached the limit; net: sum of b - a."]
    return "\n".join(lines)
