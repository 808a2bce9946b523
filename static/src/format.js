// Words and numbers for people.

import {h} from './dom.js';

export const STATUS = {
  pass: {text: 'pass', glyph: '✓', hint: 'ran and gave the right values'},
  fallback: {text: 'fallback', glyph: '◐', hint: 'right values, but some operators ran on the CPU'},
  unverified: {text: 'unverified', glyph: '?', hint: 'ran, but there was nothing to compare it with'},
  output_mismatch: {text: 'mismatch', glyph: '≠', hint: 'ran and gave wrong values'},
  run_failed: {text: 'run failed', glyph: '✕', hint: 'loaded, but did not compute'},
  load_failed: {text: 'load failed', glyph: '⊘', hint: 'did not load or compile'},
  unavailable: {text: 'unavailable', glyph: '–', hint: 'the environment lacks the backend: not the model’s doing'},
  unclassified: {text: 'unclassified', glyph: '·', hint: 'an old record that was never classified'},
};

export const BACKEND = {
  wasm_xnnpack: {name: 'WebAssembly', short: 'wasm', detail: 'XNNPACK on the CPU: the reference'},
  webgpu_mldrift: {name: 'WebGPU', short: 'webgpu', detail: 'ML Drift on the GPU'},
  webnn: {name: 'WebNN', short: 'webnn', detail: 'experimental'},
};

export function badge(status, extra = null) {
  const {text, glyph, hint} = STATUS[status];
  return h('span', {class: `badge s-${status}`, title: hint},
      h('span', {class: 'glyph', 'aria-hidden': 'true'}, glyph), text, extra);
}

/** Milliseconds with three significant digits, never in exponent form. */
export function ms(value) {
  if (value === null || value === undefined) return '-';
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  if (value >= 1) return value.toFixed(2);
  return value.toFixed(3);
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return '-';
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? String(Number(value.toPrecision(digits + 1))) :
      value.toExponential(digits - 1);
}

export function percent(share) {
  if (share === null || share === undefined) return '-';
  if (share === 1 || share === 0) return `${share * 100} %`;
  const text = (share * 100).toFixed(1);
  return text === '100.0' ? '> 99.9 %' : text === '0.0' ? '< 0.1 %' : `${text} %`;
}

export function bytes(count) {
  if (count === null || count === undefined) return null;
  const units = ['B', 'kB', 'MB', 'GB'];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

export const count = (value) => value.toLocaleString('en-US');

export const plural = (n, word, more = `${word}s`) => `${count(n)} ${n === 1 ? word : more}`;

export const yesNo = (value) => (value === null || value === undefined ? null : value ? 'yes' : 'no');

export const sweepName = (sweep) => `${sweep.core}@${sweep.date}`;

/** A bar of the share of operators on the GPU, with its number beside it. */
export function shareBar(share) {
  if (share === null || share === undefined) return h('span', {class: 'none'}, '-');
  return h('span', {class: 'share', title: `${percent(share)} of the operators run on the GPU`},
      h('span', {class: 'track', 'aria-hidden': 'true'},
          h('span', {class: 'fill', style: {width: `${share * 100}%`}})),
      h('span', {class: 'num'}, percent(share)));
}
