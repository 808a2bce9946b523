// From a measurement to a result in the form of a record: the order of sweep/classify.py, without
// what only the sweep has (the desktop reference, a measured noise floor, a second fresh page).

import {compareOutputs, unravel} from './compare.js';
import {readConsole} from './console.js';

/** A result of schema 2.0, as far as a page can know it. */
export function judge({backend, m, reference, settings, env}) {
  const facts = readConsole(m.lines, settings.patterns);
  const gpuErrors = m.gpuErrors;
  const comparisons = reference ? compareAll(m, reference, settings) : [];
  const verdict = decide({backend, m, facts, gpuErrors, comparisons, hasReference: Boolean(reference)});
  const samples = m.timings.samples ?? [];
  const sorted = [...samples].sort((a, b) => a - b);
  const runs = !['load_failed', 'run_failed', 'unavailable'].includes(verdict.status);
  return {
    backend, loads: m.loaded !== null, runs, ...verdict, error: m.error?.message ?? null,
    full_delegation: backend === 'wasm_xnnpack' || !m.loaded ? null : delegated(m, facts),
    output_match: comparisons.length > 0 && runs ? comparisons.every((c) => c.facts.strict_match === true) : null,
    max_abs_diff: largest(comparisons, 'max_abs'), max_rel_diff: largest(comparisons, 'max_rel'),
    latency_p50_ms: runs && samples.length > 0 ? median(sorted) : null,
    delegation_evidence: [], evidence: facts.evidence, gpu_errors: gpuErrors, env,
    flags: env.adapter_class === 'software' && backend !== 'wasm_xnnpack' ? ['software_adapter'] : [],
    verified_against: comparisons.length > 0 && verdict.status !== 'output_mismatch' ? ['wasm'] : [],
    grade: null, cause: null, confirmed: null, not_reported: [], failed_stage: m.error?.stage ?? null,
    delegation: m.loaded && {
      fully_accelerated: m.loaded.fullyAccelerated, accelerator: m.loaded.accelerator, ops_on_gpu: facts.gpu,
      ops_on_cpu: facts.cpu, partitions: null, unsupported: facts.unsupported, fallback: facts.fallback,
    },
    comparisons,
    stability: m.sets.map((s) => ({signature: s.key, input_set: 0, second_same: s.secondSame, last_same: s.lastSame, spread_max_abs: null})),
    latency: runs && samples.length > 0 ? {
      samples_ms: samples, p50_ms: median(sorted), p90_ms: sorted[Math.min(sorted.length - 1, Math.ceil(0.9 * sorted.length) - 1)],
      min_ms: sorted[0], ci99_low_ms: null, ci99_high_ms: null, first_run_ms: m.timings.firstRun ?? null,
      compile_ms: m.loaded.compileMs, init_ms: m.init.initMs, load_average: null, batch: 1, noise: [],
    } : null,
  };
}

function decide({backend, m, facts, gpuErrors, comparisons, hasReference}) {
  const verdict = (status, failure_class, reason) => ({status, failure_class, reason});
  const onGpu = backend !== 'wasm_xnnpack';
  if (m.error) {
    const early = m.loaded === null;
    const status = early ? 'load_failed' : 'run_failed';
    return verdict(status, m.init === null ? 'init_failed' : early ? 'compile_error' : 'run_error',
        `Ended in the stage ${m.error.stage}${facts.fatal.length > 0 ? `; the runtime said: ${facts.fatal[0]}` : ''}.`);
  }
  if (facts.fatal.length > 0) return verdict('run_failed', 'run_error', `The runtime said that nothing was computed: ${facts.fatal[0]}`);
  if (gpuErrors.some((e) => e.kind === 'device_lost')) return verdict('run_failed', 'device_lost', 'The GPU device was lost.');
  if (m.sets.every((s) => s.outputs.length === 0)) return verdict('run_failed', 'no_output', 'There was no output.');
  const wrong = comparisons.filter((c) => !c.judgement.match);
  if (wrong.length > 0) return verdict('output_mismatch', null, `${wrong.length} of ${comparisons.length} outputs differ from WebAssembly: ${wrong[0].judgement.reason}`);
  if (onGpu && (facts.invalid.length > 0 || gpuErrors.length > 0)) {
    return verdict('run_failed', 'backend_error', 'The GPU refused commands, so agreement on these inputs proves nothing.');
  }
  const unstable = m.sets.some((s) => s.secondSame === false || s.lastSame === false);
  const note = unstable ? ' Later runs on the same input gave other values.' : '';
  if (!onGpu) return verdict('unverified', null, `It ran. WebAssembly is the reference here; the sweep would check it against the desktop runtime.${note}`);
  if (!hasReference || comparisons.length === 0) return verdict('unverified', null, `It ran, but there was nothing to compare it with.${note}`);
  if (facts.fallback || m.loaded.accelerator === 'wasm') return verdict('fallback', null, `Right values, but some operators ran on the CPU.${note}`);
  return verdict('pass', null, `All ${comparisons.length} outputs agree with WebAssembly.${note}`);
}

function delegated(m, facts) {
  if (facts.fallback || m.loaded.accelerator === 'wasm') return false;
  return m.loaded.fullyAccelerated;
}

function compareAll(m, reference, settings) {
  const all = [];
  for (const [n, set] of m.sets.entries()) {
    const theirs = reference.sets[n];
    for (const [k, output] of set.outputs.entries()) {
      const expected = theirs?.outputs[k];
      if (!expected) continue;
      const facts = compareOutputs(output.values, expected.values, settings.strict);
      if (facts.worst) facts.worst.index = unravel(facts.worst.flat, output.shape);
      all.push({
        signature: set.key, input_set: 0, output: output.name, dtype: output.dtype, shape: output.shape,
        against: 'wasm', facts, judgement: grade(facts, output.dtype, settings),
      });
    }
  }
  return all;
}

/** The fixed guard rails of the calibrated policy: a page has no measured noise floor. */
function grade(facts, dtype, settings) {
  const bound = settings.nrmse_bound;
  const judgement = (match, name, reason) => ({policy: 'guard rail', grade: name, match, threshold_nrmse: bound, floor: null, reason});
  if (facts.problem) return judgement(false, 'broken', facts.problem);
  if (facts.nonfinite_positions_differ) return judgement(false, 'broken', 'Elements are not finite on one side only.');
  if (facts.identical) return judgement(true, 'exact', 'Bit for bit the same.');
  if (dtype !== 'float32') {
    const match = facts.max_abs <= 1;
    return judgement(match, match ? 'rounding' : 'divergent', `Off by ${facts.max_abs} at most, 1 is allowed.`);
  }
  const match = facts.nrmse <= bound || facts.strict_match;
  return judgement(match, match ? 'rounding' : facts.nrmse < 1 ? 'divergent' : 'broken',
      `nRMSE ${facts.nrmse.toExponential(2)}, the bound is ${bound}.`);
}

const median = (sorted) => (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;

function largest(comparisons, name) {
  const values = comparisons.map((c) => c.facts[name]).filter((v) => v !== null);
  return values.length > 0 ? Math.max(...values) : null;
}
