"""A browser on another machine, through a Playwright server (`playwright run-server`).

Our server stays on loopback: the remote browser's requests to its own loopback are carried here
through the connection itself (`expose_network`), so nothing has to be opened. The other machine's
facts come from the browser, since nothing else of it can be seen from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Playwright
from playwright.async_api import Error as PlaywrightError

from sweep.browser import CLOSE_TIMEOUT_S, LAUNCH_TIMEOUT_S, WITHOUT_WEBGPU_JS, launch_flags
from sweep.config import Frozen
from sweep.env import HostFacts
from sweep.errors import EnvironmentProblem

_FACTS_JS = """async () => {
  const known = await navigator.userAgentData?.getHighEntropyValues?.(
      ['platform', 'platformVersion', 'architecture', 'bitness']) ?? {};
  return {...known, cpus: navigator.hardwareConcurrency, agent: navigator.userAgent};
}"""


class RemoteFacts(Frozen):
    """What is known of a remote browser and its machine."""

    host: HostFacts
    browser: str
    headless: bool
    flags: tuple[str, ...]
    """Of those that were asked for, the ones on its command line."""
    missing: tuple[str, ...]
    """Those that its server did not let through."""
    sandbox: bool


@dataclass
class RemoteBrowser:
    """A connection to a remote browser, with one context."""

    browser: Browser
    context: BrowserContext
    version: str

    async def close(self) -> None:
        """Ends the connection: the server then ends the browser that it started for it."""
        with contextlib.suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.browser.close()

    async def kill(self) -> None:
        """The same: the server kills a browser that does not end."""
        await self.close()


def remote_flags(*, webgpu: bool) -> tuple[str, ...]:
    """Flags asked for: those of this machine's system, as the other's is not known beforehand.

    Without `--unsafe`, `playwright run-server` passes none of them on.
    """
    return launch_flags(system=platform.system(), webgpu=webgpu, root=False, software=True)


async def connect(
    playwright: Playwright,
    endpoint: str,
    flags: tuple[str, ...],
    *,
    webgpu: bool,
    headed: bool,
    executable: Path | None = None,
) -> RemoteBrowser:
    """A browser of the server at `endpoint` (`ws://…` or `wss://…`).

    `executable`: a program on the server's machine; None: the server's own Chromium.

    Raises:
        EnvironmentProblem: the server does not answer or starts no browser.
    """
    options: dict[str, object] = {
        "headless": not headed,
        "args": [*flags, *([] if headed else ["--headless=new"])],
    }
    if executable is not None:
        options["executablePath"] = str(executable)
    browser: Browser | None = None
    try:
        browser = await playwright.chromium.connect(
            endpoint,
            headers={"x-playwright-launch-options": json.dumps(options)},
            expose_network="<loopback>",
            timeout=LAUNCH_TIMEOUT_S * 1000,
        )
        context = await browser.new_context(accept_downloads=False)
        if not webgpu:
            await context.add_init_script(WITHOUT_WEBGPU_JS)
    except PlaywrightError as error:
        if browser is not None:
            with contextlib.suppress(PlaywrightError):
                await browser.close()
        raise EnvironmentProblem(
            f"No browser could be had from {endpoint}: {str(error).splitlines()[0]}\n"
            "Start one there with the same version of Playwright as here: "
            "`playwright run-server --host <address> --port <port> --unsafe`"
        ) from error
    return RemoteBrowser(browser, context, browser.version)


async def remote_facts(remote: RemoteBrowser, page_url: str, flags: tuple[str, ...]) -> RemoteFacts:
    """Asks the browser what it is and where it runs; `page_url` is a page of our server.

    Raises:
        EnvironmentProblem: the page cannot be opened there.
    """
    try:
        page = await remote.context.new_page()
        await page.goto(page_url, timeout=LAUNCH_TIMEOUT_S * 1000)
        told = await page.evaluate(_FACTS_JS)
        await page.close()
        session = await remote.browser.new_browser_cdp_session()
        line: str = (await session.send("SystemInfo.getInfo"))["commandLine"]
        product = (await session.send("Browser.getVersion"))["product"]
        await session.detach()
    except PlaywrightError as error:
        raise EnvironmentProblem(
            f"The remote browser cannot open our page: {str(error).splitlines()[0]}"
        ) from error
    arch = {"x8664": "x86_64", "arm64": "arm64"}.get(
        f"{told.get('architecture', '')}{told.get('bitness', '')}", "unknown"
    )
    return RemoteFacts(
        host=HostFacts(
            os=told.get("platform") or "unknown",
            os_version=told.get("platformVersion") or None,
            cpu=None,
            cpu_count=told["cpus"],
            memory_bytes=None,
            arch=arch,
        ),
        browser="chrome" if product.startswith("Chrome/") else "chromium",
        headless="--headless" in line or product.startswith("Headless"),
        flags=tuple(flag for flag in flags if flag in line),
        missing=tuple(flag for flag in flags if flag not in line),
        sandbox="--no-sandbox" not in line,
    )
