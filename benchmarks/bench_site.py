"""The dashboard at 5,000 models × 20 sweeps: build time, sizes, and time to the first paint.

    python -m benchmarks.bench_site [--models 5000] [--sweeps 20] [--keep DIR]

The data set is synthetic. The page is served from the loopback by a plain file server, opened in
headless Chromium five times with a cold cache, and timed by the page itself.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gzip
import http.server
import resource
import statistics
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from sweep.browser_search import find_browser
from sweep.views.site import build_site
from tests.make_records import write_records


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="keep data and site here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = options.keep or Path(name)
        began = time.perf_counter()
        count = write_records(root / "data", options.models, options.sweeps)
        print(f"{count:,} records written in {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        build_site(root / "data", root / "site")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"site built in {time.perf_counter() - began:.1f} s, peak memory {peak:.0f} MB")
        _sizes(root / "site")
        _paint(root / "site")


def _sizes(site: Path) -> None:
    for part in ("assets/app.js", "data/index.js", "data/latest.js", "data/history.js"):
        data = (site / part).read_bytes()
        packed = len(gzip.compress(data, 6))
        print(f"  {part:18} {len(data) / 1e3:8.0f} kB, {packed / 1e3:6.0f} kB gzipped")


def _paint(site: Path) -> None:
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    executable = asyncio.run(find_browser()).executable
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        rounds = [_round(browser, address) for _ in range(5)]
        browser.close()
    server.shutdown()
    for name in rounds[0]:
        values = [r[name] for r in rounds]
        print(
            f"  {name:32} {statistics.median(values):6.0f} ms "
            f"(from {min(values):.0f} to {max(values):.0f})"
        )


def _round(browser: Browser, address: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".strip")
    times: dict[str, float] = page.evaluate(
        """() => { const at = (name) => performance.getEntriesByName(name)[0].startTime;
          return {'first contentful paint': at('first-contentful-paint'),
                  'matrix drawn': at('matrix-drawn')}; }"""
    )
    times["filter by status, to the frame"] = page.evaluate(
        """async () => { const t = performance.now();
          document.querySelector('.chip').click();
          await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
          return performance.now() - t; }"""
    )
    times["sort by p50, to the frame"] = page.evaluate(
        """async () => { const t = performance.now();
          [...document.querySelectorAll('.sort')].find((b) => /p50/.test(b.textContent)).click();
          await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
          return performance.now() - t; }"""
    )
    context.close()
    return times


if __name__ == "__main__":
    main()
