// Faults for whole models, put into a page before anything else. A model names its fault in its
// description, `fault:<name>`; every other model runs as ever, in the same page.

(() => {
  // Fault → [accelerator, base64]: what that accelerator is given instead. Filled in by the test.
  const TWINS = {};

  // WGSL that alters what the GPU computed just before it is stored: `in_value` is a vec4<f32>,
  // the channels 4d to 4d + 3.
  const KERNELS = {
    'nan': 'if (d == 1) { in_value.y = bitcast<f32>(0x7fc00000u + u32(linear_id - linear_id)); }',
    'zeros': 'in_value = vec4<f32>(0.0);',
    'scaled': 'in_value = in_value * 1.75;',
    'permuted': 'in_value = in_value.wzyx;',
    'unlike': 'in_value = in_value + vec4<f32>(3.1, -1.7, 0.9, -2.3) * f32(1 + d % 3);',
    'deaf': 'in_value = vec4<f32>(1.5, -0.5, 0.25, 3.0) * f32(1 + d);',
    'noise': 'in_value = in_value + vec4<f32>(0.2, -0.15, -0.2, 0.15) * f32(1 - 2 * (d % 2));',
    'not-wgsl': 'in_value = no_such_variable;',
  };

  // JavaScript before a step of the harness; it may give the step another job.
  const BEFORE = {
    'refused': {firstRun: () => { device?.createBuffer({size: 3, usage: 0xffff}); }},
    'wasm-hangs': {firstRun: () => { while (!onGpu) { /* for ever */ } }},
    'silent-cpu': {load: (job) => ({...job, accelerator: 'wasm'})},
    'late': {timed: () => { late = true; }},
    'lost-outputs': {
      firstRun: (job) => ({...job, inline: 0}),
      postOutputs: (job) => ({...job, urls: job.urls.map((url) => `${url}0`)}),
    },
    'cut-outputs': {firstRun: (job) => ({...job, inline: Infinity})},
    'starved': {firstRun: () => {
      const error = new GPUOutOfMemoryError('Allocation of 8 GiB failed');
      device?.dispatchEvent(new GPUUncapturedErrorEvent('uncapturederror', {error}));
    }},
  };

  // JavaScript on the values of a buffer that is read back from the GPU.
  const READ = {
    'drifting': (values) => { values[0] *= 1 + 1e-7 * (1 + reads++ % 5); },
  };

  let fault = null;
  let onGpu = false;
  let device = null;
  let reads = 0;
  let late = false; // the next read of a tensor
  let twinUrl = null;

  const fetchReally = globalThis.fetch;
  globalThis.fetch = (url, ...rest) => {
    if (url !== twinUrl) return fetchReally(url, ...rest);
    return Promise.resolve(new Response(
        Uint8Array.from(atob(TWINS[fault][1]), (char) => char.charCodeAt(0))));
  };

  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    device = await request.apply(this, args);
    return device;
  };
  const make = GPUDevice.prototype.createShaderModule;
  GPUDevice.prototype.createShaderModule = function (descriptor) {
    const kernel = onGpu && KERNELS[fault];
    const code = kernel
      ? descriptor.code.replace(/var in_value\b[^;]*;/, (found) => `${found}\n  ${kernel}`)
      : descriptor.code;
    return make.call(this, {...descriptor, code});
  };
  const map = GPUBuffer.prototype.getMappedRange;
  GPUBuffer.prototype.getMappedRange = function (...args) {
    const range = map.apply(this, args);
    if (onGpu && this.usage & GPUBufferUsage.MAP_READ) READ[fault]?.(new Float32Array(range));
    return range;
  };

  async function makeTensorsLate() {
    const {Tensor} = await import('@litertjs/core');
    const data = Tensor.prototype.data;
    Tensor.prototype.data = async function (...args) {
      if (late) await new Promise((resolve) => setTimeout(resolve, 400));
      late = false;
      return data.apply(this, args);
    };
  }

  let harness;
  Object.defineProperty(globalThis, 'litertSweep', {
    get: () => harness,
    set(real) {
      harness = {};
      for (const step of Object.keys(real)) {
        harness[step] = async (job) => {
          if (step === 'load') {
            onGpu = job.accelerator === 'webgpu';
            reads = 0;
            const text = await (await fetchReally(job.url)).text();
            fault = /fault:([\w-]+)/.exec(text)?.[1] ?? null;
            twinUrl = TWINS[fault]?.[0] === job.accelerator ? job.url : null;
          }
          const answer = await real[step](BEFORE[fault]?.[step]?.(job) ?? job);
          if (step === 'init') await makeTensorsLate();
          if (step === 'firstRun' && fault === 'cut-outputs') {
            const [output, ...rest] = answer.value.outputs;
            const base64 = output.base64.slice(0, -4);
            answer.value = {...answer.value, outputs: [{...output, base64}, ...rest]};
          }
          if (step === 'load' && fault === 'silent-cpu' && onGpu) {
            answer.value = {...answer.value, accelerator: 'webgpu', fullyAccelerated: true};
          }
          return answer;
        };
      }
    },
  });
})();
