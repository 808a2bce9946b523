// The address holds the whole state of a view: `#/matrix?status=pass,fallback&sort=-p50`.

/** {path: ['model', 'rnet'], query: Map name → string} of the current address. */
export function readRoute() {
  const hash = location.hash.replace(/^#\/?/, '');
  const cut = hash.indexOf('?');
  const path = (cut < 0 ? hash : hash.slice(0, cut)).split('/').filter(Boolean).map(decode);
  return {path, query: new Map(new URLSearchParams(cut < 0 ? '' : hash.slice(cut + 1)))};
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a view; empty values are left out, names are sorted: one state, one address. */
export function href(path, query = {}) {
  const params = new URLSearchParams();
  for (const name of Object.keys(query).sort()) {
    const value = Array.isArray(query[name]) ? query[name].join(',') : query[name];
    if (value !== '' && value !== null && value !== undefined) params.set(name, value);
  }
  const tail = params.toString().replaceAll('%2C', ',').replaceAll('%40', '@');
  return `#/${path.map(encodeURIComponent).join('/')}${tail ? `?${tail}` : ''}`;
}

/** Replaces the address without adding to the history: a filter is not a page. */
export function replaceAddress(address) {
  if (location.hash !== address) history.replaceState(null, '', address);
}

export const list = (value) => (value ? value.split(',').filter(Boolean) : []);
