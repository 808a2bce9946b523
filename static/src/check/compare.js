// Facts of a measured output against the reference, as sweep/compare.py defines them.

const TINY = 1e-9;
const BINS = 13; // 0, <1e-9, ten decades from 1e-9 to 10, ≥10

/** `facts` of a comparison in the form of a record (schema 2.0). */
export function compareOutputs(measured, reference, {abs, rel}) {
  const n = reference.length;
  const sides = {measured: sideFacts(measured), reference: sideFacts(reference)};
  const base = {
    problem: null, elements: n, lsb_max: null, argmax_agree: null, top5_overlap: null, batch: [],
    ...sides, identical: false, worst: null, max_abs: null, mean_abs: null, rmse: null, max_rel: null,
    nrmse: null, cosine: null, pearson: null, snr_db: null, strict_outside: null,
    strict_outside_fraction: null, strict_match: null, nonfinite_positions_differ: false, log_error_histogram: [],
  };
  if (measured.length !== n) return {...base, problem: `${measured.length} elements instead of ${n}`};
  if (n === 0) return {...base, problem: 'the output is empty'};
  let [sum, squares, maxAbs, maxRel, outside, at, finite] = [0, 0, 0, 0, 0, -1, 0];
  let [dot, mm, rr, sm, sr] = [0, 0, 0, 0, 0];
  let [differ, identical] = [false, true];
  for (let i = 0; i < n; i++) {
    const [m, r] = [measured[i], reference[i]];
    if (!Object.is(m, r)) identical = false;
    if (!Number.isFinite(m) || !Number.isFinite(r)) {
      if (!Object.is(m, r)) { differ = true; outside += 1; }
      continue;
    }
    finite += 1;
    const e = Math.abs(m - r);
    sum += e;
    squares += e * e;
    if (e > maxAbs || at < 0) { maxAbs = Math.max(e, maxAbs); at = i; }
    maxRel = Math.max(maxRel, e / Math.max(Math.abs(r), TINY));
    if (e > Math.max(abs, rel * Math.abs(r))) outside += 1;
    dot += m * r; mm += m * m; rr += r * r; sm += m; sr += r;
  }
  if (finite === 0) return {...base, nonfinite_positions_differ: differ, identical, problem: 'no element is finite on both sides'};
  const rms = Math.sqrt(rr / finite);
  const rmse = Math.sqrt(squares / finite);
  const spread = Math.sqrt((mm - sm * sm / finite) * (rr - sr * sr / finite));
  return {
    ...base, identical, nonfinite_positions_differ: differ,
    max_abs: maxAbs, mean_abs: sum / finite, rmse, max_rel: maxRel,
    nrmse: rmse === 0 ? 0 : rmse / Math.max(rms, Number.MIN_VALUE),
    cosine: mm > 0 && rr > 0 ? dot / Math.sqrt(mm * rr) : null,
    pearson: spread > 0 ? (dot - sm * sr / finite) / spread : null,
    snr_db: squares > 0 && rr > 0 ? 10 * Math.log10(rr / squares) : null,
    strict_outside: outside, strict_outside_fraction: outside / n, strict_match: outside === 0,
    worst: {index: unravel(at, null), flat: at, measured: measured[at], reference: reference[at]},
    log_error_histogram: histogram(measured, reference, rms),
  };
}

function histogram(measured, reference, rms) {
  const counts = new Array(BINS).fill(0);
  for (let i = 0; i < reference.length; i++) {
    const e = Math.abs(measured[i] - reference[i]);
    if (!Number.isFinite(e)) continue;
    if (e === 0) counts[0] += 1;
    else counts[Math.min(Math.max(Math.floor(Math.log10(e / Math.max(rms, Number.MIN_VALUE))) + 11, 1), BINS - 1)] += 1;
  }
  return counts;
}

function sideFacts(array) {
  const facts = {nan: 0, pos_inf: 0, neg_inf: 0, all_zero: true, constant: array.length > 1, min: null, max: null, rms: null};
  let [squares, finite] = [0, 0];
  for (const x of array) {
    if (x !== 0) facts.all_zero = false;
    if (!Object.is(x, array[0])) facts.constant = false;
    if (Number.isNaN(x)) facts.nan += 1;
    else if (x === Infinity) facts.pos_inf += 1;
    else if (x === -Infinity) facts.neg_inf += 1;
    else {
      finite += 1;
      squares += x * x;
      facts.min = facts.min === null ? x : Math.min(facts.min, x);
      facts.max = facts.max === null ? x : Math.max(facts.max, x);
    }
  }
  if (array.length === 0) facts.all_zero = false;
  if (finite > 0) facts.rms = Math.sqrt(squares / finite);
  return facts;
}

/** Index of a flat position, row-major; the flat position itself where the shape is not known. */
export function unravel(flat, shape) {
  if (!shape) return [flat];
  const index = [];
  for (let rest = flat, d = shape.length - 1; d >= 0; d--) {
    index.unshift(rest % shape[d]);
    rest = Math.floor(rest / shape[d]);
  }
  return index;
}
