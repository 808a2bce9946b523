// A diff report of `litertjs-sweep diff`, as far as it was built into the site.

import {h} from './dom.js';

export function diffReport(index, report) {
  return h('details', {class: 'block'}, h('summary', {}, 'The diff report'), h('pre', {tabindex: 0}, JSON.stringify(report, null, 2)));
}
