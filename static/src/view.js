// A view: the results of one sweep, or the newest ones, as columns addressed by row.

import {load} from './data.js';
import {sweepName} from './format.js';

/** Columns of the chosen sweep; `name` is '' for the newest result of each row. */
export async function loadView(index, name) {
  const total = index.rows.model.length;
  if (name === '') {
    const data = await load('latest');
    const rows = Array.from({length: total}, (_, n) => n);
    return {rows, ...columns(data), sweep: data.sweep};
  }
  const number = index.sweeps.findIndex((s) => sweepName(s) === name);
  if (number < 0) throw new Error(`there is no sweep ${name} in these records`);
  const data = await load(`slice/${number}`);
  return {rows: data.row, ...scatter(data, total), sweep: new Array(total).fill(number)};
}

/** Per row its newest result on one core version: {status, class, env, sweep}; status -1: none. */
export async function loadRelease(index, core) {
  const total = index.rows.model.length;
  const all = {status: new Int8Array(total).fill(-1)};
  for (const name of CARRIED) all[name] = [];
  all.sweep = new Int32Array(total).fill(-1);
  for (const [number, sweep] of index.sweeps.entries()) {
    if (sweep.core !== core) continue;
    const data = await load(`slice/${number}`);
    const got = columns(data);
    data.row.forEach((row, k) => {
      all.status[row] = got.status[k];
      all.sweep[row] = number;
      for (const name of CARRIED) all[name][row] = got[name][k];
    });
  }
  return all;
}

const CARRIED = ['class', 'env', 'p50', 'grade', 'share', 'file', 'basis'];

const digits = (text) => Int8Array.from(text, (c) => (c === '.' ? -1 : c.charCodeAt(0) - 48));

function columns(data) {
  return {
    status: digits(data.status),
    grade: digits(data.grade),
    example: digits(data.example),
    class: data.class,
    share: data.share,
    p50: data.p50,
    env: data.env,
    file: data.file,
    basis: data.basis,
  };
}

function scatter(data, total) {
  const from = columns(data);
  const to = {};
  for (const [name, column] of Object.entries(from)) {
    to[name] = new column.constructor(total);
    data.row.forEach((row, k) => {
      to[name][row] = column[k];
    });
  }
  return to;
}

/**
 * What a latency was measured on: `cpu`, `hardware`, `software`, `none` or `unknown`. Latencies of
 * different kinds are never put into one column, chart or comparison.
 */
export function latencyKind(index, backend, env) {
  return backend === 'wasm_xnnpack' ? 'cpu' : index.envs[env].kind;
}
