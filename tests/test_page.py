"""The page in a real Chromium: silent, offline, usable by keyboard, at any width, in both themes; text stays text."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.archive.read import load
from harness.archive.schema import Note, Null, Pass, Reduction, Skipped
from harness.claims.registry import View
from harness.claims.statistics import Regime
from harness.errors import IrrError
from harness.measure.surface import MOST_TRIANGLES, surface_finding, thin
from harness.report import page as report_page
from harness.report.derive import prepare
from harness.report.figures import draw_figures
from harness.report.page import left_out, make_pages, report
from harness.report.surface import read_surface
from tests.synthetic import UUID, gate, sample_rows, write_archive
from tests.test_claims import CA, LOST, TA, TABLE1, cuda

HOSTILE = '<script>document.title="taken"</script><img src=x onerror="document.title=1"> {{ 7*7 }} & \u202eabc'
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-swiftshader",
)


def sphere(step: int = 24) -> np.ndarray:
    """Triangles (t, 3, 3) f32 of a sphere of half a metre."""
    u, v = np.linspace(0, np.pi, step), np.linspace(0, 2 * np.pi, 2 * step)
    grid = 0.5 * np.stack(
        [np.outer(np.sin(u), np.cos(v)), np.outer(np.sin(u), np.sin(v)), np.outer(np.cos(u), np.ones_like(v))], axis=-1
    )
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    return np.concatenate([np.stack(t, axis=-2).reshape(-1, 3, 3) for t in ((a, b, c), (a, c, d))]).astype(np.float32)


def hostile(root: Path, **more: Any) -> Path:
    """A matrix whose every text is markup."""
    times = {**TABLE1, **cuda(concurrent=0.6), (CA, "lf-hi"): 40.0, (TA, "lf-hi"): 500.0}
    [surface] = surface_finding(HOSTILE, "base", sphere(), 0.02)
    return write_archive(
        root,
        samples=sample_rows(times, loss={(TA, "lf-hi"): LOST}, rounds=4),
        gates=[gate("cuda", "gpu", "base", message=HOSTILE, when="before"), gate(HOSTILE, "gpu", "base", ok=False)],
        evidence={"surface": surface["value"]},
        device_name=HOSTILE,
        command=["irr", HOSTILE],
        skipped=[Skipped(kernel="rust-oxide/allocate/plain", cell=HOSTILE, status="needs-toolchain", why=HOSTILE)],
        nulls=[Null(field="power_w", why=HOSTILE)],
        flags=[Note(what=HOSTILE, why=HOSTILE)],
        refusals=[Note(what=HOSTILE, why="refused")],
        reductions=[Reduction(cell="base", batch=4, why=HOSTILE)],
        **more,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = hostile(tmp_path_factory.mktemp("page") / "run")
    report(root)
    return root / "derived" / "report.html"


# ---------------------------------------------------------------------------------------------- without a browser


def test_the_page_is_small_and_one_file(made: Path) -> None:
    data = made.read_bytes()
    assert len(data) < 3_000_000
    text = data.decode()
    assert not re.search(
        r"<link (?!rel=\"icon\" href=\"data:,\")|@import|<iframe|<object|url\((?!#)", text.split("<script")[0]
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None and policy[1].startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[\w+/=]+'; ", policy[1]), "its own script alone, by its hash"


def test_things_left_out_for_one_reason_stand_together(tmp_path: Path) -> None:
    skipped = [Skipped(kernel="k", cell=cell, status="needs-toolchain", why="no nightly") for cell in ("a", "b")]
    skipped.append(Skipped(kernel="l", cell="*", status="needs-toolchain", why="no nightly"))
    found = left_out(View(load(write_archive(tmp_path / "a", cells=["base"], skipped=skipped))))
    assert found == [("not timed: needs-toolchain", "k on a, b; l", "no nightly")]


def test_the_page_says_which_library_was_not_measured(tmp_path: Path) -> None:
    write_archive(tmp_path / "a", samples=sample_rows({("cuda/allocate/plain", "base"): 24.0}))
    assert [(what, "cuCollections" in why) for what, _, why in left_out(View(load(tmp_path / "a")))] == [
        ("not measured", True)
    ]


def test_a_table_that_no_figure_names_still_has_its_place(made: Path) -> None:
    names = set(re.findall(r'href="tables/(\w+)\.csv"', made.read_text(encoding="utf-8")))
    assert names == {path.stem for path in (made.parent / "tables").glob("*.csv")} - {"claims"}


def test_the_page_says_what_it_counts_and_what_its_cells_are(made: Path) -> None:
    text = made.read_text(encoding="utf-8")
    assert "Of this archive alone: <code>irr claims</code> judges all archives" in text
    assert "Cells are named by what differs from base, a sphere of 320,000 points: pts- the number of points" in text
    assert text.index("Claims, one by one</h2>") < text.index("What was measured, row by row?</h2>"), "data come last"
    assert text.index("The answer</h2>") < text.index('<nav class="contents"'), "the answer comes before its contents"


def test_a_bare_number_is_not_shown_as_a_finding() -> None:
    shown = {value: report_page._measured({"measured": value}) for value in (0.8694, 17, "error-with-location", None)}
    assert shown == {0.8694: "", 17: "", "error-with-location": "error-with-location", None: ""}
    assert report_page._measured({"measured": True}) == "yes"


def test_red_gates_of_one_message_stand_together(tmp_path: Path) -> None:
    gates = [gate("cuda", "gpu", "base", ok=False, message="no", when=when) for when in ("before", "after")]
    gates.append(gate("rust-oxide", "gpu", "base", ok=False, message="other"))
    found = report_page._failed(View(load(write_archive(tmp_path / "a", cells=["base"], gates=gates))))
    assert [(message, len(subjects)) for _, message, subjects in found] == [("no", 2), ("other", 1)]


def test_values_of_a_column_have_as_many_digits_and_invent_none() -> None:
    assert report_page._words([1.02, 1.012, 0.9876]) == ["1.020", "1.012", "0.9876"]
    assert report_page._words([1.1, 31.7, 0.96, 3.33]) == ["1.10", "31.7", "0.96", "3.33"], "a paper's, as it gave them"
    assert report_page._words([180.12, 17.93, 1768.4, 25.0]) == ["180.1", "17.93", "1,768", "25.00"]
    assert report_page._words([0.0118, 0.00812], 2) == ["0.012", "0.0081"]
    assert report_page._words([None, 3, "a", 0.0, 12.0]) == ["", "3", "a", "0", "12"]
    assert report_page._words([-0.5, 0.25]) == ["-0.50", "0.25"]


def test_a_long_table_is_closed_says_its_rows_and_no_other_scrolls_down(tmp_path: Path) -> None:
    """A table that ends at the edge of a region reads as if it ended there."""
    times = {("cuda/allocate/plain", "base"): 20.0} | {(f"cuda/allocate/v{i}", "base"): 20.0 for i in range(60)}
    root = write_archive(tmp_path / "a", samples=sample_rows(times, passes=2, rounds=2))
    text = make_pages(prepare(root))["report.html"].decode()
    assert "<details><summary>Every kernel by cell and regime, 62 rows</summary>" in text
    assert text.count('<div class="scroll wide tall"') + text.count('<div class="scroll tall"') == 2, "and its figure's"
    style = (report_page.TEMPLATES / "page.css").read_text(encoding="utf-8")
    assert re.findall(r"([^{}\n]+)\{[^}]*max-height: 34rem", style) == [".tall "]


def test_what_a_study_asks_stands_first_and_other_studies_figures_are_not_missed(tmp_path: Path) -> None:
    times = {("cuda/allocate/plain", cell): 20.0 for cell in ("pts-2k", "base", "pts-20m")}
    times |= {(kernel.replace("cuda", "rust-oxide"), cell): us for (kernel, cell), us in times.items()}
    asks = "How does time grow from 2 thousand to 20 million points?"
    root = write_archive(tmp_path / "a", samples=sample_rows(times, passes=2), study="scaling")
    own = report_page.own_questions("scaling")
    assert asks in own and report_page.own_questions("matrix") == set()
    done = prepare(root)
    found = draw_figures(done.view)
    sections = report_page._questions(found, done.tables, own)
    firsts = [section["question"] in own for section in sections]
    assert firsts == sorted(firsts, reverse=True)
    missing = {item.name for item in report_page._missing(done.view.archive.run, found)}
    assert {"multiprocessors", "counters"} <= missing and not {"causes", "tiles", "warm"} & missing


def test_the_head_says_how_many_devices_there_were(tmp_path: Path) -> None:
    rows = sample_rows({("cuda/allocate/plain", "base"): 20.0}, passes=1)
    rows += [row | {"pass": 1} for row in sample_rows({("cuda/allocate/plain", "base"): 20.0}, passes=1, uuid="GPU-2")]
    passes = [
        Pass(number=n, device_uuid=uuid, device_name="Card", arch=90, started_utc="2026-01-02T03:04:05Z", complete=True)
        for n, uuid in enumerate((UUID, "GPU-2"))
    ]
    text = make_pages(prepare(write_archive(tmp_path / "a", samples=rows, passes=passes)))["report.html"].decode()
    assert "<h1>What holds on 2 x Card</h1>" in text


def test_numbers_behind_a_claim_are_numbers_and_ranges() -> None:
    rows = [
        {"cell": "base", "paper_low": 1.02, "range": [1.02, 3.33], "of": ["a", "b"]},
        {"cell": "r", "paper_low": 11.2},
    ]
    found = report_page._rows_table({"rows": rows})
    assert found == {
        "heads": [("cell", False), ("paper low", True), ("range", False), ("of", False)],
        "rows": [["base", "1.02", "1.02 to 3.33", "a, b"], ["r", "11.2", "", ""]],
    }
    assert report_page._rows_table({"rows": []}) is None


@pytest.mark.browser
def test_no_word_of_a_table_breaks_in_its_middle(start: Browser, made: Path) -> None:
    """A narrow column may break at a space; a number on two lines is another number."""
    browser = start(made, width=1200)
    broken = """
      for (const d of document.querySelectorAll('details')) d.open = true;
      return [...document.querySelectorAll('.claim td.n, .data td.n')].filter(cell => {
        const range = document.createRange(); range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1;
      }).map(cell => cell.textContent)"""
    assert browser.execute_script(broken) == []
    claims = "return document.querySelectorAll('.claim td.n').length"
    assert browser.execute_script(claims) > 20


def test_what_each_device_says_of_a_claim_stands_under_it() -> None:
    alone = [
        {"device": "GPU-aaaaaaaa-1", "verdict": "reproduced", "measured": 1.0123, "range": [1.001, 1.02]},
        {"device": "GPU-bbbbbbbb-2", "verdict": "refuted", "measured": True, "range": None},
    ]
    words = "GPU-aaaaaaaa holds here, 1.012 (1.001 to 1.02); GPU-bbbbbbbb does not hold"
    assert report_page._alone({"devices": alone}) == words and report_page._alone({"devices": []}) == ""


def test_a_regime_is_said_in_words() -> None:
    words = [report_page._regime_words(Regime(**more)) for more in ({}, {"l2": "flushed"}, {"table": "filled"})]
    assert words == ["serial, fresh table", "serial, fresh table, L2 flushed", "serial, filled table"]


@pytest.mark.parametrize(
    "change",
    [
        {"vertices": "!"},
        {"triangles": ""},
        {"vertices": "eJwDAAAAAAE="},
        {"triangles": surface_finding("a", "b", sphere(40), 0.005)[0]["value"]["triangles"]},
    ],
    ids=["base64", "empty", "no-vertices", "other-mesh"],
)
def test_a_surface_of_another_form_is_refused_and_said(tmp_path: Path, change: dict[str, str]) -> None:
    value = {**surface_finding("cuda", "base", sphere(), 0.02)[0]["value"], **change}
    root = write_archive(tmp_path / "a", cells=["base"], evidence={"surface": value})
    with pytest.raises(IrrError, match="surface"):
        read_surface(View(load(root)))
    assert "The fused surface: the finding surface" in make_pages(prepare(root))["report.html"].decode()


def test_a_thinned_sphere_is_a_sphere_whatever_its_order() -> None:
    soup = sphere(110)
    assert len(soup) > 2 * MOST_TRIANGLES
    view = surface_finding("cuda", "base", soup, 0.01)[0]["value"]
    assert surface_finding("cuda", "base", soup[::-1], 0.01)[0]["value"] == view
    vertices, faces = thin(soup, 0.04)
    assert 100 < len(faces) <= MOST_TRIANGLES and faces.max() < len(vertices)
    assert np.abs(np.linalg.norm(vertices, axis=1) - 0.5).max() < 0.01
    assert surface_finding("cuda", "base", np.empty((0, 3, 3), np.float32), 0.01) == []


# ---------------------------------------------------------------------------------------------------- in Chromium

Browser = Callable[..., Any]
folders: dict[str, Path] = {}
"""Profile and download folder of each browser session."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Starts a Chromium of its own profile with a page open; all end with the module."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    running: list[Any] = []

    def open_page(path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Any:
        options = Options()
        options.binary_location = chromium
        folder = tmp_path_factory.mktemp("profile")
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        browser = webdriver.Chrome(options=options, service=Service(driver))
        running.append(browser)
        folders[str(browser.session_id)] = folder
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.get_log("performance")  # the new tab's own
        browser.get(path.as_uri())
        return browser

    yield open_page
    for browser in running:
        browser.quit()


@pytest.fixture(scope="module")
def wide(start: Browser, made: Path) -> Any:
    return start(made)


def requests(browser: Any) -> set[str]:
    """Addresses asked for since the last call, data: aside."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return {url for url in asked if not url.startswith(("data:", "blob:", "chrome:"))}


def errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.browser
def test_it_opens_without_an_error_or_a_request(wide: Any, made: Path) -> None:
    assert requests(wide) == {made.as_uri()}
    assert errors(wide) == []


@pytest.mark.browser
def test_hostile_text_is_shown_as_text(wide: Any) -> None:
    shown = wide.execute_script("return document.body.textContent")
    assert shown.count('<script>document.title="taken"</script>') >= 6 and "{{ 7*7 }}" in shown
    assert wide.title.startswith("What holds on <script>")
    assert wide.execute_script("return document.images.length") == 0, "figures are elements of the page"
    # The page's own: its script and the mesh.
    assert wide.execute_script("return document.querySelectorAll('script').length") == 2


@pytest.mark.browser
def test_a_script_that_is_not_the_pages_own_does_not_run(start: Browser, made: Path, tmp_path: Path) -> None:
    """The policy is what stops markup that slipped through escaping."""
    text = made.read_text(encoding="utf-8").replace("</body>", '<script>document.title = "taken"</script></body>')
    broken = tmp_path / "broken.html"
    broken.write_text(text, encoding="utf-8")
    browser = start(broken)
    assert browser.title != "taken"
    assert any("Content Security Policy" in message for message in errors(browser))


@pytest.mark.browser
def test_landmarks_headings_and_tables_have_names(wide: Any) -> None:
    script = """
      const every = (what) => [...document.querySelectorAll(what)];
      const levels = every('h1,h2,h3,h4').map(h => Number(h.tagName[1]));
      const ids = every('[id]').map(e => e.id);
      return {
        main: every('main').length, nav: every('nav[aria-label]').length, lang: document.documentElement.lang,
        h1: levels.filter(l => l === 1).length, jumps: levels.some((l, i) => i && l > levels[i - 1] + 1),
        uncaptioned: every('table').filter(t => !t.caption || !t.caption.textContent.trim()).length,
        unscoped: every('th').filter(t => !t.scope).length,
        silent: every('.picture > svg').filter(i => i.getAttribute('role') !== 'img'
          || i.getAttribute('aria-label').length < 40 || !ids.includes(i.getAttribute('aria-describedby'))).length,
        unlabelled: every('.scroll').filter(s => !s.getAttribute('aria-label')).length,
        vague: every('summary, .note > a:not(.csv)').map(e => e.textContent)
          .filter((text, i, all) => /^(How it is judged|The \\d+ rows that it draws|SVG|PDF)$/.test(text)).length,
        duplicates: ids.filter((id, i) => ids.indexOf(id) !== i),
        dead: every('a[href^="#"]').filter(a => !ids.includes(a.hash.slice(1))).length,
      }"""
    assert wide.execute_script(script) == {
        "main": 1, "nav": 1, "h1": 1, "lang": "en", "jumps": False, "uncaptioned": 0, "unscoped": 0, "silent": 0,
        "unlabelled": 0, "vague": 0, "duplicates": [], "dead": 0,
    }  # fmt: skip


@pytest.mark.browser
def test_text_stands_out_from_its_ground_in_both_themes(start: Browser, made: Path) -> None:
    """WCAG AA: 4.5 to 1, computed from what the browser paints."""
    script = """
      const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
      const linear = (v) => v <= 10 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
      const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
      const ground = (e) => {
        for (; e; e = e.parentElement) {
          const c = rgb(getComputedStyle(e).backgroundColor);
          if (c.length === 3 || c[3] > 0) return c;
        }
        return [255, 255, 255];
      };
      const bad = [], texts = 'p, li, a, th, td, dt, dd, h1, h2, h3, summary, button, .chip, figcaption';
      for (const e of document.querySelectorAll(texts)) {
        const a = light(rgb(getComputedStyle(e).color)), b = light(ground(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) bad.push([e.tagName, e.className, ratio.toFixed(2)]);
      }
      return [getComputedStyle(document.body).backgroundColor, bad.slice(0, 5)]"""
    found = [start(made, dark=dark).execute_script(script) for dark in (False, True)]
    assert found[0][0] != found[1][0]
    assert [bad for _, bad in found] == [[], []]


@pytest.mark.browser
def test_the_theme_can_be_switched(start: Browser, made: Path) -> None:
    browser = start(made)
    button = browser.find_element("id", "theme")
    ground = "return getComputedStyle(document.body).backgroundColor"
    before, pressed = browser.execute_script(ground), button.get_attribute("aria-pressed")
    button.click()
    assert browser.execute_script(ground) != before
    assert (pressed, button.get_attribute("aria-pressed")) == ("false", "true")
    button.click()
    assert browser.execute_script(ground) == before


@pytest.mark.browser
def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(start: Browser, made: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = start(made)
    active = (
        "const e = document.activeElement;"
        "return [e.className || e.id || e.textContent.trim(), getComputedStyle(e).outlineStyle]"
    )

    def press(key: str) -> list[str]:
        ActionChains(browser).send_keys(key).perform()
        return browser.execute_script(active)

    assert press(Keys.TAB) == ["skip", "solid"]
    assert press(Keys.TAB) == ["theme", "solid"]
    assert press(Keys.TAB) == ["What does each language cost?", "solid"]
    browser.execute_script("document.querySelector('.skip').focus()")
    press(Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "main"
    seen = [press(Keys.TAB)[1] for _ in range(12)]
    assert set(seen) == {"solid"}, "focus is always visible"
    places = browser.execute_script(
        "return [...document.querySelectorAll('a[href], button, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.tabIndex > 0).length"
    )
    assert places == 0, "no element jumps the order of the page"


@pytest.mark.browser
def test_claims_can_be_filtered_by_verdict(wide: Any) -> None:
    buttons = wide.find_elements("css selector", ".filters button")
    total = len(wide.find_elements("css selector", ".claim"))
    assert buttons[0].text == f"All {total}" and total >= 70
    for button in buttons[1:]:
        wide.execute_script("arguments[0].click()", button)
        shown = [c.get_attribute("data-verdict") for c in wide.find_elements("css selector", ".claim:not([hidden])")]
        assert set(shown) == {button.get_attribute("data-verdict")} and button.text.endswith(f" {len(shown)}")
        assert wide.find_element("id", "shown").text == f"{len(shown)} of {total} claims shown."
    wide.execute_script("arguments[0].click()", buttons[0])
    assert len(wide.find_elements("css selector", ".claim:not([hidden])")) == total


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_page_does_not_scroll_sideways(start: Browser, made: Path, width: int) -> None:
    browser = start(made, width=width, height=740)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    # Wide things scroll inside their own region, which says so and is reached by Tab; what does not scroll is not.
    regions = """
      return new Promise(done => setTimeout(done, 300)).then(() => [...document.querySelectorAll('.scroll')].map(s => {
        const more = s.scrollWidth > s.clientWidth + 1, hint = s.previousElementSibling;
        const hinted = hint && hint.classList.contains('hint') ? !hint.hidden : more;
        return [more, hinted, more || s.scrollHeight > s.clientHeight + 1, s.tabIndex === 0];
      }))"""
    found = browser.execute_script(regions)
    assert sum(more for more, *_ in found) > 3
    assert all(more == hinted and scrolls == reached for more, hinted, scrolls, reached in found)


@pytest.mark.browser
def test_the_papers_tables_fit_a_screen_and_a_sheet(start: Browser, made: Path) -> None:
    """Nothing is cut: at 1200 pixels no table of the paper's scrolls, and printed no region is wider than the sheet."""
    browser = start(made, width=1200)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    cut = "return [...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth + 1)"
    named = f"{cut}.map(s => s.getAttribute('aria-label'))"
    # The passes name a device, whose name is a novel here.
    assert not [name for name in browser.execute_script(named) if name.startswith(("Table", "Loss", "Same statistic"))]
    inches = {"width": round((8.27 - 2 * 0.51) * 96), "height": 1123, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", inches)
    assert browser.execute_script(f"{cut}.filter(s => !s.classList.contains('wide')).map(s => s.outerText)") == []
    dark = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.browser
def test_data_downloads_are_the_derived_files(wide: Any, made: Path) -> None:
    links = wide.find_elements("css selector", "a.csv")
    assert len(links) > 12
    for link in links:
        name = link.get_attribute("download")
        body = wide.execute_script("return atob(arguments[0].href.split(',')[1])", link).encode("latin-1")
        files = [made.parent / folder / name for folder in ("tables", "figures")]
        stored = [file.read_bytes() for file in files if file.is_file()]
        assert body in stored or (not stored and name in ("gates.csv", "passes.csv", "floors.csv")), name
        assert list(csv.reader(io.StringIO(body.decode())))
    link = wide.find_element("css selector", "a.csv[download='table3.csv']")
    wide.execute_script("arguments[0].click()", link)
    target = folders[str(wide.session_id)] / "table3.csv"
    end = time.monotonic() + 20
    while not target.exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert target.read_bytes() == (made.parent / "tables" / "table3.csv").read_bytes()


@pytest.mark.browser
def test_figures_are_drawn(wide: Any) -> None:
    boxes = "return [...document.querySelectorAll('.picture > svg')].map(s => [s.clientWidth, s.clientHeight, s.%s])"
    sizes = wide.execute_script(boxes % "querySelectorAll('path').length")
    assert len(sizes) >= 6 and all(w > 300 and h > 100 and paths > 50 for w, h, paths in sizes)


@pytest.mark.browser
def test_a_figure_follows_the_theme_and_each_colour_stands_out(start: Browser, made: Path) -> None:
    """WCAG: graphics 3 to 1 where the theme chose them; and no two colours of a figure change places."""
    script = """
      const style = getComputedStyle(document.querySelector('.picture'));
      const light = (text) => { const v = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(
        c => c <= 10 ? c / 3294.6 : ((c / 255 + .055) / 1.055) ** 2.4);
        return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
      const probe = document.createElement('i'); document.body.append(probe);
      const of = (colour) => { probe.style.color = colour; return light(getComputedStyle(probe).color); };
      const ground = of('var(--card)'), found = {ground};
      for (const name of ['--ink', '--fig-blue', '--fig-brown', '--fig-grey']) {
        const l = of(`var(${name})`);
        found[name] = (Math.max(l, ground) + .05) / (Math.min(l, ground) + .05);
      }
      found.blues = of('#56B4E9') - of('var(--fig-blue)');
      return found"""
    found = [start(made, dark=dark).execute_script(script) for dark in (False, True)]
    assert found[0]["ground"] > 0.9 > 0.1 > found[1]["ground"]
    for theme in found:
        assert all(value >= 3 for name, value in theme.items() if name.startswith("--")), theme
        assert theme["blues"] > 0, "the light blue is the lighter one in both themes"


@pytest.mark.browser
def test_the_surface_is_shown_on_demand_and_turned_by_keys(start: Browser, made: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = start(made)
    browser.find_element("id", "show-surface").send_keys(Keys.ENTER)
    viewer = browser.find_element("id", "viewer")
    end = time.monotonic() + 60

    def eye() -> dict[str, float]:
        # Two frames later it is painted.
        script = "return new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))"
        browser.execute_script(script)
        return {key: float(viewer.get_attribute(f"data-{key}")) for key in ("theta", "phi", "far")}

    while not viewer.get_attribute("data-ready") and time.monotonic() < end:
        time.sleep(0.2)
    assert viewer.get_attribute("data-ready") == "yes"
    assert browser.execute_script("return document.activeElement.id") == "viewer"
    before = eye()
    viewer.send_keys(Keys.ARROW_LEFT)
    turned = eye()
    assert turned["theta"] == pytest.approx(before["theta"] - 0.12) and turned["phi"] == before["phi"]
    viewer.send_keys("+")
    assert eye()["far"] < turned["far"]
    viewer.send_keys(Keys.HOME)
    assert eye() == before
    # A sphere is round: what is painted is as wide as it is high, and fills pi / 4 of its box.
    painted = """
      const c = document.querySelector('#viewer canvas');
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      let n = 0, box = [1e9, 1e9, -1, -1];
      for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 128) {
        const x = i / 4 % c.width, y = Math.floor(i / 4 / c.width); n += 1;
        box = [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)];
      }
      return [box[2] - box[0] + 1, box[3] - box[1] + 1, n]"""
    wide, high, many = browser.execute_script(painted)
    assert wide == pytest.approx(high, rel=0.05) and wide > 200
    assert many / (wide * high) == pytest.approx(np.pi / 4, rel=0.03), "no hole, nothing outside"
    assert requests(browser) == {made.as_uri()}
    assert errors(browser) == []
