// Environments: everything a number depends on, and the sweeps measured in each.

import {dataTable, facts, h, replace} from './dom.js';
import {load} from './data.js';
import {href} from './query.js';
import {bytes, count, plural, sweepName, yesNo} from './format.js';

const KIND = {
  hardware: 'hardware adapter', software: 'software adapter', none: 'no WebGPU adapter',
  unknown: 'adapter not recorded',
};

export async function environmentsPage(index, route, main) {
  const data = await load('envs');
  const rigs = index.rigs.map((rig, n) => index.envs.map((e, at) => at).filter((at) => index.envs[at].rig === n));
  replace(main, h('div', {class: 'title'}, h('h1', {}, 'Environments'),
      h('p', {class: 'lead'}, `${plural(rigs.length, 'rig')} in ${plural(data.envs.length, 'environment')}: a rig keeps its history when its browser or system is updated, but numbers are compared within one environment only.`)),
  h('div', {class: 'stacked'}, rigs.map((members, n) => card(index, data, index.rigs[n], members))));
  return {title: 'Environments'};
}

/** One rig: the facts of its newest environment, then its environments with their sweeps. */
function card(index, data, rig, members) {
  const age = (at) => data.sweeps[at].at(-1)?.[0] ?? -1;
  const sorted = [...members].sort((a, b) => age(b) - age(a));
  const env = data.envs[sorted[0]];
  const adapter = env.webgpu_adapter;
  const limits = Object.entries(env.webgpu_limits ?? {}).sort();
  return h('article', {class: 'card env-card'},
      h('div', {class: 'card-head'}, h('h2', {}, env.machine_label), h('span', {class: `kind k-${rig.kind}`}, KIND[rig.kind]),
          h('span', {class: 'muted'}, rig.label)),
      facts([
        ['Browser', index.envs[sorted[0]].browser],
        ['System', [env.os, env.os_version, env.arch].filter(Boolean).join(' ')],
        ['CPU', env.cpu && `${env.cpu}${env.cpu_count ? `, ${env.cpu_count} logical` : ''}`],
        ['Memory', bytes(env.memory_bytes)],
        ['Adapter', adapter && [adapter.vendor, adapter.architecture, adapter.device, adapter.description].filter(Boolean).join(' · ')],
        ['Leg', env.leg], ['Precision', env.precision], ['Threads', env.threads],
        ['JSPI supported', yesNo(env.jspi_supported)], ['Relaxed SIMD', yesNo(env.relaxed_simd)],
        ['Cross-origin isolated', yesNo(env.cross_origin_isolated)],
        ['Clock', env.clock_resolution_us && `${env.clock_resolution_us} µs`],
        ['Sandbox', yesNo(env.sandbox)],
      ]),
      (env.browser_flags?.length ?? 0) > 0 && h('details', {}, h('summary', {}, 'Browser flags'),
          h('pre', {tabindex: 0}, env.browser_flags.join('\n'))),
      (env.webgpu_features?.length ?? 0) > 0 && h('details', {}, h('summary', {}, `WebGPU features (${env.webgpu_features.length})`),
          h('p', {class: 'tags'}, env.webgpu_features.map((f) => h('span', {class: 'tag'}, f)))),
      limits.length > 0 && h('details', {}, h('summary', {}, `WebGPU limits (${limits.length})`),
          dataTable('WebGPU limits', ['Limit', 'Value'], limits.map(([k, v]) => [k, count(v)]))),
      dataTable(`Sweeps of ${rig.label}`, ['Browser', 'System', 'Sweeps'], sorted.map((at) => [
        index.envs[at].browser, [data.envs[at].os, data.envs[at].os_version].filter(Boolean).join(' '),
        h('span', {class: 'links tight'}, [...data.sweeps[at]].reverse().map(([n, results]) => h('a', {
          class: 'token', title: plural(results, 'result'),
          href: href(['matrix'], {sweep: sweepName(index.sweeps[n]), env: index.envs[at].label}),
        }, `${index.sweeps[n].core} · ${index.sweeps[n].date}`)))])));
}
