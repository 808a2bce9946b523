"""repro.html: shows the fault with nothing but `@litertjs/core` from npm; README.md beside it."""

from __future__ import annotations

import json
from typing import Any

from sweep.config import ACCELERATOR, Leg
from sweep.triage.findings import Report

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Reproducer</title>
<script type="importmap">
{"imports": {
  "@litertjs/core": "./node_modules/@litertjs/core/dist/index.js",
  "@litertjs/wasm-utils": "./node_modules/@litertjs/wasm-utils/dist/index.js"
}}
</script>
<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
pre{white-space:pre-wrap;background:#8881;padding:1rem}</style>
<h1 id="title"></h1>
<p>Compiles <code>repro.tflite</code> with <code>@litertjs/core</code>, runs it on the inputs in
<code>inputs/</code> and compares with <code>expected/</code>. README.md says how to serve this.</p>
<p id="verdict">running …</p>
<pre id="log"></pre>
<script type="module">
const REPRO = {{REPRO}};
const log = (line) => { document.getElementById('log').textContent += line + '\\n'; };
const verdict = (line) => { document.getElementById('verdict').textContent = line; };
document.getElementById('title').textContent = REPRO.title;

// .npy 1.0: magic, version, header length (uint16), header, values.
async function npy(file) {
  const buffer = await (await fetch(file)).arrayBuffer();
  const length = new DataView(buffer).getUint16(8, true);
  const header = new TextDecoder().decode(new Uint8Array(buffer, 10, length));
  const dtype = /'descr': '([^']+)'/.exec(header)[1];
  const sizes = /'shape': \\(([^)]*)\\)/.exec(header)[1];
  const shape = sizes.split(',').filter((s) => s.trim()).map(Number);
  const Type = {'<f4': Float32Array, '<i4': Int32Array, '|u1': Uint8Array}[dtype];
  if (!Type) throw new Error(`${file}: ${dtype} is no type that LiteRT.js takes`);
  return {shape, data: new Type(buffer, 10 + length)};
}

function compare(got, want) {
  let worst = -1, at = -1, error = 0, power = 0, strange = 0;
  for (let i = 0; i < want.length; i++) {
    const d = Math.abs(got[i] - want[i]);
    if (!Number.isFinite(got[i]) && Number.isFinite(want[i])) strange++;
    if (!Number.isFinite(d)) continue;
    if (d > worst) { worst = d; at = i; }
    error += d * d;
    power += want[i] * want[i];
  }
  const nrmse = error === 0 ? 0 : Math.sqrt(error / power);
  return {worst, at, nrmse, strange};
}

async function main() {
  const {loadLiteRt, loadAndCompile, Tensor} = await import('@litertjs/core');
  await loadLiteRt('./node_modules/@litertjs/core/wasm/', REPRO.load);
  const model = await loadAndCompile('./repro.tflite', REPRO.compile);
  if ('isFullyAccelerated' in model) log(`isFullyAccelerated: ${model.isFullyAccelerated}`);
  let wrong = 0;
  for (const [number, set] of REPRO.sets.entries()) {
    const inputs = [];
    const byName = new Map(set.inputs.map((entry) => [entry.name, entry]));
    for (const [i, details] of Array.from(model.getInputDetails()).entries()) {
      const {shape, data} = await npy((byName.get(details.name) ?? set.inputs[i]).file);
      inputs.push(new Tensor(data, shape));
    }
    const given = await model.run(inputs);
    const outputs = Array.isArray(given) ? given : Object.values(given);
    const names = Array.from(model.getOutputDetails(), (d) => d.name);
    for (const [i, tensor] of outputs.entries()) {
      const got = await tensor.data();
      const expected = set.expected.find((e) => e.name === names[i]) ?? set.expected[i];
      if (!expected) { log(`set ${number} ${names[i]}: ${Array.from(got.slice(0, 8))}`); continue; }
      const want = (await npy(expected.file)).data;
      const c = compare(got, want);
      const bad = c.strange > 0 || c.nrmse > REPRO.threshold;
      if (bad) wrong++;
      log(`input set ${number}, output ${names[i]}: ${bad ? 'WRONG' : 'right'}, ` +
          `normalised RMSE ${c.nrmse.toPrecision(3)}` +
          (c.strange ? `, ${c.strange} not finite` : '') +
          (c.at >= 0 ? `, worst at ${c.at}: ${got[c.at]} instead of ${want[c.at]}` : ''));
      log(`  actual   ${Array.from(got.slice(0, 8)).join(', ')}`);
      log(`  expected ${Array.from(want.slice(0, 8)).join(', ')}`);
    }
  }
  return wrong;
}

try {
  const wrong = await main();
  verdict(wrong ? `Fault shown: ${wrong} outputs are wrong.` :
      REPRO.kind === 'mismatch' ? 'Fault not shown: all outputs are right.' :
      'It loaded and ran; see the console for what the runtime said.');
} catch (error) {
  log(String(error));
  verdict(REPRO.kind === 'failure' ? 'Fault shown: it failed.' :
      'It failed before it could be compared.');
}
</script>
</html>
"""


def repro_html(report: Report, listed: dict[str, Any], leg: Leg) -> str:
    """The page. `listed`: what `write_repro` returned."""
    compile_options: dict[str, Any] = {"accelerator": ACCELERATOR[report.backend]}
    if leg.precision != "default":
        compile_options["gpuOptions"] = {"precision": leg.precision}
    facts = {
        "title": report.headline,
        "kind": report.kind,
        "load": {"threads": True} if report.env.threads and leg.threads
        else {"jspi": True} if report.env.jspi else {},
        "compile": compile_options,
        "threshold": 1e-3,
        "sets": listed["sets"],
    }  # fmt: skip
    # `<` would let a name end the script.
    text = json.dumps(facts, indent=1, sort_keys=True).replace("<", "\\u003c")
    return _PAGE.replace("{{REPRO}}", text)


def readme(report: Report) -> str:
    """How to serve repro.html."""
    return f"""# Reproducer: {" ".join(report.headline.split()).replace("<", "&lt;")}

    npm install @litertjs/core@{report.core.version}
    npx http-server -p 8080 .      # or: python3 -m http.server 8080

Then open http://localhost:8080/repro.html in the browser under test. WebGPU needs `localhost` or
HTTPS. The same, measured: `litertjs-sweep model repro.tflite --core {report.core.version}`.

| file | |
|---|---|
| `repro.tflite` | the smallest model found that shows the fault |
| `inputs/set<n>-<i>.npy` | input `i` of input set `n` |
| `expected/set<n>-<o>.npy` | output `o` on the reference ({report.reference}) |
| `report.html`, `report.md`, `report.json` | what was found |
"""
