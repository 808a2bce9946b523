from __future__ import annotations

import asyncio
import functools
import http.server
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from sweep.browser_search import find_browser
from sweep.paths import resource_dir
from sweep.views.site import build_site, load_data_file
from sweep.views.site_libs import install_libraries
from tests.make_records import make_hostile_record, make_record, write_record, write_records

pytestmark = pytest.mark.browser

DAY = date(2026, 6, 1)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    data = root / "data"
    write_records(data, 60, 5, rigs=(0, 1))
    place = f"2.5.3/{DAY.isoformat()}"
    write_record(data, f"{place}/hostile-model.json", make_hostile_record(day=DAY))
    record = make_record("regressed", index=4, day=DAY, statuses=("pass", "output_mismatch"))
    write_record(data, f"{place}/regressed.json", record)
    old = make_record(
        "regressed", index=4, core="2.5.2", day=date(2026, 5, 1), statuses=("pass", "pass")
    )
    write_record(data, "2.5.2/2026-05-01/regressed.json", old)
    (data / place / "broken.json").write_text("{")
    build_site(data, root / "out")
    return root / "out"


@pytest.fixture(scope="module")
def origin(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = asyncio.run(find_browser()).executable
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails the test when anything is logged, thrown, or asked of another origin."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: trouble.append(str(e)))
    # A request still under way when the page is left is aborted; that is no failure of the site.
    page.on(
        "requestfailed",
        lambda r: (
            None if r.failure == "net::ERR_ABORTED" else trouble.append(f"{r.failure}: {r.url}")
        ),
    )
    page.on(
        "request",
        lambda r: (
            None
            if r.url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:"))
            else trouble.append(r.url)
        ),
    )
    yield page
    context.close()
    assert not trouble


def _statuses(page: Page) -> set[str]:
    return set(page.locator(".grid tbody .badge").all_inner_texts())


def test_filters_narrow_and_are_in_the_address(page: Page, origin: str) -> None:
    page.goto(origin)
    result = page.locator(".result")
    expect(result).to_have_text("244 of 244 results")
    page.get_by_role("button", name="mismatch").first.click()
    expect(page.locator(".token")).to_have_count(1)
    assert all("mismatch" in text for text in _statuses(page))
    page.get_by_label("Backend", exact=True).select_option("webgpu_mldrift")
    page.get_by_label("Operator", exact=True).select_option("BATCH_MATMUL")
    page.get_by_label("Search", exact=True).fill("regr")
    expect(result).to_have_text("1 of 244 results")
    expect(page.locator(".grid tbody a")).to_have_text("regressed")
    address = page.evaluate("location.hash")
    assert address == (
        "#/matrix?backend=webgpu_mldrift&op=BATCH_MATMUL&q=regr&sort=model&status=output_mismatch"
    )
    # The address alone brings the view back, controls included.
    page.goto("about:blank")
    page.goto(origin + address)
    expect(result).to_have_text("1 of 244 results")
    expect(page.get_by_label("Search", exact=True)).to_have_value("regr")
    expect(page.get_by_label("Operator", exact=True)).to_have_value("BATCH_MATMUL")
    page.get_by_role("button", name="Clear all").click()
    expect(result).to_have_text("244 of 244 results")
    assert page.evaluate("location.hash") == "#/matrix?sort=model"


def test_changed_since_shows_the_regression_of_this_rig_only(page: Page, origin: str) -> None:
    page.goto(f"{origin}#/matrix?since=2.5.2&q=regressed")
    expect(page.locator(".result")).to_have_text("1 of 244 results")
    row = page.locator(".grid tbody tr").filter(has_text="regressed")
    expect(row).to_contain_text("regression")
    expect(row).to_contain_text("was pass")
    page.get_by_label("Changed since", exact=True).select_option("")
    expect(page.locator(".result")).to_have_text("2 of 244 results")


def test_one_sweep_shows_its_own_results(page: Page, origin: str, site: Path) -> None:
    page.goto(f"{origin}#/matrix?sweep=2.5.2@2026-05-01")
    expect(page.locator(".result")).to_have_text("2 of 2 results")
    index = load_data_file(site / "data" / "index.js")
    assert [s["models"] for s in index["sweeps"] if s["date"] == "2026-05-01"] == [1]


def test_software_latencies_never_stand_among_others(page: Page, origin: str) -> None:
    page.goto(f"{origin}#/matrix?sort=-p50&backend=webgpu_mldrift")
    header = page.locator(".grid thead th").all_inner_texts()
    hardware = next(n for n, text in enumerate(header) if text.startswith("p50 ms"))
    software = header.index("p50 software")
    cells = page.evaluate(
        """([a, b, c]) => [...document.querySelectorAll('.grid tbody tr:not(.spacer)')].map(
             (r) => [a, b, c].map((n) => r.children[n].innerText))""",
        [hardware, software, len(header) - 1],
    )
    assert len(cells) > 10
    for fast, slow, environment in cells:
        assert not (fast.strip("-") and slow), "one latency is of one kind"
        if "swiftshader" in environment:
            assert not fast
        if fast.strip("-"):
            assert "metal-3" in environment
    numbers = [float(fast) for fast, _, _ in cells if fast.strip("-")]
    assert numbers == sorted(numbers, reverse=True)


def test_sorting_by_header_and_keyboard(page: Page, origin: str) -> None:
    page.goto(origin)
    page.get_by_role("button", name="Status").first.focus()
    page.keyboard.press("Enter")
    header = page.locator("th[aria-sort=ascending]")
    expect(header).to_have_text("Status↑")
    assert "unavailable" in page.locator(".grid tbody .badge").first.inner_text()

    page.goto("about:blank")
    page.goto(origin)
    page.locator(".viewport").focus()
    page.keyboard.press("ArrowDown")
    first = page.locator(".grid tbody a").first
    expect(first).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator("tr[aria-rowindex='245'] a")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("tr[aria-rowindex='2'] a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("deeplab-v3-fp16")
    expect(page).to_have_title("deeplab-v3-fp16 · LiteRT.js sweep")


def test_table_draws_a_screenful_only(page: Page, origin: str) -> None:
    page.goto(origin)
    expect(page.locator(".grid")).to_have_attribute("aria-rowcount", "245")
    assert page.locator(".grid tbody tr:not(.spacer)").count() < 60


def test_model_page_draws_charts_and_says_what_the_record_says(page: Page, origin: str) -> None:
    page.goto(f"{origin}#/model/regressed")
    panels = page.locator("figure.chart figcaption strong")
    expect(panels).to_have_text(["Latency on WebAssembly", "Latency on software adapters"])
    for canvas in page.locator("figure.chart canvas").all():
        drawn = canvas.evaluate(
            """(c) => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
               const seen = new Set(); for (let i = 0; i < d.length; i += 4)
               if (d[i + 3]) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`); return seen.size; }"""
        )
        assert drawn > 5, "axes, line, points and band"
    webgpu = page.locator(".result-card").nth(1)
    expect(webgpu).to_contain_text("mismatch")
    expect(webgpu).to_contain_text("[0, 417]: 2.5 instead of 1")
    assert webgpu.locator(".histogram .bin").count() == 2 * 13
    expect(page.locator(".command")).to_have_text(
        "litertjs-sweep model --core 2.5.3 --warmup 3 --runs 10 --seed 42 --input-sets 2 "
        "--tolerance-policy calibrated -- "
        "https://models.example/whisper-encoder/regressed.tflite"
    )
    page.get_by_role("button", name="webgpu 2.5.2@2026-05-01: pass").click()
    expect(webgpu.locator(".badge")).to_contain_text("pass")
    assert page.evaluate("location.hash").endswith("?record=2.5.2%2F2026-05-01%2Fregressed")
    page.reload()
    expect(page.locator(".result-card").nth(1).locator(".badge")).to_contain_text("pass")


def test_release_page_counts_the_transitions(page: Page, origin: str) -> None:
    page.goto(f"{origin}#/release/2.5.3?from=2.5.2")
    regressions = page.get_by_label("Regressions").locator("tbody tr")
    assert "regressed" in " ".join(regressions.all_inner_texts())
    tile = page.locator(".tile", has_text="Regressions").locator(".tile-value")
    expect(tile).to_have_text(f"▼ {regressions.count()}")


def test_text_of_records_stays_text(page: Page, origin: str) -> None:
    page.goto(origin)
    expect(page.locator(".grid")).to_be_visible()
    for address in (
        "#/model/hostile-model", "#/environments", "#/matrix?q=hostile",
        "#/release/2.5.3", "#/matrix?tag=<img src=x onerror=pwned=1>&q=<b>x</b>",
        "#/model/<img src=x onerror=pwned=1>",
    ):  # fmt: skip
        page.evaluate("(a) => { location.hash = a; }", address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_timeout(150)
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img, main script").count() == 0
    page.goto(f"{origin}#/model/hostile-model")
    expect(page.locator(".console").first).to_contain_text("<img src=x onerror=")
    assert page.locator("a[href^='javascript']").count() == 0


def test_themes(page: Page, origin: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(origin)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(13, 16, 23)"
    button = page.locator(".theme")
    button.click()
    assert page.evaluate(background) == "rgb(246, 247, 249)"
    page.reload()
    expect(button).to_have_attribute("title", "Light theme")
    assert page.evaluate(background) == "rgb(246, 247, 249)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "address",
    ["", "#/matrix?since=2.5.2&status=pass,fallback", "#/model/regressed", "#/release/2.5.3",
     "#/environments", "#/triage"],
)  # fmt: skip
def test_accessibility(page: Page, origin: str, address: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(origin + address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_timeout(200)
    axe = install_libraries(resource_dir("static"), dev=True) / "axe-core" / "axe.min.js"
    # Evaluated through the debugger: the page's own policy would refuse a script tag.
    page.evaluate(axe.read_text("utf-8"))
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 15
    assert [
        (v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"])
        for v in found["violations"]
    ] == []


def test_works_from_a_file_address(page: Page, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    expect(page.locator(".result")).to_have_text("244 of 244 results")
    page.locator(".grid tbody a").first.click()
    expect(page.locator("figure.chart canvas").first).to_be_visible()
    expect(page.locator(".result-card").first).to_be_visible()


def test_missing_data_is_said(browser: Browser, site: Path, tmp_path: Path) -> None:
    for name in ("index.html", "favicon.svg"):
        (tmp_path / name).write_bytes((site / name).read_bytes())
    (tmp_path / "assets").mkdir()
    for path in (site / "assets").iterdir():
        (tmp_path / "assets" / path.name).write_bytes(path.read_bytes())
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    expect(page.get_by_role("alert")).to_contain_text("data/index.js could not be read")
    page.close()


def test_a_thousand_models_paint_quickly(page: Page, tmp_path: Path, browser: Browser) -> None:
    write_records(tmp_path / "data", 1000, 3)
    build_site(tmp_path / "data", tmp_path / "out")
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto((tmp_path / "out" / "index.html").as_uri())
    expect(page.locator(".grid tbody a").first).to_be_visible()
    took = time.perf_counter() - began
    drawn = page.evaluate("performance.getEntriesByName('matrix-drawn')[0].startTime")
    assert drawn < 3000, f"drawn after {drawn:.0f} ms ({took:.1f} s with the browser's own work)"
    expect(page.locator(".result")).to_have_text("2,000 of 2,000 results")


def test_no_records_yet(page: Page, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    build_site(tmp_path / "data", tmp_path / "out")
    page.goto((tmp_path / "out" / "index.html").as_uri())
    expect(page.locator(".empty")).to_contain_text("litertjs-sweep run")
    for name in ("environments", "triage"):
        page.evaluate("(name) => { location.hash = `#/${name}`; }", name)
        expect(page.get_by_role("heading", level=1)).not_to_have_text("Matrix")
    page.evaluate("location.hash = '#/release'")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")


def test_narrow_screens_scroll_only_inside_tables(page: Page, origin: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for address in ("", "#/model/regressed", "#/release/2.5.3", "#/environments"):
        page.goto("about:blank")
        page.goto(origin + address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
