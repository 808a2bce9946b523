"""The page that measures a visitor's model, in a real browser with WebGPU."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from sweep.browser import launch_plan
from sweep.browser_search import find_browser
from sweep.paths import cache_dir, resource_dir
from sweep.runtime import CoreFiles, ensure_core
from sweep.views.serve import serve_site
from sweep.views.site import build_site
from sweep.views.site_libs import install_libraries
from tests.make_records import write_records

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def core() -> CoreFiles:
    """In a thread: Playwright's synchronous interface holds an event loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ensure_core("2.5.3", cache_dir()))).result()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, core: CoreFiles) -> Iterator[str]:
    """The dashboard with the check page, served by our own server in a thread's event loop."""
    data = tmp_path_factory.mktemp("check") / "data"
    write_records(data, 2, 1)
    ready = threading.Event()
    stop = asyncio.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()

    async def work() -> None:
        try:
            async with serve_site(data, title="t", core=core) as base:
                found.append(base)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    ready.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with ThreadPoolExecutor(1) as pool:
        executable = pool.submit(lambda: asyncio.run(find_browser())).result().executable
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=executable, args=[*launch_plan().flags]
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    yield page
    page.close()


def _check(page: Page, model: Path) -> None:
    page.set_input_files("#file", model)
    expect(page.locator("#check .result")).to_have_text(
        re.compile(f"Done: {re.escape(model.name)}|cannot be checked"), timeout=120_000
    )


@pytest.mark.parametrize(
    ("name", "wasm", "webgpu"),
    [
        ("rnet", "unverified", "mismatch"),
        ("syn_fc4d_1x1x16", "unverified", "pass"),
        ("lrt_fallback_model", "unverified", "fallback"),
        ("lrt_simple_add_op.sm8750", "run failed", "load failed"),
    ],
)
def test_verdicts(
    page: Page, address: str, shared_dir: Path, name: str, wasm: str, webgpu: str
) -> None:
    page.goto(f"{address}check/index.html")
    _check(page, shared_dir / "models" / f"{name}.tflite")
    badges = page.locator(".result-card .card-head .badge")
    expect(badges).to_have_count(2)
    assert [re.sub(r"\W+", " ", text).strip() for text in badges.all_inner_texts()] == [
        wasm, webgpu,
    ]  # fmt: skip


def test_nothing_leaves_the_browser(page: Page, address: str, shared_dir: Path) -> None:
    sent: list[str] = []
    page.on("request", lambda r: sent.append(f"{r.method} {r.url} {bool(r.post_data_buffer)}"))
    page.goto(f"{address}check/index.html")
    expect(page.get_by_text("Drop a .tflite file here")).to_be_visible()
    before = len(sent)
    _check(page, shared_dir / "models" / "rnet.tflite")
    expect(page.locator(".result-card")).to_have_count(2)
    after = sent[before:]
    assert after, "the runtime itself is fetched"
    own = re.compile(
        rf"GET (?:{re.escape(address)}check/(?:runner\.html|hooks\.js|harness/|core/|wasm-utils/)"
        r"|blob:)\S* False"
    )
    assert [line for line in after if not own.match(line)] == []
    # Not by good will alone: the page itself may connect nowhere.
    refused = page.evaluate("fetch(location.href).then(() => 'sent', () => 'refused')")
    assert refused == "refused"


def test_what_is_no_model_is_refused_before_any_runtime(
    page: Page, address: str, tmp_path: Path
) -> None:
    page.goto(f"{address}check/index.html")
    bad = tmp_path / "<b>x.tflite"
    bad.write_bytes(b"<html>not found</html>")
    _check(page, bad)
    expect(page.locator("#check .result")).to_contain_text("<b>x.tflite cannot be checked")
    expect(page.locator("#check .result")).to_contain_text("TFL3")
    assert page.locator("iframe").count() == 0


def test_accessibility_and_environment(page: Page, address: str, shared_dir: Path) -> None:
    page.goto(f"{address}check/index.html")
    _check(page, shared_dir / "models" / "syn_fc4d_2x2x4.tflite")
    card = page.locator("article.card").first
    expect(card).to_contain_text("measured in your browser")
    expect(card).to_contain_text("software")
    axe = install_libraries(resource_dir("static"), dev=True) / "axe-core" / "axe.min.js"
    page.evaluate(axe.read_text("utf-8"))
    found = page.evaluate("axe.run()")
    assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []


def test_from_a_file_address_it_says_what_to_do(
    page: Page, tmp_path: Path, core: CoreFiles
) -> None:
    write_records(tmp_path / "data", 1, 1)
    build_site(tmp_path / "data", tmp_path / "site", core=core)
    page.goto((tmp_path / "site" / "check" / "index.html").as_uri())
    expect(page.locator("#check")).to_contain_text("litertjs-sweep serve")
