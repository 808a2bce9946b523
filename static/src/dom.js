// Elements from text only: nothing here, or anywhere in the dashboard, parses a string as HTML.

/**
 * h('a', {href, class, onclick, 'aria-label'}, ...children): children are nodes, texts, or nested
 * lists of them; null, undefined and false are left out.
 */
export function h(name, props, ...children) {
  const element = document.createElement(name);
  set(element, props);
  element.append(...nodes(children));
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg(name, props, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(props ?? {})) element.setAttribute(key, value);
  element.append(...nodes(children));
  return element;
}

function set(element, props) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'style') for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else if (key === 'value' || key === 'checked' || key === 'selected') element[key] = value;
    else element.setAttribute(key, value === true ? '' : String(value));
  }
}

function nodes(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
      .map((c) => (c instanceof Node ? c : String(c)));
}

export function replace(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** A link for an untrusted address: only https and http become links, the rest stays text. */
export function safeLink(address, text = address) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // Not an absolute URL: shown as it is.
  }
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') return h('span', {}, text);
  return h('a', {href: url.href, rel: 'noopener noreferrer', target: '_blank'}, text);
}

/** A table that assistive technology can read, scrolling sideways on its own where it must. */
export function dataTable(caption, headers, rows, {className = ''} = {}) {
  return h('div', {class: `scroll ${className}`, tabindex: 0, role: 'group', 'aria-label': caption},
      h('table', {class: 'data'},
          h('caption', {class: 'hidden'}, caption),
          h('thead', {}, h('tr', {}, headers.map((x) => h('th', {scope: 'col'}, x)))),
          h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((c) => h('td', {}, c)))))));
}

/** Name–value pairs; pairs without a value are left out. */
export function facts(pairs) {
  return h('dl', {class: 'facts'}, pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false)
      .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}
