"""The blog's claims, B1 to B19: when two compilers' outputs are comparable at all.

The CPU part reads the finding `fma.images` (or raw/fma.json): the document of `fma --json`; the GPU part the samples of
the cells `saxpy` and `mandelbrot`. Arithmetic is the same on every card, so a pixel count that is not met is
refuted; times are figures of another card.
"""

from __future__ import annotations

from typing import Any

from harness.claims import figures, statistics
from harness.claims.registry import Compared, Open, Verdict, View, claim, need_floor
from harness.claims.statistics import PASS, SERIAL, Regime

JIT = Regime(load="jit")
POINT = 0.01
"""Tolerance of a gap in per cent, in points: the blog's own ranges span up to 0.6 points, its block sizes 1.1."""


def kernel(language: str, program: str = "mandelbrot", contraction: str = "default", block: int = 256) -> str:
    """Name of one kernel of the contraction study."""
    return f"{language}/fma/{program}-{contraction}-b{block}"


def need_pair(view: View, cell: str, ours: str, base: str, regime: Regime = SERIAL) -> Compared:
    """ours / base in one cell of the contraction study.

    Raises:
        Open: no GPU, cuda-oxide absent, or too few passes.
    """
    view.need_kernels(base, ours)
    compared = view.compare(ours, base, cell, regime)
    if compared is None or len(compared.us.passes) < statistics.MIN_PASSES:
        raise Open("undecided", f"{ours} and {base} share fewer than {statistics.MIN_PASSES} passes on {cell}")
    return compared


def gap(compared: Compared) -> float:
    """ours / base - 1."""
    return compared.us.median - 1


def _change(change: float) -> str:
    """`+0.02%`; no sign where it rounds to nothing."""
    return f"{change:+.2%}" if abs(change) >= 5e-5 else "0.00%"


def _percent(change: float) -> str:
    """`3.00 % more`."""
    return f"{abs(100 * change):.2f} % {'more' if change >= 0 else 'less'}"


def timed(compared: Compared, met: bool, reason: str, *more: dict[str, Any]) -> Verdict:
    us = compared.us
    rows = (compared.row(), *more)
    return Verdict("reproduced" if met else "differs", reason, us.median, us.low, us.high, compared.floor, rows)


def images(view: View) -> dict[str, Any]:
    """The study's document, where it is of the blog's image.

    Raises:
        Open: absent, or of another size or limit.
    """
    document = view.value("fma.images", dict) or view.archive.json("raw/fma.json")
    if not isinstance(document, dict) or not isinstance(document.get("pairs"), list):
        raise view.lacking("fma.images")
    if (document.get("size"), document.get("iterations")) != (4096, 500):
        raise Open(
            "undecided",
            f"images of {document.get('size')} pixels and {document.get('iterations')} iterations, not 4096 and 500",
        )
    return document


def need_patterns(view: View, document: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """What is known of images by name.

    Raises:
        Open: one was not made.
    """
    patterns = document.get("patterns") or {}
    for name in names:
        if not isinstance(patterns.get(name), dict) or "hash" not in patterns[name]:
            raise view.untimed(f"or draw {name}", [name.split("@")[0]])
    return [patterns[name] for name in names]


def pair(document: dict[str, Any], a: str, b: str) -> dict[str, Any]:
    """How image b departs from image a; turned round where only (b, a) is listed.

    Raises:
        Open: the pair was not compared.
    """
    for row in document["pairs"]:
        if (row.get("a"), row.get("b")) == (a, b):
            return row
        if (row.get("a"), row.get("b")) == (b, a):
            return {**row, "a": a, "b": b, "net": -row["net"]}
    raise Open("undecided", f"images {a} and {b} were not compared")


def drawn(view: View, document: dict[str, Any]) -> tuple[str, float]:
    """Whether the emulation's images are the compilers', in words, and how many images speak for them.

    Raises:
        Open: a GPU drew other images than the emulation, of which the claim then says nothing.
    """
    patterns = document.get("patterns") or {}
    ours = {"nvcc": kernel("cuda"), "oxide": kernel("rust-oxide")}
    there = {name: patterns[made].get("hash") for name, made in ours.items() if isinstance(patterns.get(made), dict)}
    other = [name for name, digest in there.items() if digest != (patterns.get(name) or {}).get("hash")]
    if other:
        raise Open(
            "undecided", f"the image that the GPU drew with {ours[other[0]]} is not the emulation's of {other[0]}"
        )
    words = (
        "; the images that the GPU drew are these" if len(there) == len(ours) else "; emulated, no GPU drew them here"
    )
    return words, 1.0 + len(there)


def exactly(found: dict[str, float], wanted: dict[str, float], what: str, more: str, weight: float) -> Verdict:
    """Whole numbers that must be met exactly."""
    words = ", ".join(f"{name} {found[name]:,} (blog {wanted[name]:,})" for name in wanted)
    met = all(found[name] == wanted[name] for name in wanted)
    first = next(iter(wanted))
    return Verdict("reproduced" if met else "refuted", f"{what}: {words}{more}.", float(found[first]), weight=weight)


@claim(
    "B1",
    "SAXPY is a tie: both languages run at the card's memory bandwidth.",
    scope="2^24 elements, blocks of 256",
    paper="92 % of the theoretical bandwidth; Rust 0.01-0.02 % slower, A/A 0.03 %",
    tolerance="not different beyond the A/A floor, without which nothing is decided; bandwidth share within 5 points",
)
def saxpy_tie(view: View) -> Verdict:
    base = kernel("cuda", "saxpy")
    compared = need_pair(view, "saxpy", kernel("rust-oxide", "saxpy"), base)
    elements, bandwidth = view.need("saxpy.elements", "device.bandwidth_gb_s")
    need_floor([compared])
    us = view.median_us(base, "saxpy")
    assert us is not None
    share = 12 * elements / us / 1e3 / bandwidth  # reads x and y, writes y: 12 bytes an element
    apart = "is level with" if compared.difference.side == 0 else "is not level with"
    reason = f"Rust {apart} C++ ({_change(gap(compared))}, A/A floor {compared.floor or 0:.2%}); both move "
    reason += f"{share * bandwidth:,.0f} GB/s, {share:.0%} of this card's {bandwidth:,.0f} GB/s (the blog: "
    reason += f"{figures.blog('bandwidth_share'):.0%} of its card's)"
    copied = view.value("device.copy_gb_s")
    if isinstance(copied, (int, float)) and copied > 0:
        reason += f" and {share * bandwidth / copied:.0%} of the {copied:,.0f} GB/s that a plain copy reaches"
    reason += "."
    met = compared.difference.side == 0 and abs(share - figures.blog("bandwidth_share")) <= 0.05
    return timed(compared, met, reason, {"bandwidth_share": share})


@claim(
    "B2",
    "With default options Rust's Mandelbrot is faster, in every round.",
    scope="4096 x 4096, 500 iterations, blocks of 256, each compiler's contraction",
    paper="-3.25 % (-3.37 to -2.99), 10 of 10 rounds",
    tolerance="faster beyond the A/A floor, in every round, and within one point of the figure",
)
def default_faster(view: View) -> Verdict:
    compared = need_pair(view, "mandelbrot", kernel("rust-oxide"), kernel("cuda"))
    reason = (
        f"Rust takes {_percent(gap(compared))} time than C++ (the blog: {-figures.blog('default_percent'):.2f} % less) "
        f"and is ahead in {compared.us.ahead} of {compared.us.rounds} rounds; {compared.difference.reason}."
    )
    every = compared.difference.side < 0 and compared.us.ahead == compared.us.rounds
    met = every and abs(gap(compared) - figures.blog("default_percent") / 100) <= POINT
    return timed(compared, met, reason)


@claim(
    "B3",
    "GPU events and the wall clock agree over the same window.",
    scope="both programs",
    paper="+0.003 % on Mandelbrot, +0.007 % on SAXPY",
    tolerance="0.1 %: a tenth of the smallest effect reported",
)
def events_and_wall(view: View) -> Verdict:
    mandelbrot, saxpy = view.need("clock.bias.mandelbrot", "clock.bias.saxpy", verdict="needs-gpu")
    reason = f"over the same launches the wall clock reads {mandelbrot:+.3%} against the events on Mandelbrot and "
    reason += f"{saxpy:+.3%} on SAXPY."
    met = max(abs(mandelbrot), abs(saxpy)) <= 1e-3
    reason += "" if met else " Beyond 0.1 % they do not agree."
    return Verdict("reproduced" if met else "differs", reason, mandelbrot)


@claim(
    "B4",
    "The JIT stays outside the timed window; PTX for sm_80 runs like native code, and ahead-of-time like JIT.",
    scope="C++ Mandelbrot; load = jit is labelled and stands in no other ratio",
    paper="about 13 ms of JIT, no measurable difference",
    tolerance="not different beyond the A/A floor",
)
def jit_outside(view: View) -> Verdict:
    base = kernel("cuda")
    view.need_kernels(base)
    found = {}
    for name, other in (("JIT", base), ("sm_80 PTX", f"{base}@sm80")):
        us, cycles = (
            statistics.ratio_of(
                view.table.series(other, "mandelbrot", JIT, value), view.table.series(base, "mandelbrot", SERIAL, value)
            )
            for value in ("us", "cycles")
        )
        if us is not None and len(us.passes) >= statistics.MIN_PASSES:
            aa_floor = view.table.floor("mandelbrot", "fma")
            found[name] = Compared("mandelbrot", us, cycles, aa_floor, statistics.different(us, cycles, aa_floor))
    if len(found) < 2 or any(c.floor is None for c in found.values()):
        raise Open("undecided", "needs ahead-of-time, JIT and sm_80 PTX of one kernel beside an A/A control")
    words = ", ".join(f"{name} {_change(gap(c))}" for name, c in found.items())
    met = all(c.difference.side == 0 for c in found.values())
    ms = view.value("jit.ms")
    reason = f"against code compiled ahead of time: {words}" + (
        f"; compiling it takes {ms:.3g} ms outside the timed window." if ms is not None else "."
    )
    return timed(found["JIT"], met, reason, found["sm_80 PTX"].row())


@claim(
    "B5",
    "The block size moves the gap.",
    scope="Mandelbrot, default contraction, 128, 256 and 512 threads",
    paper="-3.4, -3.2 and -2.3 %",
    tolerance=(
        "largest and smallest gap further apart than twice the A/A floor, or nothing is decided; each within one point "
        "of the figure, or it differs"
    ),
)
def block_size(view: View) -> Verdict:
    found = {
        block: need_pair(view, "mandelbrot", kernel("rust-oxide", block=block), kernel("cuda", block=block))
        for block in (128, 256, 512)
    }
    gaps = {block: gap(c) for block, c in found.items()}
    floors = [c.floor for c in found.values()]
    theirs = figures.blog("block_percent")
    words = ", ".join(f"{value:+.2%} at {block} ({theirs[str(block)]:+.1f} %)" for block, value in gaps.items())
    words = f"Rust's time against C++'s by threads a block (the blog): {words}"
    spread = max(gaps.values()) - min(gaps.values())
    if any(f is None for f in floors):
        raise Open("undecided", f"no A/A control beside {words}")
    most = max(f for f in floors if f is not None)
    clear = spread > 2 * most
    words += f"; {100 * spread:.2f} points between them, A/A floor {most:.2%}"
    near = all(abs(gaps[int(b)] - figure / 100) <= POINT for b, figure in figures.blog("block_percent").items())
    rows = tuple(c.row(block=b) for b, c in found.items())
    if not clear:
        us = found[256].us
        return Verdict("undecided", f"{words}: not told apart.", us.median, us.low, us.high, found[256].floor, rows)
    return timed(found[256], near, f"{words}.", *rows)


@claim(
    "B6",
    "By default the two compilers' images differ, and neither is the strict float32 image.",
    scope="the emulation on the CPU; where a GPU drew the images, they must be these",
    paper="27,510 pixels, 392 at most, 3,484 change class; 27,592 and 31,606 pixels from strict",
    tolerance="none: whole numbers",
)
def images_differ(view: View) -> Verdict:
    document = images(view)
    both, nvcc, oxide = (
        pair(document, "nvcc", "oxide"),
        pair(document, "strict", "nvcc"),
        pair(document, "strict", "oxide"),
    )
    found = {"pixels": both["pixels"], "largest": both["max"], "class": both["class"],
             "strict to nvcc": nvcc["pixels"], "strict to oxide": oxide["pixels"]}  # fmt: skip
    keys = ("pixels", "largest", "class_changes", "strict_nvcc_pixels", "strict_oxide_pixels")
    wanted = dict(zip(found, (figures.blog(key) for key in keys), strict=True))
    return exactly(found, wanted, f"of {document['size'] ** 2:,} pixels", *drawn(view, document))


@claim(
    "B7",
    "The third fusion is the assembler's: it is in the machine code and not in cuda-oxide's PTX.",
    scope="cuda-oxide's default Mandelbrot",
    paper="2 in the PTX, 3 in the machine code",
    tolerance="none: whole numbers",
)
def third_fusion(view: View) -> Verdict:
    name = kernel("rust-oxide")
    ptx, sass = view.need(f"ptx.{name}.loop.fused", f"sass.{name}.loop.fused", verdict="needs-toolchain")
    met = sass == figures.blog("loop_rust")["fused"] and ptx == sass - 1
    reason = f"cuda-oxide's loop has {ptx:.0f} fused operations in its PTX and {sass:.0f} in the machine code."
    return Verdict("reproduced" if met else "refuted", reason, sass - ptx)


@claim(
    "B8",
    "Fusing the escape test moves no pixel, so images cannot tell whether it is fused.",
    scope="the emulation",
    tolerance="none",
)
def escape_moves_nothing(view: View) -> Verdict:
    document = images(view)
    moved = {name: pair(document, name, f"{name}+escape")["pixels"] for name in ("nvcc", "oxide")}
    words = " and ".join(f"{pixels:,} pixels of {name}'s image" for name, pixels in moved.items())
    more, weight = drawn(view, document)
    reason = f"fusing the escape test too moves {words}{more}."
    verdict = "refuted" if any(moved.values()) else "reproduced"
    return Verdict(verdict, reason, float(sum(moved.values())), weight=weight)


@claim(
    "B9",
    "One fusion, zx*zx - zy*zy, makes the whole difference between the two images.",
    scope="the emulation",
    tolerance="none",
)
def one_fusion(view: View) -> Verdict:
    document = images(view)
    nvcc, oxide, nvcc_escape, oxide_escape = need_patterns(
        view, document, "nvcc", "oxide", "nvcc+escape", "oxide+escape"
    )
    pixels = pair(document, "nvcc", "oxide")["pixels"]
    # The patterns differ in that fusion and in the escape test; the escape test changes neither image.
    holds = nvcc["hash"] == nvcc_escape["hash"] and oxide["hash"] == oxide_escape["hash"] and pixels > 0
    reason = f"{pixels:,} pixels differ between nvcc and oxide; the escape test changes "
    more, weight = drawn(view, document)
    reason += "neither image, so the third fusion is all of it" if holds else "an image as well"
    return Verdict("reproduced" if holds else "refuted", f"{reason}{more}.", float(pixels), weight=weight)


@claim(
    "B10",
    "Rust does not win by doing less: the net difference is a few thousand iterations of 1.49e9.",
    scope="the emulation",
    paper="8,912 fewer of 1.49e9",
    tolerance="the net exactly; the total within 0.5 %, as it is given to three digits",
)
def net_iterations(view: View) -> Verdict:
    document = images(view)
    (nvcc,) = need_patterns(view, document, "nvcc")
    net, total = pair(document, "nvcc", "oxide")["net"], nvcc["sum"]
    met = net == figures.blog("net") and abs(total / figures.blog("iterations_total") - 1) <= 0.005
    more, weight = drawn(view, document)
    reason = f"Rust's image takes {abs(net):,} iterations {'fewer' if net < 0 else 'more'} than C++'s {total:,}{more}."
    return Verdict("reproduced" if met else "refuted", reason, float(net), weight=weight)


@claim(
    "B11",
    "With contraction off the images are identical and Rust is slower, in every round.",
    scope="4096 x 4096, blocks of 256, on the GPU",
    paper="+7.35 % (6.80 to 7.38), 0 of 10 rounds",
    tolerance="no pixel differs; slower beyond the A/A floor, in every round, and within one point of the figure",
)
def off_slower(view: View) -> Verdict:
    ours, base = kernel("rust-oxide", contraction="off"), kernel("cuda", contraction="off")
    compared = need_pair(view, "mandelbrot", ours, base)
    document = images(view)
    need_patterns(view, document, ours, base)
    pixels = pair(document, base, ours)["pixels"]
    reason = (
        f"with contraction off {pixels:,} pixels differ, and Rust takes {_percent(gap(compared))} time than C++ (the "
        f"blog: {figures.blog('off_percent')} % more), ahead in {compared.us.ahead} of {compared.us.rounds} rounds."
    )
    if pixels:
        return Verdict("refuted", reason, compared.us.median, compared.us.low, compared.us.high, compared.floor)
    every = compared.difference.side > 0 and compared.us.ahead == 0
    met = every and abs(gap(compared) - figures.blog("off_percent") / 100) <= POINT
    return timed(compared, met, reason)


@claim(
    "B12",
    "Turning contraction off costs Rust far more than C++.",
    scope="Mandelbrot, off against default of the same language",
    paper="C++ 4.10 %, Rust 15.55 %",
    tolerance="each within one point of the figure, or it differs; Rust's not higher beyond the A/A floor refutes",
)
def price_of_off(view: View) -> Verdict:
    cost = {
        language: need_pair(view, "mandelbrot", kernel(lang, contraction="off"), kernel(lang))
        for language, lang in (("cuda", "cuda"), ("rust", "rust-oxide"))
    }
    wanted = figures.blog("off_cost_percent")
    met = all(abs(gap(cost[name]) - wanted[name] / 100) <= POINT for name in wanted)
    reason = f"without contraction C++ takes {_percent(gap(cost['cuda']))} time (the blog: {wanted['cuda']} %), Rust "
    reason += f"{_percent(gap(cost['rust']))} ({wanted['rust']} %)."
    need_floor(list(cost.values()))
    if gap(cost["rust"]) <= gap(cost["cuda"]) + (cost["rust"].floor or 0.0):
        us = cost["rust"].us
        return Verdict("refuted", reason, us.median, us.low, us.high, cost["rust"].floor)
    return timed(cost["rust"], met, reason, cost["cuda"].row(language="cuda"))


@claim(
    "B13",
    "Both default loops have 11 instructions, with different arithmetic and branches; with contraction off 12 and 13.",
    scope="SASS for sm_89, the blog's card",
    paper="C++ 4 adds, 2 multiplies, 1 FMA, 1 branch; Rust 2, 1, 3, 2; off 12 and 13 instructions",
    tolerance="none: whole numbers of another toolkit; another number differs",
)
def loop_lengths(view: View) -> Verdict:
    misses, words, checked = [], [], 0
    absent = []
    for language, name in (("cuda", "cuda"), ("rust", "rust-oxide")):
        for contraction in ("default", "off"):
            prefix = f"sass.{kernel(name, contraction=contraction)}.sm_89.loop"
            wanted = {"instructions": figures.blog(f"loop_{contraction}")[language]}
            if contraction == "default":
                wanted |= figures.blog(f"loop_{language}")
            values = {part: view.value(f"{prefix}.{part}") for part in wanted}
            if any(value is None for value in values.values()):
                absent.append(f"{name} {contraction}")
                continue
            checked += len(wanted)
            words.append(f"{name} {contraction} {values['instructions']:.0f} instructions")
            misses += [
                f"{name} {contraction} {part} {values[part]:.0f} (blog {figure})"
                for part, figure in wanted.items()
                if values[part] != figure
            ]
    if not checked:
        lacks = "no loop of the contraction study for sm_89 was counted"
        raise view.lacking("sass.cuda/fma/mandelbrot-default-b256.sm_89.loop.instructions", "needs-toolchain", lacks)
    reason = f"{'; '.join(words)}." + (f" Not built: {', '.join(absent)}." if absent else "")
    if misses:
        return Verdict(
            "differs",
            f"{len(misses)} of {checked} counts differ: {'; '.join(misses[:4])}. {reason}",
            float(checked - len(misses)),
        )
    if absent:
        raise Open("needs-toolchain", f"{checked} counts are met. {reason}")
    return Verdict("reproduced", f"all {checked} counts are met. {reason}", float(checked))


@claim(
    "B14",
    "Rust wins by its one floating-point instruction fewer; or it is the u32 where C++ has int.",
    scope="C++ controls: Rust's three fusions written out; u32 instead of int",
    paper="a hypothesis the blog did not test",
    tolerance=(
        "Rust faster beyond the A/A floor, as the blog has it, and a control that takes at least half of that gap, "
        "beyond the floor: reproduced by the one it is; by neither: refuted; Rust slower: differs, for there is no win "
        "to explain"
    ),
)
def why_rust_wins(view: View) -> Verdict:
    base = kernel("cuda")
    rust = need_pair(view, "mandelbrot", kernel("rust-oxide"), base)
    if rust.difference.side == 0:
        raise Open("undecided", f"there is no gap to explain here: {rust.difference.reason}")
    rows, explains = [rust.row(kernel=kernel("rust-oxide"))], []
    found = {}
    for what, control in (
        ("its three fusions", kernel("cuda", "mandelbrot-oxide")),
        ("u32", kernel("cuda", "mandelbrot-u32")),
    ):
        compared = view.compare(control, base, "mandelbrot")
        if compared is None or len(compared.us.passes) < statistics.MIN_PASSES:
            raise Open("undecided", "needs two passes of both controls, mandelbrot-oxide and mandelbrot-u32 in C++")
        found[what] = compared
        rows.append(compared.row(kernel=control))
        if compared.difference.side == rust.difference.side and abs(gap(compared)) >= abs(gap(rust)) / 2:
            explains.append(what)
    fused, unsigned = found.values()
    us = rust.us
    numbers = f"C++ with Rust's three fusions takes {_percent(gap(fused))} time than C++, with u32 "
    numbers += f"{_percent(gap(unsigned))}"
    if rust.difference.side > 0:
        reason = f"here Rust is slower by {100 * gap(rust):.2f} %, so that there is no win to explain; {numbers}"
        if fused.difference.side > 0:
            reason += ": with Rust's six floating-point instructions instead of seven C++ is slower as well"
        return Verdict("differs", f"{reason}.", us.median, us.low, us.high, rust.floor, tuple(rows))
    by = f"{' and '.join(explains)} explain it" if explains else "neither control explains it"
    reason = f"Rust takes {_percent(gap(rust))} time, and {by}: {numbers}."
    verdict = "reproduced" if explains else "refuted"
    return Verdict(verdict, reason, us.median, us.low, us.high, rust.floor, tuple(rows))


@claim(
    "B15",
    "A check of two pixels that escape without rounding says `equal` under any arithmetic.",
    scope="a planted change",
    tolerance="the two-pixel check equal while the images differ",
)
def trivial_check(view: View) -> Verdict:
    (equal,) = view.need("fma.trivial_pixels.equal", kind=bool)
    (pixels,) = view.need("fma.trivial_pixels.images_differ")
    reason = (
        f"the two-pixel check says {'equal' if equal else 'different'} of images that differ in {pixels:,.0f} pixels."
    )
    return Verdict("reproduced" if equal and pixels > 0 else "refuted", reason, float(pixels))


@claim(
    "B16",
    "Conditions differ between the variants: C++ draws more power and leaves the clock a step lower.",
    scope="Mandelbrot, default, C++ against Rust",
    paper="about 6 W more, one clock step (15 MHz) in 12 of 40 cases, 39 to 73 C over the session",
    tolerance="C++ draws more in every pass, its clock is lower in one and higher in none; the sizes are the card's",
)
def conditions(view: View) -> Verdict:
    view.need_kernels(kernel("cuda"), kernel("rust-oxide"))
    sides = {}
    for name, lang in (("C++", "cuda"), ("Rust", "rust-oxide")):
        rows = view.table.select(kernel(lang), "mandelbrot").dropna(subset=["power_w", "sm_clock_mhz", "temperature_c"])
        sides[name] = {
            key: (statistics.median(g["power_w"].tolist()), statistics.median(g["sm_clock_mhz"].tolist()))
            for key, g in rows.groupby(PASS)
        }
    passes = sorted(sides["C++"].keys() & sides["Rust"].keys())
    if len(passes) < statistics.MIN_PASSES:
        raise Open("undecided", "power and clocks were not read with both kernels")
    power = [sides["C++"][key][0] - sides["Rust"][key][0] for key in passes]
    clock = [sides["C++"][key][1] - sides["Rust"][key][1] for key in passes]
    warm = view.table.rows.loc[view.table.rows["cell"] == "mandelbrot", "temperature_c"].dropna()
    step = statistics.median(clock)
    at = f"at a clock {abs(step):.3g} MHz {'higher' if step > 0 else 'lower'}" if step else "at the same clock"
    reason = (
        f"against Rust C++ draws {statistics.median(power):+.3g} W in the median pass ({min(power):+.3g} to "
        f"{max(power):+.3g} W over {len(power)} passes) {at}, between {warm.min():.0f} and {warm.max():.0f} C."
    )
    met = min(power) > 0 and min(clock) < 0 and max(clock) <= 0
    return Verdict("reproduced" if met else "differs", reason, statistics.median(power), min(power), max(power))


@claim(
    "B17",
    "cuda-oxide's build needs the cuRAND headers, builds sm_80 without --arch, and "
    "--materialize-cubin needs nvJitLink.",
    scope="the cuda-oxide commit of the archive",
    paper="256 MB of cuRAND; sm_80",
    tolerance="none",
)
def install_facts(view: View) -> Verdict:
    lacks = "cargo oxide was not run where this archive was made, so it does not say what cuda-oxide's own build needs"
    curand, jitlink = view.need(
        "install.curand_needed",
        "install.materialize_needs_nvjitlink",
        kind=bool,
        verdict="needs-toolchain",
        lacks=lacks,
    )
    (arch,) = view.need("install.default_arch", verdict="needs-toolchain")
    reason = f"cuRAND headers {'needed' if curand else 'not needed'}, default sm_{arch:.0f}, --materialize-cubin "
    reason += f"{'needs' if jitlink else 'does not need'} nvJitLink."
    return Verdict("reproduced" if curand and arch == 80 and jitlink else "refuted", reason)


@claim(
    "B18",
    "rustc for the CPU never contracts a*b + c; an FMA is asked for by f32::mul_add.",
    scope="object code for a processor that has FMA",
    tolerance="no fused instruction, while the control with mul_add has some",
)
def rustc_never_contracts(view: View) -> Verdict:
    fused, control = view.need("rustc.host.fma_instructions", "rustc.host.fma_instructions_mul_add")
    if control <= 0:
        raise Open("undecided", "the control with mul_add has no fused instruction either, so the count says nothing")
    reason = (
        f"rustc's object code of a*b + c has {fused:.0f} fused instructions, the control with mul_add {control:.0f}."
    )
    return Verdict("refuted" if fused else "reproduced", reason, float(fused))


@claim(
    "B19",
    "No setting makes the two compilers' images match without turning contraction off on both.",
    scope="cuda-oxide's default PTX assembled with ptxas -fmad=false, nvcc's default untouched",
    tolerance="one setting whose image equals nvcc's default refutes",
    otherwise=(
        "It holds of the switches of nvcc and cuda-oxide themselves: this one is the assembler's; not tested: programs "
        "whose fusions the assembler does not make."
    ),
)
def no_matching_setting(view: View) -> Verdict:
    pixels = view.value("fma.ptxas_nofmad.pixels")
    if pixels is None:  # the GPU's images, where they were taken
        document = images(view)
        need_patterns(view, document, kernel("cuda"), f"{kernel('rust-oxide')}@nofmad")
        pixels = pair(document, kernel("cuda"), f"{kernel('rust-oxide')}@nofmad")["pixels"]
    reason = (
        f"cuda-oxide's default PTX, assembled by ptxas -fmad=false, gives an image that departs from nvcc's default in "
        f"{pixels:,.0f} pixels."
    )
    return Verdict("refuted" if pixels == 0 else "reproduced", reason, float(pixels))
