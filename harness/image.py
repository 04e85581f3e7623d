"""`irr image`: the Dockerfile built and tried on this machine, without a Docker engine and without an image registry.

The base is made here by mmdebstrap under the name that FROM asks for, podman builds the rest, and the image is run as a
careful user would: read-only, offline, without capabilities, under a uid that nobody has, with a results folder.
What the image holds is HEAD, so that the commit baked in is true.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.environment import ROOT, apt_allowed, pins
from harness.errors import IrrError

NEEDED = {
    "podman": "podman",
    "buildah": "buildah",
    "runc": "runc",
    "conmon": "conmon",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
}
"""Program -> Debian package."""

STORAGE = Path("/var/tmp")
SMOKE_SECONDS = 60
REFUSAL_SECONDS = {"no GPU": 10, "results": 5}
USER = 12345
"""A uid and gid without an entry in the image's passwd: what `--user $(id -u):$(id -g)` gives it."""

LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
"""Podman's own defaults are above what a machine that is itself a guest may set."""

OPEN3D = (
    "env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", "/irr/.venv/bin/python", "-c",
    "import open3d; open3d.utility.set_verbosity_level(open3d.utility.VerbosityLevel.Error); "
    "mesh = open3d.geometry.TriangleMesh.create_sphere(); print('open3d', open3d.__version__, len(mesh.vertices))",
)  # fmt: skip
"""A machine without a display has no libGL either, unless the image brings it: the import alone would fail."""

OXIDE_HOSTS = ("https://github.com", "https://static.rust-lang.org")
PIP_OPTIONS = ("cert", "index-url", "extra-index-url", "proxy", "trusted-host", "default-timeout")
"""What of this machine's pip configuration the build needs in order to download as this machine does."""


def say(text: str) -> None:
    print(f"irr: {text}", file=sys.stderr, flush=True)


@dataclass
class Step:
    """Something that was done with the image, or could not be."""

    name: str
    state: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"  {self.name:<44} {self.state}" + (f"  {self.seconds:.0f} s" if self.seconds else "")


@dataclass
class Engine:
    """Podman with a store of its own, so that nobody's images are touched and everything can be removed at once."""

    store: Path
    steps: list[Step] = field(default_factory=list)

    def words(self, *more: str) -> list[str]:
        # runc and cgroupfs: crun and systemd's manager want a session that containers and bare machines lack.
        root = ["--root", str(self.store / "root"), "--runroot", str(self.store / "run")]
        return ["podman", *root, "--cgroup-manager", "cgroupfs", "--runtime", "runc", *more]

    def call(self, *more: str, **options: object) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(self.words(*more), **(settings | options))  # type: ignore[call-overload]

    def done(self, name: str, state: str, seconds: float = 0.0) -> None:
        self.steps.append(Step(name, state, seconds))
        say(str(self.steps[-1]).strip())


# --- what the machine has ---------------------------------------------------------------------------------------------


def ensure_programs() -> None:
    """Podman and what it needs, by apt where that is allowed.

    Raises:
        IrrError: they are missing and may not be installed.
    """
    missing = sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})
    if not missing:
        return
    why_not = apt_allowed()
    cure = f"apt-get install {' '.join(missing)}; with a Docker engine: docker build -t irr ."
    if why_not is not None:
        raise IrrError(f"missing: {' '.join(missing)} ({why_not})", cure)
    say(f"installing by apt: {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", "-qqy", *words], env=environment, capture_output=True, text=True)
        if done.returncode != 0 and words[0] == "install":
            raise IrrError(f"apt could not install {' '.join(missing)}: {_last_line(done.stderr)}", cure)


def unreachable(addresses: Sequence[str] = OXIDE_HOSTS, timeout: float = 5) -> str | None:
    """The first address that does not answer, with the reason; None if all do."""
    for address in addresses:
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=timeout).close()
        except urllib.error.HTTPError as error:
            # 404 is an answer; a proxy's refusal is none.
            if error.code in (403, 407, 502, 503, 504):
                return f"{address} answers {error.code}"
        except OSError as error:
            return f"{address} cannot be reached ({getattr(error, 'reason', error)})"
    return None


def pip_configuration(listing: str) -> tuple[str, str | None]:
    """(pip.conf for the build, path of this machine's CA bundle) from `pip config list`."""
    options: dict[str, str] = {}
    for name, value in re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listing, re.MULTILINE):
        if name in PIP_OPTIONS:
            options[name] = value
    bundle = options.get("cert")
    if bundle:
        options["cert"] = "/run/irr-ca.crt"
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in sorted(options.items())), ""]), bundle


def apt_sources(folder: Path = Path("/etc/apt")) -> list[str]:
    """This machine's own package sources, where it is of the base's release; else none, and mmdebstrap knows."""
    try:
        release = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return []
    if not re.search(rf"^VERSION_CODENAME={suite()}$", release, re.MULTILINE):
        return []
    found = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    debian = [path for path in found if path.suffix in (".list", ".sources") and path.is_file()]
    return [str(path) for path in debian if suite() in path.read_text(encoding="utf-8", errors="replace")]


def suite() -> str:
    """The Debian release of the pinned base: bookworm of debian:bookworm-slim."""
    return str(pins()["image"]["base"]).partition(":")[2].removesuffix("-slim")


# --- making it --------------------------------------------------------------------------------------------------------


def make_base(engine: Engine, work: Path) -> None:
    """The base image, under its name, from packages of the release it is made of.

    Raises:
        IrrError: the packages cannot be had.
    """
    name = f"docker.io/library/{pins()['image']['base']}"
    if engine.call("image", "exists", name).returncode == 0:
        engine.done(f"base {pins()['image']['base']}", "made before")
        return
    begin = time.monotonic()
    tar = work / "base.tar"
    words = ["mmdebstrap", "--quiet", "--variant=minbase", suite(), str(tar), *apt_sources()]
    made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if made.returncode != 0:
        raise IrrError(f"mmdebstrap could not make the base: {_last_line(made.stderr)}", "its network or apt sources")
    taken = engine.call("import", "--quiet", str(tar), name)
    tar.unlink()
    if taken.returncode != 0:
        raise IrrError(f"podman cannot import the base: {_last_line(taken.stderr)}")
    engine.done(f"base {pins()['image']['base']} (made here)", "ok", time.monotonic() - begin)


def take_context(folder: Path) -> str:
    """HEAD's files in the folder; the commit ("" where there is no git: then the checkout as it lies)."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode != 0:
        shutil.copytree(ROOT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".venv", "build", "cache"))
        return ""
    packed = folder.with_suffix(".tar")
    subprocess.run(["git", "archive", "-o", str(packed), "HEAD"], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", str(packed), "-C", str(folder)], check=True)
    packed.unlink()
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    if changed:
        say(f"the image is HEAD; {len(changed.splitlines())} uncommitted changes are not in it")
    return head.stdout.strip()


def take_kernels(folder: Path) -> Path | None:
    """This checkout's kernels, which spare the image's build those whose key (sources, flags, tools) is the same; None
    where there are none. Those of cuda-oxide stay out: made by another toolchain than the pinned one, they would be
    kept for want of a better one, and the image would not be what the Dockerfile says."""
    from harness.build import build as kernels

    for job in kernels.plan(kernels.chosen_kernels(None), kernels.ARCHITECTURES):
        for suffix in (*kernels.SUFFIXES, ".json"):
            path = job.path(kernels.BUILD, suffix)
            if job.kernel.language != "rust-oxide" and path.is_file():
                target = job.path(folder, suffix)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    return folder if folder.exists() else None


def build(engine: Engine, context: Path, commit: str, work: Path) -> None:
    """The image `irr`.

    Raises:
        IrrError: it does not build; the step's last words are quoted, all of them stand in a file.
    """
    reason = unreachable()
    mode, begin = "skip" if reason else "build", time.monotonic()
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    configuration, bundle = pip_configuration(listing)
    (work / "pip.conf").write_text(configuration, encoding="utf-8")
    mounts = [f"--volume={work / 'pip.conf'}:/etc/pip.conf:ro"]
    if bundle:
        mounts.append(f"--volume={bundle}:/run/irr-ca.crt:ro")
    seed = take_kernels(work / "kernels")
    if seed is not None:
        mounts.append(f"--volume={seed}:/run/irr-kernels:ro")
    log = engine.store / "build.log"
    while True:
        with log.open("w", encoding="utf-8") as stream:
            made = engine.call(
                "build", "--isolation", "oci", "--network", "host", "--pull=never", "--format", "docker",
                *LIMITS[:2], *mounts, f"--build-arg=OXIDE={mode}",
                f"--build-arg=IRR_COMMIT={commit}", "--tag", "irr", "--file", str(context / "Dockerfile"), str(context),
                capture_output=False, stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip
        if made.returncode == 0:
            break
        text = log.read_text(encoding="utf-8", errors="replace")
        if mode == "build" and "oxide-build" in text and "AS kernels" not in text:
            mode, reason = "skip", f"its stage failed: {_last_line(text)}"
            continue
        raise IrrError(f"the image does not build: {_last_line(text)}", f"all of it: {log}")
    engine.done("image built", "ok", time.monotonic() - begin)
    if mode == "skip":
        engine.done(
            "stage oxide-build (cuda-oxide)", f"NOT RUN: {reason}; its kernels are needs-toolchain in this image"
        )


def prepare() -> None:
    """Build the libraries that a read-only image cannot build later (called by the Dockerfile)."""
    from harness.build.emulation import load_emulation
    from harness.build.host import HOST_BUILDS
    from harness.device.host import LIBRARIES, host_library

    for language in LIBRARIES:
        host_library(language)
    load_emulation(HOST_BUILDS)


# --- trying it --------------------------------------------------------------------------------------------------------


def run(
    engine: Engine, results: Path, *words: str, timeout: float = 600
) -> tuple[subprocess.CompletedProcess[str], float]:
    """(what came of it, seconds) of a command in the image, as narrow as a container can be."""
    begin = time.monotonic()
    done = engine.call(
        "run", "--rm", "--network", "none", "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:exec",
        "--cap-drop", "all", "--security-opt", "no-new-privileges", *LIMITS,
        "--user", f"{USER}:{USER}", "--volume", f"{results}:/irr/results", "irr", *words,
        timeout=timeout,
    )  # fmt: skip
    return done, time.monotonic() - begin


def _results_folder(work: Path, name: str, mode: int) -> Path:
    folder = work / name
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, USER, USER)
    folder.chmod(mode)
    return folder


def try_it(engine: Engine, work: Path) -> list[str]:
    """Run the tasks that an image must run; problems, one line each."""
    problems: list[str] = []
    results = _results_folder(work, "results", 0o755)

    def attempt(name: str, words: Sequence[str], judge: Callable[[str, int, float], str | None], place: Path) -> str:
        done, seconds = run(engine, place, *words)
        output = done.stdout + done.stderr
        wrong = judge(output, done.returncode, seconds)
        if wrong:
            problems.append(f"{name}: {wrong}: {_last_line(output)}")
            (engine.store / "failed.log").write_text(output, encoding="utf-8")
        engine.done(name, f"FAILED: {wrong}" if wrong else "ok", seconds)
        return output

    def fine(_: str, code: int, __: float) -> str | None:
        return None if code == 0 else f"exit code {code}"

    def smoke(output: str, code: int, seconds: float) -> str | None:
        if code == 0 and not re.search(r"\b\d+ passed", output):
            return "no test ran"
        return fine(output, code, seconds) or (f"over {SMOKE_SECONDS} s" if seconds > SMOKE_SECONDS else None)

    def refused(words: Sequence[str], limit: float) -> Callable[[str, int, float], str | None]:
        def judge(output: str, code: int, seconds: float) -> str | None:
            lacking = [word for word in words if word not in output]
            if code != 1 or lacking or "Traceback" in output:
                return f"exit code {code}, not named: {', '.join(lacking) or 'nothing'}"
            return f"over {limit} s" if seconds > limit else None

        return judge

    def open3d(output: str, code: int, _: float) -> str | None:
        wanted = f"open3d {pins()['wheels']['open3d-cpu'].removesuffix('*')}"
        return fine(output, code, 0) or (None if wanted in output else f"not {wanted}")

    attempt("invoke doctor", ["invoke", "doctor"], fine, results)
    attempt("import open3d without a display", [*OPEN3D], open3d, results)
    attempt("invoke test -m smoke", ["invoke", "test", "-m", "smoke"], smoke, results)
    words = ["invoke", "reproduce", "--require-gpu"]
    judge = refused(["--gpus all", "container toolkit"], REFUSAL_SECONDS["no GPU"])
    attempt("invoke reproduce --require-gpu is refused", words, judge, results)
    if any(results.iterdir()):
        problems.append("a refused run left something in results")
    closed = _results_folder(work, "closed", 0o555)
    judge = refused(["/irr/results", f"{USER}:{USER}"], REFUSAL_SECONDS["results"])
    attempt("a results folder of mode 0555 is refused", ["invoke", "reproduce", "--quick"], judge, closed)
    output = attempt("invoke reproduce --quick", ["invoke", "reproduce", "--quick"], fine, results)
    archive = re.search(r"^archive: (\S+)$", output, re.MULTILINE)
    if archive is None:
        problems.append("reproduce --quick named no archive")
    else:
        attempt("invoke verify ARCHIVE", ["invoke", "verify", archive.group(1)], fine, results)
    strangers = [path for path in results.rglob("*") if os.geteuid() == 0 and path.stat().st_uid != USER]
    if strangers:
        problems.append(f"{len(strangers)} files of the run do not belong to uid {USER}: {strangers[0].name}")
    return problems


def sizes(engine: Engine) -> str:
    """How large the image and its parts are."""
    total = engine.call("image", "inspect", "--format", "{{.Size}}", "irr").stdout.strip()
    parts = engine.call(
        "run", "--rm", "--network", "none", *LIMITS, "irr", "du", "-sm", "/irr/.venv", "/irr/build", "/usr"
    ).stdout
    words = [f"{path} {int(mib) / 1024:.2f}" for mib, path in (line.split() for line in parts.splitlines())]
    return f"image: {int(total) / 1e9:.2f} GB unpacked (GiB: {', '.join(words)})"


def build_and_try() -> str:
    """The whole of `irr image`; what was done, a line each.

    Raises:
        IrrError: podman is missing, the image does not build, or something does not work in it.
    """
    ensure_programs()
    engine = Engine(STORAGE / f"irr-image-{os.getuid()}")
    engine.store.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="irr-image-", dir=STORAGE) as name:
        work = Path(name)
        # The image's user must be able to pass through to the results folder.
        work.chmod(0o711)
        make_base(engine, work)
        context = work / "context"
        context.mkdir()
        commit = take_context(context)
        build(engine, context, commit, work)
        problems = try_it(engine, work)
        summary = sizes(engine)
    lines = [*map(str, engine.steps), f"  {summary}", f"  layers are kept in {engine.store} for the next call"]
    if problems:
        print("\n".join(lines))
        raise IrrError(f"the image fails: {problems[0]}", f"its words: {engine.store / 'failed.log'}")
    return "\n".join(lines)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(irr: |e: |error|.*\berror:)", line)]
    return (errors or lines or ["it says nothing"])[-1][:300]


if __name__ == "__main__":
    if sys.argv[1:] != ["prepare"]:
        sys.exit("usage: python -m harness.image prepare")
    prepare()
