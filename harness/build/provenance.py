"""Proof that an archive's kernels are what their files say: PTX assembled again, listings made and counted again.

Needs ptxas and nvdisasm, and no compiler. Without them (or with others than an archive's) what is left is said: the
files' checksums in the manifests, and what is counted in their text.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.build import cubin as cubin_reader
from harness.build.assemble import bundled_ptxas, count_ptx, count_sass, disassemble, run_once, usage, version
from harness.build.manifest import Manifest, ToolMissing, ToolUnsupported, load_manifest, sha256
from harness.build.toolchain import Toolkit, find_toolkit
from harness.errors import IrrError

SAY_S = 5.0
"""Seconds between two lines of progress."""

WORDS = {".ptx": "PTX", ".sass": "listing"}


@dataclass(frozen=True)
class Provenance:
    """Outcome for a folder of builds.

    Attributes:
        same: kernels whose PTX gives their machine code, registers and parameters again. different: those of which
            anything is not what its manifest says, with the reason.
        untried: those that could not be assembled here (another ptxas), with the reason.
        unlisted: of the same, those whose listing could not be made again (another nvdisasm), with the reason.
        misnamed: of the same, those whose manifest names a limit of registers that they were not given.
    """

    same: int
    different: list[str]
    untried: list[str]
    unlisted: list[str]
    misnamed: int = 0

    def __str__(self) -> str:
        words = [
            f"PTX gives the same machine code, registers and listing again: {self.same - len(self.unlisted)} kernels"
        ]
        if self.unlisted:
            words.append(
                f"{len(self.unlisted)} the same without their listing, which was counted alone ({self.unlisted[0]})"
            )
        if self.misnamed:
            words.append(f"{self.misnamed} of them without the -maxrregcount that their manifests name by mistake")
        if self.untried:
            words.append(f"{len(self.untried)} NOT assembled again, their files counted alone ({self.untried[0]})")
        if self.different:
            words.insert(0, f"{len(self.different)} DIFFER ({self.different[0]})")
        return "; ".join(words)


@dataclass(frozen=True)
class Outcome:
    """One kernel. same: None where it could not be tried. listed: False where its listing could not. misnamed: it is
    the same, but not by the flags that the manifest names."""

    same: bool | None
    detail: str
    listed: bool = True
    misnamed: bool = False


def check_builds(builds: Path, say: Callable[[str], None] = lambda line: None) -> Provenance:
    """Check every kernel of an archive's raw/builds (sm_XX/NAME.json beside NAME.ptx and NAME.sass), on all cores.

    A folder without kernels gives 0 of everything; a machine without ptxas has the reason under `untried`.

    Args:
        say: told one line of progress at a time.

    Raises:
        IrrError: a manifest is not one.
    """
    manifests = [(path, load_manifest(path)) for path in sorted(builds.glob("sm_*/*.json"))]
    toolkit: Toolkit | str
    try:
        toolkit = find_toolkit()
    except IrrError as error:
        toolkit = error.what
    outcomes = [Outcome(False, f"{path.name} has no manifest") for path in _without_manifest(builds)]
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        said, total = time.monotonic(), len(manifests)
        for done, outcome in enumerate(pool.map(lambda pair: check_kernel(pair[0], pair[1], toolkit), manifests), 1):
            if outcome is not None:
                outcomes.append(outcome)
            if time.monotonic() - said >= SAY_S:
                said = time.monotonic()
                say(f"kernels assembled again: {done} of {total}")
    same = [outcome for outcome in outcomes if outcome.same is True]
    return Provenance(
        same=len(same),
        different=[outcome.detail for outcome in outcomes if outcome.same is False],
        untried=[outcome.detail for outcome in outcomes if outcome.same is None],
        unlisted=[outcome.detail for outcome in same if not outcome.listed],
        misnamed=sum(outcome.misnamed for outcome in same),
    )


def _without_manifest(builds: Path) -> Iterable[Path]:
    files = [path for suffix in ("ptx", "sass") for path in sorted(builds.glob(f"sm_*/*.{suffix}"))]
    return [path for path in files if not path.with_suffix(".json").is_file()]


def check_kernel(path: Path, manifest: Manifest, toolkit: Toolkit | str) -> Outcome | None:
    """Check the files beside a manifest; None for a kernel that was not built and has none.

    Args:
        toolkit: or why there is none.
    """
    name = manifest.name
    files = {suffix: path.with_suffix(suffix) for suffix in (".ptx", ".sass")}
    if manifest.status != "ok":
        there = [file.name for file in files.values() if file.exists()]
        return Outcome(False, f"{name} is {manifest.status}, yet has {there[0]}") if there else None
    if not all(isinstance(v, dict) for v in (manifest.sass, manifest.ptx, manifest.ptxas, manifest.disassembler)):
        return Outcome(False, f"{name}: the manifest's counts or tools are not objects")
    texts = {}
    for suffix, file in files.items():
        try:
            texts[suffix] = file.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return Outcome(False, f"{name}: its {WORDS[suffix]} is not in the archive")
    wrong = altered(manifest, texts[".ptx"], texts[".sass"])
    if wrong is not None:
        return Outcome(False, f"{name}: {wrong}")
    if isinstance(toolkit, str):
        return Outcome(None, f"{name}: {toolkit}")
    return reassemble(texts[".ptx"], texts[".sass"], manifest, toolkit)


def altered(manifest: Manifest, ptx: str, sass: str) -> str | None:
    """What the files alone say against their manifest: checksums, and what is counted in them; None for nothing."""
    for suffix, text, wanted in ((".ptx", ptx, manifest.ptx_sha256), (".sass", sass, manifest.sass_sha256)):
        if sha256(text.encode()) != wanted:
            return f"the {WORDS[suffix]} is not the one that the manifest names"
    try:
        counts = count_sass(sass, manifest.entry)
    except IrrError as error:
        return error.what
    if counts != manifest.sass:
        return f"the listing does not have the counts of the manifest ({_apart(manifest.sass, counts)})"
    # What was not counted when the archive was made, or is no longer, cannot be compared.
    now = count_ptx(ptx, manifest.entry)
    found = {key: now[key] for key in manifest.ptx if key in now}
    if found != {key: manifest.ptx[key] for key in found}:
        return f"the PTX does not have the counts of the manifest ({_apart(manifest.ptx, found)})"
    return None


def _apart(said: dict[str, int], found: dict[str, int]) -> str:
    """The first count that differs."""
    key = next(key for key in sorted({*said, *found}) if said.get(key, 0) != found.get(key, 0))
    return f"{key[:40]}: {said.get(key, 0)} there, {found.get(key, 0)} here"


def reassemble(ptx: str, sass: str, manifest: Manifest, toolkit: Toolkit) -> Outcome:
    """Assemble an archived kernel's PTX again and compare machine code, registers, spills, shared memory, parameters
    and, by the nvdisasm that the manifest names, the listing.

    Only the ptxas that the manifest names can answer: with another one the answer is None, not a difference.
    """
    name, ptxas = manifest.name, toolkit.ptxas
    made_by, gpu = manifest.ptxas.get("version"), str(manifest.ptxas.get("target"))
    # An archive is untrusted, and this word goes into a command.
    if re.fullmatch(r"sm_\d{2,3}[af]?", gpu) is None:
        return Outcome(False, f"{name}: the manifest names no target for ptxas")
    given = [str(flag) for flag in manifest.ptxas.get("flags", [])]
    limit = next((flag for flag in given if flag.startswith("-maxrregcount=")), "=0").partition("=")[2]
    if re.fullmatch(r"\d{1,3}", limit) is None:
        return Outcome(False, f"{name}: the manifest names no number of registers")
    try:
        if manifest.ptxas.get("name") == "bundled":
            ptxas = bundled_ptxas(manifest.arch)
        if version(ptxas) != made_by:
            return Outcome(None, f"{name}: made by ptxas {made_by}, here is {version(ptxas)}")
        for registers in dict.fromkeys((int(limit), 0)):
            cubin, words = run_once(ptx, gpu, "-fmad=false" not in given, ptxas, registers)
            if sha256(cubin_reader.code(cubin, manifest.entry)) == manifest.code_sha256:
                break
        else:
            return Outcome(False, f"{name}: the PTX gives other machine code than the one that was measured")
        said = (manifest.registers, manifest.spills, manifest.static_shared)
        found = usage(words, manifest.entry)
        if found != said:
            return Outcome(False, f"{name}: registers, spills and shared memory are {said} there, {found} here")
        # Builds of 30 November 2026 named the registers that a kernel uses as the limit that it was given, where there
        # was none. The hash has decided: no other code can pass by this.
        misnamed = registers != int(limit)
        if misnamed and int(limit) != manifest.registers:
            return Outcome(False, f"{name}: the manifest names a limit of registers that the kernel was not given")
        parameters = [(raw.offset, raw.size) for raw in cubin_reader.parameters(cubin, manifest.entry)]
        if parameters != [(parameter.offset, parameter.size) for parameter in manifest.parameters]:
            return Outcome(False, f"{name}: the parameters are not those of the manifest")
        wrote, here = manifest.disassembler.get("version"), version(toolkit.nvdisasm)
        if wrote != here:
            detail = f"{name}: listed by nvdisasm {wrote}, here is {here}"
            return Outcome(True, detail, listed=False, misnamed=misnamed)
        if disassemble(cubin, toolkit.nvdisasm) != sass:
            return Outcome(False, f"{name}: the listing is not that of the machine code")
    except (ToolMissing, ToolUnsupported) as error:
        return Outcome(None, f"{name}: {error.what}")
    except IrrError as error:
        return Outcome(False, f"{name}: {error.what}")
    return Outcome(True, f"{name}: the same machine code", misnamed=misnamed)
