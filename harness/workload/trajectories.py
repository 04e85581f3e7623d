"""Trajectories of depth frames and the cells made of them: the synthetic room, the paper's real ones, any folder.

Frames are looked for below $IRR_DATA (default: `frames` in the user's cache). A trajectory of data/trajectories.toml
that is not there makes cells of status `needs-data`; any other folder there that holds frames makes cells of its own
name. Which files a cell was made of is recorded at first use, and a changed file is an error from then on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.environment import cache_root
from harness.errors import IrrError
from harness.whole import whole_file
from harness.workload.cells import Argument, Cell, load_cells, make_scene
from harness.workload.frames import Trajectory, open_folder
from harness.workload.reference import block_keys
from harness.workload.volume import VolumeConfig

TRAJECTORIES_FILE = Path(__file__).parents[2] / "data" / "trajectories.toml"

FOLDER_VARIABLE = "IRR_DATA"

ORIGINS = {
    "TartanAir V2": "TartanAir V2 (AirLab, Carnegie Mellon University): the project's own downloader fetches the "
    "environment with camera lcam_front, modalities image and depth",
}
"""Where a source's frames come from, by project; no address, since addresses change and the project's name does not."""

GROUPS = ("", "Data_easy", "Data_hard", "Easy", "Hard")
"""Folders between an environment and its trajectories."""


class NeedsData(IrrError):
    """A cell whose frames are not here."""


@dataclass(frozen=True)
class Row:
    """One trajectory.

    Attributes:
        source: `room`, a project's name, or `folder` for one that a user named.
        place: ENVIRONMENT/TRAJECTORY of a project, the folder's path of `folder`, blank for the room.
        warm_name: name of the warm cell.
    """

    name: str
    axis: str
    source: str
    place: str = ""
    warm_name: str = ""
    noise: bool = False


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return tomllib.loads(TRAJECTORIES_FILE.read_text(encoding="utf-8"))


def rows() -> list[Row]:
    """The trajectories of the table."""
    return [
        Row(
            name=row["name"],
            axis=row["axis"],
            source=row["source"],
            place="/".join(row[key] for key in ("environment", "trajectory") if key in row),
            warm_name=row.get("warm", f"{row['name']}-warm"),
            noise=row.get("noise", False),
        )
        for row in _document()["trajectory"]
    ]


# -------------------------------------------------------------------------------------------------------------- folders


def data_folder(folder: Path | None = None) -> Path:
    """Where frames are looked for."""
    if folder is not None:
        return folder.resolve()
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given).resolve() if given else cache_root() / "frames"


def has_frames(folder: Path) -> bool:
    """Whether a folder holds frames of a known layout."""
    if not os.path.isdir(folder):
        return False
    return any(folder.glob("*.depth.png")) or os.path.isdir(folder / "depth_lcam_front")


def _folders(root: Path) -> list[Path]:
    """Folders right below `root`, none where it is no folder or may not be looked into."""
    try:
        return sorted(path for path in root.iterdir() if os.path.isdir(path))
    except OSError:
        return []


def _state_of_root(root: Path) -> str:
    """What stands against finding frames there, blank for nothing."""
    if not os.path.isdir(root):
        return " (which is not a folder)" if os.path.exists(root) else " (which does not exist)"
    return "" if os.access(root, os.R_OK | os.X_OK) else f" (which uid {os.getuid()} may not look into)"


def find(row: Row, root: Path) -> Path | None:
    """The folder of a trajectory, None where it is not."""
    if row.source == "folder":
        return Path(row.place)
    environment, _, trajectory = row.place.partition("/")
    for top in (path for path in _folders(root) if path.name.lower() == environment.lower()):
        for group in GROUPS:
            found = top / group / trajectory
            if os.path.isdir(found) and has_frames(found):
                return found
    return None


def other_folders(root: Path) -> list[Row]:
    """Folders of frames at or right below `root` that no row of the table names."""
    known = {find(row, root) for row in rows() if row.place}
    found = []
    for folder in [root, *_folders(root)]:
        if folder in known or not has_frames(folder):
            continue
        name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "frames"
        if any(row.name == name for row in (*rows(), *found)):
            name = f"folder-{name}"
        found.append(Row(name, "real", "folder", str(folder.resolve()), f"{name}-warm"))
    return found


# ------------------------------------------------------------------------------------------------------------ checksums


def frame_files(found: Trajectory, frames: int) -> list[Path]:
    """Files of the first `frames` usable frames, each once."""
    return sorted({path for files in found.files[:frames] for path in files})


def digests(folder: Path, paths: list[Path]) -> dict[str, str]:
    """SHA-256 of files by their path below the folder."""
    found = {}
    for path in paths:
        try:
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise IrrError(f"{path} cannot be read: {error.strerror}") from None
    return found


def record_file(folder: Path) -> Path:
    """Where a folder's checksums are recorded: in the cache, since data may be read-only or shared."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return cache_root() / "checksums" / f"{folder.name}-{digest}.json"


def recorded(folder: Path) -> dict[str, str]:
    """Checksums recorded of a folder, empty before its first use."""
    try:
        return dict(json.loads(record_file(folder).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise IrrError(f"{record_file(folder)} cannot be read: {error}", "remove it to record again") from None


def check_files(folder: Path, paths: list[Path]) -> tuple[int, list[str]]:
    """Hold files against their recorded checksums, and record those seen for the first time.

    Returns:
        How many were new, and the names of those that changed (their record stays as it is).
    """
    known, now = recorded(folder), digests(folder, paths)
    changed = sorted(name for name, digest in now.items() if known.get(name, digest) != digest)
    new = {name: digest for name, digest in now.items() if name not in known}
    if new:
        path = record_file(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as stream:
            stream.write((json.dumps(known | new, indent=1, sort_keys=True) + "\n").encode())
    return len(new), changed


def verify_files(folder: Path, paths: list[Path]) -> None:
    """
    Raises:
        IrrError: a file is not the one that was recorded; it is named.
    """
    _, changed = check_files(folder, paths)
    if changed:
        names = ", ".join(changed[:3]) + (" ..." if len(changed) > 3 else "")
        raise IrrError(
            f"{folder}: {names} changed since the first use",
            f"put the files back, or remove {record_file(folder)} to accept them",
        )


# ---------------------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Recipe:
    """A cell before its frames are looked at.

    Attributes:
        form: `warm`, `cold`, `dense`, or `all`: every frame of a folder, the last one timed, up to the table's cap.
    """

    name: str
    row: Row
    form: str
    noise: bool

    def arguments(self, root: Path) -> tuple[tuple[tuple[str, Argument], ...], int]:
        """Arguments of the timed frame, and how many frames there are before it.

        Raises:
            NeedsData: the frames are not here. IrrError: they are damaged, changed or no frames.
        """
        before = frames_before(self.form)
        noise: tuple[tuple[str, Argument], ...] = (("noise", 1),) if self.noise else ()
        if self.row.source == "room":
            return (("frame", before), *noise), before
        folder = find(self.row, root)
        if folder is None:
            raise NeedsData(
                f"{self.name} needs the frames of {self.row.source} {self.row.place}, which are not here",
                f"irr data says where they come from and where they are looked for; {FOLDER_VARIABLE} names the folder",
            )
        found = open_folder(folder)
        before = min(before, len(found) - 1)
        verify_files(folder, frame_files(found, before + 1))
        return (("folder", str(folder)), ("frame", before), *noise), before

    def cell(self, root: Path) -> Cell:
        """The cell, its counts computed by the oracle."""
        defaults = _document()["defaults"]
        voxel = float(defaults["voxel"])
        arguments, before = self.arguments(root)
        warm = 0 if self.form == "cold" else before
        kind = "room" if self.row.source == "room" else "folder"
        blocks, samples = count(kind, arguments, warm, voxel)
        pool = max(int(defaults["pool"]), math.ceil(1.25 * blocks))
        if self.form == "dense":
            pool = math.ceil(float(defaults["dense"]) * blocks)
        config = VolumeConfig(max(1, pool), voxel)
        return Cell(self.name, self.row.axis, kind, arguments, config, blocks, samples, warm)


def frames_before(form: str) -> int:
    """Frames before a form's timed one, where there are as many; a cold cell has its warm twin's timed frame."""
    defaults = _document()["defaults"]
    return int(defaults["all"]) - 1 if form == "all" else int(defaults["warm"])


@lru_cache(maxsize=64)
def _frame_count(kind: str, arguments: tuple[tuple[str, Argument], ...], voxel: float) -> tuple[np.ndarray, int]:
    return block_keys(make_scene(kind, arguments), VolumeConfig(1, voxel))


def count(kind: str, arguments: tuple[tuple[str, Argument], ...], warm: int, voxel: float) -> tuple[int, int]:
    """Blocks and samples of a frame and the `warm` frames before it."""
    given = dict(arguments)
    last = int(given["frame"])
    rows = [tuple({**given, "frame": number}.items()) for number in range(last - warm, last + 1)]
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda row: _frame_count(kind, row, voxel), rows))
    return len(np.unique(np.concatenate([keys for keys, _ in parts]))), sum(samples for _, samples in parts)


class Cells(Mapping[str, Cell]):
    """Every cell by name, those of trajectories made when they are asked for: counting a frame takes a second."""

    def __init__(self, folder: Path | None = None) -> None:
        self.root = data_folder(folder)
        self._made: dict[str, Cell] = dict(load_cells())
        self.recipes = {recipe.name: recipe for row in (*rows(), *other_folders(self.root)) for recipe in recipes(row)}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._made, *self.recipes]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, name: str) -> Cell:
        if name not in self._made:
            self._made[name] = self.recipes[name].cell(self.root)
        return self._made[name]


def recipes(row: Row) -> list[Recipe]:
    """The cells of a trajectory. A user's folder has one more: a project's trajectory is far longer than the cap."""
    names = {"warm": row.warm_name, "cold": f"{row.name}-cold", "dense": f"{row.name}-dense"}
    if row.source == "folder":
        names["all"] = f"{row.name}-all"
    noises = (False, True) if row.noise else (False,)
    return [
        Recipe(name + ("-noise" if noise else ""), row, form, noise) for noise in noises for form, name in names.items()
    ]


def widest_cells(folder: Path | None = None) -> list[str]:
    """Names of one cell for each trajectory of depth images that is here: the one with the most frames."""
    root = data_folder(folder)
    here = [row for row in (*rows(), *other_folders(root)) if row.source != "room" and find(row, root) is not None]
    return [
        max(recipes(row), key=lambda recipe: (frames_before(recipe.form), recipe.form == "warm")).name for row in here
    ]


def all_cells(folder: Path | None = None) -> Cells:
    """The cells of data/cells.toml and of every trajectory."""
    return Cells(folder)


def frame_evidence(cells: Iterable[Cell]) -> list[dict[str, str]]:
    """A finding a folder of frames that cells were made of: one digest over its files, so that two archives can be seen
    to have had the same frames. Frames themselves are never archived."""
    found: dict[str, int] = {}
    for cell in cells:
        given = dict(cell.arguments)
        if cell.kind == "folder":
            folder = str(given["folder"])
            found[folder] = max(found.get(folder, 0), int(given["frame"]) + 1)
    rows = []
    for name, frames in found.items():
        folder = Path(name)
        files = digests(folder, frame_files(open_folder(folder), frames))
        text = "".join(f"{digest}  {file}\n" for file, digest in sorted(files.items()))
        rows.append(
            {
                "name": f"frames.{folder.name}.sha256",
                "value": hashlib.sha256(text.encode()).hexdigest(),
                "unit": "",
                "how": f"SHA-256 over the SHA-256 lines of the {len(files)} files of the first {frames} usable frames",
            }
        )
    return rows


def check_frames(cells: Iterable[Cell], evidence: Iterable[Mapping[str, Any]]) -> None:
    """Hold the frames of cells against what a run found of them when it began (`frame_evidence`).

    Raises:
        IrrError: a folder is not here, or holds other frames now.
    """
    begun = {str(row["name"]): row["value"] for row in evidence}
    for row in frame_evidence(cells):
        if begun.get(row["name"], row["value"]) != row["value"]:
            folder = row["name"].removeprefix("frames.").removesuffix(".sha256")
            raise IrrError(
                f"the frames in {folder} are not those that the run began with", "put them back, or begin anew"
            )


# ---------------------------------------------------------------------------------------------------------- task `data`


def _state(row: Row, folder: Path) -> str:
    """What there is in a trajectory's folder, in one line."""
    try:
        found = open_folder(folder)
        paths = frame_files(found, max(frames_before(recipe.form) for recipe in recipes(row)) + 1)
        new, changed = check_files(folder, paths)
    except IrrError as error:
        return f"unusable: {error.what}"
    text = f"{len(found)} frames ({found.layout}) in {folder}"
    if found.skipped:
        text += f", {len(found.skipped)} skipped ({found.skipped[0][0]}: {found.skipped[0][1]})"
    if changed:
        return f"{text}; CHANGED since the first use: {', '.join(changed)}"
    return f"{text}; {len(paths)} files used, checksums {'recorded' if new else 'as recorded'}"


def describe(folder: Path | None = None) -> str:
    """Where frames come from, where they are looked for, and what is there.

    Raises:
        IrrError: `folder` is not a folder.
    """
    if folder is not None and not os.path.isdir(folder):
        raise IrrError(f"{folder} is not a folder", "name the folder that holds the frames")
    root = data_folder(folder)
    lines = [
        f"frames are looked for below {root}{_state_of_root(root)}",
        f"  another folder: irr data FOLDER shows it, {FOLDER_VARIABLE}=FOLDER makes every task use it",
    ]
    lines += [f"  {text}" for text in ORIGINS.values()]
    lines += [
        "  7-Scenes, or any folder with frame-NNNNNN.depth.png and .pose.txt: put it there, its name names the cells"
    ]
    lines += ["", "room: made by irr itself, on every machine; cells " + ", ".join(r.name for r in recipes(rows()[0]))]
    for row in (*rows(), *other_folders(root)):
        if row.source == "room":
            continue
        found = find(row, root)
        what = f"{row.name}: {row.source}" + ("" if row.source == "folder" else f" {row.place}")
        state = "needs-data" if found is None else _state(row, found)
        lines += [f"{what}: {state}", f"    cells {', '.join(recipe.name for recipe in recipes(row))}"]
    return "\n".join(lines)
