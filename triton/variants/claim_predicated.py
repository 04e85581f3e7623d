"""Claims by inline assembly, where the compare-and-swap has the mask that `tl.atomic_cas` lacks.

Controls for what the scratch region costs (P40): the interpreter cannot run them, and they need the GPU's gates.
"""

import triton
import triton.language as tl

from ..table import key_at, publish


@triton.jit
def claim_predicated(volume, slot, want, bx, by, bz, empty, scratch):
    """As `claim`, and a lane that saw no empty slot does nothing (it reads -2, which is no key)."""
    nobody = tl.full(want.shape, -1, tl.int64)
    previous = tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.ne.s32 p, $4, 0;
        mov.b64 $0, -2;
        @p atom.global.relaxed.gpu.cas.b64 $0, [$1], $2, $3;
        }""",
        "=&l,l,l,l,r",
        [key_at(volume, slot), nobody, want, empty.to(tl.int32)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    won = empty & (previous == -1)
    publish(volume, slot, bx, by, bz, won)
    return won | (empty & (previous == want)), won


@triton.jit
def claim_load(volume, slot, want, bx, by, bz, empty, scratch):
    """As `claim`, and a lane that saw no empty slot loads from its scratch address instead of swapping there."""
    nobody = tl.full(want.shape, -1, tl.int64)
    previous = tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.ne.s32 p, $4, 0;
        @p atom.global.relaxed.gpu.cas.b64 $0, [$1], $2, $3;
        @!p ld.relaxed.gpu.global.b64 $0, [$1];
        }""",
        "=&l,l,l,l,r",
        [tl.where(empty, key_at(volume, slot), scratch), nobody, want, empty.to(tl.int32)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    won = empty & (previous == -1)
    publish(volume, slot, bx, by, bz, won)
    return won | (empty & (previous == want)), won
