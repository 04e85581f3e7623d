"""What an archive answers, in plain sentences: the head of the page and the README's block come from here.

Every number in a sentence is computed from the archive or read from data/paper/; nothing is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.archive.schema import Gate
from harness.claims import figures as seeds
from harness.claims import statistics
from harness.claims.blog import images as fma_images
from harness.claims.paper import losses_of
from harness.claims.registry import Open, View
from harness.claims.statistics import CONCURRENT, Regime
from harness.report import attribution, contracted, frames, scaling
from harness.report.drawing import Missing, Plot, count, n, span_words
from harness.report.figures import since
from harness.report.tables import (
    BASES,
    STATIC,
    TRITON_WHILE,
    deviations,
    noted,
    ratios_of,
    rust_kernel,
    told_apart,
    whole_ratio,
)

Sentence = tuple[str, str]
"""(what it is about, what was found)."""


def _stage_words(view: View, stage: str, kernel: str, paper: str) -> str | None:
    """`allocate takes 0.82 to 0.88 times CUDA C++'s time, median 0.85 (the paper: 1.02 to 3.33; 3 cells ...)`."""
    found = ratios_of(view, kernel, BASES[stage])
    if not found:
        return None
    ratios = [c.us.median for c in found]
    text = f"{stage} takes {span_words(ratios)} times CUDA C++'s time, median {n(statistics.median(ratios))}"
    more = []
    if paper:
        low, high = seeds.stage_range(stage, paper)
        more.append(f"the paper: {n(low)} to {n(high)}")
    more.append(f"{count(len(found), 'cell')} of the paper's, {told_apart(found)}")
    return f"{text} ({'; '.join(more)})"


def language_sentences(view: View) -> list[Sentence]:
    """Rust, then Triton as the paper wrote it, then Triton without a bound; allocate and update of each."""
    timed = set(view.table.kernels())
    heads: list[tuple[str, str, dict[str, str]]] = []
    for language, (toolchain, paper) in {
        "rust-oxide": ("cuda-oxide", "rust"),
        "rust-nvptx": ("stock rustc", ""),
    }.items():
        # The paper's Rust is cuda-oxide's; stock rustc's stands for it only where that was not timed.
        paper = paper or ("" if heads else "rust")
        kernels = {stage: f"{language}/{stage}/plain" for stage in BASES}
        if timed & set(kernels.values()):
            heads.append((f"Rust, {toolchain}", paper, kernels))
    heads += [("Triton, bounded probe", "triton", STATIC), ("Triton, unbounded probe", "", TRITON_WHILE)]
    found = []
    for head, paper, kernels in heads:
        there = {stage: kernel for stage, kernel in kernels.items() if kernel in timed}
        words = {stage: _stage_words(view, stage, kernel, paper) for stage, kernel in there.items()}
        parts = [text for text in words.values() if text is not None]
        if parts:
            names = [there[stage] for stage, text in words.items() if text is not None]
            odd = dict.fromkeys(word for name in names for word in deviations(view, name))
            built = f" ({', '.join(odd)})" if odd else ""
            said = "; ".join(parts)
            found.append((head, f"{said[0].upper()}{said[1:]}. Kernels {' and '.join(names)}{built}."))
    return found


def regime_sentence(view: View) -> Sentence | None:
    """The paper's Rust gap as a matter of how both sides are launched."""
    rust = rust_kernel(view, "allocate")
    if rust is None:
        return None
    pairs = [c for c in ratios_of(view, rust, BASES["allocate"], None) if c.reference is not None]
    if not pairs:
        return None
    serial = [c.us.median for c in pairs]
    derived = [c.reference.median for c in pairs if c.reference is not None]
    both = [whole_ratio(view, rust, BASES["allocate"], c.cell, CONCURRENT) for c in pairs]
    branches = [c.us.median for c in both if c is not None]
    text = f"Over {count(len(pairs), 'cell')} Rust's allocate takes {span_words(serial)} times CUDA C++'s time"
    text += ", both on one stream"
    if branches:
        text += f"; {span_words(branches)}, both on one branch a volume"
    text += f"; {span_words(derived)}, Rust on one stream and CUDA on branches (derived, not the paper's host loop)"
    low, high = seeds.stage_range("allocate", "rust")
    return "Launch", f"{text}. The paper: {n(low)} to {n(high)}."


def loss_sentence(view: View) -> Sentence | None:
    """What the bounded probe loses and the unbounded one does not."""
    losses = losses_of(view)
    if not losses:
        return None
    loads = {cell: view.archive.run.cells[cell].load_factor for cell in losses}
    losing = [cell for cell, (blocks, points) in losses.items() if blocks[1] > 0 or points[1] > 0]
    top = max(loads.values())
    if losing:
        first, worst = min(losing, key=loads.__getitem__), max(losing, key=lambda cell: losses[cell][0][1])
        above = {cell for cell, load in loads.items() if load >= loads[first]}
        start = since(loads[first], above <= set(losing))
        text = (
            f"Triton's bounded probe loses {start}, up to {losses[worst][0][1]:,.0f} of "
            f"{view.archive.run.cells[worst].blocks:,} blocks at load {loads[worst]:.3f}"
        )
    else:
        text = f"Triton's bounded probe lost nothing up to load {top:.3f}, the highest it was tried at"
    rows = view.archive.samples
    whole = rows[(rows["kernel"] == TRITON_WHILE["allocate"]) & rows["status"].isin(("ok", "lossy"))]
    lost = whole["lost_blocks"].dropna()
    if not len(lost):
        return "Loss", f"{text}."
    tried = max(view.archive.run.cells[cell].load_factor for cell in whole["cell"] if cell in view.archive.run.cells)
    if lost.max() > 0:
        return "Loss", f"{text}; the unbounded one lost up to {lost.max():.0f} blocks."
    return "Loss", f"{text}; the unbounded one lost nothing up to load {tried:.3f}."


def _more(percent: float) -> str:
    return f"{abs(percent):.2f} percent {'more' if percent >= 0 else 'less'}"


def gate_sentence(view: View) -> Sentence | None:
    """How many gates are green, and which are not, with the first message of each kind."""
    judged = [gate for gate in view.archive.gates if gate.skipped is None]
    if not judged:
        return None
    red: dict[str, list[Gate]] = {}
    for gate in judged:
        if not gate.ok:
            red.setdefault(gate.gate, []).append(gate)
    text = f"{len(judged) - sum(map(len, red.values())):,} of {len(judged):,} checks of correctness are green"
    for name, gates in red.items():
        of = sum(gate.gate == name for gate in judged)
        text += f"; {name} is red {len(gates)} of {of} times, the first: {gates[0].subject}: {gates[0].message}"
    return "Gates", f"{text.rstrip('.')}."


def contraction_sentences(view: View) -> list[Sentence]:
    """The compiler-contraction study."""
    found: list[Sentence] = []
    try:
        pairs = {(p["a"], p["b"]): p for p in fma_images(view)["pairs"]}
    except (Open, KeyError, TypeError):
        pairs = {}
    differ, whole = pairs.get(("nvcc", "oxide")), pairs.get(("oxide", "oxide+escape"))
    if differ is not None:
        text = (
            f"The fusions of nvcc and of cuda-oxide give images that differ in {differ['pixels']:,} pixels "
            f"(the blog: {seeds.blog('pixels'):,})"
        )
        if whole is not None:
            text += f"; fusing the escape test as well moves {whole['pixels']:,} more" if whole["pixels"] else ""
            text += "; fusing the escape test as well moves none" if not whole["pixels"] else ""
        found.append(("Same image", f"{text}."))
    parts = []
    for word, text, key in (
        ("default", "with each compiler's contraction", "default_percent"), ("off", "with it off", "off_percent"),
    ):  # fmt: skip
        for language in ("rust-oxide", "rust-nvptx"):
            kernel, base = (f"{lang}/fma/mandelbrot-{word}-b256" for lang in (language, "cuda"))
            compared = view.compare(kernel, base, "mandelbrot", Regime())
            if compared is not None:
                gap = 100 * (compared.us.median - 1)
                parts.append(f"{_more(gap)} time {text} ({language}; the blog: {_more(seeds.blog(key))})")
                break
    if parts:
        found.append(("Contraction", f"Rust's Mandelbrot takes {', '.join(parts)} than CUDA C++'s."))
    return found


STUDIES: dict[str, tuple[tuple[str, Callable[[View], Plot]], ...]] = {
    "attribution": (
        ("Causes of Rust's gap", attribution.causes),
        ("How fast it can be", attribution.limits),
        ("Triton's shared scratch", attribution.scratch),
        ("Triton's tile", attribution.tiles),
    ),
    "scaling": (("Multiprocessors", scaling.multiprocessors), ("Points", scaling.points)),
    "contracted": (("Samples that contraction moves", contracted.samples),),
    "real": (("Real frames", frames.real), ("Warm table", frames.warm)),
}
"""Study -> what it was made for: (what it is about, the figure that answers it)."""


def study_sentences(view: View) -> list[Sentence]:
    """What a study of its own question found, in the words of its figures."""
    found = []
    for head, make in STUDIES.get(view.archive.run.study, ()):
        try:
            plot = make(view)
        except Missing:
            continue
        found.append((head, noted(plot.short or plot.answer)))
    return found


def sentences(view: View) -> list[Sentence]:
    """The few sentences that matter, in order; what the archive cannot say is left out."""
    found = [*study_sentences(view), *language_sentences(view)] if view.archive.run.gpu else []
    if view.archive.run.gpu:
        found += [pair for pair in (regime_sentence(view), loss_sentence(view)) if pair is not None]
    found += contraction_sentences(view)
    gates = gate_sentence(view)
    return found if gates is None else [*found, gates]


VERDICT_WORDS = {
    "reproduced": ("holds here", "hold here"),
    "differs": ("has another figure here", "have another figure here"),
    "refuted": ("does not hold", "do not hold"),
    "undecided": ("is not decided", "are not decided"),
    "needs-gpu": ("needs a GPU measurement that is not here", "need GPU measurements that are not here"),
    "needs-two-gpus": ("needs more or other GPUs", "need more or other GPUs"),
    "needs-data": ("needs real frames", "need real frames"),
    "needs-toolchain": ("needs a toolchain that was not there", "need a toolchain that was not there"),
}


def tally(verdicts: Sequence[str]) -> str:
    """`Of 70 claims 12 hold here, 1 does not hold, ...`"""
    counts = [(sum(v == word for v in verdicts), texts) for word, texts in VERDICT_WORDS.items()]
    parts = [f"{number} {texts[number != 1]}" for number, texts in counts if number]
    return f"Of {len(verdicts)} claims {', '.join(parts)}."
