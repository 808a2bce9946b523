// Charts over the history of a model, drawn by uPlot; each has a table with the same numbers.

import uPlot from 'uplot';
import {h, replace, dataTable} from './dom.js';
import {ms} from './format.js';

const COLOURS = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6'];

/**
 * Latency over sweeps, one line per series, with bands of the 99 % confidence interval.
 * series: {label, points: Map sweep → {p50, low, high, env}}. A line breaks where the environment
 * changes: numbers of two environments are not one history.
 */
export function latencyChart({title, sweeps, series, note}) {
  const used = sweeps.map((s, n) => n).filter((n) => series.some((s) => s.points.has(n)));
  const place = h('div', {class: 'plot'});
  const figure = h('figure', {class: 'chart'},
      h('figcaption', {}, h('strong', {}, title), note && h('span', {class: 'muted'}, ' ', note)),
      place, legend(series),
      h('details', {}, h('summary', {}, 'The numbers'), dataTable(title, ['Sweep', 'Series', 'p50 ms', '99 % interval ms', 'Environment'],
          series.flatMap((s) => used.filter((n) => s.points.has(n)).map((n) => {
            const p = s.points.get(n);
            return [`${sweeps[n].core} · ${sweeps[n].date}`, s.label, ms(p.p50),
              p.low === null ? '-' : `${ms(p.low)} – ${ms(p.high)}`, p.envLabel];
          })))));
  const {data, spec, bands} = lines(used, series);
  let plot = null;
  const draw = () => {
    plot?.destroy();
    replace(place);
    plot = new uPlot(options(place, sweeps, used, spec, bands), data, place);
    plot.root.setAttribute('role', 'img');
    plot.root.setAttribute('aria-label', `${title}; the numbers are in the table below`);
  };
  const observer = new ResizeObserver(() => {
    if (!plot) draw();
    else if (place.clientWidth > 0) plot.setSize({width: place.clientWidth, height: HEIGHT});
  });
  observer.observe(place);
  addEventListener('themechange', draw);
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  scheme.addEventListener('change', draw);
  return {
    element: figure,
    destroy() {
      observer.disconnect();
      removeEventListener('themechange', draw);
      scheme.removeEventListener('change', draw);
      plot?.destroy();
    },
  };
}

const HEIGHT = 230;

/** uPlot's columns: x, then p50, low, high per unbroken run of one environment. */
function lines(used, series) {
  const data = [used.map((_, k) => k)];
  const spec = [{}];
  const bands = [];
  series.forEach((one, number) => {
    for (const run of runs(used, one.points)) {
      const column = (name) => used.map((n) => (run.has(n) ? one.points.get(n)[name] : null));
      const at = data.length;
      data.push(column('p50'), column('high'), column('low'));
      spec.push({number, label: one.label}, {number, edge: true}, {number, edge: true});
      bands.push({series: [at + 1, at + 2], number});
    }
  });
  return {data, spec, bands};
}

function runs(used, points) {
  const all = [];
  let env = null;
  for (const n of used) {
    const point = points.get(n);
    if (!point) continue;
    if (point.env !== env) all.push(new Set());
    env = point.env;
    all.at(-1).add(n);
  }
  return all;
}

function options(place, sweeps, used, spec, bands) {
  const style = getComputedStyle(place);
  const colour = (name) => style.getPropertyValue(name).trim();
  const resolved = (name) => resolve(place, name);
  const ink = resolved('--muted');
  const grid = {stroke: resolved('--line'), width: 1};
  const font = `12px ${colour('--sans')}`;
  const hue = (number) => resolved(COLOURS[number % COLOURS.length]);
  return {
    width: Math.max(place.clientWidth, 240),
    height: HEIGHT,
    padding: [12, 16, 0, 0],
    cursor: {points: {size: 9}},
    legend: {show: false},
    scales: {
      x: {time: false, range: () => [-0.35, Math.max(used.length - 0.65, 0.35)]},
      y: {range: (_, low, high) => [0, (high ?? 1) * 1.12]},
    },
    axes: [
      {
        stroke: ink, grid, font, ticks: grid,
        splits: (plot) => {
          const every = Math.ceil(used.length * 74 / Math.max(plot.width - 80, 80));
          return used.map((_, k) => k).filter((k) => (used.length - 1 - k) % every === 0);
        },
        values: (_, at) => at.map((k) => `${sweeps[used[k]].core}\n${sweeps[used[k]].date.slice(2)}`),
        size: 48,
      },
      {stroke: ink, grid, font, ticks: grid, size: 56, values: (_, at) => at.map((v) => String(v))},
    ],
    series: spec.map((s) => (s.number === undefined ? {} : {
      label: s.label ?? '',
      stroke: s.edge ? 'transparent' : hue(s.number),
      width: s.edge ? 0 : 2,
      spanGaps: true,
      points: {show: !s.edge, size: 7, fill: hue(s.number)},
    })),
    bands: bands.map((b) => ({series: b.series, fill: alpha(hue(b.number))})),
  };
}

/** The colour a custom property stands for in the current theme: canvas knows no `light-dark()`. */
function resolve(place, name) {
  const probe = h('span', {style: {color: `var(${name})`}});
  place.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const alpha = (rgb) => rgb.replace('rgb(', 'rgba(').replace(')', ', 0.16)');

function legend(series) {
  return h('ul', {class: 'series'}, series.map((s, n) => h('li', {},
      h('span', {class: 'swatch', 'aria-hidden': 'true', style: {background: `var(${COLOURS[n % COLOURS.length]})`}}), s.label)));
}
