"""Loops in PTX and SASS, and what fuses in them: the contraction study's evidence.

Counting fused operations in the PTX alone misled the blog: the assembler fuses what a `mul.f32` without `.rn` leaves
open. So both listings are cut into loops and counted the same way, and such a multiply counts as `may still fuse`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from harness.errors import IrrError


@dataclass(frozen=True)
class Loop:
    """A loop, from the label a backward branch goes to, to the last such branch.

    Attributes:
        label: as in the listing. instructions: opcode with its modifiers and operands, in order.
    """

    label: str
    instructions: tuple[str, ...]

    def opcodes(self) -> Counter[str]:
        """Instructions by opcode without modifiers (SASS `FFMA`, PTX `fma`)."""
        return Counter(opcode(text) for text in self.instructions)

    @property
    def fused(self) -> int:
        """Fused multiply-adds."""
        counts = self.opcodes()
        return counts["FFMA"] + counts["fma"]

    @property
    def may_fuse(self) -> int:
        """PTX multiplies without a rounding mode, which the assembler may fuse with an add."""
        return sum(bool(re.match(r"mul(\.ftz)?\.f32\b", text)) for text in self.instructions)

    @property
    def floating(self) -> int:
        """Floating-point arithmetic instructions (adds, multiplies, fused)."""
        return sum(_FLOATING.match(text) is not None for text in map(_without_predicate, self.instructions))

    @property
    def branches(self) -> int:
        counts = self.opcodes()
        return counts["BRA"] + counts["bra"]


def opcode(text: str) -> str:
    """Opcode of an instruction without predicate and modifiers."""
    return _without_predicate(text).split()[0].split(".")[0].rstrip(";")


def _without_predicate(text: str) -> str:
    return re.sub(r"^@!?%?\w+\s+", "", text)


_FLOATING = re.compile(r"(?:FADD|FMUL|FFMA)\b|(?:add|sub|mul|fma)\S*\.f32\b")


_SASS_LINE = re.compile(r"(?m)^\s+(?:/\*[0-9a-f]+\*/\s+)?(?P<text>(?:@!?U?P\w+\s+)?[A-Z][A-Z0-9_]*[^;/]*?)\s*;")
_SASS_LABEL = re.compile(r"^\s*(\.L_\w+):")
_SASS_TARGET = re.compile(r"\bBRA\b.*?`?\(?(\.L_\w+)\)?")
_PTX_LABEL = re.compile(r"^\s*(\$\w+):")
_PTX_TARGET = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")


def function_text(listing: str, entry: str) -> str:
    """The part of a PTX or nvdisasm listing that holds one kernel.

    Raises:
        IrrError: no such kernel in it.
    """
    ptx = re.search(rf"\.entry\s+{re.escape(entry)}\b.*?^\}}", listing, re.M | re.S)
    sass = re.search(rf"^\s*\.section\s+\.text\.{re.escape(entry)},.*?(?=^\s*\.section\b|\Z)", listing, re.M | re.S)
    found = ptx or sass
    if found is None:
        raise IrrError(f"the listing has no kernel named {entry}")
    return found.group(0)


def loops(listing: str) -> list[Loop]:
    """The loops of one function's PTX or nvdisasm listing, innermost included, in order of their labels."""
    sass = ".entry" not in listing and _SASS_LINE.search(listing) is not None
    label_pattern, target_pattern = (_SASS_LABEL, _SASS_TARGET) if sass else (_PTX_LABEL, _PTX_TARGET)
    instructions: list[str] = []
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for line in listing.splitlines():
        label = label_pattern.match(line)
        if label is not None:
            starts[label.group(1)] = len(instructions)
            continue
        text = _sass_instruction(line) if sass else _ptx_instruction(line)
        if text is None:
            continue
        instructions.append(text)
        target = target_pattern.search(text)
        # A branch to a label already seen closes a loop; SASS ends a function with a branch to itself, which is none.
        if target is not None and starts.get(target.group(1), len(instructions)) < len(instructions) - 1:
            ends[target.group(1)] = len(instructions)
    return [Loop(label, tuple(instructions[starts[label] : end])) for label, end in ends.items()]


def floating_loop(listing: str) -> Loop | None:
    """The innermost loop that does floating-point arithmetic, None if there is none."""
    candidates = [loop for loop in loops(listing) if loop.floating]
    return min(candidates, key=lambda loop: len(loop.instructions)) if candidates else None


def _sass_instruction(line: str) -> str | None:
    match = _SASS_LINE.match(line)
    return match.group("text").strip() if match else None


def _ptx_instruction(line: str) -> str | None:
    text = line.split("//")[0].strip()
    if not text.endswith(";") or text.startswith((".", "{", "}")):
        return None
    return text.rstrip(";")
