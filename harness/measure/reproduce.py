"""`reproduce` and `resume`: from one command to a verified archive."""

from __future__ import annotations

import os
import shlex
import sys
import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.archive.schema import Note, PlanEntry, Skipped
from harness.archive.write import ArchiveWriter
from harness.build.contraction import loop_findings
from harness.build.kernels import Kernel, select_kernels
from harness.build.manifest import FLAVOURS
from harness.device import preflight
from harness.device.identity import choose_devices, parse_mask
from harness.environment import RESULTS, ROOT
from harness.errors import IrrError, UsageError
from harness.measure import plan as planning
from harness.measure import probe
from harness.measure.inventory import Built, built_architectures, deviations, take_inventory
from harness.measure.manager import Manager, Request, empty_run, read_request
from harness.measure.studies import find_study
from harness.measure.tools import COUNTED_CELLS
from harness.measure.worker import utc_now
from harness.workload.cells import STUDY_CELLS_FILE, Cell, load_cells, match_cells, select_cells
from harness.workload.programs import Program, load_programs
from harness.workload.trajectories import NeedsData, all_cells, frame_evidence

BUILD = ROOT / "build"

NO_JIT = "PTX through the driver's compiler (load = jit)"

NO_GPU = (
    "no NVIDIA GPU here: libcuda.so.1 cannot be loaded, or it shows no device",
    "in a container: docker run --gpus all, with the NVIDIA container toolkit on the host; "
    "else install an NVIDIA driver for CUDA 13.0 (580 or newer)",
)

HOST_CELLS = ("pts-20k", "plane-320k")
HOST_ROUNDS, HOST_BATCH = 5, 2
"""Without a GPU: enough to show that the harness works, in seconds; these times say nothing about a GPU."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# --------------------------------------------------------------------------------------------------------------- place


def archive_path(out: Path | None, device: str) -> Path:
    """Where the archive goes: `out`, or results/<gpu>-<utc>-<id>."""
    if out is not None:
        return out
    words = "".join(c if c.isalnum() else "-" for c in device.lower().removeprefix("nvidia ")).strip("-")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return RESULTS / f"{words or 'host'}-{stamp}-{uuids.uuid4().hex[:6]}"


def check_writable(path: Path) -> None:
    """Refuse early, before any work, a folder that could not be written at the end.

    Raises:
        IrrError: names the folder and uid:gid.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise IrrError(
            f"{path} exists and is not empty", "name another folder with --out; archives are never overwritten"
        )
    above = path
    while not above.exists():
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise IrrError(
            f"{above} cannot be written by uid:gid {os.getuid()}:{os.getgid()}",
            "name a folder of your own with --out, or mount one (mkdir -p it first, owned by that user)",
        )


# ------------------------------------------------------------------------------------------------------------- devices


@dataclass(frozen=True)
class Found:
    """Devices to run on, as NVML or the driver shows them."""

    uuids: list[str]
    devices: list[dict[str, Any]]
    flags: list[Note]
    driver_cuda: str | None


def driver_cuda() -> int | None:
    """The CUDA version that the driver serves, as 13000; None without a driver. Makes no context."""
    from harness.device import driver

    try:
        driver.library()
        return driver.driver_cuda_version()
    except IrrError:
        return None


def find_devices(wanted: str | None, allow_shared: bool) -> Found | None:
    """Devices for a run, each looked at for other users; None where there is no GPU.

    Raises:
        UsageError: --devices names none that is visible. IrrError: a device is refused; the process is named.
    """
    from harness.device import nvml

    version = driver_cuda()
    if version is None:
        return None
    text = f"{version // 1000}.{version % 1000 // 10}"
    try:
        session = nvml.Nvml()
    except IrrError as error:
        return _without_nvml(error.what, text, wanted)
    try:
        known = [device.values for device in session.devices()]
        if not known:
            return None
        pci = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        mask = parse_mask(os.environ.get("CUDA_VISIBLE_DEVICES"), known, pci)
        if mask.given and not mask.uuids and not mask.problems:
            return None
        chosen = choose_devices(wanted, mask, known)
        if wanted is None:
            chosen = chosen[:1]
        flags: list[Note] = []
        for uuid in chosen:
            handle = session.handle_of(uuid)
            identity = next(
                (d for d in known if str(d.get("uuid")).lower() == uuid.lower()), {"name": "MIG slice", "mig": True}
            )
            state = settled(session, handle)
            findings = preflight.inspect(
                preflight.DeviceState(
                    uuid=uuid,
                    name=str(identity.get("name") or "GPU"),
                    mig=identity.get("mig"),
                    compute_mode=session.compute_mode(handle),
                    utilisation=state.get("utilisation"),
                    memory_used_mib=state.get("memory_used_mib"),
                    processes=session.processes(handle),
                ),
                own_pids=(os.getpid(),),
                allow_shared=allow_shared,
            )
            refused = [finding for finding in findings if finding.kind == "refuse"]
            if refused:
                cure = "wait, choose another with --devices, or accept it with --allow-shared (recorded in the archive)"
                raise IrrError(f"{refused[0].what}: {refused[0].why}", cure)
            flags += [Note(what=finding.what, why=finding.why) for finding in findings]
        return Found(chosen, known, flags, text)
    finally:
        session.close()


def settled(session: Any, handle: Any) -> dict[str, Any]:
    """A device's state, once NVML's memory of a process that has just ended is gone: utilisation is a mean over up to
    a second, and a run that follows another one must not be refused for it."""
    state = session.telemetry(handle).values
    for _ in range(8):
        if (state.get("utilisation") or 0) <= preflight.MAX_UTILISATION or session.processes(handle):
            break
        time.sleep(0.25)
        state = session.telemetry(handle).values
    return state


def _without_nvml(why: str, version: str, wanted: str | None) -> Found | None:
    """Devices by the driver alone: no telemetry, no look at other users; said in the archive."""
    import ctypes

    from harness.device import driver

    library = driver.library()
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count.value:
        return None
    devices: list[dict[str, Any]] = []
    for index in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        name = ctypes.create_string_buffer(256)
        numbers = {}
        driver.check("cuDeviceGetUuid", library.cuDeviceGetUuid_v2(ctypes.byref(raw), index))
        driver.check("cuDeviceGetName", library.cuDeviceGetName(name, 256, index))
        for key, attribute in (("major", 75), ("minor", 76)):
            value = ctypes.c_int()
            driver.check("cuDeviceGetAttribute", library.cuDeviceGetAttribute(ctypes.byref(value), attribute, index))
            numbers[key] = value.value
        digits = bytes(raw).hex()
        uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        arch = 10 * numbers["major"] + numbers["minor"]
        devices.append({"uuid": uuid, "name": name.value.decode(errors="replace"), "arch": arch})
    # What the driver shows is already behind the mask.
    chosen = choose_devices(wanted, parse_mask(None, devices), devices)
    flag = Note(what="no NVML", why=f"{why}: no telemetry, and other users of the device cannot be seen")
    return Found(chosen[:1] if wanted is None else chosen, devices, [flag], version)


# ------------------------------------------------------------------------------------------------------------ the plan


def chosen_rows(arms: str | None) -> list[Kernel]:
    """Kernels of the matrix, or those that --arms names (then studies' kernels too)."""
    rows = select_kernels(arms)
    if arms is None:
        return planning.matrix_kernels(rows)
    return [
        row
        for row in rows
        if row.stage in ("allocate", "update", "integrate", "floor") and row.name != "cuda/floor/record"
    ]


@dataclass(frozen=True)
class Chosen:
    """Cells to run.

    Attributes:
        trajectories: those that data/cells.toml does not have. missing: those whose frames are not here.
    """

    cells: list[Cell]
    trajectories: dict[str, Cell]
    missing: list[Skipped]

    @property
    def study(self) -> str:
        return "real" if self.trajectories else "matrix"


def check_cells(cells: str | None, quick: bool) -> None:
    """Whether --cells names anything, before the work of counting blocks.

    Raises:
        UsageError: nothing matches.
    """
    if cells is None or quick:
        chosen_cells(cells, quick)
    else:
        match_cells(cells, all_cells())


def chosen_cells(cells: str | None, quick: bool) -> Chosen:
    """The cells of the matrix, or those that --cells names, trajectories among them.

    Raises:
        UsageError: nothing matches. IrrError: no cell is left, since no frames are here; or damaged or changed frames.
    """
    if cells is None or quick:
        chosen = select_cells(cells) if cells else list(load_cells().values())
        return Chosen(planning.quick_cells(chosen) if quick else chosen, {}, [])
    every, missing = all_cells(), []
    found: dict[str, Cell] = {}
    for name in match_cells(cells, every):
        if name in every.recipes:
            say(f"counting {name}")
        try:
            found[name] = every[name]
        except NeedsData as error:
            missing.append(Skipped(kernel="*", cell=name, status="needs-data", why=error.what))
    if not found:
        raise IrrError(missing[0].why, "irr data says where frames come from")
    return Chosen(list(found.values()), {k: v for k, v in found.items() if k in every.recipes}, missing)


def gpu_request(
    found: Found,
    *,
    quick: bool,
    passes: int | None,
    cells: str | None,
    arms: str | None,
    allow_missing: bool,
    allow_shared: bool,
    command: Sequence[str],
    study: str = "matrix",
    build: Path = BUILD,
    rules: Sequence[planning.Rule] | None = None,
    rows: Sequence[Kernel] | None = None,
    controls: Sequence[str] = (),
    plan_of: Callable[[Mapping[str, Built]], list[PlanEntry]] | None = None,
    **more: Any,
) -> Request:
    """A run on GPUs, checked before anything is timed.

    Args:
        rows, controls, plan_of: a study's own kernels, further builds of them, and plan; those of the matrix else.

    Raises:
        IrrError: a driver older than the toolkit, an architecture without code, a stale or a missing kernel, devices of
            several kinds (one archive holds one).
    """
    rows = rows if rows is not None else chosen_rows(arms)
    used = [device for device in found.devices if str(device.get("uuid")) in found.uuids] or found.devices[:1]
    kinds = {(device.get("name"), device.get("arch")) for device in used}
    if len(kinds) > 1:
        names = ", ".join(sorted(f"{name}" for name, _ in kinds))
        raise IrrError(f"the devices are of several kinds ({names})", "one archive a kind: choose with --devices")
    arch = int(used[0].get("arch") or 0)
    there, skipped = take_inventory(build, arch, rows, allow_missing=allow_missing, controls=controls)
    toolkit = next((b.manifest.compiler.get("version") for b in there.values() if b.manifest.language == "cuda"), None)
    flags = list(found.flags)
    refusals: list[Note] = []
    if toolkit and found.driver_cuda:
        serves = preflight.driver_serves(str(toolkit), found.driver_cuda)
        if not serves.cubin:
            raise IrrError(serves.reason, "install a newer driver, or use an image with an older toolkit")
        if not serves.ptx:
            refusals.append(Note(what=NO_JIT, why=serves.reason))
    for text in deviations(there.values()):
        flags.append(Note(what="toolchain", why=text))
    if allow_shared:
        flags.append(Note(what="--allow-shared", why="other processes were allowed on the device"))
    for entry in skipped:
        refusals.append(Note(what=f"{entry.kernel} is {entry.status}", why=entry.why))
    present = [row for row in rows if row.name in there]
    if plan_of:
        chosen, plan = None, plan_of(there)
    else:
        chosen = chosen_cells(cells, quick)
        study = chosen.study
        # Frames cost seconds of gates each, and their question is the ratio: serial, from fresh and filled tables.
        rules = rules or (planning.QUICK if quick or study == "real" else planning.MATRIX)
        plan = planning.make_plan(chosen.cells, present, rules)
        skipped += chosen.missing
        more["evidence"] = [*more.get("evidence", []), *frame_evidence(chosen.trajectories.values())]
    if any(note.what == NO_JIT for note in refusals):
        plan = [entry for entry in plan if entry.load == "aot"]
    whole = study == "matrix" and not quick
    commit, dirty = probe.commit()
    return Request(
        study=study,
        station="gpu",
        devices=found.uuids,
        plan=plan,
        controls=planning.control_plan(plan) if whole else [],
        sanitized=sorted(there) if whole else [],
        counted=[row.name for row in present] if whole else [],
        counted_cells=[name for name in COUNTED_CELLS if any(e.cell == name for e in plan)] if whole else [],
        passes=passes or (1 if quick else planning.PASSES),
        seed=planning.SEED,
        build=str(build),
        command=list(command),
        created_utc=utc_now(),
        commit=commit,
        dirty=dirty,
        quick=quick,
        shared=allow_shared,
        skipped=skipped,
        refusals=refusals,
        flags=flags,
        arch=arch,
        manifests=sorted(str(entry.cubin.with_suffix(".json")) for entry in there.values()),
        device_facts=used,
        trajectories=chosen.trajectories if chosen else {},
        **{"rounds": planning.QUICK_ROUNDS if quick else planning.ROUNDS, "batch": planning.BATCH, **more},
    )


def contraction_request(found: Found, *, passes: int | None, allow_missing: bool, command: Sequence[str]) -> Request:
    """The contraction study on GPUs: the blog's method (ten rounds of 300 launches in turns, A/A) in the same harness.

    Raises:
        IrrError: as `gpu_request`.
    """
    rows = [row for row in select_kernels(None) if row.stage == "fma"]
    build = BUILD
    archs = sorted(built_architectures(build))
    native = next((int(d.get("arch") or 0) for d in found.devices if d.get("uuid") in found.uuids), None)
    return gpu_request(
        found,
        quick=False,
        passes=passes,
        cells=None,
        arms=None,
        allow_missing=allow_missing,
        allow_shared=False,
        command=command,
        study="fma",
        build=build,
        rows=rows,
        controls=[
            f"{row.name}{FLAVOURS['nofmad']}" for row in rows if row.contract and "mandelbrot-default" in row.name
        ],
        plan_of=lambda there: planning.program_plan(list(load_programs().values()), list(there)),
        rounds=planning.PROGRAM_ROUNDS,
        batch=next(iter(load_programs().values())).launches,
        gates=False,
        evidence=loop_findings(build, archs, native),
    )


def contraction(passes: int | None = None, *, devices: str | None = None, allow_missing: bool = True) -> Path | None:
    """The contraction study on this machine's GPUs, archived; None where there is no GPU."""
    found = find_devices(devices, False)
    if found is None:
        return None
    check_writable(RESULTS / "new")
    request = contraction_request(found, passes=passes, allow_missing=allow_missing, command=_command())
    name = next((str(d.get("name")) for d in found.devices if d.get("uuid") in found.uuids), "gpu")
    return start(request, archive_path(None, name))


def study_request(
    found: Found, name: str, *, passes: int | None, allow_missing: bool, allow_shared: bool, command: Sequence[str]
) -> Request:
    """A study of the table (harness/measure/studies.py) on GPUs.

    Raises:
        UsageError: no study has that name. IrrError: as `gpu_request`.
    """
    study = find_study(name)
    rows = study.rows()
    here = {**load_cells(), **load_cells(STUDY_CELLS_FILE)}
    request = gpu_request(
        found,
        quick=False,
        passes=passes,
        cells=None,
        arms=None,
        allow_missing=allow_missing,
        allow_shared=allow_shared,
        command=command,
        study=name,
        rows=rows,
        plan_of=lambda there: study.plan([row.name for row in rows if row.name in there], multiprocessors()),
        rounds=study.rounds,
        gates=study.gates,
        gates_once=True,
    )
    names = {planning.variant_of(entry.cell)[0] for entry in request.plan}
    request.trajectories = {n: here[n] for n in here if n in names and n not in load_cells()}
    request.counted = study.counted(request.plan)
    request.counted_cells = list(study.counted_cells)
    broken = {row.name: row.breaks for row in rows if row.breaks}
    request.flags += [Note(what=f"{kernel} is timed and never judged", why=why) for kernel, why in broken.items()]
    return request


def multiprocessors() -> int | None:
    """Multiprocessors of the first device the driver shows (all devices of a run are of one kind); makes no context."""
    import ctypes

    from harness.device import driver

    library, value = driver.library(), ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(16), 0) != 0:
        return None
    return value.value


def host_request(
    *, passes: int | None, cells: str | None, arms: str | None, quick: bool, command: Sequence[str], **more: Any
) -> Request:
    """A run on this machine's processor: the same harness, from plan to archive, where no GPU is."""
    rows = [row for row in chosen_rows(arms) if row.host]
    skipped = [
        Skipped(kernel=row.name, cell="*", status="unavailable", why=NO_GPU[0])
        for row in chosen_rows(arms)
        if not row.host
    ]
    able, unable = _host_languages(rows)
    skipped += unable
    chosen = chosen_cells(cells or ",".join(HOST_CELLS), False)
    skipped += chosen.missing
    commit, dirty = probe.commit()
    settings: dict[str, Any] = {"rounds": HOST_ROUNDS, "batch": HOST_BATCH, "seed": planning.SEED, **more}
    settings["evidence"] = [*settings.get("evidence", []), *frame_evidence(chosen.trajectories.values())]
    return Request(
        study="host",
        station="host",
        devices=["host"],
        plan=planning.make_plan(chosen.cells, able, planning.HOST),
        trajectories=chosen.trajectories,
        passes=passes or 1,
        build=str(BUILD),
        command=list(command),
        created_utc=utc_now(),
        commit=commit,
        dirty=dirty,
        quick=quick,
        skipped=skipped,
        **settings,
    )


def _host_languages(rows: Sequence[Kernel]) -> tuple[list[Kernel], list[Skipped]]:
    """Rows whose host library can be had here, and the others with the reason."""
    from harness.device.host import host_library

    reasons: dict[str, str | None] = {}
    for row in rows:
        if row.language not in reasons:
            try:
                host_library(row.language)
                reasons[row.language] = None
            except IrrError as error:
                reasons[row.language] = error.what
    able = [row for row in rows if reasons[row.language] is None]
    unable = [
        Skipped(kernel=row.name, cell="*", status="unavailable", why=str(reasons[row.language]))
        for row in rows
        if reasons[row.language] is not None
    ]
    return able, unable


# ---------------------------------------------------------------------------------------------------------------- tasks


def _command() -> list[str]:
    return ["irr", *sys.argv[1:]]


def reproduce(
    *,
    quick: bool = False,
    require_gpu: bool = False,
    passes: int | None = None,
    devices: str | None = None,
    cells: str | None = None,
    arms: str | None = None,
    allow_missing: bool = False,
    allow_shared: bool = False,
    lock_clocks: bool = False,
    study: str | None = None,
    out: Path | None = None,
) -> Path:
    """The whole job, or one study of the table; the archive's path.

    Without a GPU: host gates, the contraction study on the CPU and the archived results, under a banner.

    Raises:
        UsageError, IrrError: see contract; nothing half made is left behind by a refusal.
    """
    if passes is not None and passes < 1:
        raise UsageError(f"--passes {passes}: at least 1")
    if study is not None:
        find_study(study)
        if quick or cells is not None or arms is not None:
            raise UsageError(f"--study {study} has cells and kernels of its own", "leave out --quick, --cells, --arms")
    check_cells(cells, quick)
    chosen_rows(arms)
    # Before anything else: a wrong folder must cost seconds.
    check_writable(out if out is not None else RESULTS / "new")
    found = find_devices(devices, allow_shared)
    if found is None:
        if require_gpu:
            raise IrrError(*NO_GPU)
        if devices not in (None, "all"):
            raise IrrError(f"--devices {devices}: {NO_GPU[0]}", NO_GPU[1])
        if study is not None:
            raise IrrError(f"the study {study} needs a GPU: {NO_GPU[0]}", NO_GPU[1])
        from harness.measure.without_gpu import reproduce_without_gpu

        return reproduce_without_gpu(quick=quick, passes=passes, cells=cells, arms=arms, out=out)
    if study is not None:
        request = study_request(
            found,
            study,
            passes=passes,
            allow_missing=allow_missing,
            allow_shared=allow_shared,
            command=_command(),
        )
    else:
        request = gpu_request(
            found,
            quick=quick,
            passes=passes,
            cells=cells,
            arms=arms,
            allow_missing=allow_missing,
            allow_shared=allow_shared,
            command=_command(),
        )
    name = next((str(d.get("name")) for d in found.devices if d.get("uuid") in found.uuids), "gpu")
    with locked_clocks(found.uuids, lock_clocks) as clocks:
        request.clocks = clocks
        return start(request, archive_path(out, name))


def every_cell(request: Request) -> dict[str, Cell | Program]:
    """Cells by name; a variant in the plan (`base+sms56`) is its cell, which the worker changes."""
    every = {**load_cells(), **load_programs(), **request.trajectories}
    return {**every, **{e.cell: every[planning.variant_of(e.cell)[0]] for e in request.plan}}


def start(request: Request, path: Path) -> Path:
    """Run a request into a new archive."""
    cells = every_cell(request)
    if not request.plan and not request.counted:
        raise IrrError("nothing is left to run", "see the kernels that are missing: ./irr build, or other --arms")
    writer = ArchiveWriter.create(path, empty_run(request, cells))
    say(
        f"{len(request.plan)} entries on {len({e.cell for e in request.plan})} cells, {request.rounds} rounds, "
        f"{request.passes} passes on {', '.join(request.devices)}"
    )
    return _run(Manager(writer, request, cells, say), path)


def _run(manager: Manager, path: Path) -> Path:
    try:
        return manager.run()
    except (KeyboardInterrupt, SystemExit, IrrError):
        say(f"stopped; whole passes are kept: ./irr resume {shlex.quote(str(path))}")
        raise


def resume(archive: Path) -> Path:
    """Go on with a run that was stopped; whole passes and their devices are kept.

    Raises:
        IrrError: not an archive, a finished one, or one whose devices or kernels are no longer here.
    """
    writer = ArchiveWriter.resume(archive)
    request = read_request(archive)
    if request.station == "gpu":
        found = find_devices(",".join(request.devices), request.shared)
        if found is None:
            raise IrrError(*NO_GPU)
        names = {planning.file_name(entry.kernel).split("@")[0].removesuffix("/fma") for entry in request.plan}
        rows = [row for row in select_kernels(None) if row.name in names]
        take_inventory(Path(request.build), request.arch, rows, allow_missing=True)
    return _run(Manager(writer, request, every_cell(request), say), archive)


class locked_clocks:
    """Lock the SM clocks while a run goes on, if asked for; they are free again afterwards, whatever happens.

    Raises:
        IrrError: the driver does not allow it; said instead of measuring at other clocks than asked for.
    """

    def __init__(self, devices: Sequence[str], wanted: bool) -> None:
        self.devices, self.wanted = devices, wanted
        self.session: Any = None

    def __enter__(self) -> str:
        if not self.wanted:
            return "free"
        from harness.device import nvml

        self.session = nvml.Nvml()
        module = self.session.module
        clocks = []
        for uuid in self.devices:
            handle = self.session.handle_of(uuid)
            try:
                clock = int(module.nvmlDeviceGetMaxClockInfo(handle, module.NVML_CLOCK_SM))
                module.nvmlDeviceSetGpuLockedClocks(handle, clock, clock)
            except Exception as error:
                self.__exit__()
                raise IrrError(f"the clocks of {uuid} cannot be locked: {error}", "run without --lock-clocks") from None
            clocks.append(f"{clock} MHz")
        return ", ".join(dict.fromkeys(clocks))

    def __exit__(self, *_: object) -> None:
        if self.session is None:
            return
        for uuid in self.devices:
            try:
                self.session.module.nvmlDeviceResetGpuLockedClocks(self.session.handle_of(uuid))
            except Exception as error:
                say(f"the clocks of {uuid} could not be freed: {error}")
        self.session.close()
        self.session = None
