"""harness/gates/run.py's GPU place over simulated CuPy; run as a program, because that stands in for the process's own.

python tests/simulated/gates_gpu.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import builds  # noqa: E402
import cupy_on_host  # noqa: E402

cupy_on_host.install()

from harness.gates.run import GpuPlace, run_gates  # noqa: E402
from harness.measure.adversarial import judge  # noqa: E402


def main(folder: Path) -> None:
    builds.make_build(folder, builds.HELPERS)
    place = GpuPlace(folder)
    assert place.missing is None
    results = run_gates("cuda,rust-nvptx", "pts-20k,points-0,points-33,pool-16,full", places=(place,))
    assert [f"{r.gate}: {r.subject}: {r.message}" for r in results if r.failed] == []
    judged = {(r.gate, r.subject) for r in results if r.ok}
    for gate in ("provenance", "sphere", "extract", "exact-set", "exact-weight", "exact-tsdf", "table", "loss"):
        assert (gate, "cuda on pts-20k") in judged, gate
    assert ("empty", "cuda on points-0") in judged and ("loss", "cuda on pool-16") in judged
    # Not built for this device: said with the cure, never passed.
    left = [r for r in results if r.subject == "rust-nvptx on pts-20k"]
    assert [r.ok for r in left] == [False] and "not built for sm_90" in (left[0].skipped or "")
    # The same through the run's own process, as rows of gates.json.
    rows = [row for row in judge(folder, "cuda", "GPU-x") if row["skipped"] is None]
    assert [row["subject"] for row in rows if not row["ok"]] == []
    ours = [row for row in rows if row["arm"] == "cuda"]
    assert {row["cell"] for row in ours if row["gate"] == "table"} >= {"pool-16", "chain", "points-33", "full", "far"}
    assert {(row["place"], row["device_uuid"]) for row in ours} == {("gpu", "GPU-x")}
    # Built from other sources: not judged under this name either.
    manifest = folder / "sm_90" / "cuda--update--plain.json"
    manifest.write_text(manifest.read_text().replace('"source_hash": "', '"source_hash": "0'))
    stale = run_gates("cuda", "points-33", places=(GpuPlace(folder),))
    assert not any(r.ok and r.gate == "provenance" for r in stale)
    assert any("other sources" in (r.skipped or "") for r in stale)
    print("all right")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
