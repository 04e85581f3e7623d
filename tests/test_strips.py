"""How a launch on the host spreads its points over threads: each once, strips of neighbours, help for who is behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.build.cargo import build_host as build_rust_host
from harness.build.host import find_compiler, host_flags
from harness.build.manifest import ToolMissing
from harness.build.rustc import EDITION
from harness.build.toolchain import find_rustc
from harness.environment import ROOT
from harness.workload.volume import cpp_header

BLOCK = 256
"""Points that a thread takes at a time, in both languages."""

DEADLINE_S = 60

# The kernels of these programs: `meet` lets no point go on before as many threads have come as there are strips, so
# that every thread starts on its own strip; `wait` does so too and keeps point 0 until all points outside its block
# are done, which only helpers can do. Output: for each point how often it was run, then for each thread (in the order
# of arrival) its points in the order in which it took them, a thread a line.
CPP = r"""
#include "launch.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

static int strips = 0;
static std::atomic<int> arrived{0}, done{0};
static std::vector<int> taken[64];
static std::unique_ptr<std::atomic<int>[]> times;
static thread_local int self = -1;

static void note() {
  const int i = thread_in_grid();
  if (self < 0) self = arrived.fetch_add(1);
  taken[self].push_back(i);
  times[i].fetch_add(1);
}
void host_plain(const HostCall&) { note(); done.fetch_add(1); }
void host_meet(const HostCall&) {
  note();
  while (arrived.load() < strips) std::this_thread::yield();
}
void host_wait(const HostCall& call) {
  host_meet(call);
  if (thread_in_grid() == 0) while (done.load() < call.n - 256) std::this_thread::yield();
  done.fetch_add(1);
}

int main(int, char** argv) {
  const int n = std::atoi(argv[2]), threads = std::atoi(argv[3]);
  strips = std::atoi(argv[4]);
  times.reset(new std::atomic<int>[n + 1]());
  Volume volume{};
  if (irr_launch(argv[1], &volume, nullptr, nullptr, n, 0, 0, 0, nullptr, threads) != 0) return 1;
  for (int i = 0; i < n; ++i) std::printf("%d ", times[i].load());
  std::printf("\n");
  for (int k = 0; k < arrived.load(); ++k) {
    for (int i : taken[k]) std::printf("%d ", i);
    std::printf("\n");
  }
}
"""

REGISTRY = """#pragma once
#include "launch.h"
void host_plain(const HostCall&);
void host_meet(const HostCall&);
void host_wait(const HostCall&);
constexpr HostKernel HOST_KERNELS[] = {{"plain", host_plain}, {"meet", host_meet}, {"wait", host_wait}};
"""

RUST = r"""
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Mutex;

#[path = "STRIPS"]
mod strips;

thread_local!(static SELF: Cell<usize> = const { Cell::new(usize::MAX) });

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |k: usize| words[k].parse::<usize>().unwrap();
    let (n, threads, wanted) = (number(2), number(3), number(4));
    let (arrived, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let taken: Vec<Mutex<Vec<usize>>> = (0..64).map(|_| Mutex::new(Vec::new())).collect();
    let times: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
    strips::spread(n.div_ceil(256) as u32, threads as u32, |block| {
        for i in block as usize * 256..n.min((block as usize + 1) * 256) {
            if SELF.get() == usize::MAX {
                SELF.set(arrived.fetch_add(1, SeqCst));
            }
            taken[SELF.get()].lock().unwrap().push(i);
            times[i].fetch_add(1, SeqCst);
            while words[1] != "plain" && arrived.load(SeqCst) < wanted {
                std::thread::yield_now();
            }
            while words[1] == "wait" && i == 0 && done.load(SeqCst) < n - 256 {
                std::thread::yield_now();
            }
            done.fetch_add(1, SeqCst);
        }
    });
    let line = |values: Vec<usize>| println!("{}", values.iter().map(|v| format!("{v} ")).collect::<String>());
    line(times.iter().map(|count| count.load(SeqCst)).collect());
    for k in 0..arrived.load(SeqCst) {
        line(taken[k].lock().unwrap().clone());
    }
}
"""


def cpp_program(folder: Path, root: Path = ROOT) -> Path:
    compiler, _ = find_compiler()
    (folder / "main.cpp").write_text(CPP)
    (folder / "registry.h").write_text(REGISTRY)
    (folder / "volume.cuh").write_text(cpp_header())
    files = [str(root / "cuda" / "host" / "launch.cpp"), str(folder / "main.cpp")]
    include = [f"-I{root / 'cuda' / 'host'}", f"-I{folder}"]
    program = folder / "program"
    subprocess.run(
        [compiler, *host_flags(), *include, *files, "-o", str(program)], check=True, stdin=subprocess.DEVNULL
    )
    return program


def rust_program(folder: Path, root: Path = ROOT) -> Path:
    build_rust_host()  # says ToolMissing where there is no compiler
    source = folder / "main.rs"
    source.write_text(RUST.replace("STRIPS", str(root / "rust" / "host" / "src" / "strips.rs")))
    command = [str(find_rustc(Path("/usr/bin/rustc")).path), f"--edition={EDITION}", "-Copt-level=3", str(source)]
    program = folder / "program"
    subprocess.run([*command, "-o", str(program)], check=True, stdin=subprocess.DEVNULL)
    return program


MAKERS = {"cuda": cpp_program, "rust-nvptx": rust_program}


@pytest.fixture(scope="module", params=sorted(MAKERS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launcher with kernels that tell who ran what; skipped where its compiler is missing."""
    try:
        return MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    except ToolMissing as missing:
        pytest.skip(f"{request.param}: {missing.what}")


def launch(
    program: Path, kernel: str, n: int, threads: int, strips: int = 0, deadline_s: float = DEADLINE_S
) -> tuple[list[int], list[list[int]]]:
    """How often each point was run, and each thread's points as it took them."""
    words = [str(program), kernel, str(n), str(threads), str(strips)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=deadline_s)
    times, *taken = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    return times, taken


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 7, 64])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 511, 513, 10_000])
def test_every_point_once(program: Path, n: int, threads: int) -> None:
    times, taken = launch(program, "plain", n, threads)
    assert times == [1] * n
    assert sorted(point for points in taken for point in points) == list(range(n))
    assert len(taken) <= min(max(threads, 1), -(-n // BLOCK))


@pytest.mark.parametrize(("n", "threads"), [(100_000, 4), (100_000, 32), (1_000, 4), (300, 8)])
def test_each_thread_starts_on_a_strip_of_its_own(program: Path, n: int, threads: int) -> None:
    """Not on the next block, where it would pull its neighbour's voxels away all the time."""
    blocks = -(-n // BLOCK)
    count = min(threads, blocks)
    _, taken = launch(program, "meet", n, threads, count)
    assert sorted(points[0] for points in taken) == [k * blocks // count * BLOCK for k in range(count)]


def test_a_thread_that_is_through_helps_from_the_far_end(program: Path, deadline_s: float = DEADLINE_S) -> None:
    """Point 0 waits for all other blocks, its own strip's too: only helpers can do those."""
    n, threads = 64 * BLOCK, 4
    times, taken = launch(program, "wait", n, threads, threads, deadline_s)
    assert times == [1] * n
    owner = next(points for points in taken if 0 in points)
    assert owner == list(range(BLOCK))
    for points in taken:
        helped = [point // BLOCK for point in points[::BLOCK] if point < n // threads and points is not owner]
        assert helped == sorted(helped, reverse=True)


# Less address space than one thread's stack is given: the system has no thread for whoever asks.
NO_THREADS = ["sh", "-c", 'ulimit -s 131072 && ulimit -v 65536 && RUST_MIN_STACK=134217728 exec "$@"', "sh"]


def test_threads_that_are_not_to_be_had_are_done_without(program: Path) -> None:
    words = [*NO_THREADS, str(program), "plain", "100000", "60", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    times, *taken = done.stdout.splitlines()
    assert times.split() == ["1"] * 100_000
    assert len(taken) == 1


SPAWNS = "{ scope.spawn(move || run(own)); false }"
"""Rust that asks for a thread and panics where there is none."""

CPP_FILE, RUST_FILE = "cuda/host/launch.cpp", "rust/host/src/strips.rs"


@pytest.mark.parametrize(
    ("file", "old", "new", "kernel"),
    [
        (CPP_FILE, "(own + k) % strips.size()", "k % strips.size()", "meet"),
        (CPP_FILE, "k < strips.size(); ++k) {\n    Strip", "k < 1; ++k) {\n    Strip", "wait"),
        (CPP_FILE, "pack(first, end - 1)", "pack(first, end - 2)", "wait"),
        (CPP_FILE, "catch (const std::system_error&)", "catch (int)", "plain"),
        (RUST_FILE, "(own + k) % strips.len()", "k % strips.len()", "meet"),
        (RUST_FILE, "for k in 0..strips.len() {", "for k in 0..1 {", "wait"),
        (RUST_FILE, "(end - 1, left - 1)", "(end - 1, left - 2)", "wait"),
        (RUST_FILE, "thread::Builder::new().spawn_scoped(scope, move || run(own)).is_err()", SPAWNS, "plain"),
    ],
    ids=[f"{language}-{fault}" for language in ("cpp", "rust") for fault in ("one-strip", "no-help", "lost", "needed")],
)
def test_each_of_these_tests_sees_its_fault(file: str, old: str, new: str, kernel: str, tmp_path: Path) -> None:
    """All begin with one strip; nobody helps; a helper loses a block; a thread that is not to be had ends it all."""
    folder = Path(file).parts[0]
    shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("target"))
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / file).write_text(text.replace(old, new), encoding="utf-8")
    try:
        program = MAKERS["cuda" if file == CPP_FILE else "rust-nvptx"](tmp_path, tmp_path)
    except ToolMissing as missing:
        pytest.skip(missing.what)
    if kernel == "meet":
        with pytest.raises(AssertionError):
            test_each_thread_starts_on_a_strip_of_its_own(program, 100_000, 4)
    elif kernel == "plain":
        with pytest.raises(AssertionError):
            test_threads_that_are_not_to_be_had_are_done_without(program)
    else:
        with pytest.raises((AssertionError, subprocess.TimeoutExpired)):
            test_a_thread_that_is_through_helps_from_the_far_end(program, 3)
