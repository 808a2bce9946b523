"""How a sweep is usually written: a fresh context per model and backend, one thing at a time, and
tensors as JSON arrays. What the benchmarks hold our sweep against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Browser, Playwright

from sweep.bench import Bench
from sweep.browser import launch_plan
from sweep.browser_search import find_browser
from sweep.config import ACCELERATOR, Backend
from sweep.model import inspect_model

_JS = """async ([wasm, url, accelerator, inputs, warmup, runs]) => {
  const core = await import('@litertjs/core');
  await core.loadLiteRt(wasm, {jspi: true});
  const model = await core.loadAndCompile(url, {accelerator});
  const tensors = inputs.map(({values, shape}) => new core.Tensor(new Float32Array(values), shape));
  const once = async () => {
    const start = performance.now();
    const outputs = await model.run(tensors);
    const arrays = [];
    for (const tensor of outputs) {
      arrays.push(await tensor.data());
      tensor.delete();
    }
    return [performance.now() - start, arrays];
  };
  let arrays = (await once())[1];
  for (let i = 1; i < warmup; i++) await once();
  const samples = [];
  for (let i = 0; i < runs; i++) samples.push((await once())[0]);
  return {samples, outputs: arrays.map((array) => Array.from(array))};
}"""


async def launch_plain(playwright: Playwright) -> Browser:
    """An ordinary browser without a profile of its own, with our flags."""
    choice = await find_browser()
    plan = launch_plan()
    return await playwright.chromium.launch(
        executable_path=choice.executable,
        args=[*plan.flags, "--headless=new"],
        chromium_sandbox=plan.sandbox,
    )


async def naive_sweep(bench: Bench, browser: Browser, paths: list[Path]) -> None:
    """Both backends of each model, webgpu compared with wasm; one input set, no second opinion.

    The page's files come from the bench's server, which any static server could replace.
    """
    url = bench.server.add_core(bench.core)
    rng = np.random.default_rng(42)
    for path in paths:
        facts = inspect_model(path)
        inputs = [
            {"values": rng.standard_normal(t.shape).astype(np.float32).ravel().tolist(),
             "shape": list(t.shape)}
            for t in facts.signatures[0].inputs
        ]  # fmt: skip
        outputs: dict[Backend, list[np.ndarray[Any, Any]]] = {}
        for backend in bench.config.backends:
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(url)
            answer = await page.evaluate(
                _JS,
                [
                    bench.server.wasm_directory(bench.core.version),
                    bench.server.add_blob(path),
                    ACCELERATOR[backend],
                    inputs,
                    bench.config.warmup_runs,
                    bench.config.timed_runs,
                ],
            )
            outputs[backend] = [np.asarray(o, np.float32) for o in answer["outputs"]]
            await context.close()
        for ours, reference in zip(outputs["webgpu_mldrift"], outputs["wasm_xnnpack"], strict=True):
            worst = float(np.max(np.abs(ours - reference)))
            assert worst < 1e-2, f"{path.stem}: off by {worst}"
