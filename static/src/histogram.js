// The error histogram: bars of plain elements, so that themes and readers of text need no canvas.

import {h} from './dom.js';

const DECADES = ['0', '<1e-9', '1e-9', '1e-8', '1e-7', '1e-6', '1e-5', '1e-4', '1e-3', '1e-2', '0.1', '1', '≥10'];

/** Elements per decade of |error| / RMS(reference): grey where harmless, red from 1e-2 on. */
export function errorHistogram(counts, label) {
  const total = counts.reduce((a, b) => a + b, 0);
  const peak = Math.max(...counts, 1);
  const names = counts.length === DECADES.length ? DECADES : counts.map((_, n) => DECADES[n] ?? '');
  const told = counts.map((c, n) => (c ? `${names[n]}: ${c}` : null)).filter(Boolean).join(', ');
  return h('div', {class: 'histogram', role: 'img', 'aria-label': `${label}: ${told}`}, counts.map((c, n) => h('span', {
    class: `bin ${n >= 9 ? 'bad' : n >= 7 ? 'warn' : ''}`, title: `${names[n]}: ${c} of ${total} elements`,
  }, h('span', {class: 'col', style: {height: `${c ? Math.max(4, 100 * Math.sqrt(c / peak)) : 0}%`}}),
  h('span', {class: 'bin-name', 'aria-hidden': 'true'}, n % 2 === 0 ? names[n] : ''))));
}
