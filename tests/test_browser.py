"""Finding, starting and killing a browser; real Chromium where marked."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from playwright.async_api import async_playwright

from sweep import browser_search
from sweep.browser import (
    BrowserChoice,
    LaunchedBrowser,
    LaunchPlan,
    find_browser,
    has_gpu_device,
    launch,
    launch_flags,
    launch_plan,
)
from sweep.browser_search import BROWSER_ENV, program_behind, system_browsers
from sweep.errors import EnvironmentProblem

ELF = b"\x7fELF\x02"


def program(path: Path, content: bytes = ELF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


# --- finding -------------------------------------------------------------------------------------


def test_a_wrapper_script_is_read_for_the_program_it_starts(tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    wrapper = program(
        tmp_path / "bin" / "chromium",
        f"#!/bin/sh\nAPPNAME=chromium\nLIBDIR={lib}/$APPNAME\nexec $LIBDIR/$APPNAME $@\n".encode(),
    )
    assert program_behind(wrapper) == wrapper  # names a program that is not there
    real = program(lib / "chromium" / "chromium")
    assert program_behind(wrapper) == real
    # Google's wrapper names nothing: the program lies beside the script that the link points to.
    beside = program(tmp_path / "opt" / "chrome")
    script = program(
        tmp_path / "opt" / "google-chrome", b'#!/bin/bash\nexec -a "$0" "$HERE/chrome"\n'
    )
    link = tmp_path / "bin" / "google-chrome"
    link.symlink_to(script)
    assert program_behind(link) == beside


def test_system_browsers_prefer_chromium_and_leave_snaps_for_last(tmp_path: Path) -> None:
    snap = program(tmp_path / "snap" / "chromium")
    chrome = program(tmp_path / "a" / "google-chrome")
    environ = {"PATH": f"{snap.parent}{os.pathsep}{chrome.parent}"}
    assert list(system_browsers("Linux", environ)) == [chrome, snap]
    chromium = program(tmp_path / "a" / "chromium")
    environ = {"PATH": str(chrome.parent)}
    assert list(system_browsers("Linux", environ)) == [chromium, chrome]
    edge = program(tmp_path / "x86" / "Microsoft/Edge/Application/msedge.exe")
    assert list(system_browsers("Windows", {"ProgramFiles(x86)": str(tmp_path / "x86")})) == [edge]
    app = program(tmp_path / "Applications/Chromium.app/Contents/MacOS/Chromium")
    assert app in system_browsers("Darwin", {"HOME": str(tmp_path)})


async def test_the_named_browser_outranks_all_and_must_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = program(tmp_path / "mine", b"#!/bin/sh\necho Google Chrome 140.0.7339.5 beta\n")
    other = program(tmp_path / "other", b"#!/bin/sh\necho Chromium 99.0.1\n")
    monkeypatch.setenv(BROWSER_ENV, str(named))
    found = await find_browser()
    assert found == BrowserChoice(
        executable=named, kind="explicit", name="chrome", version="140.0.7339.5"
    )
    assert (await find_browser(other)).version == "99.0.1"
    broken = program(tmp_path / "broken", b"#!/bin/sh\necho libnss3.so: missing; exit 127\n")
    with pytest.raises(EnvironmentProblem, match=r"broken does not work.*libnss3\.so: missing"):
        await find_browser(broken)
    with pytest.raises(EnvironmentProblem, match="not an executable file"):
        await find_browser(tmp_path / "nowhere")


async def test_a_browser_on_path_is_used_and_nothing_found_says_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(BROWSER_ENV, raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem) as caught:
        await find_browser()
    assert "Playwright's own Chromium is not downloaded" in str(caught.value)
    assert "litertjs-sweep setup" in str(caught.value)
    program(tmp_path / "chromium", b"#!/bin/sh\necho Chromium 156.0.1.2 built on Debian\n")
    choice = await find_browser()
    assert (choice.kind, choice.name, choice.version) == ("system", "chromium", "156.0.1.2")


async def test_setup_falls_back_from_the_download_to_the_systems_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_download(*_: str) -> str:
        return "getaddrinfo ENOTFOUND"

    monkeypatch.delenv(BROWSER_ENV, raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser_search, "_run_playwright", no_download)
    monkeypatch.setattr(browser_search, "_can_apt", lambda: True)
    apt = (
        "#!/bin/sh\n"
        f"echo $DEBIAN_FRONTEND $@ >> {tmp_path}/calls\n"
        "[ $1 = install ] || exit 0\n"
        f"printf '#!/bin/sh\\necho Chromium 156.0.1\\n' > {tmp_path}/chromium\n"
        f"/bin/chmod 755 {tmp_path}/chromium\n"
    )
    program(tmp_path / "apt-get", b"#!/bin/sh\necho no such mirror >&2; exit 100\n")
    with pytest.raises(EnvironmentProblem) as caught:
        await find_browser(install=True)
    assert "could not be downloaded: getaddrinfo ENOTFOUND" in str(caught.value)
    assert "apt-get install failed: no such mirror" in str(caught.value)
    program(tmp_path / "apt-get", apt.encode())
    assert (await find_browser(install=True)).version == "156.0.1"
    assert (tmp_path / "calls").read_text().splitlines() == [
        "noninteractive update",
        "noninteractive install -y --no-install-recommends chromium",
    ]


# --- flags ---------------------------------------------------------------------------------------


def test_flags_per_system() -> None:
    def flags(system: str, *, software: bool, webgpu: bool = True) -> set[str]:
        return set(launch_flags(system=system, webgpu=webgpu, root=False, software=software))

    assert {"--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"} <= flags(
        "Linux", software=True
    )
    hardware = flags("Linux", software=False)
    assert {"--use-angle=vulkan", "--disable-vulkan-surface"} <= hardware
    assert "--use-webgpu-adapter=swiftshader" not in hardware
    assert "--use-angle=metal" in flags("Darwin", software=False)
    assert not any("swiftshader" in f or "angle" in f for f in flags("Windows", software=True))
    without = flags("Linux", software=True, webgpu=False)
    assert "--enable-unsafe-webgpu" not in without
    assert "--disable-features=WebGPUService" in without


def test_feature_lists_are_joined_and_the_sandbox_stays() -> None:
    made = launch_flags(
        system="Linux", webgpu=True, root=False, software=True,
        extra=("--enable-features=WebMachineLearningNeuralNetwork", "--no-first-run"),
    )  # fmt: skip
    assert "--enable-features=Vulkan,WebMachineLearningNeuralNetwork" in made
    assert sum(f.startswith("--enable-features") for f in made) == 1
    assert len(set(made)) == len(made)
    assert "--no-sandbox" not in made
    assert "--no-sandbox" in launch_flags(system="Linux", webgpu=True, root=True, software=True)


@pytest.mark.parametrize("node", ["dri/renderD128", "nvidia0", "dxg"])
def test_gpu_devices(tmp_path: Path, node: str) -> None:
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "card0").touch()  # a display without rendering
    (tmp_path / "nvidiactl").touch()
    assert not has_gpu_device(tmp_path)
    (tmp_path / node).touch()
    assert has_gpu_device(tmp_path)


# --- a real browser ------------------------------------------------------------------------------


@pytest.fixture
def page_url() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>here</title>")

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@contextlib.asynccontextmanager
async def launched(plan: LaunchPlan) -> AsyncIterator[LaunchedBrowser]:
    try:
        choice = await find_browser()
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    async with async_playwright() as playwright:
        browser = await launch(playwright, choice, plan)
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of this test's own, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


HANG_JS = "setTimeout(() => { for (;;) {} }, 0)"


@pytest.mark.browser
async def test_an_adapter_and_isolation_from_the_network(page_url: str) -> None:
    async with launched(launch_plan()) as browser:
        page = await browser.context.new_page()
        await page.goto(page_url)
        adapter = await page.evaluate(
            "navigator.gpu.requestAdapter().then(a => a && a.info.vendor)"
        )
        assert adapter
        assert browser.version.split(".")[0].isdigit()
        reached = await page.evaluate(
            "fetch('http://example.com', {mode: 'no-cors'}).then(() => true, e => String(e))"
        )
        assert "Failed to fetch" in reached


@pytest.mark.browser
async def test_without_webgpu_the_page_has_no_trace_of_it(page_url: str) -> None:
    async with launched(launch_plan(webgpu=False)) as browser:
        page = await browser.context.new_page()
        await page.goto(page_url)
        traces = await page.evaluate(
            "[navigator.gpu, ...Object.getOwnPropertyNames(globalThis).filter(n => /^GPU/.test(n))]"
        )
        assert traces == [None]
        assert await page.evaluate("typeof GPUBuffer") == "undefined"


@pytest.mark.browser
async def test_a_hung_browser_is_killed_with_all_its_processes(
    page_url: str, scratch: Path
) -> None:
    async with launched(launch_plan()) as browser:
        page = await browser.context.new_page()
        await page.goto(page_url)
        closed = asyncio.Event()
        browser.context.on("close", lambda _: closed.set())
        await page.evaluate(HANG_JS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(page.evaluate("1"), 0.5)
        family = [browser.process, *browser.process.children(recursive=True)]
        assert len(family) >= 4  # browser, zygote, gpu, renderer
        assert len(list(scratch.iterdir())) == 1
        async with asyncio.timeout(8):
            await browser.kill()
            await closed.wait()
        assert [p for p in family if lives(p)] == []
        assert not list(scratch.iterdir())


@pytest.mark.browser
async def test_a_browser_that_dies_by_itself_leaves_nothing(page_url: str, scratch: Path) -> None:
    async with launched(launch_plan()) as browser:
        page = await browser.context.new_page()
        await page.goto(page_url)
        await page.evaluate(HANG_JS)
        family = [browser.process, *browser.process.children(recursive=True)]
        closed = asyncio.Event()
        browser.context.on("close", lambda _: closed.set())
        browser.process.kill()
        async with asyncio.timeout(8):
            await closed.wait()
            while list(scratch.iterdir()) or any(map(lives, family)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_browser_that_does_not_start_says_why(tmp_path: Path, scratch: Path) -> None:
    path = program(tmp_path / "chrome", b"#!/bin/sh\necho 'No usable sandbox!' >&2\nexit 1\n")
    choice = BrowserChoice(executable=path, kind="explicit", name="chrome", version="1")
    async with async_playwright() as playwright:
        with pytest.raises(EnvironmentProblem, match=r"sandbox work.*NO_SANDBOX=1"):
            await launch(playwright, choice, launch_plan())
    assert not list(scratch.iterdir())
