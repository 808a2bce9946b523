// “Check your model”: a file, both backends, the same view as a record has.

import {facts, h, replace} from '../dom.js';
import {bytes as size, yesNo} from '../format.js';
import {themeButton} from '../theme.js';
import {resultCard} from '../record.js';
import {judge} from './judge.js';
import {measure} from './measure.js';

const BACKENDS = [['wasm_xnnpack', 'wasm'], ['webgpu_mldrift', 'webgpu']];
const DOING = {
  init: 'starting the runtime', load: 'compiling', setInputs: 'making inputs', firstRun: 'first run',
  postOutputs: 'reading outputs', secondRun: 'second run', warmup: 'warming up', timed: 'timed runs',
  release: 'tidying up', unload: 'tidying up',
};
const MOST = 2 ** 30;

const root = document.getElementById('check');
const results = h('div', {class: 'results'});
const status = h('p', {class: 'result', role: 'status', 'aria-live': 'polite'});
const about = h('div', {});
let busy = false;
document.querySelector('.top').append(themeButton());

globalThis.sweepCheckSettings = (settings) => start(settings);

function start(settings) {
  if (location.protocol === 'file:') {
    replace(root, h('div', {class: 'empty'}, h('p', {}, 'A browser does not load a runtime from a file: address.'),
        h('p', {}, 'Show this site with ', h('code', {}, 'litertjs-sweep serve'), ' or any web server.')));
    return;
  }
  const input = h('input', {type: 'file', accept: '.tflite', id: 'file', onchange: () => take(input.files[0], settings)});
  const zone = h('label', {class: 'drop', for: 'file'}, h('strong', {}, 'Drop a .tflite file here'), h('span', {class: 'muted'}, 'or choose one'), input);
  zone.addEventListener('dragover', (event) => {
    event.preventDefault();
    zone.classList.add('over');
  });
  zone.addEventListener('dragleave', () => zone.classList.remove('over'));
  zone.addEventListener('drop', (event) => {
    event.preventDefault();
    zone.classList.remove('over');
    take(event.dataTransfer.files[0], settings);
  });
  replace(root, h('div', {class: 'stacked'}, zone, status, about, results,
      h('p', {class: 'muted'}, `@litertjs/core ${settings.core}. Inputs are drawn at random (seed 42), the same on every visit. WebGPU is compared with WebAssembly: float outputs up to a normalised RMSE of ${settings.nrmse_bound}.`)));
}

async function take(file, settings) {
  if (!file || busy) return;
  busy = true;
  replace(status, `${file.name}: reading…`);
  replace(results);
  replace(about);
  try {
    if (file.size > MOST) throw new Error('it is larger than 1 GiB');
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (String.fromCharCode(...bytes.slice(4, 8)) !== 'TFL3') throw new Error('it is not a .tflite model (the mark TFL3 is missing)');
    await checkModel(file, bytes, settings);
    replace(status, `Done: ${file.name}`);
  } catch (error) {
    replace(status, `${file.name} cannot be checked: ${error.message}.`);
  } finally {
    busy = false;
  }
}

async function checkModel(file, bytes, settings) {
  const sha256 = crypto.subtle ? hex(await crypto.subtle.digest('SHA-256', bytes)) : null;
  let reference = null;
  for (const [backend, accelerator] of BACKENDS) {
    let result;
    if (accelerator === 'webgpu' && !(await navigator.gpu?.requestAdapter())) {
      result = absent(backend);
    } else {
      const m = await measure({
        bytes, accelerator, settings,
        onStage: (step) => replace(status, `${file.name} on ${accelerator}: ${DOING[step]}…`),
      });
      const env = environment(m, settings);
      result = judge({backend, m, reference, settings, env});
      if (backend === 'wasm_xnnpack' && result.runs) reference = m;
      if (m.init) replace(about, environmentCard(file, sha256, env, m.init));
    }
    results.append(resultCard(result));
  }
}

const hex = (buffer) => Array.from(new Uint8Array(buffer), (b) => b.toString(16).padStart(2, '0')).join('');

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|basic render|\bwarp\b|software|\bcpu\b/i;

function environment(m, settings) {
  const adapter = m.init?.adapter ?? null;
  const names = Object.values(adapter ?? {}).join(' ').trim();
  const soft = m.init?.adapterIsFallback || SOFTWARE.test(names);
  return {
    litertjs_core_version: settings.core, webgpu_adapter: adapter,
    adapter_class: adapter === null ? 'none' : soft ? 'software' : names ? 'hardware' : null,
  };
}

function environmentCard(file, sha256, env, init) {
  const adapter = env.webgpu_adapter;
  return h('article', {class: 'card'}, h('div', {class: 'card-head'}, h('h2', {class: 'mono'}, file.name),
      h('span', {class: 'tag'}, 'measured in your browser')),
  facts([
    ['Size', size(file.size)], ['sha256', sha256 && h('code', {}, sha256)],
    ['Browser', navigator.userAgent], ['@litertjs/core', env.litertjs_core_version],
    ['Adapter', adapter ? [...new Set(Object.values(adapter).filter(Boolean))].join(' · ') || 'name hidden by the browser' : 'none'],
    ['Adapter kind', env.adapter_class], ['wasm file', init.wasmFile], ['JSPI', yesNo(init.jspi)],
    ['Cross-origin isolated', yesNo(init.crossOriginIsolated)], ['Clock', `${init.clockResolutionUs} µs`],
  ]));
}

function absent(backend) {
  return {
    backend, loads: false, runs: false, status: 'unavailable', failure_class: 'backend_unavailable', error: null,
    reason: 'This browser gives no WebGPU adapter: nothing was found out about the model.', full_delegation: null,
    output_match: null, max_abs_diff: null, max_rel_diff: null, latency_p50_ms: null, delegation_evidence: [], evidence: [],
    gpu_errors: [], flags: [], comparisons: [], stability: [], latency: null, delegation: null, env: {adapter_class: 'none'},
  };
}
