"""The publication bundle: archives with their description as one .tar.zst, the same bytes from the same archives.

CITATION.cff, LICENSE, README.md    what this is, who to name, what may be done with it
ro-crate-metadata.json              RO-Crate 1.3: every archive a data set, its run, its device
archives/NAME/                      each archive as it is: raw/, SHA256SUMS, derived/
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from harness import __version__
from harness.archive.files import MAX_CSV, MAX_FILES, MAX_TOTAL, MIB, plain_files, read_bytes
from harness.archive.read import Archive, find
from harness.archive.schema import json_bytes
from harness.archive.verify import check_raw
from harness.archive.write import write_whole
from harness.errors import IrrError, UsageError
from harness.whole import check_target

ROOT = Path(__file__).parents[2]
LEVEL = 19
MTIME = 315_532_800
"""1980-01-01: the earliest time that every archive format can hold."""

FOLDER = "archives"
LICENCE = "https://spdx.org/licenses/Apache-2.0"
MEDIA = {".json": "application/json", ".csv": "text/csv", ".html": "text/html", ".md": "text/markdown"}

README = """# Archived runs of irr

Each folder below archives/ is one run, complete in itself: raw/ is what was measured and stands under SHA256SUMS
(`sha256sum -c SHA256SUMS` inside the folder), derived/ is made from raw/ alone. With a checkout of irr at hand,
`./irr verify BUNDLE.tar.zst` checks everything here without a network and without a GPU.
"""


def entries(archives: Sequence[Archive]) -> Iterator[tuple[str, bytes]]:
    """(path in the bundle, bytes), sorted by path."""
    files: dict[str, bytes] = {"README.md": README.encode(), "ro-crate-metadata.json": json_bytes(crate(archives))}
    for name in ("CITATION.cff", "LICENSE"):
        if (ROOT / name).is_file():
            files[name] = (ROOT / name).read_bytes()
    for archive in archives:
        for name in archive.files:
            files[f"{FOLDER}/{archive.name}/{name}"] = read_bytes(archive.root, name, MAX_CSV)
    yield from sorted(files.items())


def crate(archives: Sequence[Archive]) -> dict[str, Any]:
    """RO-Crate metadata of the bundle; no clock enters, the date is the newest archive's."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    newest = max(archive.run.created_utc for archive in archives)
    made = ROCrate(version="1.3")
    made.name = "Archived runs of irr"
    made.description = (
        f"{len(archives)} archived runs of irr {__version__}: one hash-blocked TSDF fusion in CUDA C++, Rust and "
        "Triton, timed and checked alike, with every sample and the environment that it was taken in."
    )
    made.datePublished = newest[:10] or "1980-01-01"
    licence = ContextEntity(made, LICENCE, {"@type": "CreativeWork", "name": "Apache License 2.0"})
    made.add(licence)
    made.license = licence
    authors = ContextEntity(made, "#authors", {"@type": "Organization", "name": "The irr authors"})
    made.add(authors)
    made.root_dataset["author"] = authors
    made.root_dataset["publisher"] = authors
    for archive in archives:
        folder = f"{FOLDER}/{archive.name}/"
        devices = ", ".join(archive.device_names) or "no GPU"
        described = {
            "name": archive.name,
            "description": f"Study {archive.run.study}, {len(archive.run.passes)} passes, {devices}.",
            "dateCreated": archive.run.created_utc,
            "version": archive.run.commit,
        }
        data_set = made.add_dataset(dest_path=folder, properties=described)
        parts = [name for name in archive.files if name.count("/") == 1 or name == "SHA256SUMS"]
        for name in parts:
            kind = MEDIA.get(PurePosixPath(name).suffix, "text/plain")
            part = made.add_file(
                dest_path=f"{folder}{name}", properties={"name": name.split("/")[-1], "encodingFormat": kind}
            )
            data_set.append_to("hasPart", part)
    document = made.metadata.generate()
    # The library fills the root's modification time with the clock; an archive has none of its own.
    for entity in document["@graph"]:
        entity.pop("dateModified", None)
    document["@graph"].sort(key=lambda entity: entity["@id"])
    return document


def write_tar(files: Iterator[tuple[str, bytes]]) -> bytes:
    """A tar whose bytes depend on names and contents alone: order, owner, mode and time are fixed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), 0o644, MTIME
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def run(paths: Sequence[Path], out: Path) -> str:
    """Pack archives; each is checked first, a damaged or unfinished one is refused.

    Returns:
        One line that says what was written.

    Raises:
        UsageError: the name does not end in .tar.zst or is no file's, or two archives have one name.
        IrrError: an archive does not match its checksums.
    """
    import zstandard

    if not out.name.endswith(".tar.zst"):
        raise UsageError(f"--out {out}: the bundle's name ends in .tar.zst")
    if out.parent.is_dir():
        check_target(out)
    archives = []
    for path in paths:
        archive, problems = check_raw(path)
        if archive is None or problems:
            raise IrrError(f"{path} is not packed: {problems[0]}", f"./irr verify {path} names everything")
        archives.append(archive)
    names = [archive.name for archive in archives]
    if len(set(names)) != len(names):
        raise UsageError("two of the archives have the same name", "rename one of the folders")
    archives.sort(key=lambda archive: archive.name)
    packed = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(write_tar(entries(archives)))
    write_whole(out, packed)
    return f"{out}: {len(archives)} archives, {len(packed) / MIB:.3g} MiB"


def unpack(bundle: Path, folder: Path) -> None:
    """Unpack a bundle as untrusted input: plain files with relative names only, sizes bounded while reading.

    Raises:
        IrrError: not a .tar.zst, a member that is no plain file or leads outside, or more than an archive may have.
    """
    import zstandard

    total = count = 0
    try:
        with (
            bundle.open("rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            for member in tar:
                count, total = count + 1, total + member.size
                if total > 8 * MAX_TOTAL or count > 8 * MAX_FILES:
                    raise IrrError(f"{bundle} unpacks to more than any bundle holds")
                parts = PurePosixPath(member.name).parts
                if member.isdir():
                    continue
                if not member.isreg() or not parts or member.name.startswith("/") or ".." in parts:
                    raise IrrError(f"{bundle}: {ascii(member.name)[:200]} is not a plain file inside the bundle")
                source = tar.extractfile(member)
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                assert source is not None
                with target.open("xb") as stream:
                    while chunk := source.read(MIB):
                        stream.write(chunk)
    except (zstandard.ZstdError, tarfile.TarError, EOFError, OSError) as error:
        raise IrrError(f"{bundle} is not a readable .tar.zst: {error}") from None
    plain_files(folder)


@contextmanager
def opened(path: Path) -> Iterator[list[Path]]:
    """Archive folders behind a path: the archive itself, a folder of archives, or a packed .tar.zst (unpacked to a
    temporary folder that is gone afterwards).

    Raises:
        IrrError: none of these.
    """
    if path.is_file():
        with TemporaryDirectory(prefix="irr-") as folder:
            unpack(path, Path(folder))
            roots = [p.parent.parent for p in sorted(Path(folder).rglob("raw/run.json"))]
            if not roots:
                raise IrrError(f"{path} holds no archive")
            yield roots
        return
    if not path.exists():
        raise IrrError(f"{path} does not exist", "name an archive folder or a .tar.zst that `irr pack` wrote")
    if (path / "raw").is_dir():
        yield [path]
        return
    roots = find(path)
    if not roots:
        raise IrrError(f"{path} holds no archive", "an archive is a folder with raw/run.json")
    yield roots
