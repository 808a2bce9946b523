// The page's work: init → load → run (first, second, warm-up, timed) → outputs, one step per call.
//
// It measures and reports; it judges nothing. It holds at most one compiled model and deletes
// every tensor it makes. Bulk data comes and goes as bytes, through ./transport.js.

import {RuntimeAdapter} from './runtime_adapter.js';
import {adapterFacts, watchGpu} from './gpu_watch.js';
import {fromBase64, toBase64} from './base64.js';
import {fetchBytes, postBytes} from './transport.js';

const ARRAY_TYPE = {float32: Float32Array, int32: Int32Array, uint8: Uint8Array};

const gpu = watchGpu();
let adapter = null;
let wasmFile = null;
let model = null;
let signatures = [];
let current = null; // {signature, tensors}: what the next run runs
let inferredMs = 0; // by this page, over all its models
let pageIsWarm = false;
let kept = {}; // run name → [{name, dtype, shape, array}]

/** Runs a step; an error becomes a value, so that the driver always learns the GPU's state too. */
function step(work) {
  return async (job) => {
    let answer;
    try {
      answer = {ok: true, value: await work(job)};
    } catch (error) {
      answer = {ok: false, ...describeError(error)};
    }
    // Uncaptured errors are delivered as tasks of their own: give them one turn.
    await new Promise((resolve) => setTimeout(resolve, 0));
    return {...answer, gpuErrors: gpu.drain()};
  };
}

function describeError(error) {
  if (error instanceof Error) {
    const message = `${error.name}: ${error.message}`;
    return {
      message,
      aborted: error instanceof WebAssembly.RuntimeError && /Aborted\(|unreachable/.test(message),
      transport: error.name === 'TransportError',
    };
  }
  if (error instanceof Event) {
    const what = error.target?.src ? 'a script could not be loaded' : error.type;
    return {message: `Error: ${what}`, aborted: false, transport: Boolean(error.target?.src)};
  }
  return {message: String(error), aborted: false, transport: false};
}

async function init({wasmDirectory, jspi, threads}) {
  const started = performance.now();
  const core = await import('@litertjs/core');
  adapter = new RuntimeAdapter(core);
  const loaded = await adapter.load(wasmDirectory, {jspi, threads});
  const initMs = performance.now() - started;
  wasmFile = performance.getEntriesByType('resource')
    .map((entry) => entry.name)
    .filter((name) => name.endsWith('.wasm'))
    .map((name) => name.slice(name.lastIndexOf('/') + 1))
    .at(-1) ?? null;
  return {initMs, ...(await runtimeFacts(loaded))};
}

async function runtimeFacts({jspi}) {
  const facts = await adapterFacts(gpu.state);
  return {
    wasmFile,
    jspi,
    threads: adapter.threadCount(),
    relaxedSimd: await adapter.supports('relaxedSimd'),
    jspiSupported: typeof WebAssembly.Suspending === 'function',
    crossOriginIsolated,
    clockResolutionUs: clockResolution(),
    userAgent: navigator.userAgent,
    adapter: facts.adapter,
    adapterIsFallback: facts.fallback,
    features: facts.features,
    limits: facts.limits,
    exports: adapter.exports,
  };
}

/** The smallest step of `performance.now()` seen, in microseconds. */
function clockResolution() {
  let smallest = Infinity;
  for (let i = 0; i < 50; i++) {
    const start = performance.now();
    let now = start;
    while (now === start) now = performance.now();
    smallest = Math.min(smallest, now - start);
  }
  return Math.round(smallest * 1000);
}

async function load({url, accelerator, numThreads, precision}) {
  unload();
  let mark = performance.now();
  const bytes = await fetchBytes(url);
  const fetchMs = performance.now() - mark;
  mark = performance.now();
  model = await adapter.compile(bytes, {accelerator, numThreads, precision});
  const compileMs = performance.now() - mark;
  signatures = adapter.signatures(model);
  return {
    fetchMs,
    compileMs,
    fullyAccelerated: adapter.fullyAccelerated(model),
    accelerator: adapter.accelerator(model),
    signatures: signatures.map(({key, inputs, outputs}) => ({key, inputs, outputs})),
  };
}

/**
 * Makes the input tensors of one signature; `tensors` are in the order of its inputs, and their
 * bytes are in `base64` or at `url`.
 */
async function setInputs({signature, tensors}) {
  release();
  const made = [];
  current = {signature: signatures[signature], tensors: made};
  for (const {dtype, shape, url, base64} of tensors) {
    const bytes = url === undefined ? fromBase64(base64) : await fetchBytes(url);
    const array = new ARRAY_TYPE[dtype](bytes.buffer, bytes.byteOffset,
        bytes.byteLength / ARRAY_TYPE[dtype].BYTES_PER_ELEMENT);
    made.push(adapter.makeTensor(array, shape));
  }
  return {};
}

/** One inference with readback of every output. Returns milliseconds and the outputs. */
async function infer() {
  const {signature, tensors} = current;
  const started = performance.now();
  const raw = await adapter.run(signature.runner, model, tensors);
  const list = Array.isArray(raw) ? raw : Object.values(raw);
  const outputs = [];
  for (const [i, tensor] of list.entries()) {
    const about = adapter.dtypeAndShape(tensor);
    outputs.push({name: signature.outputs[i]?.name ?? `output_${i}`, ...about, tensor});
  }
  for (const output of outputs) {
    output.array = await adapter.read(output.tensor);
    delete output.tensor;
  }
  const ms = performance.now() - started;
  inferredMs += ms;
  return {ms, outputs};
}

function sameBytes(a, b) {
  if (a.length !== b.length) return false;
  return a.every((left, i) => {
    const right = b[i];
    if (left.array.byteLength !== right.array.byteLength) return false;
    return equalBytes(bytesOf(left.array), bytesOf(right.array));
  });
}

function equalBytes(x, y) {
  const words = x.byteOffset % 4 === 0 && y.byteOffset % 4 === 0 ? x.length >> 2 : 0;
  const p = new Uint32Array(x.buffer, x.byteOffset - (x.byteOffset % 4), words);
  const q = new Uint32Array(y.buffer, y.byteOffset - (y.byteOffset % 4), words);
  for (let i = 0; i < words; i++) if (p[i] !== q[i]) return false;
  for (let i = words * 4; i < x.length; i++) if (x[i] !== y[i]) return false;
  return true;
}

/** What is said of outputs; with their bytes, in base64, where all together are at most `inline`. */
function facts(outputs, inline = 0) {
  const total = outputs.reduce((sum, {array}) => sum + array.byteLength, 0);
  return outputs.map(({name, dtype, shape, array}) => {
    const about = {name, dtype, shape, bytes: array.byteLength};
    return total <= inline ? {...about, base64: toBase64(bytesOf(array))} : about;
  });
}

function bytesOf(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

async function firstRun({inline}) {
  const {ms, outputs} = await infer();
  kept = {first: outputs};
  return {ms, outputs: facts(outputs, inline)};
}

/** Keeps the outputs of a later run only where they differ from the first run's. */
function keepIfDifferent(name, outputs, inline) {
  const same = sameBytes(kept.first, outputs);
  if (!same) kept[name] = outputs;
  return {same, outputs: same ? [] : facts(outputs, inline)};
}

async function secondRun({inline}) {
  const {ms, outputs} = await infer();
  return {ms, ...keepIfDifferent('second', outputs, inline)};
}

/**
 * Runs that are not timed: `runs`, and more until they have lasted `modelMs`. The first time they go
 * on until this page has inferred for `pageMs` in all, whatever the model, and gets no faster (by
 * medians of a quarter of that; five times that at most): the wasm and JavaScript of the runtime are
 * compiled for speed only by then, and the first model of a page would look slower than the others.
 */
async function warmup({runs, pageMs = 0, modelMs = 0}) {
  const samples = [];
  const began = inferredMs;
  for (let i = 0; i < runs; i++) samples.push((await infer()).ms);
  const asked = inferredMs;
  let fastest = Math.min(...samples);
  let extraRuns = 0;
  if (pageMs > 0 && !pageIsWarm) {
    let before = Infinity;
    let block = [];
    let blockMs = 0;
    while (inferredMs < 5 * pageMs) {
      const {ms} = await infer();
      extraRuns++;
      fastest = Math.min(fastest, ms);
      block.push(ms);
      blockMs += ms;
      if (blockMs < pageMs / 4) continue;
      const now = median(block);
      if (inferredMs >= pageMs && now >= 0.95 * before) break;
      [before, block, blockMs] = [now, [], 0];
    }
    pageIsWarm = true;
  }
  while (inferredMs - began < modelMs) {
    fastest = Math.min(fastest, (await infer()).ms);
    extraRuns++;
  }
  return {samples, fastest, extraRuns, extraMs: inferredMs - asked};
}

/**
 * Timed runs. Each sample is the mean of `batch` inferences (0: as many as make it last a
 * millisecond, by `estimateMs`). `minRuns` samples are taken, or fewer, but `floorRuns`, once
 * `budgetMs` is spent. After them more are taken, up to `maxRuns`, until the median is known within
 * `relativeHalfWidth` or `extraMs` is spent in all.
 */
async function timed({
  floorRuns, minRuns, maxRuns, batch: asked, estimateMs, budgetMs, extraMs, relativeHalfWidth, inline,
}) {
  // A sample much shorter than a millisecond says more about the clock than about the model.
  const batch = asked || Math.min(100, Math.max(1, Math.ceil(1 / Math.max(estimateMs, 0.01))));
  const samples = [];
  let last = null;
  const started = performance.now();
  while (samples.length < maxRuns) {
    let total = 0;
    for (let i = 0; i < batch; i++) {
      const {ms, outputs} = await infer();
      total += ms;
      last = outputs;
    }
    samples.push(total / batch);
    const spent = performance.now() - started;
    if (samples.length >= (floorRuns ?? minRuns) && spent > budgetMs) break;
    if (samples.length >= minRuns) {
      if (spent > (extraMs ?? budgetMs)) break;
      if (relativeHalfWidth > 0 && medianHalfWidth(samples) < relativeHalfWidth) break;
    }
  }
  return {samples, batch, ...keepIfDifferent('last', last, inline)};
}

/**
 * Relative half-width of the 95 % confidence interval of the median by binomial order statistics
 * (normal approximation of the ranks: n/2 ± 0.98·sqrt(n)); infinite below 8 samples.
 */
function medianHalfWidth(samples) {
  const n = samples.length;
  if (n < 8) return Infinity;
  const sorted = [...samples].sort((a, b) => a - b);
  const reach = 0.98 * Math.sqrt(n);
  const low = sorted[Math.max(0, Math.floor(n / 2 - reach))];
  const high = sorted[Math.min(n - 1, Math.ceil(n / 2 + reach))];
  return (high - low) / 2 / median(sorted);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const n = sorted.length;
  return (sorted[(n - 1) >> 1] + sorted[n >> 1]) / 2;
}

/** Sends the kept outputs of one run, one tensor at a time, then lets go of them. */
async function postOutputs({run, urls}) {
  const outputs = kept[run];
  for (const [i, url] of urls.entries()) {
    await postBytes(url, bytesOf(outputs[i].array));
    if (run !== 'first') outputs[i] = null;
  }
  return {};
}

/** Lets go of inputs and kept outputs. */
function release() {
  kept = {};
  for (const tensor of current?.tensors ?? []) if (!tensor.deleted) tensor.delete();
  current = null;
  return {};
}

function unload() {
  release();
  signatures = [];
  const old = model;
  model = null;
  old?.delete();
  return {};
}

/** Bytes of JS heap and, where the browser tells, of the whole page. */
async function memory() {
  return {
    wasmBytes: adapter?.liteRt?.liteRtWasm?.HEAPU8?.byteLength ?? null,
    deviceLost: gpu.state.lost,
  };
}

export const harness = {
  init: step(init),
  load: step(load),
  setInputs: step(setInputs),
  firstRun: step(firstRun),
  secondRun: step(secondRun),
  warmup: step(warmup),
  timed: step(timed),
  postOutputs: step(postOutputs),
  release: step(release),
  unload: step(unload),
  memory: step(memory),
};

globalThis.litertSweep = harness;
globalThis.addEventListener('unhandledrejection', (event) => {
  console.error(`unhandled rejection: ${describeError(event.reason).message}`);
});
