"""What a gate says: one record, never a bare boolean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TIERS = ("analytic", "third-party", "exact", "table", "loss", "cross-arm")
"""The paper's order (method: Gates): what needs no other program first, agreement between arms last."""


@dataclass(frozen=True)
class GateResult:
    """One comparison.

    Attributes:
        gate: its name, as the fault catalogue and the page call it.
        tier: one of TIERS.
        subject: what was judged, `arm on cell` or `arm against arm on cell`.
        ok: passed. A comparison of nothing and a skipped one have not passed.
        compared: how many things were compared.
        detail: the numbers behind the judgement (plain int, float, str).
        message: one line for a person.
        skipped: why it was not run, None if it was.
    """

    gate: str
    tier: str
    subject: str
    ok: bool
    compared: int
    detail: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    skipped: str | None = None

    @property
    def failed(self) -> bool:
        return not self.ok and self.skipped is None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that is not finite becomes null (it has failed, and says so in the message)."""
        return {
            "gate": self.gate,
            "tier": self.tier,
            "subject": self.subject,
            "ok": self.ok,
            "compared": self.compared,
            "detail": {key: _plain(value) for key, value in self.detail.items()},
            "message": self.message,
            "skipped": self.skipped,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def judge(
    gate: str,
    tier: str,
    subject: str,
    compared: int,
    checks: Mapping[str, tuple[bool, str]],
    detail: Mapping[str, Any] | None = None,
) -> GateResult:
    """A result from named checks.

    Args:
        compared: how many things were compared; 0 fails, whatever the checks say.
        checks: name -> (holds, what to say when it does not). None at all fails too.
        detail: the numbers.
    """
    wrong = [says for holds, says in checks.values() if not bool(holds)]
    if compared <= 0 or not checks:
        wrong = ["nothing was compared", *wrong]
    message = "; ".join(wrong) if wrong else f"{compared} compared"
    return GateResult(gate, tier, subject, not wrong, int(compared), dict(detail or {}), message)


def skip(gate: str, tier: str, subject: str, why: str) -> GateResult:
    """A gate that was not run: listed with its reason, never passed."""
    return GateResult(gate, tier, subject, False, 0, {}, f"skipped: {why}", why)


def passed(results: Iterable[GateResult]) -> bool:
    """Whether at least one gate passed and none failed (skipped ones count neither way)."""
    results = list(results)
    return any(r.ok for r in results) and not any(r.failed for r in results)
