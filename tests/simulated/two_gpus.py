"""The whole job on two GPUs over simulated CuPy: sanitizer, passes at once, controls, counters, in a new archive or, if
one is there already, going on with it. Its tools are stand-ins that launch what the real ones would.

python tests/simulated/two_gpus.py ARCHIVE BUILD [CELLS]     controls need base, and minutes
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import builds  # noqa: E402

from harness import cli  # noqa: E402
from harness.errors import IrrError  # noqa: E402
from harness.measure import requests, runs  # noqa: E402
from harness.measure.devices import Found  # noqa: E402

UUIDS = ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"]

TOOL = """#!{python}
import contextlib, json, sys
from pathlib import Path
sys.path[:0] = [{here!r}, {root!r}]
import stations, cupy_on_host
orders = json.loads(Path(sys.argv[-1]).read_text())
cupy_on_host.UUID_BYTES = bytes.fromhex(stations.only_device(orders).removeprefix("GPU-").replace("-", ""))
cupy_on_host.install()
from harness.measure import single
single.profiled = lambda wanted: contextlib.nullcontext()
code = single.main(sys.argv[-1:])
if "--log-file" in sys.argv:
    rows = [f'"{{n}}","1","python","k","launch__registers_per_thread","","32"' for n in range(len(orders["kernels"]))]
    header = '"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    Path(sys.argv[sys.argv.index("--log-file") + 1]).write_text("\\n".join([header, *rows]) + "\\n")
sys.exit(code)
"""


def main(archive: Path, build: Path, cells: str = "base,pts-20k") -> int:
    signal.signal(signal.SIGTERM, cli._stop)
    tools = build / "tools"
    if not build.exists():
        builds.make_build(build, [*builds.HELPERS, *builds.FLOORS])
        tools.mkdir()
        for name in ("compute-sanitizer", "ncu"):
            (tools / name).write_text(TOOL.format(python=sys.executable, here=str(HERE), root=str(HERE.parents[1])))
            (tools / name).chmod(0o755)
    requests.build_missing = lambda *_: []  # a machine without a compiler: the kernels are stand-ins
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    try:
        if (archive / "raw" / "run.json").exists():
            runs.resume(archive)
            return 0
        cards = [{"uuid": uuid, "name": "Simulated", "arch": 90} for uuid in UUIDS]
        asked = requests.Asked(command=["irr", "reproduce"], cells=cells, allow_missing=True)
        request = requests.matrix_request(Found(UUIDS, cards, [], "13.0"), asked, build=build)
        request.station, request.rounds, request.batch = f"{HERE / 'stations.py'}:SimulatedGpu", 2, 2
        runs.start(request, archive)
    except IrrError as error:
        print(f"irr: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
