// One backend measured in a frame of its own, by the harness of the sweep.

import {h} from '../dom.js';
import {concrete, makeInput} from './inputs.js';

const SEED = 42;
const STAGE = {
  init: 'init', load: 'load', setInputs: 'first_run', firstRun: 'first_run', postOutputs: 'outputs',
  secondRun: 'warmup', warmup: 'warmup', timed: 'timed', release: 'outputs', unload: 'outputs',
};

/**
 * Measures one backend. Resolves to {error, stage, init, loaded, sets, timings, lines, gpuErrors};
 * `onStage(name)` is told what is being done. Nothing is judged here.
 */
export async function measure({bytes, accelerator, settings, onStage}) {
  const out = {error: null, stage: null, init: null, loaded: null, sets: [], timings: {}, lines: [], gpuErrors: []};
  const memory = new Map([['memory:model', bytes]]);
  globalThis.litertCheck = {
    line: (level, text) => out.lines.length < 20_000 && out.lines.push({level, text: text.slice(0, 8000), stage: out.stage}),
    read: (name) => memory.get(name),
    write: (name, value) => memory.set(name, value),
  };
  const frame = await openFrame();
  const call = async (step, job) => {
    out.stage = STAGE[step];
    onStage(step);
    // One frame for the page to say so: a wasm run blocks everything.
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    const answer = await frame.contentWindow.litertSweep[step](job);
    out.gpuErrors.push(...answer.gpuErrors);
    if (!answer.ok) throw new Failure(answer.message);
    return answer.value;
  };
  try {
    const wasmDirectory = new URL('core/wasm/', document.baseURI).href;
    out.init = await call('init', {wasmDirectory, jspi: null, threads: false});
    out.loaded = await call('load', {url: 'memory:model', accelerator, numThreads: null, precision: 'default'});
    for (const [index, signature] of out.loaded.signatures.entries()) {
      out.sets.push(await runSignature(call, memory, signature, index, out.timings, settings));
    }
    await call('unload', {});
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    out.error = {stage: out.stage, message: error.message};
  } finally {
    frame.remove();
    delete globalThis.litertCheck;
  }
  return out;
}

class Failure extends Error {}

async function runSignature(call, memory, signature, index, timings, settings) {
  const tensors = signature.inputs.map(({dtype, shape}, n) => {
    const fixed = concrete(shape);
    memory.set(`memory:input/${n}`, bytesOf(makeInput(SEED, n, fixed, dtype)));
    return {dtype, shape: fixed, url: `memory:input/${n}`};
  });
  await call('setInputs', {signature: index, tensors});
  const first = await call('firstRun', {});
  const names = first.outputs.map((_, n) => `memory:output/${index}/${n}`);
  await call('postOutputs', {run: 'first', urls: names});
  const outputs = first.outputs.map((o, n) => ({...o, values: typed(memory.get(names[n]), o.dtype)}));
  names.forEach((name) => memory.delete(name));
  const second = await call('secondRun', {});
  const set = {key: signature.key, outputs, secondSame: second.same, lastSame: null};
  if (index === 0) {
    timings.firstRun = first.ms;
    const warm = await call('warmup', {runs: settings.warmup});
    timings.warmup = [second.ms, ...warm.samples];
    const timed = await call('timed', {
      minRuns: settings.min_runs, maxRuns: settings.max_runs, batch: 1, budgetMs: settings.budget_ms, relativeHalfWidth: 0,
    });
    timings.samples = timed.samples;
    set.lastSame = timed.same;
  }
  await call('release', {});
  return set;
}

const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

const TYPED = {float32: Float32Array, int32: Int32Array, uint8: Uint8Array};

const typed = (bytes, dtype) => new TYPED[dtype](bytes.buffer, bytes.byteOffset, bytes.byteLength / TYPED[dtype].BYTES_PER_ELEMENT);

function openFrame() {
  return new Promise((resolve, reject) => {
    const frame = h('iframe', {src: 'runner.html', class: 'hidden', title: 'the model’s own page', 'aria-hidden': 'true', tabindex: -1});
    const late = setTimeout(() => reject(new Error('the page of the harness did not open')), 30_000);
    frame.addEventListener('load', () => {
      clearTimeout(late);
      if (frame.contentWindow?.litertSweep) resolve(frame);
      else reject(new Error('the harness did not start: the site may be built without it, or blocked by the browser'));
    });
    document.body.append(frame);
  });
}
