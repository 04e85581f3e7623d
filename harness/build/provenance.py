"""Proof that archived PTX is what the archived machine code was made of: assemble it again. Needs ptxas alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.build.assemble import Reassembly, reassemble
from harness.build.manifest import Manifest, load_manifest
from harness.build.toolchain import find_toolkit
from harness.errors import IrrError


@dataclass(frozen=True)
class Provenance:
    """Outcome for a folder of builds.

    Attributes:
        same: kernels whose PTX gives their machine code again. different: those whose PTX does not, with the reason.
        untried: those that could not be tried here (another ptxas), with the reason. misnamed: of the same, those whose
        manifest names a limit of registers that they were not given.
    """

    same: int
    different: list[str]
    untried: list[str]
    misnamed: int = 0

    def __str__(self) -> str:
        words = [f"PTX gives the same machine code again: {self.same} kernels"]
        if self.misnamed:
            words.append(f"{self.misnamed} of them without the -maxrregcount that their manifests name by mistake")
        if self.untried:
            words.append(f"{len(self.untried)} could not be tried ({self.untried[0]})")
        if self.different:
            words.append(f"{len(self.different)} DIFFER ({self.different[0]})")
        return "; ".join(words)


def check_builds(builds: Path) -> Provenance:
    """Assemble every kernel of an archive's raw/builds (sm_XX/NAME.json beside NAME.ptx) again and compare.

    A folder without kernels gives 0 of everything; so does a machine without ptxas, with the reason under `untried`.

    Raises:
        IrrError: a manifest is not one.
    """
    manifests = sorted(builds.glob("sm_*/*.json"))
    outcomes: list[Reassembly] = []
    todo: list[tuple[str, Manifest]] = []
    try:
        ptxas = find_toolkit().ptxas
    except IrrError as error:
        return Provenance(0, [], [error.what] if manifests else [])
    for path in manifests:
        manifest = load_manifest(path)
        if manifest.status != "ok":
            continue
        try:
            ptx = path.with_suffix(".ptx").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            outcomes.append(Reassembly(False, f"{manifest.name}: its PTX is not in the archive"))
            continue
        todo.append((ptx, manifest))
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes += pool.map(lambda pair: reassemble(pair[0], pair[1], ptxas), todo)
    return Provenance(
        same=sum(outcome.same is True for outcome in outcomes),
        different=[outcome.detail for outcome in outcomes if outcome.same is False],
        untried=[outcome.detail for outcome in outcomes if outcome.same is None],
        misnamed=sum(outcome.misnamed for outcome in outcomes),
    )
