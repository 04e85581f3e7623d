"""Finding what a machine has: toolkits, LLVMs, caches, system packages, and saying what is missing with its cure."""

from __future__ import annotations

import getpass
import json
import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import doctor, environment
from harness.build import toolchain
from harness.build.manifest import Manifest
from harness.build.toolchain import Program, find_toolkit, llvm_mismatch, parse_cuda_version, parse_llvm_version
from harness.environment import ROOT, cache_root, prepare_environment
from harness.errors import IrrError
from harness.measure import probe

# --- the toolkit (N20) ------------------------------------------------------------------------------------------------


def fake_toolkit(root: Path, version: str, without: tuple[str, ...] = ()) -> Path:
    """A folder that looks like a CUDA toolkit of this version."""
    words = f"Cuda compilation tools, release {version.rpartition('.')[0]}, V{version}"
    for name in (*(f"bin/{program}" for program in toolchain.PROGRAMS), *(f"include/{h}" for h in toolchain.HEADERS)):
        if name in without:
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{words}'\n" if name.startswith("bin/") else "", encoding="utf-8")
        path.chmod(0o755)
    return root


@pytest.fixture
def roots(tmp_path):
    return SimpleNamespace(
        a=fake_toolkit(tmp_path / "a", "13.1.80"),
        b=fake_toolkit(tmp_path / "b", "12.8.93"),
        c=fake_toolkit(tmp_path / "c", "13.0.88", without=("include/cuda.h",)),
    )


def doctor_says(env) -> str:
    return " ".join(f"{problem['what']} {problem['cure']}" for problem in doctor.examine(env)["problems"])


@pytest.fixture
def quick_doctor(monkeypatch):
    """Doctor without the slow part that these tests do not look at."""
    monkeypatch.setattr(doctor, "open3d", lambda: doctor._tool(True, "0.20.0"))


def test_cuda_home_is_taken_though_nvcc_is_not_on_path(roots):
    toolkit = find_toolkit({"CUDA_HOME": str(roots.a), "PATH": ""})
    assert (toolkit.root, toolkit.version, toolkit.origin) == (roots.a, "13.1.80", "CUDA_HOME")
    assert toolkit.nvcc == roots.a / "bin" / "nvcc"
    assert not toolkit.pinned


def test_where_the_toolkit_came_from_is_in_the_fingerprint(roots):
    """N20: root and version, by way of the manifests: the machine that runs the kernels need not have built them."""

    def manifest(kernel, language, **compiler):
        return Manifest(kernel, 90, "e", kernel.split("/")[1], language, False, "ok", compiler=compiler)

    taken = find_toolkit({"CUDA_HOME": str(roots.a), "PATH": ""})
    rows = [
        manifest("cuda/allocate/plain", "cuda", name="nvcc", version=taken.version, toolkit=taken.place),
        manifest("triton/allocate/while", "triton", name="triton", version="3.6.0"),
    ]
    built, _ = probe.built_on(rows)
    assert (built["toolkit_root"], built["toolkit"]) == (f"CUDA_HOME: {roots.a}", "13.1.80")
    older, why = probe.built_on([manifest("cuda/update/plain", "cuda", name="nvcc", version="13.0.88")])
    assert "toolkit_root" not in older and why["built_on.toolkit_root"] == "not in the kernels' manifests"
    assert find_toolkit({"PATH": ""}).place == "wheels"


@pytest.mark.parametrize(("which", "said"), [("b", "12.8.93"), ("c", "include/cuda.h")])
def test_a_toolkit_that_cannot_build_is_refused_by_build_and_doctor_alike(which, said, roots, quick_doctor):
    env = {"CUDA_HOME": str(getattr(roots, which)), "PATH": os.environ["PATH"]}
    with pytest.raises(IrrError) as caught:
        find_toolkit(env)
    assert said in caught.value.what
    assert "unset it" in (caught.value.cure or "")
    assert said in doctor_says(env)


def test_an_empty_variable_is_no_variable_for_build_and_doctor(quick_doctor):
    unset = {"PATH": os.environ["PATH"]}
    empty = {**unset, "CUDA_HOME": ""}
    assert find_toolkit(empty) == find_toolkit(unset)
    tools = doctor.examine(empty)["tools"]
    assert tools["nvcc"]["path"] == str(find_toolkit(empty).nvcc)


def test_a_variable_that_names_nothing_is_said(tmp_path):
    with pytest.raises(IrrError, match="is not a folder"):
        find_toolkit({"CUDA_HOME": str(tmp_path / "none")})


def test_without_wheels_the_toolkit_of_nvcc_on_path_serves_else_none(roots, monkeypatch):
    monkeypatch.setattr(toolchain, "wheel_root", lambda: None)
    assert find_toolkit({"PATH": str(roots.a / "bin")}).root == roots.a
    with pytest.raises(IrrError, match="no CUDA toolkit"):
        find_toolkit({"PATH": ""})


@pytest.mark.smoke
def test_the_wheels_are_the_pinned_toolkit():
    toolkit = find_toolkit({"PATH": os.environ["PATH"]})
    assert toolkit.pinned, f"{toolkit.root} is {toolkit.version}"
    assert parse_cuda_version(toolchain.program_version(toolkit.ptxas)) == toolkit.version


def test_triton_is_given_the_same_ptxas_below_and_from_blackwell(roots):
    variables = toolchain.triton_environment(find_toolkit({"CUDA_HOME": str(roots.a)}))
    assert variables == {
        "TRITON_PTXAS_PATH": str(roots.a / "bin" / "ptxas"),
        "TRITON_PTXAS_BLACKWELL_PATH": str(roots.a / "bin" / "ptxas"),
    }


def test_versions_compare_as_numbers():
    assert toolchain.version_key("13.10") > toolchain.version_key("13.9.99")
    assert toolchain.version_key("10.0") > toolchain.version_key("9.0")


# --- LLVM (N18) -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("LLVM version: 23.1.0", "23.1.0"),
        ("rustc 1.96.0-nightly\nrelease: 1.96.0-nightly\nLLVM version: 22.1.2\n", "22.1.2"),
        ("LLVM (http://llvm.org/):\n  LLVM version 22.1.2-rust-1.96.0-nightly\n  Optimized build.", "22.1.2"),
        ("Debian LLVM version 14.0.6", "14.0.6"),
        ("clang version 14.0.6", None),
        ("", None),
    ],
)
def test_llvm_version(text, version):
    assert parse_llvm_version(text) == version


def test_an_llc_of_another_llvm_is_refused_and_named():
    rustc = Program(Path("/r/rustc"), "23.1.0")
    clash = llvm_mismatch(rustc, Program(Path("/usr/bin/llc"), "22.1.2"))
    assert clash is not None
    assert all(part in clash for part in ("/r/rustc", "/usr/bin/llc", "23.1.0", "22.1.2"))
    assert llvm_mismatch(rustc, Program(Path("/r/llc"), "23.1.4")) is None


def test_doctor_warns_of_an_llc_of_another_llvm(tmp_path, monkeypatch, quick_doctor):
    nightly = tmp_path / "nightly-rustc"
    for path, words in ((nightly, "LLVM version: 23.1.0"), (tmp_path / "llc", "LLVM version 22.1.2")):
        path.write_text(f"#!/bin/sh\necho '{words}'\n", encoding="utf-8")
        path.chmod(0o755)
    rustup = tmp_path / "rustup"
    rustup.write_text(f"#!/bin/sh\necho {nightly}\n", encoding="utf-8")
    rustup.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert "not comparable" in doctor_says(env)
    (tmp_path / "llc").write_text("#!/bin/sh\necho 'LLVM version 23.1.0'\n", encoding="utf-8")
    assert "not comparable" not in doctor_says(env)


# --- caches (N13) -----------------------------------------------------------------------------------------------------

VARIABLES = (*environment.CACHE_FOLDERS, *environment.BUILD_HOMES)


def test_caches_are_below_the_users_own_cache(tmp_path):
    env = {"HOME": str(tmp_path)}
    prepare_environment(env)
    assert env["TRITON_CACHE_DIR"] == str(tmp_path / ".cache" / "irr" / "triton")
    assert {"CUPY_CACHE_DIR", "CUDA_CACHE_PATH"} <= env.keys()
    # The toolchains' homes stay where the tools put them by themselves.
    assert not set(environment.BUILD_HOMES) & env.keys()


def test_what_the_user_set_is_kept_and_empty_counts_as_unset(tmp_path):
    env = {"HOME": str(tmp_path), "TRITON_CACHE_DIR": "/elsewhere", "CUPY_CACHE_DIR": ""}
    prepare_environment(env)
    assert env["TRITON_CACHE_DIR"] == "/elsewhere"
    assert env["CUPY_CACHE_DIR"]


def test_a_folder_of_someone_else_is_not_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(environment.tempfile, "tempdir", str(tmp_path))
    taken = tmp_path / f"irr-{os.getuid()}"
    taken.mkdir()
    taken.chmod(0o777)
    place = cache_root({})
    assert place != taken
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    taken.rmdir()
    taken.symlink_to("/")
    assert cache_root({}) not in (taken, Path("/"))


AS_STRANGER = """
import os, sys
os.setgroups([]); os.setgid(12345); os.setuid(12345)
os.execv(sys.executable, [sys.executable, "-P", "-m", "harness.cli", *sys.argv[1:]])
"""


def open_python(places: list[str]) -> str | None:
    """An interpreter of this version that another uid can run, if that uid can reach the places too."""
    probe = "import os, sys; os.setuid(12345); sys.exit(not all(os.access(p, os.X_OK) for p in sys.argv[1:]))"
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        words = [sys.executable, "-c", probe, *places, os.path.realpath(python)]
        if os.path.exists(python) and subprocess.run(words).returncode == 0:
            return python
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another uid")
@pytest.mark.parametrize("home", ["/", "/nowhere", None])
def test_doctor_works_for_a_uid_without_a_passwd_entry(home):
    # Not tmp_path: pytest closes its folders to other users.
    with tempfile.TemporaryDirectory(prefix="irr-test-") as temporary:
        os.chmod(temporary, 0o1777)
        packages = sysconfig.get_path("purelib")
        python = open_python([str(ROOT), temporary, packages])
        if python is None:
            pytest.skip("this checkout or its Python is closed to other users")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}", "TMPDIR": temporary}
        if home is not None:
            env["HOME"] = home
        command = [python, "-c", AS_STRANGER, "doctor", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/", timeout=120)
        assert done.returncode == 0, done.stderr
        caches = Path(json.loads(done.stdout)["limits"]["caches"])
        assert caches.is_relative_to(temporary)
        assert caches.stat().st_uid == 12345


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another uid")
def test_a_name_is_given_to_a_uid_that_has_none(monkeypatch, tmp_path):
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(environment.pwd, "getpwuid", nobody)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare_environment()
    assert getpass.getuser() == f"uid{os.getuid()}"


# --- system packages --------------------------------------------------------------------------------------------------


def package(**changes) -> environment.SystemPackage:
    row = {"package": "libnowhere", "probe": "libnowhere.so.9", "when": "setup", "arms": ("open3d",)}
    return environment.SystemPackage(**{**row, **changes})


@pytest.fixture
def apt(monkeypatch):
    """Records what would be run as root, and succeeds."""
    calls: list[list[str]] = []

    def run(words, **options):
        calls.append(list(words))
        return SimpleNamespace(returncode=0, stdout="")

    monkeypatch.setattr(environment.subprocess, "run", run)
    monkeypatch.setattr(environment.os, "geteuid", lambda: 0)
    monkeypatch.setattr(environment.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "apt-get" else None)
    monkeypatch.delenv("IRR_NO_SYSTEM", raising=False)
    return calls


def test_probes_find_commands_libraries_and_paths():
    assert package(probe="sh").present()
    assert package(probe="libc.so.6").present()
    assert package(probe="/bin/sh").present()
    assert not package().present()
    assert not package(probe="no-such-command").present()
    assert not package(probe="/no/such/path").present()


def test_root_gets_what_is_missing_named_as_it_is_installed(apt, monkeypatch, capsys):
    monkeypatch.setattr(environment, "system_packages", lambda: [package(), package(package="later", when="test")])
    environment.ensure_system(("setup",))
    assert "irr: installing by apt: libnowhere\n" in capsys.readouterr().err
    assert ["apt-get", "-q", "-y", "install", "--no-install-recommends", "libnowhere"] in apt
    assert not any("later" in words for words in apt)


@pytest.mark.parametrize("hindrance", ["IRR_NO_SYSTEM", "uid", "no apt"])
def test_where_it_may_not_one_line_says_what_to_install_and_what_is_unavailable(hindrance, apt, monkeypatch, capsys):
    monkeypatch.setattr(environment, "system_packages", lambda: [package()])
    if hindrance == "IRR_NO_SYSTEM":
        monkeypatch.setenv("IRR_NO_SYSTEM", "1")
    elif hindrance == "uid":
        monkeypatch.setattr(environment.os, "geteuid", lambda: 1000)
    else:
        monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    assert environment.ensure_system(("setup",)) == [package()]
    assert apt == []
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "apt-get install libnowhere" in said
    assert "arms open3d" in said


def test_nothing_missing_runs_nothing(apt, monkeypatch, capsys):
    monkeypatch.setattr(environment, "system_packages", lambda: [package(probe="libc.so.6")])
    assert environment.ensure_system(("setup",)) == []
    assert apt == []
    assert capsys.readouterr().err == ""


def test_a_package_is_wanted_once_its_sources_are_there(tmp_path):
    row = package(folder="rust")
    assert not row.wanted(tmp_path)
    (tmp_path / "rust").mkdir()
    (tmp_path / "rust" / "lib.rs").write_text("", encoding="utf-8")
    assert row.wanted(tmp_path)


# --- Open3D and the GPU (N26, N09) ------------------------------------------------------------------------------------


def test_open3d_that_cannot_be_imported_is_told_with_its_reason():
    words = "Traceback ...\nOSError: libGL.so.1: cannot open shared object file"
    tool = doctor.open3d(run=lambda *args, **options: SimpleNamespace(returncode=1, stderr=words))
    assert not tool["found"]
    assert "libGL.so.1" in tool["cure"]
    assert "apt-get install" in tool["cure"]


def test_no_gpu_is_a_problem_with_both_cures(monkeypatch, quick_doctor):
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: None)
    findings = doctor.examine()
    assert findings["devices"] == []
    said = doctor_says(os.environ)
    assert "--gpus all" in said
    assert "container toolkit" in said


@pytest.mark.parametrize(("driver", "said"), [("12.4", "needs a driver"), ("13.0", None), ("13.2", None)])
def test_a_driver_older_than_the_toolkit_is_a_problem(driver, said, monkeypatch, quick_doctor):
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: driver)
    monkeypatch.setattr("harness.device.nvml.describe_devices", lambda: [{"name": "fake", "uuid": "GPU-0"}])
    monkeypatch.setattr("harness.device.nvml.driver_version", lambda: "999.1")
    findings = doctor.examine()
    assert findings["driver"] == {"cuda": driver, "version": "999.1"}
    whats = [problem["what"] for problem in findings["problems"] if "driver" in problem["what"]]
    assert whats == [] if said is None else said in whats[0] and "12.4" in whats[0] and "13.0" in whats[0]


def test_strict_exits_1_where_something_is_missing(irr):
    env = {**os.environ, "CUDA_HOME": "/nowhere"}
    assert irr("doctor", env=env).returncode == 0
    strict = irr("doctor", "--strict", env=env)
    assert strict.returncode == 1
    assert "CUDA_HOME=/nowhere is not a folder" in strict.stdout


def test_every_missing_tool_has_a_cure(quick_doctor):
    findings = doctor.examine({"PATH": ""})
    assert all(tool.get("cure") for tool in findings["tools"].values() if not tool["found"])
    assert all(problem["what"] and problem["cure"] for problem in findings["problems"])
    assert "problems:" in doctor.as_text(findings)
