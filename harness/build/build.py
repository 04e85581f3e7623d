"""Every kernel, for every architecture asked for, to build/sm_XX: compile, assemble, check, record.

A kernel is built again only when its sources, its flags or a tool has changed; all that went into it stands in its
manifest's `cache_key`. A tool that is missing costs its own kernels and one line; the rest is built. What was built
elsewhere is kept where the tool is missing here and the sources are the same.

Besides every row itself, the kernels of the GPU's arms are built as `/fma` (the compiler's default contraction, which
study `contracted` times and compares) and the Triton ones as `@bundled` (Triton's own ptxas). Both are part of a
default build.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.metadata
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from harness.build import abi, assemble, cargo, oxide, triton_aot
from harness.build.kernels import ARCHITECTURES, ARMS, Kernel, select_kernels
from harness.build.manifest import (
    FLAVOURS,
    SCHEMA,
    Emitted,
    Manifest,
    ToolMissing,
    ToolUnsupported,
    load_manifest,
    replace_file,
    sha256,
)
from harness.build.sources import current_source_hash, file_hash, source_files
from harness.build.toolchain import Toolkit, find_toolkit, known_architectures
from harness.environment import ROOT
from harness.errors import IrrError, UsageError

BUILD = ROOT / "build"
WORKERS = 2
"""Compilers at once: nvcc and rustc take up to 1 GB each, and a CI machine has two cores."""

SAY_S = 5.0
"""Seconds between two lines of progress."""

SUFFIXES = (".cubin", ".ptx", ".sass")


# --- languages --------------------------------------------------------------------------------------------------------


def _triton_identity() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _rust_identity() -> str:
    try:
        found = cargo.find_gpu_rustc()
    except IrrError:
        return "missing"
    return f"{found.rustc.version} {found.rustc.llvm} {found.bundled}"


@dataclass(frozen=True)
class Language:
    """How a language's kernels become PTX.

    Attributes:
        emitter: module with `emit(kernel, arch, contract, work)`.
        identity: version of its compiler, cheap; `missing` where there is none.
        helpers: further modules whose text decides what is built.
        together: kernels of all architectures in one job, because they share something that is made once.
    """

    emitter: str
    identity: Callable[[], str]
    together: bool = False
    helpers: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """Files of the emitter and its helpers; an emitter that is not there is left out."""
        paths = [ROOT / (name.replace(".", "/") + ".py") for name in (self.emitter, *self.helpers)]
        return [path for path in paths if path.is_file()]


LANGUAGES: dict[str, Language] = {
    "cuda": Language("harness.build.nvcc", lambda: ""),  # its version is the toolkit's, which is in every key
    "rust-nvptx": Language("harness.build.cargo", _rust_identity, together=True),
    "rust-oxide": Language("harness.build.cargo", oxide.identity, together=True, helpers=("harness.build.oxide",)),
    "triton": Language("harness.build.triton_aot", _triton_identity),
}
"""Language -> emitter, the only place that knows."""


# --- what to build ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One cubin to be: a row, an architecture, and a flavour (manifest.FLAVOURS)."""

    kernel: Kernel
    arch: int
    flavour: str = ""

    @property
    def contract(self) -> bool:
        return self.kernel.contract or self.flavour == "fma"

    @property
    def ptxas_contracts(self) -> bool:
        return self.contract and self.flavour != "nofmad"

    @property
    def name(self) -> str:
        return self.kernel.name + FLAVOURS[self.flavour]

    @property
    def id(self) -> str:
        return f"sm_{self.arch}/{self.name}"

    def base(self, build: Path) -> Path:
        """Path of the outputs without their suffix."""
        return build / f"sm_{self.arch}" / self.name.replace("/", "--")

    def path(self, build: Path, suffix: str) -> Path:
        base = self.base(build)
        return base.with_name(base.name + suffix)


ARM_KERNELS = {name for arm in ARMS.values() if arm.place == "gpu" for name in (arm.allocate, arm.update)}


def flavours(kernel: Kernel) -> tuple[str, ...]:
    """The builds of a row: itself, and its controls."""
    if kernel.stage == "fma" and kernel.contract and kernel.threads == 256:
        return ("", "nofmad")
    if kernel.name not in ARM_KERNELS or not kernel.matrix or kernel.slow_build:
        return ("",)
    return ("", "fma", "bundled") if kernel.language == "triton" else ("", "fma")


def chosen_kernels(arms: str | None) -> list[Kernel]:
    """Rows of a build: the matrix, the floors and the contraction study, or those that `arms` names (`*`: of the other
    studies too).
    A slow one is taken only if it is named in full or belongs to an arm that is named.

    Raises:
        UsageError: a part of `arms` matches nothing.
    """
    kernels = select_kernels(arms)
    if arms is None:
        standard = [kernel for kernel in kernels if kernel.matrix or kernel.stage in ("floor", "fma")]
        return [kernel for kernel in standard if not kernel.slow_build]
    parts = {part.strip() for part in (arms or "").split(",")}
    asked = parts | {name for part in parts & ARMS.keys() for name in (ARMS[part].allocate, ARMS[part].update) if name}
    return [kernel for kernel in kernels if not kernel.slow_build or kernel.name in asked]


def plan(kernels: Iterable[Kernel], archs: Iterable[int]) -> list[Job]:
    """All jobs, in a fixed order."""
    archs = list(archs)
    return [Job(kernel, arch, flavour) for kernel in kernels for arch in archs for flavour in flavours(kernel)]


def check_architectures(archs: Iterable[int]) -> None:
    """Say at once what no kernel can be built for; where there is no toolkit nothing is known, and the build says so.

    Raises:
        UsageError: the toolkit does not know one of them.
    """
    try:
        toolkit = find_toolkit()
    except IrrError:
        return
    known = known_architectures(toolkit.nvcc)
    for arch in archs:
        if known and arch not in known:
            raise UsageError(
                f"--arch {arch}: nvcc {toolkit.version} does not know sm_{arch}",
                f"it knows {', '.join(map(str, known))}",
            )


# --- one job ----------------------------------------------------------------------------------------------------------


def cache_key(job: Job, source_hash: str, toolkit: Toolkit | None) -> str:
    """Hash of all that goes into a kernel: sources, architecture, flavour, builder and tools."""
    language = LANGUAGES[job.kernel.language]
    # The builder's own text stands for the flags, so that a changed flag cannot be forgotten here.
    builder = [file_hash(path) for path in (ROOT / "harness/build/assemble.py", *language.files())]
    tools = [language.identity()]
    if toolkit is not None:
        try:
            assembler = _assembler(job, toolkit)
            tools += [assembler.name, assemble.version(assembler.path)]
        except ToolMissing as error:
            tools.append(error.what)
        tools += [toolkit.version, assemble.version(toolkit.nvdisasm)]
    return sha256(json.dumps([SCHEMA, source_hash, job.arch, job.flavour, builder, tools]).encode())


def _blank(job: Job, source_hash: str, status: str, reason: str) -> Manifest:
    kernel = job.kernel
    return Manifest(
        kernel=kernel.name,
        arch=job.arch,
        entry=kernel.entry,
        stage=kernel.stage,
        language=kernel.language,
        contract=job.contract,
        flavour=job.flavour,
        status=status,
        reason=reason,
        threads=kernel.threads,
        points=kernel.points,
        scratch=kernel.scratch,
        waits=kernel.waits,
        bounded=kernel.bounded,
        voxels=kernel.voxels,
        constants=dict(kernel.constants),
        source_hash=source_hash,
    )


def intact(job: Job, build: Path) -> Manifest | None:
    """The manifest of a good build whose files are all there and unchanged, else None."""
    try:
        manifest = load_manifest(job.path(build, ".json"))
    except IrrError:
        return None
    if manifest.status != "ok" or manifest.name != job.name or manifest.arch != job.arch:
        return None
    wanted = {".cubin": manifest.cubin_sha256, ".ptx": manifest.ptx_sha256, ".sass": manifest.sass_sha256}
    for suffix, digest in wanted.items():
        try:
            if sha256(job.path(build, suffix).read_bytes()) != digest:
                return None
        except OSError:
            return None
    return manifest


_ABSOLUTE = re.compile(r'"(/[^"\n]*)"')


def check_ptx(job: Job, ptx: str, counts: dict[str, int]) -> None:
    """What every kernel's PTX must and must not contain.

    Raises:
        IrrError: a path of this machine; a fused multiply-add where contraction is off; in a kernel of the volume an
            approximate division or root, or a float addition by compare-exchange.
    """
    where = f"{job.name} for sm_{job.arch}"
    path = _ABSOLUTE.search(ptx)
    if path is not None or str(ROOT) in ptx:
        raise IrrError(f"{where}: the PTX holds a path of this machine: {path.group(1) if path else ROOT}")
    if not job.contract and counts["fma.f32"]:
        raise IrrError(f"{where}: {counts['fma.f32']} fused multiply-adds in the PTX, though contraction is off")
    if not job.kernel.takes_volume:
        return
    if counts["approximate"]:
        raise IrrError(f"{where}: {counts['approximate']} approximate or flushing operations in the PTX")
    adds = counts["atom.add.f32"] + counts["red.add.f32"]
    # needs N18: with another llc the same source gave a compare-exchange loop.
    if job.kernel.stage == "update" and (adds == 0 or counts["atom.cas"]):
        raise IrrError(
            f"{where}: {adds} native float additions, {counts['atom.cas']} compare-exchanges in the PTX of an update",
            "the toolchain lowers fetch_add to a loop: ./irr doctor names its LLVM versions and patches",
        )


def _assembler(job: Job, toolkit: Toolkit) -> assemble.Assembler:
    """The toolkit's ptxas; for Triton its own in the control, or the one that a variable of Triton's names."""
    if job.kernel.language != "triton":
        return assemble.Assembler(toolkit.ptxas)
    found = triton_aot.find_assembler(job.arch, bundled=job.flavour == "bundled", toolkit=toolkit)
    return assemble.Assembler(found.path, found.name)


def _emit(job: Job, work: Path) -> Emitted:
    language = LANGUAGES[job.kernel.language]
    options = {"bundled": True} if job.flavour == "bundled" else {}
    return importlib.import_module(language.emitter).emit(job.kernel, job.arch, job.contract, work, **options)


def build_one(job: Job, source_hash: str, key: str, build: Path, toolkit: Toolkit | None) -> Manifest:
    """Build one cubin and write its files; never raises for what a tool or a source does wrong.

    Returns:
        The manifest, written; or the one that is kept where the tool is missing and the sources are the same.
    """
    kernel = job.kernel
    try:
        if job.arch < kernel.min_arch:
            return _finish(job, build, _blank(job, source_hash, "unsupported", f"needs sm_{kernel.min_arch} or newer"))
        if toolkit is None:
            find_toolkit()  # says why
            raise ToolMissing("no CUDA toolkit")
        emitted = _emit(job, build / "work")
        known = set(source_files(kernel))
        strangers = sorted(str(path) for path in emitted.sources if path not in known)
        if strangers:
            raise IrrError(
                f"{job.name}: {strangers[0]} was compiled in and is not hashed",
                "harness/build/sources.py must find every source of a kernel",
            )
        counts = assemble.count_ptx(emitted.ptx, emitted.entry)
        check_ptx(job, emitted.ptx, counts)
        made = assemble.assemble(
            emitted.ptx,
            emitted.entry,
            job.arch,
            job.ptxas_contracts,
            _assembler(job, toolkit),
            toolkit.nvdisasm,
            kernel.registers,
        )
        expected = abi.expected_parameters(kernel, emitted.volume, emitted.trailing_nulls)
        parameters = abi.name_parameters(kernel, made.parameters, expected)
        if abi.has_layout(made.cubin):
            abi.check_layouts([abi.cubin_layout(job.name, made.cubin)])
        extra = dict(emitted.extra)
        deviations = list(extra.pop("deviations", []))
        if not toolkit.pinned and made.ptxas["name"] == "pinned":
            deviations.append(f"unpinned toolchain: ptxas {toolkit.version} ({toolkit.origin})")
        manifest = replace(
            _blank(job, source_hash, "ok", ""),
            entry=emitted.entry,
            volume=emitted.volume,
            parameters=parameters,
            trailing_nulls=emitted.trailing_nulls,
            threads=emitted.threads,
            points=emitted.points,
            shared=emitted.shared,
            static_shared=made.static_shared,
            registers=made.registers,
            spills=made.spills,
            compiler={"name": emitted.compiler, "version": emitted.version, "flags": list(emitted.flags), **extra},
            ptxas=made.ptxas,
            disassembler=made.disassembler,
            sources=[path.as_posix() for path in sorted(known)],
            sass=made.counts,
            ptx=counts,
            cubin_sha256=sha256(made.cubin),
            code_sha256=made.code_sha256,
            ptx_sha256=sha256(emitted.ptx.encode()),
            sass_sha256=sha256(made.sass.encode()),
            deviations=deviations,
            cache_key=key,
        )
        files = {".cubin": made.cubin, ".ptx": emitted.ptx.encode(), ".sass": made.sass.encode()}
        return _finish(job, build, manifest, files)
    except ToolUnsupported as error:
        status, reason = error.status, error.what
    except ToolMissing as error:
        status, reason = error.status, str(error).replace("\n ", ";")
    except IrrError as error:
        status, reason = ("needs-toolchain" if toolkit is None else "failed"), str(error).replace("\n ", ";")
    except (OSError, UnicodeError) as error:
        status, reason = "failed", f"{type(error).__name__}: {error}"
    old = intact(job, build)
    if status == "needs-toolchain" and old is not None and old.source_hash == source_hash:
        return old
    return _finish(job, build, _blank(job, source_hash, status, reason))


def _finish(job: Job, build: Path, manifest: Manifest, files: dict[str, bytes] | None = None) -> Manifest:
    """Write a job's files, the manifest last: it is what makes them valid. Without files, stale ones go."""
    if files is None:
        for suffix in SUFFIXES:
            job.path(build, suffix).unlink(missing_ok=True)
    for suffix, data in (files or {}).items():
        replace_file(job.path(build, suffix), data)
    manifest.save(job.path(build, ".json"))
    return manifest


# --- all of them ------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """Outcome of a build.

    Attributes:
        manifests: of every job, in the plan's order.
        built: names built now, as `sm_90/cuda/allocate/plain`. current: how many were up to date.
        kept: names kept from elsewhere, for want of their tool.
        lines: one line for every reason why kernels are missing.
    """

    manifests: list[Manifest] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    current: int = 0
    kept: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest.status == "failed"]


def _reasons(manifests: Sequence[Manifest]) -> list[str]:
    """One line for each status and reason, with the kernels and architectures it concerns."""
    groups: dict[tuple[str, str], list[Manifest]] = {}
    for manifest in manifests:
        if manifest.status != "ok":
            # The same reason for another architecture is the same line.
            reason = manifest.reason.replace(f"sm_{manifest.arch}", "sm_XX")
            groups.setdefault((manifest.status, reason), []).append(manifest)
    lines = []
    for (status, reason), members in groups.items():
        names = list(dict.fromkeys(manifest.name for manifest in members))
        archs = ", ".join(f"sm_{arch}" for arch in sorted({manifest.arch for manifest in members}))
        reason = reason.replace("sm_XX", archs.replace(", ", "/"))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"{status}: {shown} ({archs}): {reason}")
    return lines


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that share a compilation, together, so that it is done once; the longest first."""
    groups: dict[object, list[Job]] = {}
    for job in jobs:
        language = LANGUAGES[job.kernel.language]
        key = job.kernel.language if language.together else (job.kernel.source, job.arch, job.contract, job.flavour)
        groups.setdefault(key, []).append(job)
    return sorted(groups.values(), key=len, reverse=True)


class _Progress:
    """How far a build is, on stderr: a bar on a terminal, anywhere else a line every SAY_S seconds.

    Args:
        total: kernels that are to be built.
    """

    def __init__(self, total: int, quiet: bool) -> None:
        self.total, self.quiet, self.done = total, quiet or not total, 0
        self.began = self.said = time.monotonic()
        self.lock = threading.Lock()
        self.bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> _Progress:
        console = Console(stderr=True)
        if self.quiet:
            return self
        if console.is_terminal:
            columns = (TextColumn("building"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            bar = Progress(*columns, console=console, transient=True)
            self.bar = bar, bar.add_task("", total=self.total)
            bar.start()
        else:
            self._line(f"building {self.total} kernels")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar[0].stop()

    def _line(self, text: str) -> None:
        print(f"irr: {text}", file=sys.stderr, flush=True)

    def left(self) -> str:
        """Time left, as if the kernels took equally long; nothing while too few are done."""
        if not 3 <= self.done < self.total:
            return ""
        seconds = (time.monotonic() - self.began) * (self.total - self.done) / self.done
        return f"about {seconds / 60:.0f} min left, " if seconds >= 90 else f"about {seconds:.0f} s left, "

    def begins(self, job: Job) -> None:
        """A kernel is built next, by one of the workers."""
        with self.lock:
            if self.bar is not None:
                self.bar[0].update(self.bar[1], description=f"{self.left()}sm_{job.arch} {job.name}")
            elif not self.quiet and time.monotonic() - self.said >= SAY_S:
                self.said = time.monotonic()
                self._line(f"building: {self.done} of {self.total} done, {self.left()}now sm_{job.arch} {job.name}")

    def ended(self) -> None:
        """A kernel is built, or cannot be."""
        with self.lock:
            self.done += 1
            if self.bar is not None:
                self.bar[0].advance(self.bar[1])


def build_all(
    archs: Sequence[int] | None = None,
    arms: str | None = None,
    *,
    build: Path = BUILD,
    workers: int = WORKERS,
    quiet: bool = False,
) -> Report:
    """Build kernels and say so on stderr.

    Args:
        archs: compute capabilities as 90; None for ARCHITECTURES.
        arms: arms or globs of kernel names, None for all but the slow ones.
        quiet: say nothing.

    Raises:
        UsageError: `arms` names nothing.
        IrrError: a kernel failed to build or to pass its checks; or what was asked for by name, or all, needs a tool
            that is missing. Everything else has been built before.
    """
    with _alone(build, quiet):
        return _build_all(archs, arms, build, workers, quiet)


@contextmanager
def _alone(build: Path, quiet: bool) -> Iterator[None]:
    """One build of a folder at a time: the second finds what the first made."""
    try:
        build.mkdir(parents=True, exist_ok=True)
        stream = (build / ".lock").open("w")
    except OSError as error:
        raise IrrError(
            f"{build} cannot be written by uid {os.getuid()} ({error.strerror})",
            "in the image the kernels are built in and nothing is to be built; else make the folder writable",
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not quiet:
                print("irr: another build is running; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _build_all(archs: Sequence[int] | None, arms: str | None, build: Path, workers: int, quiet: bool) -> Report:
    started = time.monotonic()
    archs = list(dict.fromkeys(archs)) if archs else list(ARCHITECTURES)
    jobs = plan(chosen_kernels(arms), archs)
    try:
        toolkit: Toolkit | None = find_toolkit()
    except IrrError:
        toolkit = None
    report = Report()
    done: dict[str, Manifest] = {}
    hashes: dict[str, str] = {}
    keys: dict[str, str] = {}
    for job in jobs:
        name = job.kernel.name
        if job.kernel.language not in LANGUAGES:
            raise IrrError(
                f"{name}: no language {job.kernel.language}", "LANGUAGES in harness/build/build.py lists them"
            )
        try:
            hashes[name] = hashes.get(name) or current_source_hash(job.kernel)
        except IrrError as error:
            done[job.id] = _finish(job, build, _blank(job, "", "failed", error.what))
            continue
        keys[job.id] = cache_key(job, hashes[name], toolkit)
        old = intact(job, build)
        if old is not None and old.cache_key == keys[job.id]:
            done[job.id] = old
            report.current += 1
    waiting = [job for job in jobs if job.id not in done]
    with (
        _Progress(len(waiting), quiet) as progress,
        ThreadPoolExecutor(max_workers=max(1, workers)) as pool,
    ):

        def run(group: list[Job]) -> list[tuple[str, Manifest]]:
            made = []
            for job in group:
                progress.begins(job)
                made.append((job.id, build_one(job, hashes[job.kernel.name], keys[job.id], build, toolkit)))
                progress.ended()
            return made

        futures = [pool.submit(run, group) for group in _groups(waiting)]
        try:
            for future in as_completed(futures):
                done |= dict(future.result())
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    report.manifests = [done[job.id] for job in jobs]
    for job in waiting:
        manifest = done[job.id]
        if manifest.status == "ok":
            fresh = manifest.cache_key == keys.get(job.id)
            (report.built if fresh else report.kept).append(job.id)
    report.lines = _reasons(report.manifests)
    if not quiet:
        _say(report, archs, build, time.monotonic() - started)
    _judge(report, arms)
    return report


def _say(report: Report, archs: Sequence[int], build: Path, seconds: float) -> None:
    for line in report.lines:
        print(f"irr: {line}", file=sys.stderr)
    kept = f", {len(report.kept)} kept from another machine" if report.kept else ""
    where = build.relative_to(Path.cwd()) if build.is_relative_to(Path.cwd()) else build
    names = ", ".join(f"sm_{arch}" for arch in archs)
    print(
        f"irr: {len(report.built)} kernels built, {report.current} up to date{kept} "
        f"for {names} in {where} ({seconds:.1f} s)",
        file=sys.stderr,
        flush=True,
    )


def _judge(report: Report, arms: str | None) -> None:
    """Raise where the outcome is not what was asked for."""
    if report.failed:
        more = f" (and {len(report.failed) - 1} more, listed above)" if len(report.failed) > 1 else ""
        first = report.failed[0]
        raise IrrError(f"{first.name} for sm_{first.arch} failed: {first.reason}{more}")
    missing = [m for m in report.manifests if m.status in ("needs-toolchain", "toolchain-unsupported")]
    # In a build of everything a missing tool is a line; what was named must be there.
    if missing and (arms is not None or not any(m.status == "ok" for m in report.manifests)):
        raise IrrError(f"{len(missing)} of {len(report.manifests)} kernels need a tool: {missing[0].reason}")
