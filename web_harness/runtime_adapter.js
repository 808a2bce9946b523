// Everything that differs between releases of @litertjs/core, and nothing else.
//
// Releases are told apart by what their module offers, not by their number:
//   0.x    Tensor.fromTypedArray, inputs moved to the accelerator by hand, outputs moved back
//   2.0    new Tensor(typedArray, shape), threaded build
//   2.5    tensor.data(), isFullyAccelerated, JSPI build, cpuOptions/gpuOptions

export class RuntimeAdapter {
  /** @param core the imported module of @litertjs/core */
  constructor(core) {
    this.core = core;
    // 2.x made tensors readable wherever they are; 0.x has no `data`.
    this.hasTensorData = typeof core.Tensor?.prototype?.data === 'function';
    this.hasFeatureQuery = typeof core.supportsFeature === 'function';
    // 2.x knows environments and moves inputs by itself.
    this.movesInputs = 'Environment' in core;
    this.liteRt = null;
  }

  get exports() {
    return Object.keys(this.core).sort();
  }

  /** Whether the release reports the feature at all: null when it cannot say. */
  async supports(feature) {
    if (!this.hasFeatureQuery) return null;
    try {
      return await this.core.supportsFeature(feature);
    } catch {
      return null;
    }
  }

  /** Loads the wasm. `jspi: null` means: where both the release and the browser have it. */
  async load(wasmDirectory, {jspi, threads}) {
    const options = {};
    if (threads) options.threads = true;
    const wantJspi = jspi ?? (!threads && (await this.supports('jspi')) === true);
    if (wantJspi) options.jspi = true;
    this.liteRt = await this.core.loadLiteRt(wasmDirectory, options);
    return {jspi: 'jspi' in options};
  }

  unload() {
    this.core.unloadLiteRt?.();
    this.liteRt = null;
  }

  threadCount() {
    return this.liteRt?.liteRtWasm?.getThreadCount?.() ?? null;
  }

  async compile(bytes, {accelerator, numThreads, precision}) {
    const options = {accelerator};
    if (numThreads != null) options.cpuOptions = {numThreads};
    if (precision && precision !== 'default') options.gpuOptions = {precision};
    return this.core.loadAndCompile(bytes, options);
  }

  /** null: this release has no such property. */
  fullyAccelerated(model) {
    return 'isFullyAccelerated' in model ? model.isFullyAccelerated : null;
  }

  /** What the compiled model says it runs on; null: it does not say. */
  accelerator(model) {
    return model.options?.accelerator ?? model.accelerator ?? null;
  }

  signatures(model) {
    const runners = Object.entries(model.signatures ?? {});
    const list = runners.length > 0 ? runners : [[model.key ?? '', model]];
    return list.map(([key, runner]) => ({
      key,
      runner,
      inputs: details(runner.getInputDetails()),
      outputs: details(runner.getOutputDetails()),
    }));
  }

  makeTensor(array, shape) {
    return this.core.Tensor.fromTypedArray && !this.movesInputs
      ? this.core.Tensor.fromTypedArray(array, shape)
      : new this.core.Tensor(array, shape);
  }

  /**
   * One inference. `tensors` live on the host and stay usable; the upload is part of the run, as
   * it is inside `run()` of the later releases.
   */
  async run(runner, model, tensors) {
    if (this.movesInputs) return runner.run(tensors);
    const accelerator = runner.accelerator ?? model.accelerator;
    if (accelerator !== 'webgpu') return runner.run(tensors);
    const moved = [];
    try {
      for (const tensor of tensors) moved.push(await tensor.copyTo(accelerator));
      return await runner.run(moved);
    } finally {
      for (const tensor of moved) tensor.delete();
    }
  }

  /** Reads an output back to the CPU and deletes the tensor. Returns a typed array of its own. */
  async read(tensor) {
    let onHost = tensor;
    try {
      if (this.hasTensorData) return await tensor.data();
      if (tensor.accelerator !== 'wasm') onHost = await tensor.moveTo('wasm');
      return onHost.toTypedArray().slice();
    } finally {
      for (const t of new Set([tensor, onHost])) if (!t.deleted) t.delete();
    }
  }

  dtypeAndShape(tensor) {
    return {dtype: tensor.type.dtype, shape: Array.from(tensor.type.layout.dimensions)};
  }
}

function details(list) {
  return Array.from(list, (d) => ({name: d.name, dtype: d.dtype, shape: Array.from(d.shape)}));
}
