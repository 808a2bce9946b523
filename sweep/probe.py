"""What the browser itself can do, asked in a real page of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import async_playwright

from sweep.browser import BrowserChoice, LaunchPlan, launch
from sweep.config import Frozen
from sweep.env import AdapterClass, adapter_class
from sweep.errors import EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROBE_TIMEOUT_S = 60.0

_PROBE_JS = """async () => {
  const facts = {
    cross_origin_isolated: globalThis.crossOriginIsolated === true,
    shared_array_buffer: typeof SharedArrayBuffer === 'function',
    jspi: typeof WebAssembly.Suspending === 'function',
    webgpu_api: 'gpu' in navigator,
    adapter: null, adapter_is_fallback: null, device_error: null, shader_f16: null,
    webnn: 'ml' in navigator,
    hardware_concurrency: navigator.hardwareConcurrency,
  };
  if (!facts.webgpu_api) return facts;
  const adapter = await navigator.gpu.requestAdapter({powerPreference: 'high-performance'});
  if (!adapter) return facts;
  const {vendor, architecture, device, description} = adapter.info;
  facts.adapter = {vendor, architecture, device, description};
  facts.adapter_is_fallback = adapter.info.isFallbackAdapter ?? null;
  facts.shader_f16 = adapter.features.has('shader-f16');
  try {
    (await adapter.requestDevice()).destroy();
  } catch (error) {
    facts.device_error = String(error);
  }
  return facts;
}"""


class BrowserFacts(Frozen):
    """What a cross-origin isolated page on the loopback interface found."""

    version: str
    cross_origin_isolated: bool
    shared_array_buffer: bool
    """Needed by the threaded builds of the runtime."""
    jspi: bool
    webgpu_api: bool
    """`navigator.gpu` exists; says nothing of an adapter."""
    adapter: dict[str, str] | None
    adapter_is_fallback: bool | None
    adapter_class: AdapterClass | None
    device_error: str | None
    """Why the adapter gave no device; None when it gave one, or there is no adapter."""
    shader_f16: bool | None
    webnn: bool
    hardware_concurrency: int


async def probe_browser(choice: BrowserChoice, plan: LaunchPlan) -> BrowserFacts:
    """Start the browser, ask it, end it.

    Raises EnvironmentProblem when it does not start, or its page does not answer in a minute.
    """
    async with _isolated_page() as url, async_playwright() as playwright:
        browser = await launch(playwright, choice, plan)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                page = await browser.context.new_page()
                await page.goto(url)
                found = await page.evaluate(_PROBE_JS)
        except (PlaywrightError, TimeoutError) as error:
            await browser.kill()
            said = str(error).partition("\n")[0] or f"no answer in {PROBE_TIMEOUT_S:.0f} s"
            raise EnvironmentProblem(
                f"{choice.executable} started, but a page in it failed: {said}"
            ) from error
        finally:
            await browser.close()
    kind = adapter_class(found["adapter"], found["adapter_is_fallback"])
    return BrowserFacts(version=browser.version, adapter_class=kind, **found)


@asynccontextmanager
async def _isolated_page() -> AsyncIterator[str]:
    """An empty page with the headers that make it cross-origin isolated; yields its URL."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(
            text="<!doctype html><title>litertjs-sweep doctor</title>",
            content_type="text/html",
            headers={
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Embedder-Policy": "require-corp",
            },
        )

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port: int = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        await runner.cleanup()
