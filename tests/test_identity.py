"""Which device is which, and what must be refused before anything is timed. Nothing here needs a GPU."""

from __future__ import annotations

import types
from typing import Any

import pytest

from harness.device import nvml, preflight
from harness.device.identity import (
    bus_key,
    child_environment,
    choose_devices,
    match_bus,
    parse_mask,
    require_two,
    same_uuid,
)
from harness.errors import IrrError, UsageError

A = "GPU-1a2b3c4d-0000-1111-2222-333344445555"
B = "GPU-99887766-0000-1111-2222-333344445555"
MIG = "MIG-0f0e0d0c-0b0a-0908-0706-050403020100"
DEVICES = [
    {"uuid": A, "name": "Card A", "pci_bus": "00000000:01:00.0", "mig": False},
    {"uuid": B, "name": "Card B", "pci_bus": "00000000:65:00.0", "mig": False},
]


class FakeNvml:
    """The bindings, as far as they are used; a value that is an exception is raised."""

    class NVMLError(Exception):
        pass

    class NVMLError_FunctionNotFound(NVMLError):  # the bindings' own name
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, nvmlMemory_v2 = 1, 2, 0, 2

    def __init__(self, cards: list[dict[str, Any]]) -> None:
        self.cards = cards

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.cards[index]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetMemoryInfo(self, card: dict[str, Any], version: int = 1) -> Any:
        return types.SimpleNamespace(
            total=self._value(card, "total", 80 << 30), used=self._value(card, "memory_used", 0)
        )

    def nvmlDeviceGetUtilizationRates(self, card: dict[str, Any]) -> Any:
        return types.SimpleNamespace(gpu=self._value(card, "utilisation", 0))

    def nvmlDeviceGetPciInfo(self, card: dict[str, Any]) -> Any:
        return types.SimpleNamespace(busId=card["bus"])

    def nvmlDeviceGetClockInfo(self, card: dict[str, Any], kind: int) -> Any:
        return self._value(card, "sm_clock" if kind == 1 else "mem_clock", 1410)

    def nvmlDeviceGetUUID(self, card: dict[str, Any]) -> str:
        return card["uuid"]

    def nvmlDeviceGetName(self, card: dict[str, Any]) -> str:
        return card["name"]

    def nvmlDeviceGetPowerUsage(self, card: dict[str, Any]) -> Any:
        return self._value(card, "power", 250_000)

    def nvmlDeviceGetTemperature(self, card: dict[str, Any], kind: int) -> Any:
        return self._value(card, "temperature", 40)

    def nvmlDeviceGetCurrentClocksEventReasons(self, card: dict[str, Any]) -> Any:
        return self._value(card, "events", 0)

    def nvmlDeviceGetCudaComputeCapability(self, card: dict[str, Any]) -> tuple[int, int]:
        return self._value(card, "capability", (9, 0))

    def _value(self, card: dict[str, Any], key: str, usual: Any) -> Any:
        value = card.get(key, usual)
        if isinstance(value, Exception):
            raise value
        return value


def cards() -> list[dict[str, Any]]:
    return [
        {"uuid": A, "name": "Card A", "bus": "00000000:01:00.0", "power": 100_000},
        {"uuid": B, "name": "Card B", "bus": "00000000:65:00.0", "power": 300_000, "sm_clock": 1980},
    ]


# --- N01: CUDA's device 0 is whatever sits at its bus id --------------------------------------------------------------


@pytest.mark.parametrize("bus", ["0000:65:00.0", "00000000:65:00.0", "0000:65:00.0".upper()])
def test_cuda_device_is_matched_by_bus_and_never_by_index(bus: str) -> None:
    session = nvml.Nvml(FakeNvml(cards()))
    found = match_bus(bus, [device.values for device in session.devices()])
    assert (found["name"], found["uuid"]) == ("Card B", B)
    state = session.telemetry(session.handle_of(str(found["uuid"]))).values
    assert (state["power_w"], state["sm_clock_mhz"]) == (300.0, 1980)


def test_bus_ids_are_compared_as_numbers() -> None:
    assert bus_key("0000:3B:00.0") == bus_key("00000000:3b:00.0") == (0, 0x3B, 0, 0)
    assert bus_key("00000001:3b:00.0") != bus_key("0000:3b:00.0")
    with pytest.raises(ValueError):
        bus_key("three")
    with pytest.raises(IrrError, match=r"0000:99:00\.0"):
        match_bus("0000:99:00.0", DEVICES)


# --- N02: masks ------------------------------------------------------------------------------------------------------


def test_mask_of_uuids_and_prefixes() -> None:
    assert parse_mask("GPU-1a2b3c4d", DEVICES).uuids == (A,)
    assert parse_mask(A, DEVICES).uuids == (A,)
    assert parse_mask(f"1,{A}", DEVICES, pci_order=True).uuids == (B, A)
    found = parse_mask(MIG, DEVICES)
    assert found.mig and found.uuids == (MIG,) and not found.problems


@pytest.mark.parametrize("text", ["", "-1"])
def test_empty_mask_is_no_device(text: str) -> None:
    mask = parse_mask(text, DEVICES)
    assert mask.given and mask.uuids == ()
    with pytest.raises(IrrError, match="no device is visible"):
        choose_devices("all", mask, DEVICES)


def test_number_among_different_cards_needs_the_bus_order() -> None:
    assert parse_mask("0", DEVICES, pci_order=True).uuids == (A,)
    assert "ambiguous" in parse_mask("0", DEVICES).problems[0]
    twins = [{**d, "name": "Card"} for d in DEVICES]
    assert parse_mask("0,GPU-99887766", twins).uuids == (A, B)


@pytest.mark.parametrize("text", ["0,0", f"0,{A}", "7", "GPU-zz", "card", "GPU-deadbeef"])
def test_a_wrong_mask_is_a_sentence_and_no_exception_of_int(text: str) -> None:
    mask = parse_mask(text, DEVICES, pci_order=True)
    assert mask.problems
    with pytest.raises(IrrError, match="CUDA_VISIBLE_DEVICES"):
        choose_devices(None, mask, DEVICES)


def test_ambiguous_prefix() -> None:
    assert "2 UUIDs" in parse_mask("GPU-", DEVICES).problems[0] or parse_mask("GPU-", DEVICES).problems
    near = [{**DEVICES[0]}, {**DEVICES[1], "uuid": A[:-1] + "6"}]
    assert "beginning of 2 UUIDs" in parse_mask("GPU-1a2b3c4d", near).problems[0]


def test_devices_option() -> None:
    mask = parse_mask(None, DEVICES)
    assert choose_devices("all", mask, DEVICES) == [A, B]
    assert choose_devices(f"GPU-9988,{A}", mask, DEVICES) == [A, B]
    for wrong in (f"{A},{A}", "GPU-77", "GPU-"):
        with pytest.raises(UsageError):
            choose_devices(wrong, mask, DEVICES)


@pytest.mark.parametrize("uuids", [[], [A], [A, A]])
def test_two_devices_are_two_different_ones(uuids: list[str]) -> None:
    with pytest.raises(IrrError, match="two devices are needed"):
        require_two(uuids)
    require_two([A, B])


def test_a_slice_and_its_card_name_the_same_digits() -> None:
    assert same_uuid("GPU-ABCD-1", "gpu-abcd-1") and same_uuid("MIG-abcd-1", "GPU-abcd-1")
    assert not same_uuid(A, B)


# --- N08: a worker sees exactly one device, by UUID -----------------------------------------------------------------


def test_child_environment() -> None:
    environment = child_environment({"CUDA_VISIBLE_DEVICES": "0,1", "HOME": "/x"}, B)
    assert environment == {"CUDA_VISIBLE_DEVICES": B, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "HOME": "/x"}


# --- N03: N/A is not zero ---------------------------------------------------------------------------------------------


def test_a_line_of_an_integrated_gpu() -> None:
    line = "NVIDIA GB10, [N/A], [N/A], 0 %, 11.17 W, 35"
    name, memory, total, use, power, temperature = line.split(", ")
    assert nvml.clean(name) == ("NVIDIA GB10", None)
    assert nvml.clean(memory) == nvml.clean(total) == (None, "N/A")
    assert nvml.clean(use) == (0, None)
    assert nvml.clean(power) == (11.17, None)
    assert nvml.clean(temperature) == (35, None)


@pytest.mark.parametrize("raw", ["[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "N/A", "", None])
def test_an_absent_reading_is_null_with_a_reason(raw: Any) -> None:
    value, reason = nvml.clean(raw)
    assert value is None and reason


def test_failing_calls_are_nulls_with_their_words_and_a_real_zero_stays() -> None:
    card = {
        **cards()[0],
        "power": FakeNvml.NVMLError("Not Supported"),
        "memory_used": FakeNvml.NVMLError("Unknown Error"),
        "utilisation": 0,
        "temperature": "[N/A]",
        "sm_clock": float("nan"),
    }
    found = nvml.Nvml(FakeNvml([card])).telemetry(card)
    assert found.values["utilisation"] == 0
    for key in ("power_w", "memory_used_mib", "temperature_c", "sm_clock_mhz"):
        assert found.values[key] is None and found.reasons[key]
    assert found.reasons["power_w"] == "Not Supported"
    assert "utilisation" not in found.reasons
    assert set(found.values) == {query.key for query in nvml.TELEMETRY}


def test_doctor_sees_devices_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    described = nvml.describe_devices(FakeNvml(cards()))
    assert [device["name"] for device in described] == ["Card A", "Card B"]
    assert described[0]["nulls"]["vbios"]
    broken = types.SimpleNamespace(nvmlInit=lambda: (_ for _ in ()).throw(RuntimeError("no driver")))
    assert nvml.describe_devices(broken) == []
    assert nvml.driver_version(broken) is None


def test_throttle_reasons_have_names() -> None:
    assert nvml.throttle_names(0x4 | 0x40) == ["software power cap", "hardware thermal slowdown"]
    assert nvml.throttle_names(0x1000) == ["0x1000"]
    assert nvml.slowing({"throttle": 0x1}) == 0  # an idle card is not a slow one
    assert nvml.slowing({"throttle": None}) == 0


# --- N10: driver and toolkit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toolkit", "driver", "cubin", "ptx"),
    [
        ("13.2", "12.4", False, False),
        ("13.2", "13.0", True, False),
        ("13.0", "13.2", True, True),
        ("13.0.88", 13000, True, True),
        ("12.9", "13.0", True, True),
        ("13.10", "13.9", True, False),
    ],
)
def test_driver_against_toolkit(toolkit: str, driver: str | int, cubin: bool, ptx: bool) -> None:
    found = preflight.driver_serves(toolkit, driver)
    assert (found.cubin, found.ptx) == (cubin, ptx)
    assert ".".join(toolkit.split(".")[:2]) in found.reason and found.reason.count("CUDA") >= 1


# --- N11: architectures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "status", "says"),
    [
        ("12.0", "unavailable", "rebuild for sm_120"),
        ("8.6", "unavailable", "rebuild for sm_86"),
        ("9.0", "ok", "sm_90"),
        ("7.0", "unsupported", ">= 7.5"),
        ((9, 0), "ok", "sm_90"),
        ("sm_90a", "ok", "sm_90"),
    ],
)
def test_architectures(device: Any, status: str, says: str) -> None:
    found = preflight.arch_verdict(device, {90}, 75)
    assert found.status == status and says in found.reason


def test_ten_is_more_than_nine() -> None:
    assert preflight.arch_number("10.0") > preflight.arch_number("9.0")
    assert preflight.arch_verdict("10.0", {100}, 75).status == "ok"
    assert preflight.arch_verdict("10.0", {90}, 90).status == "unavailable"


# --- other users of the device ----------------------------------------------------------------------------------------


def process(mib: float | None, pid: int = 4711) -> nvml.Process:
    return nvml.Process(pid, "python3", mib)


def state(**changes: Any) -> preflight.DeviceState:
    return preflight.DeviceState(A, "NVIDIA Card", **changes)


@pytest.mark.parametrize(
    ("found", "kinds", "says"),
    [
        (state(), [], ""),
        (state(processes=[process(1024)], memory_used_mib=1030), [], ""),
        (state(processes=[process(1025)], memory_used_mib=1030), ["refuse"], "4711 (python3) holds 1025 MiB"),
        (state(processes=[process(None)], memory_used_mib=5000), ["refuse"], "4711 (python3)"),
        (state(memory_used_mib=5000), ["refuse"], "cannot be seen"),
        (state(utilisation=80, processes=[process(10)]), ["refuse"], "busy 80 %"),
        (state(utilisation=80), ["refuse"], "cannot be seen"),
        (state(utilisation=None), ["flag"], "busy cannot be told"),
        (state(mig=True), ["flag"], "slice"),
        (state(compute_mode=2), ["refuse"], "PROHIBITED"),
        (state(compute_mode=3), ["flag"], "two processes"),
        (state(compute_mode=3, processes=[process(10)]), ["refuse"], "4711 (python3) has it"),
        (state(memory_used_mib=None, processes=[process(None)]), [], ""),
    ],
)
def test_device_states(found: preflight.DeviceState, kinds: list[str], says: str) -> None:
    findings = preflight.inspect(found)
    assert [finding.kind for finding in findings] == kinds
    assert says in " ".join(f"{finding.what}: {finding.why}" for finding in findings)


def test_own_processes_and_permission_to_share() -> None:
    ours = state(processes=[process(9000, 12)], memory_used_mib=9000)
    assert preflight.inspect(ours, own_pids=[12]) == []
    theirs = state(processes=[process(9000)], memory_used_mib=9000)
    (finding,) = preflight.inspect(theirs, allow_shared=True)
    assert finding.kind == "flag" and "9000 MiB" in finding.why
