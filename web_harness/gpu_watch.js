// Listens to every WebGPU device that is made in the page, whoever makes it, without changing it.

const MAX_DISTINCT = 200;

/** Wraps `requestDevice`; returns the list of errors that is filled from then on. */
export function watchGpu() {
  const seen = new Map();
  const state = {adapter: null, device: null, lost: false};

  const add = (kind, message) => {
    const key = `${kind}\n${message}`;
    const known = seen.get(key);
    if (known) known.count += 1;
    else if (seen.size < MAX_DISTINCT) seen.set(key, {kind, message, count: 1});
  };

  const prototype = globalThis.GPUAdapter?.prototype;
  if (prototype) {
    const requestDevice = prototype.requestDevice;
    prototype.requestDevice = async function (descriptor) {
      const device = await requestDevice.call(this, descriptor);
      state.adapter = this;
      state.device = device;
      state.lost = false;
      device.addEventListener('uncapturederror', (event) => {
        add(errorKind(event.error), event.error.message);
      });
      device.lost.then((info) => {
        // 'destroyed' is what an orderly unload does.
        if (info.reason === 'destroyed' && state.unloading) return;
        state.lost = true;
        add('device_lost', `${info.reason}: ${info.message}`);
      });
      return device;
    };
  }
  return {
    state,
    /** All errors since the last call. */
    drain() {
      const list = [...seen.values()];
      seen.clear();
      return list;
    },
  };
}

function errorKind(error) {
  if (error instanceof GPUValidationError) return 'validation';
  if (error instanceof GPUOutOfMemoryError) return 'out-of-memory';
  return 'internal';
}

/** Facts about the adapter that the runtime took, or would take. */
export async function adapterFacts(state) {
  if (!navigator.gpu) return {adapter: null, fallback: null, features: [], limits: {}};
  let adapter = state.adapter;
  try {
    adapter ??= await navigator.gpu.requestAdapter({powerPreference: 'high-performance'});
  } catch {
    adapter = null;
  }
  if (!adapter) return {adapter: null, fallback: null, features: [], limits: {}};
  const info = adapter.info ?? {};
  const source = state.device ?? adapter;
  const limits = {};
  for (const name in source.limits) {
    if (typeof source.limits[name] === 'number') limits[name] = source.limits[name];
  }
  return {
    adapter: {
      vendor: info.vendor ?? '',
      architecture: info.architecture ?? '',
      device: info.device ?? '',
      description: info.description ?? '',
    },
    fallback: info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? null,
    features: [...source.features].sort(),
    limits,
  };
}
