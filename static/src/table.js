// A table of any length: sorted by TanStack Table, drawn a screenful at a time by TanStack Virtual.

import {createTable, getCoreRowModel, getSortedRowModel} from '@tanstack/table-core';
import {
  Virtualizer, elementScroll, observeElementOffset, observeElementRect,
} from '@tanstack/virtual-core';
import {h, replace} from './dom.js';

const ROW_HEIGHT = 52;

/**
 * columns: {id, label, width, numeric?, value(row) → number|string|undefined, cell(row) → node}.
 * `undefined` values sort last in either direction. onSort(id, descending) reports a header click.
 */
export function virtualTable({label, columns, sort, onSort}) {
  const head = h('tr', {'aria-rowindex': 1});
  const body = h('tbody', {});
  const element = h('table', {class: 'grid', 'aria-label': label},
      h('colgroup', {}, columns.map((c) => h('col', {style: {width: c.width}}))),
      h('thead', {}, head), body);
  const scroller = h('div', {class: 'viewport', tabindex: 0, role: 'region', 'aria-label': label}, element);
  let sorting = [];
  let rows = [];

  const table = createTable({
    data: [],
    columns: columns.map((c) => ({
      id: c.id, accessorFn: c.value, sortUndefined: 'last', sortDescFirst: false,
      sortingFn: c.compare ?? 'basic',
    })),
    state: {},
    onStateChange: () => {},
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
    renderFallbackValue: null,
  });
  table.setOptions((old) => ({...old, state: {...table.initialState, sorting}}));

  const virtualizer = new Virtualizer({
    count: 0,
    getScrollElement: () => scroller,
    estimateSize: () => ROW_HEIGHT,
    overscan: 8,
    scrollPaddingStart: 44,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: draw,
  });
  let unmount = null;

  function drawHead() {
    replace(head, columns.map((column) => {
      const now = sorting[0]?.id === column.id ? (sorting[0].desc ? 'descending' : 'ascending') : 'none';
      const arrow = {ascending: '↑', descending: '↓', none: ''}[now];
      return h('th', {scope: 'col', 'aria-sort': now, class: column.numeric ? 'right' : null},
          column.sortable === false ? column.label :
          h('button', {
            type: 'button', class: 'sort', title: column.hint,
            onclick: () => onSort(column.id, now === 'ascending'),
          }, column.label, h('span', {class: 'arrow', 'aria-hidden': 'true'}, arrow)));
    }));
  }

  let shown = '';
  function draw() {
    const items = virtualizer.getVirtualItems();
    const first = items[0]?.index ?? 0;
    const last = items.at(-1)?.index ?? -1;
    const key = `${first}-${last}`;
    if (key === shown) return;
    shown = key;
    const focused = body.contains(document.activeElement) ?
        Number(document.activeElement.closest('tr')?.getAttribute('aria-rowindex')) : null;
    const after = (rows.length - 1 - last) * ROW_HEIGHT;
    replace(body, spacer(first * ROW_HEIGHT), items.map(({index}) => drawRow(index)), spacer(after));
    if (focused !== null) focusRow(focused - 2);
  }

  const spacer = (height) => height > 0 && h('tr', {class: 'spacer', 'aria-hidden': 'true'},
      h('td', {colspan: columns.length, style: {height: `${height}px`}}));

  function drawRow(position) {
    const row = rows[position].original;
    return h('tr', {'aria-rowindex': position + 2}, columns.map((c, n) => h(
        n === 0 ? 'th' : 'td', {scope: n === 0 ? 'row' : null, class: c.numeric ? 'right' : null},
        c.cell(row))));
  }

  function focusRow(position) {
    body.querySelector(`tr[aria-rowindex="${position + 2}"] a`)?.focus({preventScroll: true});
  }

  scroller.addEventListener('keydown', (event) => {
    const at = event.target.closest?.('tbody tr');
    if (event.altKey || event.ctrlKey || event.metaKey || rows.length === 0) return;
    const now = at ? Number(at.getAttribute('aria-rowindex')) - 2 : -1;
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW_HEIGHT) - 2);
    const target = {
      ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + page, PageUp: now - page,
      Home: 0, End: rows.length - 1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    const position = Math.min(Math.max(target, 0), rows.length - 1);
    virtualizer.scrollToIndex(position, {align: 'auto'});
    requestAnimationFrame(() => requestAnimationFrame(() => focusRow(position)));
  });

  function update(data, order, {keepScroll = false} = {}) {
    sorting = order ? [{id: order.id, desc: order.desc}] : [];
    table.setOptions((old) => ({...old, data, state: {...table.initialState, sorting}}));
    rows = table.getSortedRowModel().rows;
    element.setAttribute('aria-rowcount', rows.length + 1);
    shown = '';
    drawHead();
    virtualizer.setOptions({...virtualizer.options, count: rows.length});
    if (!unmount) {
      unmount = virtualizer._didMount();
      virtualizer._willUpdate();
    } else if (!keepScroll) {
      scroller.scrollTop = 0;
    }
    virtualizer.measure();
    draw();
  }

  return {
    element: scroller,
    update,
    sort,
    /** The data in the order shown. */
    order: () => rows.map((row) => row.original),
    destroy: () => unmount?.(),
  };
}
