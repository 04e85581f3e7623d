"""Devices before a run, as NVML shows them; what is refused, and what is said in run.json and on the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_manager import UUIDS, request, run, run_json
from test_reproduce import ask
from test_reproduce import build as build  # a fixture

from harness.archive.read import load
from harness.archive.write import WORK, ArchiveWriter, write_whole
from harness.claims.registry import View
from harness.device.nvml import Process, Values
from harness.errors import IrrError, UsageError
from harness.measure import devices, requests, runs
from harness.measure.devices import find_devices
from harness.measure.manager import REQUEST, Request, empty_run
from harness.report.page import left_out
from harness.workload.cells import load_cells

sys.path.append(str(Path(__file__).parent / "simulated"))

FREE = {"utilisation": 0, "memory_used_mib": 500}


class Session:
    """NVML with two cards.

    Args:
        cards: by UUID, what differs from a free card: of `identity`, `state`, `processes`, `mode`.
    """

    def __init__(self, cards: dict[str, dict[str, Any]]) -> None:
        self.cards = cards
        self.closed = False

    def devices(self) -> list[Values]:
        usual = {"name": "NVIDIA H200", "arch": 90, "mig": False}
        return [Values({"uuid": uuid, **usual, **card.get("identity", {})}) for uuid, card in self.cards.items()]

    def handle_of(self, uuid: str) -> str:
        return uuid

    def telemetry(self, uuid: str) -> Values:
        return Values({**FREE, **self.cards[uuid].get("state", {})})

    def processes(self, uuid: str) -> list[Process]:
        return self.cards[uuid].get("processes", [])

    def compute_mode(self, uuid: str) -> int:
        return self.cards[uuid].get("mode", 0)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Two free cards, to be altered."""
    found: dict[str, dict[str, Any]] = {uuid: {} for uuid in UUIDS}
    monkeypatch.setattr(devices, "driver_cuda", lambda: 13000)
    monkeypatch.setattr(devices.nvml, "Nvml", lambda: Session(found))
    monkeypatch.setattr(devices.time, "sleep", lambda seconds: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return found


def found(wanted: str | None = "all", allow_shared: bool = False) -> devices.Found:
    here = find_devices(wanted, allow_shared)
    assert here is not None
    return here


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, UUIDS[:1]),
        ("all", UUIDS),
        (UUIDS[1], UUIDS[1:]),
        ("gpu-bbbb", UUIDS[1:]),
        (f"{UUIDS[1]},{UUIDS[0]}", UUIDS),
    ],
)
def test_devices_that_are_chosen(cards: dict[str, Any], wanted: str | None, chosen: list[str]) -> None:
    here = found(wanted)
    assert here.uuids == chosen and here.flags == []
    assert [card["uuid"] for card in here.used] == chosen and here.name == "NVIDIA H200"


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (f"{UUIDS[0]},{UUIDS[0]}", "named twice"),
        ("GPU-", "the beginning of 2 UUIDs"),
        ("GPU-cccc", "no visible device"),
        ("0", "no visible device"),
        (",", "names no device"),
    ],
)
def test_devices_that_cannot_be_chosen(cards: dict[str, Any], wanted: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_devices(wanted, False)


def test_a_mask_with_a_device_twice_is_refused(cards: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    with pytest.raises(IrrError, match="named twice"):
        find_devices("all", False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[1])
    assert found().uuids == UUIDS[1:]
    for nothing in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", nothing)
        assert find_devices("all", False) is None


BUSY = {"state": {"utilisation": 97}, "processes": [Process(4711, "train", 300.0)]}
HELD = {"state": {"memory_used_mib": 9000}, "processes": [Process(4711, "train", 8000.0)]}


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (BUSY, "busy 97 % of the time; process 4711 (train)"),
        (HELD, "process 4711 (train) holds 8000 MiB"),
        ({"mode": 2}, "compute mode PROHIBITED"),
        ({"mode": 3, "processes": [Process(4711, "train", 10.0)]}, "and process 4711 (train) has it"),
    ],
)
def test_one_refused_device_refuses_the_run_with_all(cards: dict[str, Any], card: dict[str, Any], says: str) -> None:
    cards[UUIDS[1]].update(card)
    with pytest.raises(IrrError) as error:
        find_devices("all", False)
    assert UUIDS[1] in error.value.what and says in error.value.what and "--allow-shared" in str(error.value)
    assert found(UUIDS[0]).uuids == UUIDS[:1]


def test_unlike_devices_are_refused(cards: dict[str, Any], build: Path) -> None:
    cards[UUIDS[1]]["identity"] = {"name": "NVIDIA H100"}
    with pytest.raises(IrrError, match=r"several kinds \(NVIDIA H100 \(sm_90\), NVIDIA H200 \(sm_90\)\)"):
        ask(found(), build)
    assert ask(found(UUIDS[1]), build).devices == UUIDS[1:]


def test_no_nvml_is_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy_on_host

    class Library(cupy_on_host.Driver):
        def cuInit(self, flags: int) -> int:
            return 0

        def cuDeviceGetCount(self, count: Any) -> int:
            count._obj.value = 1
            return 0

        def cuDeviceGetName(self, name: Any, size: int, index: int) -> int:
            name.value = b"Simulated"
            return 0

        def cuDeviceGetAttribute(self, value: Any, number: int, index: int) -> int:
            value._obj.value = {75: 9, 76: 0}[number]
            return 0

    def none() -> Any:
        raise IrrError("NVML does not start: no library")

    monkeypatch.setattr(devices, "driver_cuda", lambda: 13000)
    monkeypatch.setattr(devices.driver, "library", Library)
    monkeypatch.setattr(devices.nvml, "Nvml", none)
    here = found(None)
    assert here.uuids == [cupy_on_host.UUID] and here.used[0]["arch"] == 90
    assert [flag.what for flag in here.flags] == ["no NVML"] and "does not start" in here.flags[0].why


# --- what must be said -----------------------------------------------------------------------------------------------


def test_everything_refused_or_flagged_stands_in_run_json_and_on_the_page(
    cards: dict[str, Any], build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "build_missing", lambda *_: [])
    cards[UUIDS[0]].update({"identity": {"mig": True}, **BUSY})
    cards[UUIDS[1]].update({"mode": 3, "state": {"utilisation": None}})
    here = found(allow_shared=True)
    asked = ask(here, build, quick=False, arms="cuda,triton-while", allow_missing=True, allow_shared=True)
    old = ask(devices.Found(here.uuids, here.devices, [], "13.0"), _newer(build), quick=False, arms="cuda")
    both = [*asked.refusals, *old.refusals]
    scripted = request(
        devices=UUIDS,
        refusals=both,
        flags=asked.flags,
        skipped=asked.skipped,
        options={"fits": 2, "clock": [1400, 820], "throttle": 0x40},
    )
    archive = run(tmp_path / "a", scripted)
    told = run_json(archive)
    shown = "\n".join(" | ".join(row) for row in left_out(View(load(archive))))
    for what, where in {
        f"{UUIDS[0]} is shared": "flags",
        f"{UUIDS[0]} is in MIG mode": "flags",
        f"{UUIDS[1]} is in exclusive-process mode": "flags",
        f"{UUIDS[1]} does not report utilisation": "flags",
        "--allow-shared": "flags",
        f"throttled: pass 1 on {UUIDS[1]}": "flags",
        f"drift between passes on {UUIDS[0]}": "flags",
        "2 devices ran at once": "flags",
        "triton/allocate/while is unavailable": "refusals",
        requests.NO_JIT: "refusals",
    }.items():
        assert any(what in note["what"] for note in told[where]), what
        assert what in shown, what
    assert {entry["kernel"] for entry in told["skipped"]} == {"triton/allocate/while", "triton/update/while"}
    assert "not timed: unavailable | triton/allocate/while" in shown
    assert {cut["cell"] for cut in told["reductions"]} == {"pts-20k", "r-0.25"}
    assert "batch reduced | pts-20k: 2 volumes" in shown and "little memory" in shown


def _newer(build: Path) -> Path:
    """The kernels as a toolkit 13.2 would have made them: more than a driver for 13.0 compiles."""
    for path in build.rglob("*.json"):
        path.write_text(path.read_text().replace("13.0.88", "13.2.0"))
    return build


# --- going on --------------------------------------------------------------------------------------------------------


def stopped(root: Path, build: Path, **changes: Any) -> Request:
    """An archive of a run that was stopped before its first pass."""
    asked = ask(found(), build)
    for key, value in changes.items():
        setattr(asked, key, value)
    ArchiveWriter.create(root, empty_run(asked, load_cells()))
    write_whole(root / WORK / REQUEST, msgspec.json.encode(asked))
    return asked


def test_resume_takes_no_other_device(cards: dict[str, Any], build: Path, tmp_path: Path) -> None:
    stopped(tmp_path / "a", build)
    cards[UUIDS[1].replace("b", "c")] = cards.pop(UUIDS[1])
    with pytest.raises(IrrError, match=f"began on other devices: {UUIDS[1]} is no visible device") as error:
        runs.resume(tmp_path / "a")
    assert error.value.exit_code == 1


def test_resume_asks_for_clocks_and_driver_of_before(
    cards: dict[str, Any], build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stopped(tmp_path / "a", build, clocks="1980 MHz", commit="before")
    ran: list[Request] = []
    monkeypatch.setattr(runs, "_run", lambda manager, path: ran.append(manager.request) or path)

    class Locked:
        def __init__(self, uuids: list[str], wanted: bool) -> None:
            assert uuids == UUIDS and wanted

        def __enter__(self) -> str:
            return clock

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(runs, "locked_clocks", Locked)
    clock = "1980 MHz"
    assert runs.resume(tmp_path / "a") == tmp_path / "a" and ran[0].devices == asked.devices
    assert any(flag.what == "resumed with another commit" for flag in ran[0].flags)
    clock = "1755 MHz"
    with pytest.raises(IrrError, match="clocks of 1980 MHz, these are 1755 MHz"):
        runs.resume(tmp_path / "a")
    ArchiveWriter.resume(tmp_path / "a").journal.append({"what": "pass", "start": {"run_on": {"driver_cuda": "13.1"}}})
    with pytest.raises(IrrError, match=r"a driver for CUDA 13\.1, here is one for CUDA 13\.0"):
        runs.resume(tmp_path / "a")


# --- clocks ----------------------------------------------------------------------------------------------------------


class Clocks(Session):
    """NVML that locks clocks, and refuses to for the devices in `refused`."""

    NVML_CLOCK_SM = 1

    def __init__(self, refused: tuple[str, ...] = ()) -> None:
        super().__init__({uuid: {} for uuid in UUIDS})
        self.module, self.refused = self, refused
        self.locked: dict[str, tuple[int, int]] = {}

    def nvmlDeviceGetMaxClockInfo(self, uuid: str, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return 1980

    def nvmlDeviceSetGpuLockedClocks(self, uuid: str, low: int, high: int) -> None:
        if uuid in self.refused:
            raise RuntimeError("Insufficient Permissions")
        self.locked[uuid] = (low, high)

    def nvmlDeviceResetGpuLockedClocks(self, uuid: str) -> None:
        self.locked.pop(uuid, None)


def test_clocks_are_locked_while_a_run_goes_on_and_free_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Clocks()
    monkeypatch.setattr(devices.nvml, "Nvml", lambda: session)
    with pytest.raises(ZeroDivisionError), devices.locked_clocks(UUIDS, True) as clocks:
        assert clocks == "1980 MHz" and session.locked == dict.fromkeys(UUIDS, (1980, 1980))
        raise ZeroDivisionError
    assert session.locked == {} and session.closed


def test_clocks_that_cannot_be_locked_are_said_and_none_stays_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Clocks(refused=(UUIDS[1],))
    monkeypatch.setattr(devices.nvml, "Nvml", lambda: session)
    with pytest.raises(IrrError, match=f"the clocks of {UUIDS[1]} cannot be locked: Insufficient"):
        devices.locked_clocks(UUIDS, True).__enter__()
    assert session.locked == {} and session.closed


def test_clocks_stay_free_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.nvml, "Nvml", lambda: pytest.fail("asked NVML"))
    with devices.locked_clocks(UUIDS, False) as clocks:
        assert clocks == "free"
