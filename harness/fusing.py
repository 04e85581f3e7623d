"""`fuse` and `mesh`: points of the user's own through any arm, and the surface of what came out."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.build.kernels import ARMS, KERNELS, Arm
from harness.build.manifest import load_manifest, manifest_path
from harness.build.sources import current_source_hash
from harness.device.host import HostVolume
from harness.environment import ROOT
from harness.errors import DataLost, IrrError, UsageError
from harness.gates.loss import lost_blocks
from harness.output import say
from harness.whole import check_target, whole_file
from harness.workload.frames import DEPTH_MAX, DEPTH_SCALE, open_folder, to_scene
from harness.workload.fused import MAKE_ONE, UNREADABLE, Fused, RawVolume, gather, unreadable
from harness.workload.reference import NEAREST, block_keys, skip_mask
from harness.workload.scenes import Scene
from harness.workload.table import unpack
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, KEY_BIAS, VOXEL_FIELDS, VolumeConfig, table_size

POOL_FACTOR = 1.25
"""Pool of `fuse` where none is given, over the exact block count: no loss, and a table at most 0.4 full."""

MAX_POOL = 1 << 30
"""Kernels count blocks and mask the hash in 32 bits: a table of twice this is the largest."""

MEMORY_CONTROLLERS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, control groups version 2 and 1."""

NEUTRAL_GREY = 128

PROGRESS_S = 1.0
"""Seconds between two lines of progress."""

BUILD = ROOT / "build"


# --- input ------------------------------------------------------------------------------------------------------------


def _array(data: np.lib.npyio.NpzFile, name: str, dtype: type, shape: tuple[int | None, ...], path: Path) -> np.ndarray:
    """One array of the input, as it must be."""
    array = data[name]
    wanted = ", ".join("n" if length is None else str(length) for length in shape) + ("," if len(shape) == 1 else "")
    fits = array.ndim == len(shape) and all(w is None or w == a for w, a in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        # Only where it is the cure: not for another shape, nor for text and complex numbers.
        convertible = fits and array.dtype.kind in "biuf"
        raise IrrError(
            f"{path}: {name} is {array.dtype} {array.shape}, it must be {np.dtype(dtype)} ({wanted})",
            f"convert it before saving, for instance {name}.astype(np.{np.dtype(dtype)})" if convertible else None,
        )
    return np.ascontiguousarray(array)


def read_points(path: Path) -> Scene:
    """The scene in a .npz: `points` (n, 3) f32 metres, `colors` (n, 3) u8 (128 if absent), `camera` (3,) f32 metres.

    Raises:
        IrrError: no such file, not a .npz, an array missing or of another type or shape, a camera that is not finite.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise IrrError(f"{path} is one bare array, not a .npz", "np.savez(path, points=..., camera=...) makes one")
        with loaded as data:
            missing = [name for name in ("points", "camera") if name not in data]
            if missing:
                raise IrrError(
                    f"{path} has no {' and no '.join(missing)}; it holds {', '.join(data.files) or 'nothing'}",
                    "fuse needs points (n, 3) f32 and camera (3,) f32, in metres",
                )
            points = _array(data, "points", np.float32, (None, 3), path)
            camera = _array(data, "camera", np.float32, (3,), path)
            if "colors" in data:
                colors = _array(data, "colors", np.uint8, (None, 3), path)
            else:
                colors = np.full(points.shape, NEUTRAL_GREY, np.uint8)
    except FileNotFoundError:
        raise IrrError(f"{path} does not exist") from None
    except UNREADABLE as error:
        raise IrrError(f"{path} is not a .npz of arrays: {unreadable(error)}") from None
    if len(colors) != len(points):
        raise IrrError(f"{path}: {len(points)} points have {len(colors)} colors")
    if not np.isfinite(camera).all():
        raise IrrError(f"{path}: the camera {camera.tolist()} is not finite")
    return Scene(points, colors, camera)


@dataclass(frozen=True)
class Source:
    """What `fuse` is given: one scene, or the frames of a folder, read again whenever they are walked over.

    Attributes:
        names: of the scenes, in order.
    """

    names: tuple[str, ...]
    read: Callable[[int], Scene]

    def __iter__(self) -> Iterator[Scene]:
        return (self.read(number) for number in range(len(self.names)))


def load_input(
    path: Path,
    frames: int | None = None,
    depth_scale: float = DEPTH_SCALE,
    stride: int = 1,
    depth_max: float = DEPTH_MAX,
) -> Source:
    """The scenes of a .npz or of a folder of depth frames (those that are not usable are named on stderr).

    Args:
        frames: how many of a folder's frames, None for all. depth_scale: units a metre of 16-bit depth.
        stride: every how many-th pixel, both ways. depth_max: farthest depth, metres.

    Raises:
        UsageError: options of a folder for a .npz.
        IrrError: no such input, or not in a form that is read.
    """
    if not os.path.isdir(path):  # unlike Path's, os.path's questions are answered without rights too
        scene = read_points(path)
        if (frames, depth_scale, stride, depth_max) != (None, DEPTH_SCALE, 1, DEPTH_MAX):
            raise UsageError(
                f"{path} holds points: --frames, --depth-scale, --stride and --depth-max are for folders of frames",
                "leave them out",
            )
        return Source((path.name,), lambda _: scene)
    found = open_folder(path, depth_scale=depth_scale)
    for name, why in found.skipped:
        say(f"skipped {name}: {why}")
    if found.layout != "7-Scenes" and depth_scale != DEPTH_SCALE:
        say(f"{path} holds metres ({found.layout}): --depth-scale is for 16-bit depth")
    readers = found.frames[:frames]

    def read(number: int) -> Scene:
        return to_scene(readers[number](), found.intrinsics, stride=stride, depth_max=depth_max)

    return Source(tuple(found.names[:frames]), read)


def remove_unusable(scene: Scene, config: VolumeConfig) -> tuple[Scene, dict[str, int]]:
    """The scene without the points that no arm can fuse, and how many went for which reason.

    The same for all arms, before any of them sees a point: not finite, within 1e-6 m of the camera, or with a sample
    in a block that a key cannot hold.
    """
    skip = skip_mask(scene.points, scene.camera, config)
    if not skip.any():
        return scene, {}
    gone = scene.points[skip]
    broken = ~np.isfinite(gone).all(axis=1)
    with np.errstate(all="ignore"):
        d = gone - scene.camera
        distance = np.sqrt((d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2])
    near = ~broken & (distance <= NEAREST)
    reasons = {
        "not finite": int(broken.sum()),
        "within 1e-6 m of the camera": int(near.sum()),
        f"outside blocks -{KEY_BIAS}..{KEY_BIAS - 1}": int((~broken & ~near).sum()),
    }
    keep = ~skip
    kept = Scene(scene.points[keep], scene.colors[keep], scene.camera)
    return kept, {reason: count for reason, count in reasons.items() if count}


# --- arms -------------------------------------------------------------------------------------------------------------


def _available_memory() -> int | None:
    """Bytes that can still be used, by the machine's account and the container's; None where neither says."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024 * int(line.split()[1]))
    except (OSError, ValueError):
        pass
    for limit, used in MEMORY_CONTROLLERS:
        with contextlib.suppress(OSError, ValueError):  # no such controller, or "max": no limit
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
    return min(found, default=None)


def _check_memory(config: VolumeConfig, blocks: int) -> None:
    """Refuse what would get the process killed halfway.

    Of a pool only the built blocks become real memory, of a table every slot; each once more for the copy read back.
    """
    per_block = 12 + 4 * len(VOXEL_FIELDS) * BLOCK_VOXELS
    needed = 2 * (config.slots * ENTRY_DTYPE.itemsize + min(blocks, config.capacity) * per_block)
    available = _available_memory()
    if available is not None and needed > available:
        raise IrrError(
            f"a pool of {config.capacity} and a table of {config.slots} need {needed / 2**30:.1f} GiB for this scene, "
            f"{available / 2**30:.1f} GiB are free",
            "take a smaller --pool or --table, or a larger --voxel",
        )


def _kernel_names(arm: Arm) -> list[str]:
    if arm.allocate is None or arm.update is None:
        raise IrrError(f"arm {arm.name} is a library of its own and does not fuse into our volume")
    return [arm.allocate, arm.update]


def _fuse_on_host(arm: Arm, scenes: Iterable[Scene], config: VolumeConfig) -> tuple[Fused, RawVolume]:
    try:
        volume = HostVolume(config)
    except MemoryError:
        raise IrrError(
            f"no memory for a pool of {config.capacity} blocks and a table of {config.slots} slots",
            "take a smaller --pool or --table",
        ) from None
    for scene in scenes:
        for name in _kernel_names(arm):
            volume.launch(name, scene)
    raw = volume.raw()
    return gather(raw, config, arm.name), raw


def _fuse_in_interpreter(arm: Arm, scenes: Iterable[Scene], config: VolumeConfig) -> tuple[Fused, RawVolume]:
    from harness.device import interpreter

    first, *others = scenes
    raw = interpreter.fuse(_kernel_names(arm), first, config, after=others)
    return gather(raw, config, arm.name), raw


def _fuse_on_gpu(arm: Arm, scenes: Iterable[Scene], config: VolumeConfig) -> tuple[Fused, RawVolume]:
    # CuPy imports without a driver, but slowly, and host arms must work without it.
    from cupy.cuda.memory import OutOfMemoryError

    from harness.device.gpu import Gpu, GpuVolume, load

    arch = Gpu().arch
    loaded = []
    for name in _kernel_names(arm):
        path = manifest_path(BUILD, arch, name)
        manifest = load_manifest(path)
        if manifest.status != "ok":
            raise IrrError(f"{name} has no code for sm_{arch}: {manifest.reason or manifest.status}")
        if manifest.source_hash != current_source_hash(KERNELS[name]):
            raise IrrError(f"{path} was built from other sources", f"./irr build --arch {arch} builds it again")
        loaded.append(load(manifest, path.with_suffix(".cubin")))
    layout = loaded[-1].layout
    try:
        volume = GpuVolume(config)
        for scene in scenes:
            for kernel in loaded:
                volume.launch(kernel, scene)
    except OutOfMemoryError:
        raise IrrError(
            f"no memory on the GPU for a pool of {config.capacity} blocks and a table of {config.slots} slots",
            "take a smaller --pool or --table",
        ) from None
    raw = volume.raw(layout=layout)
    return gather(raw, config, arm.name), raw


def is_bounded(arm: Arm) -> bool:
    """Whether the arm's probe is bounded, so that loss is declared."""
    return any(KERNELS[name].bounded for name in (arm.allocate, arm.update) if name is not None)


def fuse_frames(
    arm: str, scenes: Iterable[Scene], config: VolumeConfig, interpret: bool = False
) -> tuple[Fused, RawVolume]:
    """Fuse scenes, one after another, into a fresh volume with an arm.

    Args:
        arm: a name of ARMS.
        scenes: at least one; points that `skip_mask` would remove must be gone.
        interpret: run a Triton arm's kernels in the interpreter, without a GPU.

    Returns:
        The volume in block order (`lost_blocks` 0, see `gates.loss.lost_blocks`) and its memory as it lies.

    Raises:
        UsageError: no such arm, or `interpret` for an arm that is not Triton's.
        IrrError: the arm cannot run here.
    """
    if arm not in ARMS:
        raise UsageError(f"no arm is named {arm!r}", f"arms: {', '.join(ARMS)}")
    row = ARMS[arm]
    if interpret:
        if not any(KERNELS[name].language == "triton" for name in _kernel_names(row)):
            raise UsageError(f"--interpret is for Triton's arms; {arm} has no interpreter")
        return _fuse_in_interpreter(row, scenes, config)
    if row.place == "host":
        return _fuse_on_host(row, scenes, config)
    _kernel_names(row)
    return _fuse_on_gpu(row, scenes, config)


# --- the tasks --------------------------------------------------------------------------------------------------------


def check_output(out: Path, given: Path | None = None) -> None:
    """Say that the result cannot be written before the work, not after it.

    Args:
        given: the input, which a result must not replace.
    """
    if given is not None and os.path.exists(out) and os.path.exists(given):
        # Of a folder of frames every file is input but what an earlier fuse put there.
        inside = os.path.isdir(given) and os.path.isfile(out) and out.suffix != ".npz"
        if os.path.samefile(out, given) or (inside and Path(given).resolve() in out.resolve().parents):
            raise UsageError(f"{out} is the input; it would be replaced", "name another file with --out")
    if not os.path.isdir(out.parent):
        raise IrrError(f"{out} cannot be written: there is no folder {out.parent}")
    check_target(out)


def _config(capacity: int, voxel: float, table: int | None, cap: float | None) -> VolumeConfig:
    """A volume configuration from the command line's numbers."""
    if capacity > MAX_POOL:
        raise UsageError(f"a pool of {capacity} blocks is more than {MAX_POOL}")
    if (table or 0) > 2 * MAX_POOL:
        raise UsageError(f"a table of {table} slots is more than {2 * MAX_POOL}")
    try:
        with np.errstate(over="ignore", divide="ignore"):
            config = VolumeConfig(capacity, voxel, table, cap or 0.0)
            # The farthest centre of a sample's voxel lies less than steps + 2 edges away on each axis; its distance is
            # taken by way of the squares.
            far = np.float32(config.steps + 2) * config.h
            derived = (config.inv, np.float32(3) * far * far, config.inv_trunc)
            weight = np.float32(config.cap)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not np.isfinite(derived).all() or config.inv_trunc == 0:
        raise UsageError(f"a voxel edge of {voxel:g} m is out of float32's range")
    if not np.isfinite(weight):
        raise UsageError(f"a cap of {config.cap:g} is out of float32's range")
    return config


class Progress:
    """One line a second on stderr while frames pass; none for a single scene."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done, self.told = total, what, 0, time.monotonic()

    def passing(self, scene: Scene) -> Scene:
        """Count the scene that is about to be worked on."""
        self.done += 1
        now = time.monotonic()
        if self.total > 1 and (now - self.told >= PROGRESS_S or self.done == self.total):
            self.told = now
            say(f"{self.what}: frame {self.done} of {self.total}")
        return scene


def _survey(source: Source, config: VolumeConfig) -> tuple[np.ndarray, int, dict[str, int]]:
    """The exact block set (m, 3) of all scenes, their usable points, and how many points go for which reason."""
    keys, total, reasons = np.empty(0, np.int64), 0, dict[str, int]()
    progress = Progress(len(source.names), "counting blocks")
    for given in source:
        scene, why = remove_unusable(progress.passing(given), config)
        with np.errstate(
            over="ignore"
        ):  # of samples behind a point at the end of float32's range: occluded, as is right
            keys = np.union1d(keys, block_keys(scene, config)[0])
        total += len(scene)
        for reason, count in why.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return unpack(keys), total, reasons


def fuse_file(
    points: Path,
    arm: str,
    voxel: float = 0.01,
    pool: int | None = None,
    table: int | None = None,
    cap: float | None = None,
    interpret: bool = False,
    *,
    out: Path,
    frames: int | None = None,
    depth_scale: float = DEPTH_SCALE,
    stride: int = 1,
    depth_max: float = DEPTH_MAX,
) -> Fused:
    """The task `fuse`: read, remove what no arm can fuse, fuse, count the loss, write.

    Args:
        points: .npz or folder, whose frames are fused one after another; frames and what follows: see `load_input`.
        voxel: metres. pool: blocks, None for ceil(1.25 x exact count), at least 1.
        table: slots, a power of two, None for twice the pool. cap: weight cap, None or 0 for off.

    Raises:
        DataLost: blocks or samples were lost in an arm that is not bounded; the file is written all the same.
        UsageError, IrrError: nothing is written.
    """
    if arm not in ARMS:
        raise UsageError(f"no arm is named {arm!r}", f"arms: {', '.join(ARMS)}")
    _kernel_names(ARMS[arm])
    if table is not None and (table < 2 or table & (table - 1)):
        raise UsageError(f"--table {table}: a power of two of at least 2 is needed")
    _config(pool or 1, voxel, table, cap)
    check_output(out, points)
    source = load_input(points, frames, depth_scale, stride, depth_max)
    plain = _config(1, voxel, None, cap)
    exact, total, reasons = _survey(source, plain)
    skipped = sum(reasons.values())
    if reasons:
        say(f"skipped {skipped} points: " + ", ".join(f"{count} {reason}" for reason, count in reasons.items()))

    config = _config(pool or max(1, math.ceil(POOL_FACTOR * len(exact))), voxel, table, cap)
    _check_memory(config, len(exact))
    progress = Progress(len(source.names), arm)
    usable = (progress.passing(remove_unusable(scene, plain)[0]) for scene in source)
    fused, _ = fuse_frames(arm, usable, config, interpret)
    fused = dataclasses.replace(fused, lost_blocks=lost_blocks(fused.coords, exact), skipped_points=skipped)
    fused.save(out)
    volume = f"pool {config.capacity}, {config.slots} slots"
    of = f" of {len(source.names)} frames" if len(source.names) > 1 else ""
    say(f"{out}: {len(fused.coords)} blocks from {total} points{of} by {arm}; {volume}")

    if fused.lost_blocks or fused.dropped_points:
        loss = (
            f"{arm} lost {fused.lost_blocks} of {len(exact)} blocks and dropped {fused.dropped_points} samples "
            f"({fused.failed_inserts} failed inserts)"
        )
        enough = max(1, math.ceil(POOL_FACTOR * len(exact)))
        cure = f"--pool {enough} --table {table_size(enough)} hold the scene"
        if not is_bounded(ARMS[arm]):
            raise DataLost(f"{loss}; {out} holds the rest", cure)
        if min(config.capacity, config.slots) < len(exact):
            say(f"warning: {loss}: {volume} are too few for {len(exact)} blocks; {cure}")
        else:
            say(f"warning: {loss}, as its bounded probe is declared to")
    if len(fused.coords):
        say(f"its surface: ./irr mesh {shlex.quote(str(out))} --out {shlex.quote(str(out.with_suffix('.ply')))}")
    return fused


def extract_surface(fused: Fused) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of a fused volume on the host: corners (t, 3, 3) f32 metres, colours (t, 3, 3) u8."""
    try:
        config = _config(max(1, len(fused.coords)), float(fused.voxel), None, float(fused.cap))
    except UsageError as error:
        raise IrrError(f"this is not a fused volume: {error.what}", MAKE_ONE) from None
    _check_memory(config, len(fused.coords))
    volume = HostVolume(config)
    volume.load(fused)
    return volume.extract()


def weld(triangles: np.ndarray, colors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shared vertices of a triangle soup; neighbours agree on a vertex to the last bit, so equality is enough.

    Args:
        triangles: (t, 3, 3) f32. colors: (t, 3, 3) u8.

    Returns:
        vertices (v, 3) f32 in lexicographic order, colours (v, 3) u8, faces (f, 3) i32; triangles without area (two
        corners in one place) are left out.
    """
    corners = triangles.reshape(-1, 3) + np.float32(0)  # -0 and 0 are one place
    paint = colors.reshape(-1, 3)
    # Colours last: of two roundings of one vertex's colour the same one is kept, whatever the order of the soup.
    order = np.lexsort((*paint.T[::-1], *corners.T[::-1]))
    new = np.ones(len(order), bool)
    new[1:] = (corners[order[1:]] != corners[order[:-1]]).any(axis=1)
    faces = np.empty(len(order), np.int32)
    faces[order] = np.cumsum(new) - 1
    faces = faces.reshape(-1, 3)
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (a != c)]
    # A soup comes in the order of its threads; a file should not.
    turned = np.stack([np.roll(faces, -k, axis=1) for k in range(3)])[faces.argmin(axis=1), np.arange(len(faces))]
    first = order[new]
    return corners[first], paint[first], turned[np.lexsort(turned.T[::-1])]


def write_ply(path: Path, vertices: np.ndarray, colors: np.ndarray, faces: np.ndarray) -> None:
    """A binary little-endian PLY; the file appears whole or not at all.

    Args:
        vertices: (v, 3) f32 metres. colors: (v, 3) u8. faces: (f, 3) i32.
    """
    vertex = np.zeros(len(vertices), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    vertex["xyz"], vertex["rgb"] = vertices, colors
    face = np.zeros(len(faces), [("count", "u1"), ("corners", "<i4", 3)])
    face["count"], face["corners"] = 3, faces
    header: Sequence[str] = (
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(vertices)}",
        *(f"property float {axis}" for axis in "xyz"),
        *(f"property uchar {channel}" for channel in ("red", "green", "blue")),
        f"element face {len(faces)}",
        "property list uchar int vertex_indices",
        "end_header",
        "",
    )
    with whole_file(path) as stream:
        stream.write("\n".join(header).encode("ascii"))
        stream.write(vertex.tobytes())
        stream.write(face.tobytes())


def mesh_file(volume: Path, out: Path) -> None:
    """The task `mesh`: the zero surface of a fused volume as PLY with colour.

    Raises:
        IrrError: not a fused volume, or the file cannot be written.
    """
    check_output(out, volume)
    say(f"reading {volume}")
    fused = Fused.load(volume)
    say(f"extracting the surface of {len(fused.coords)} blocks")
    triangles, paint = extract_surface(fused)
    say(f"welding {len(triangles)} triangles")
    vertices, colors, faces = weld(triangles, paint)
    write_ply(out, vertices, colors, faces)
    say(f"{out}: {len(vertices)} vertices, {len(faces)} triangles")
