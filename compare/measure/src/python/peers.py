"""Times what a PyTorch user would call instead of this project's kernels. `compare peers` starts it; `compare candidate` starts a
second one for the user's function.

Reads one JSON object per line from standard input and answers each with one on standard output: {"ok": what was asked for},
{"refused": "..."} or, of what is no failure, {"unsupported": "..."}. The code under test sees neither stream.
When standard input ends, so does the process, with everything that it started. One command runs at a time, and the GPU is idle once it
has been answered, so that timings of this process can be interleaved with the caller's.

  begin                      nothing; it is answered if torch can be imported
  hello                      versions, the GPU, and which peers can be called
  load     peer, file,       the same for one peer, a function in the file, which may also be called on the CPU
           function
  call     q, k, v, place,   calls that peer once, on views of the files' bytes at the addresses of the previous call with this
           output, after ... place; writes what it returns, and the inputs' bytes after the call; findings on its memory
  ceilings                   a row: what the GPU reaches on a large matrix product and on a large copy
  problem                    dtype (f16, bf16, e4m3), mask, scale, whether it is decode, sets to rotate over, and their contents, each a
                             file, extents and scales (E4M3) of Q, K and V: dense. `serving`: null, or what the sequences are (`Serving`);
                             each peer then gets its own layout of them. Until `finish` a set has its values in reverse order, so that no result that is
                             kept of a call is right afterwards
  prepare  peer, launches    a CUDA graph of `launches` calls that rotate over all sets, at least one of each; each returns memory of its
                             own, and launches as many kernels as one that is captured alone
  chunk    peer, lead_in,    replays of that graph after `lead_in` that are not timed; device time of one call
           replays
  steady   peer, replays     the same without a lead-in, of a graph that is replayed for a second; device time of one call
  finish   peer, output      the host time of one of several calls back to back, once a round. Then it writes the contents to the graph's inputs, some heads of V with the
                             other sign, as then have their outputs until they are written, fills all its outputs with NaN, replays it, and drops it; file `output` + i gets the i-th of the outputs that differ, in bf16 if the
                             inputs are, else in f16; sets: the set of each; e4m3_scale: the scale of outputs that were held in E4M3. A
                             candidate may take no longer for this than it was timed at, and each of its calls must give the same when
                             no other runs
"""
import contextlib
import ctypes
import dataclasses
import functools
import importlib.metadata
import importlib.util
import inspect
import itertools
import json
import os
import platform
import select
import signal
import statistics
import sys
import time
import weakref
from typing import Callable

# Libraries may print to standard output or read standard input; answers and commands use other descriptors.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
COMMANDS = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

# What an output holds before a call: a NaN that no arithmetic produces.
UNWRITTEN = -1
# Alignment of the tensors of `call`, in bytes.
ALIGNMENT = 128
# cuDNN's FP8 attention writes E4M3 on this architecture. With this scale, outputs of up to 7 stay within its range.
FP8_OUTPUT_SCALE = 64.0
# Calls back to back whose host time is measured. A stream queues about 1000 launches before the host blocks: calls of up to 50 kernels
# do not fill it.
HOST_CALLS, HOST_ROUNDS = 20, 10
# A candidate is timed so often where its inputs have changed and its outputs are unwritten. The fastest of these may take so much longer
# than what was timed: it follows work that is not its own, and is one replay where that is many. An honest candidate was seen at 1.00 to
# 1.02 (H100).
RENEWALS, RENEWED = 5, 1.2
# Clocks of the GPU, half a millisecond: the host has launched what follows by then.
PAUSE = 1_000_000
# What the worker calls, or a harness could call to time: a candidate that replaces it is refused.
TRUSTED = {
    "torch": "empty empty_like equal frombuffer full no_grad",
    "torch.Tensor": "clone contiguous copy_ cpu data_ptr element_size fill_ flatten flip is_neg numel reshape stride to transpose view",
    "torch.cuda": "CUDAGraph Event Stream _sleep current_stream empty_cache graph stream synchronize",
    "torch.cuda.CUDAGraph": "capture_begin capture_end replay",
    "torch.cuda.Event": "elapsed_time record synchronize",
    "torch.cuda.Stream": "synchronize wait_stream",
    "json": "dumps",
    "os": "urandom",
    "statistics": "median",
    "time": "monotonic perf_counter time",
}


class Unsupported(Exception):
    """What a candidate does not support is no failure of it."""


def describe(error):
    if isinstance(error, Unsupported):
        return str(error)
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


def bits(tensor):
    """The bits of a tensor of 16-bit elements, as integers, so that NaNs can be compared."""
    return tensor.contiguous().clone().view(sys.modules["torch"].int16)


def overlap(a, b):
    """Whether tensors share a byte between the first and the last of each."""

    def span(tensor):
        last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
        return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()

    (a_start, a_end), (b_start, b_end) = span(a), span(b)
    return a_start < b_end and b_start < a_end


def first(result):
    """The output, of functions that may return more."""
    return result[0] if isinstance(result, tuple) else result


@dataclasses.dataclass
class Peer:
    """What can be called on q, k and v, and on a scale of each in E4M3, within `context`."""

    call: Callable
    dtypes: tuple
    context: Callable = contextlib.nullcontext
    # [batch, heads, rows, head_dim]; otherwise [batch, rows, heads, head_dim].
    heads_first: bool = True
    # Whether it takes equal sequences in dense tensors, those of decoding among them, and sequences as they are served.
    dense: bool = True
    decodes: bool = True
    serves: bool = False
    # Whether it takes K and V in E4M3 under Q in f16 or bf16. Its scales of them are numbers.
    caches: bool = False


HALVES, CODES = ("f16", "bf16"), ("e4m3",)
# The packages whose versions a session records; tokenspeed-fa3 is a wheel of FlashAttention-3.
PACKAGES = ("flash-attn-4", "flash-attn-3", "tokenspeed-fa3", "flashinfer-python", "triton", "nvidia-cudnn-frontend")
# A peer's name, the method of `Worker` that makes it, with which argument, and its element types.
LIBRARIES = (
    ("torch-default", "sdpa", None, HALVES),
    ("torch-flash", "sdpa", "FLASH_ATTENTION", HALVES),
    ("torch-cudnn", "sdpa", "CUDNN_ATTENTION", HALVES),
    ("flash-attn-4", "flash_attention", "flash_attn.cute", HALVES),
    ("flash-attn-3", "flash_attention", "flash_attn_interface", HALVES),
    ("flash-attn-3-fp8", "flash_attention", "flash_attn_interface", CODES),
    ("cudnn-fp8", "cudnn_frontend", "cudnn", CODES),
    ("torch-varlen", "varlen", "torch.nn.attention.varlen", HALVES),
    ("flashinfer", "flashinfer", "wrapper", HALVES),
    ("flashinfer-xqa", "flashinfer", "xqa", HALVES),
)


class Driver:
    """CUDA's own functions, which nothing in Python replaces. Graphs are launched, and times taken, on the default stream."""

    # Kinds of nodes, as cuda.h numbers them: those that can be switched off, and those that do no work.
    KERNEL, WORKING, IDLE = 0, (0, 1, 2), (5, 6, 7, 10, 11)
    # As torch instantiates: memory of a graph is freed by its next launch, and nodes have priorities.
    FLAGS = 9

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def do(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} fails with CUDA's error {code}")

    def synchronize(self):
        self.do("cuCtxSynchronize")

    def us(self, work):
        """Microseconds between an event before `work` and one after it."""
        start, end, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        for event in (start, end):
            self.do("cuEventCreate", ctypes.byref(event), 0)
        self.do("cuEventRecord", start, None)
        work()
        self.do("cuEventRecord", end, None)
        self.synchronize()
        self.do("cuEventElapsedTime", ctypes.byref(ms), start, end)
        for event in (start, end):
            self.do("cuEventDestroy_v2", event)
        return ms.value * 1e3

    def captured(self, stream):
        """The graph that `stream` is captured into."""
        state, graph = ctypes.c_int(), ctypes.c_void_p()
        stream, state = ctypes.c_void_p(stream.cuda_stream), ctypes.byref(state)
        self.do("cuStreamGetCaptureInfo_v2", stream, state, None, ctypes.byref(graph), None, None)
        return graph

    def nodes(self, graph):
        count = ctypes.c_size_t()
        self.do("cuGraphGetNodes", graph, None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        if nodes:
            self.do("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
        return list(nodes)

    def kind(self, node):
        kind = ctypes.c_int()
        self.do("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        return kind.value

    def instantiated(self, graph):
        executable = ctypes.c_void_p()
        self.do("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(self.FLAGS))
        return executable

    def launch(self, executable):
        self.do("cuGraphLaunch", executable, None)

    def enable(self, executable, node, is_enabled):
        self.do("cuGraphNodeSetEnabled", executable, ctypes.c_void_p(node), int(is_enabled))

    def destroy(self, executable):
        self.do("cuGraphExecDestroy", executable)


@dataclasses.dataclass
class Timed:
    """What is timed of a peer."""

    # Of each call.
    outputs: list
    # torch's, with the memory and the nodes; the same, to be launched; and the nodes that each call added.
    graph: object
    executable: object
    calls: list
    # Microseconds of a call, chunk by chunk.
    us: list = dataclasses.field(default_factory=list)
    lead_in: int = 1


class Worker:
    def __init__(self):
        import torch

        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        # Before anything of a candidate runs.
        self.driver = Driver() if self.device == "cuda" else None
        self.trusted = self.functions()
        self.peers, self.absent = {}, {}
        self.graphs = {}
        self.served = None
        # What libraries have planned for the problem.
        self.planned = {}
        self.candidate, self.arenas, self.kept = None, {}, []

    def add(self, name, library, argument, dtypes):
        try:
            self.peers[name] = getattr(self, library)(argument, dtypes)
        except Exception as error:  # a broken installation is absent too
            self.absent[name] = describe(error)

    def sdpa(self, backend, dtypes):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.attention.bias import causal_lower_right

        sdpa = self.torch.nn.functional.scaled_dot_product_attention

        def call(q, k, v):
            options = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
            if self.causal and q.shape[2] != k.shape[2]:
                # is_causal would align the mask top-left.
                options["attn_mask"] = causal_lower_right(q.shape[2], k.shape[2])
            else:
                options["is_causal"] = self.causal
            return sdpa(q, k, v, scale=self.scale, **options)

        if backend is None:
            return Peer(call, dtypes)
        return Peer(call, dtypes, functools.partial(sdpa_kernel, getattr(SDPBackend, backend)))

    def flash_attention(self, module, dtypes):
        """Decode is asked of the function for caches, which splits the keys and packs query heads as it sees fit. FlashAttention-4 has
        none: on Hopper it does not split."""
        module = importlib.import_module(module)
        cached = getattr(module, "flash_attn_with_kvcache", None)

        def call(q, k, v, *scales):
            if self.served:
                return self.served.flash_attention(module, q, k, v, self.causal, self.scale)
            names = ("q_descale", "k_descale", "v_descale")
            options = dict(zip(names, (scale.expand(k.shape[0], k.shape[2]) for scale in scales)))
            options |= {"softmax_scale": self.scale, "causal": self.causal}
            if self.lengths is None or cached is None:
                return first(module.flash_attn_func(q, k, v, **options))
            return first(cached(q, k, v, cache_seqlens=self.lengths, num_splits=0, **options))

        return Peer(call, dtypes, heads_first=False, serves=dtypes == HALVES)

    def varlen(self, module, dtypes):
        function = importlib.import_module(module).varlen_attn

        def call(q, k, v):
            return self.served.torch_varlen(function, q, k, v, self.causal, self.scale)

        return Peer(call, dtypes, heads_first=False, dense=False, decodes=False, serves=True)

    def flashinfer(self, kind, dtypes):
        """The first call of a problem plans, and compiles what no call has needed before."""
        module = importlib.import_module("flashinfer")

        def call(q, k, v, *scales):
            if kind not in self.planned:
                self.planned[kind] = self.planned_flashinfer(module, kind, q, k)
            return self.planned[kind](q, k, v, *scales)

        return Peer(call, dtypes, heads_first=False, dense=False, serves=True, caches=True)

    def planned_flashinfer(self, module, kind, q, k):
        batch, queries, keys = self.contents[0][0].shape[0], *(tensor.shape[2] for tensor in self.contents[0][:2])
        equal = Serving([[queries, keys]] * batch, packed=False, window=[None, None], sinks=[], softcap=None, page_rows=None)
        served = self.served or Served(self.torch, self.device, equal, [queries, keys])
        library = FlashInfer(module, served, q, k, self.causal, self.scale)
        if kind == "xqa":
            return flattened(library.xqa())
        return flattened(library.wrapper(is_cache=self.lengths is not None or served.is_cache))

    def cudnn_frontend(self, module, dtypes):
        """PyTorch does not pass E4M3 to cuDNN."""
        torch, cudnn = self.torch, importlib.import_module(module)
        handle, graphs = cudnn.create_handle(), {}

        def call(q, k, v, *scales):
            if self.causal and q.shape[2] != k.shape[2]:
                raise ValueError("its causal mask is aligned top-left")
            key = (q.shape, k.shape, self.causal, self.scale)
            if key not in graphs:
                graphs[key] = self.cudnn_graph(cudnn, handle, q, k, v)
            graph, inputs, output, constants, workspace = graphs[key]
            out = torch.empty_like(q)
            tensors = dict(zip(inputs, (q, k, v, *scales)))
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute({**tensors, **constants, output: out}, workspace, handle=handle)
            return out

        return Peer(call, dtypes)

    def cudnn_graph(self, cudnn, handle, q, k, v):
        torch = self.torch
        codes, floats = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
        graph = cudnn.pygraph(io_data_type=codes, intermediate_data_type=floats, compute_data_type=floats, handle=handle)

        def tensor(name, like, kind):
            return graph.tensor(name=name, dim=list(like.shape), stride=list(like.stride()), data_type=kind)

        def number(value):
            return torch.full((1, 1, 1, 1), value, device="cuda")

        inputs = [tensor(name, like, codes) for name, like in (("q", q), ("k", k), ("v", v))]
        inputs += [tensor(f"descale_{name}", number(1.0), floats) for name in "qkv"]
        # P, at most 1, fills the range of E4M3.
        constants = {"descale_s": 1 / 256, "scale_s": 256.0, "scale_o": FP8_OUTPUT_SCALE}
        constants = {tensor(name, number(1.0), floats): number(value) for name, value in constants.items()}
        descale_s, scale_s, scale_o = constants
        o, _, amax_s, amax_o = graph.sdpa_fp8(
            q=inputs[0], k=inputs[1], v=inputs[2], descale_q=inputs[3], descale_k=inputs[4], descale_v=inputs[5],
            descale_s=descale_s, scale_s=scale_s, scale_o=scale_o, is_inference=True, attn_scale=self.scale,
            use_causal_mask=self.causal, name="sdpa",
        )
        o.set_output(True).set_dim(list(q.shape)).set_stride(list(q.stride())).set_data_type(codes)
        for amax in (amax_s, amax_o):
            amax.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(floats)
            constants[amax] = number(0.0)
        graph.build([cudnn.heur_mode.A])
        workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)
        return graph, inputs, o, constants, workspace

    def begin(self, command):
        pass

    def hello(self, command):
        if self.device == "cpu":
            raise RuntimeError(f"torch {self.torch.__version__} sees no CUDA device")
        for library in LIBRARIES:
            self.add(*library)
        return self.found()

    def load(self, command):
        path = command["file"]
        sys.path.insert(0, os.path.dirname(path))
        spec = importlib.util.spec_from_file_location("candidate", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        function = getattr(module, command["function"])
        takes_scales = "scales" in inspect.signature(function).parameters

        def call(q, k, v, *scales):
            options = {"scales": scales} if scales else {}
            return function(q, k, v, causal=self.causal, softmax_scale=self.scale, **options)

        self.candidate = self.peers[command["peer"]] = Peer(call, HALVES + CODES if takes_scales else HALVES)
        return self.found()

    def found(self):
        torch = self.torch
        software = {"python": platform.python_version(), "torch": torch.__version__, "cuda": str(torch.version.cuda)}
        software["cudnn"] = str(torch.backends.cudnn.version())
        for package in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                software[package] = importlib.metadata.version(package)
        device = torch.cuda.get_device_properties(0) if self.device == "cuda" else None
        return {
            "software": software,
            "gpu": device and device.name,
            "uuid": str(getattr(device, "uuid", "unknown")),
            "peers": [
                {
                    "name": name, "dtypes": peer.dtypes, "dense": peer.dense, "decodes": peer.decodes, "serves": peer.serves,
                    "caches": peer.caches,
                }
                for name, peer in self.peers.items()
            ],
            "absent": [{"subject": name, "by": "peers", "note": reason} for name, reason in self.absent.items()],
        }

    def functions(self):
        """What a candidate could replace, as it is now: what `TRUSTED` names, and the worker's own."""
        functions = dict(globals())
        for of in filter(None, (self, self.driver)):
            own = vars(type(of))
            functions |= {f"{type(of).__name__}.{name}": (own | vars(of))[name] for name in own}
        for owner, names in TRUSTED.items():
            module, *path = owner.split(".")
            found = functools.reduce(getattr, path, sys.modules[module])
            functions |= {f"{owner}.{name}": getattr(found, name, None) for name in names.split()}
        return functions

    def check_functions(self):
        now = self.functions()
        for name, function in self.trusted.items():
            if self.candidate and now.get(name) is not function:
                raise ValueError(f"it has replaced {name}, expected that a candidate leaves torch and the clock as they are")

    def call(self, command):
        torch = self.torch
        self.causal, self.scale = command["causal"], command["scale"]
        kind = self.kind_of(command["dtype"])
        if command["dtype"] not in self.candidate.dtypes:
            raise Unsupported("it has no argument `scales`, which E4M3 needs")
        if command["fresh"]:
            self.kept = []
        images, tensors, scales = {}, [], []
        for name in "qkv":
            operand = command[name]
            images[name] = image = self.placed(command["place"], name, operand["file"])
            elements = image[operand["offset"] :].view(kind)
            tensors.append(elements.as_strided(operand["extents"], [*operand["strides"], 1]))
            scales += self.scales(operand)
        extents = command["q"]["extents"]
        copy = self.unwritten(extents)
        self.poison(extents)
        try:
            with torch.no_grad():
                output = self.candidate.call(*tensors, *scales)
        except NotImplementedError as error:
            raise Unsupported(describe(error))
        self.check_functions()
        self.check(output, extents)
        # On the current stream only: what other streams write later is not in the copy.
        copy.copy_(output)
        self.wait()
        self.write(command["output"], copy)
        findings = []
        if not torch.equal(bits(copy), bits(output)):
            findings.append(("C5", "its output still changed after the current stream reached it: it works on another stream"))
        for name, image in images.items():
            if overlap(output, image):
                findings.append(("C6", f"its output shares memory with {name}"))
            self.write(command[name]["after"], image)
        for number, (earlier, was) in enumerate(self.kept, 1):
            if overlap(output, earlier) or not torch.equal(bits(earlier), was):
                findings.append(("C6", f"its output shares memory with that of call {number}, which is still in use"))
        self.kept.append((output, bits(output)))
        return findings

    def scales(self, operand):
        """The scale of each head, in E4M3. Libraries take one per tensor, and all are equal; of a cache they take a number."""
        if not operand["scales"]:
            return []
        if self.served:
            return [operand["scales"][0]]
        scales = self.torch.tensor(operand["scales"], dtype=self.torch.float32, device=self.device)
        return [scales.reshape(operand["extents"][:2]) if self.candidate else scales[:1].reshape(1, 1, 1, 1)]

    def kind_of(self, dtype):
        """The torch type of Q, K and V. From here on outputs are bf16 if that is, else f16."""
        torch = self.torch
        kind = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[dtype]
        self.output_kind = torch.bfloat16 if kind == torch.bfloat16 else torch.float16
        return kind

    def placed(self, place, name, path):
        """The bytes of a file, at the address that this tensor had in the last call with this place."""
        torch = self.torch
        data = self.stored(path, torch.uint8)
        arena = self.arenas.get((place, name))
        if arena is None or arena.numel() < data.numel() + ALIGNMENT:
            arena = torch.empty(2 * data.numel() + ALIGNMENT, dtype=torch.uint8, device=self.device)
            self.arenas[place, name] = arena
        start = -arena.data_ptr() % ALIGNMENT
        image = arena[start : start + data.numel()]
        image.copy_(data)
        return image

    def unwritten(self, extents):
        return self.torch.full(extents, UNWRITTEN, dtype=self.torch.int16, device=self.device).view(self.output_kind)

    def poison(self, extents):
        """Leaves NaN in the memory where an output is likely to be allocated."""
        blocks = [self.unwritten(extents) for _ in range(3)]
        self.wait()
        del blocks

    def wait(self):
        if self.device == "cuda":
            self.driver.synchronize()

    def check(self, output, extents):
        torch = self.torch
        # A subclass could compute lazily, when it is read.
        if type(output) is not torch.Tensor:
            raise TypeError(f"returned {type(output).__name__}, expected a torch.Tensor, not a subclass")
        # Nor is a negation lazy, and what is sparse has no elements that could be compared.
        if output.layout is not torch.strided or output.is_neg():
            raise TypeError(f"returned a {output.layout} tensor, lazily negated: {output.is_neg()}; expected one that is dense and not")
        found = f"{output.dtype} {list(output.shape)} on {output.device.type}"
        expected = f"{self.output_kind} {list(extents)} on {self.device}"
        if found != expected:
            raise TypeError(f"returned {found}, expected {expected}")

    @staticmethod
    def write(path, tensor):
        host = tensor.contiguous().cpu()
        with open(path, "wb") as file:
            file.write(ctypes.string_at(host.data_ptr(), host.numel() * host.element_size()))

    def ceilings(self, command):
        torch = self.torch
        n = 8192
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
        out = torch.empty_like(a)
        product = self.least_us(lambda: torch.matmul(a, b, out=out), 20)
        source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
        target = torch.empty_like(source)
        copy = self.least_us(lambda: target.copy_(source), 10)
        del a, b, out, source, target
        torch.cuda.empty_cache()
        rates = {"matrix_flops": 2e6 * n**3 / product, "copy_bytes_per_second": 2e6 * (1 << 30) / copy}
        return {"subject": "ceiling", "by": "peers", **rates}

    def least_us(self, work, repeats):
        return min(self.device_us(work, repeats) for _ in range(6))

    def device_us(self, work, repeats):
        """Microseconds per call of `work`, from `repeats` calls between two events."""

        def repeated():
            for _ in range(repeats):
                work()

        return self.driver.us(repeated) / repeats

    def problem(self, command):
        torch = self.torch
        self.graphs.clear()
        self.planned.clear()
        self.sets, self.contents = {}, []
        torch.cuda.empty_cache()
        self.causal, self.scale = command["causal"], command["scale"]
        kind = self.kind_of(command["dtype"])
        serving = command.get("serving")
        cache = torch.float8_e4m3fn if serving and serving.get("cache") else kind
        self.contents = [
            [self.stored(of["file"], stored).reshape(of["extents"]).to(self.device) for of, stored in zip(operands, (kind, cache, cache))]
            for operands in command["contents"]
        ]
        # Of each batch's keys, where they are a cache.
        batch, _, keys, _ = self.contents[0][1].shape
        self.lengths = torch.full((batch,), keys, dtype=torch.int32, device=self.device) if command["decode"] else None
        rows = [tensor.shape[2] for tensor in self.contents[0][:2]]
        self.served = Served(torch, self.device, Serving(**serving), rows) if serving else None
        # Each set has its own addresses.
        self.sets["bhsd"] = []
        for i in range(command["sets"]):
            which = i % len(self.contents)
            scales = [scale for operand in command["contents"][which] for scale in self.scales(operand)]
            self.sets["bhsd"].append([self.backwards(tensor) for tensor in self.contents[which]] + scales)
        self.wait()

    def backwards(self, tensor):
        """A copy with its elements in reverse order. torch cannot flip E4M3 itself."""
        bits = tensor.view(self.torch.uint8 if tensor.element_size() == 1 else self.torch.int16)
        return bits.flatten().flip(0).reshape(tensor.shape).view(tensor.dtype)

    def stored(self, path, kind):
        with open(path, "rb") as file:
            return self.torch.frombuffer(bytearray(file.read()), dtype=kind)

    def inputs(self, peer):
        if peer.heads_first:
            return self.sets["bhsd"]
        if "bshd" not in self.sets:
            self.sets["bshd"] = [
                [self.laid_out(tensor, place) for place, tensor in enumerate(s[:3])]
                + [scale if self.served else scale.view(1, 1) for scale in s[3:]]
                for s in self.sets["bhsd"]
            ]
        return self.sets["bshd"]

    def laid_out(self, tensor, place):
        """Q, K or V, by its place, for peers that do not take heads first."""
        return self.served.laid_out(tensor, place) if self.served else tensor.transpose(1, 2).contiguous()

    def prepare(self, command):
        torch, peer, launches = self.torch, self.peers[command["peer"]], command["launches"]
        sets = self.inputs(peer)
        if launches < len(sets):
            raise ValueError(f"a graph of {launches} launches leaves out some of {len(sets)} sets: ask for one of each at least")
        outputs = [None] * launches
        with peer.context(), torch.no_grad():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for i in range(max(3, len(sets))):
                    outputs[i % launches] = peer.call(*sets[i % len(sets)])
            torch.cuda.current_stream().wait_stream(stream)
            self.wait()
            self.check_timed(peer, [output for output in outputs if output is not None])
            outputs[:] = [None] * launches
            try:
                alone = self.captured(peer, [None])
                timed = self.captured(peer, outputs)
            except Exception as error:
                if not self.candidate:
                    raise
                self.wait()
                raise Unsupported(f"its calls cannot be captured in a graph: {describe(error)}")
        for _ in range(3):
            replay_us = self.replay_us(timed, 1)
        self.check_timed(peer, outputs)
        self.check_functions()
        least = max(1, self.kernels(alone.calls[0]))
        for i, call in enumerate(timed.calls):
            if self.kernels(call) < least:
                raise ValueError(
                    f"call {i + 1} of {launches} in the timed graph launches {self.kernels(call)} kernels, expected {least} as of a"
                    " call alone"
                )
        self.graphs[command["peer"]] = timed
        return replay_us / launches

    def captured(self, peer, outputs):
        """A graph of as many calls as there are `outputs`, which get what each returns."""
        torch, driver, sets = self.torch, self.driver, self.inputs(peer)
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph(keep_graph=True)
        calls, known = [], set()
        with torch.cuda.graph(graph, stream=stream):
            captured = driver.captured(stream)
            for i in range(len(outputs)):
                outputs[i] = peer.call(*sets[i % len(sets)])
                nodes = set(driver.nodes(captured))
                calls.append(nodes - known)
                known = nodes
        kinds = {driver.kind(node) for node in known}.difference(driver.WORKING, driver.IDLE)
        if self.candidate and kinds:
            raise ValueError(f"a call adds nodes of kind {min(kinds)} to a graph, expected kernels, copies and fills")
        executable = driver.instantiated(captured)
        weakref.finalize(graph, driver.destroy, executable)
        return Timed(outputs, graph, executable, calls)

    def kernels(self, nodes):
        return sum(self.driver.kind(node) == self.driver.KERNEL for node in nodes)

    def check_timed(self, peer, outputs):
        """Each output is in memory of its own. A candidate must return in timed calls what `call` demands of it."""
        sets = self.inputs(peer)
        if self.candidate:
            for i, output in enumerate(outputs):
                self.check(output, sets[i % len(sets)][0].shape)
        inputs = [tensor for tensors in sets for tensor in tensors if not isinstance(tensor, float)]
        for what, others in (("another output", []), ("an input", inputs)):
            tensors = sorted([*outputs, *others], key=lambda tensor: tensor.data_ptr())
            if any(itertools.starmap(overlap, itertools.pairwise(tensors))):
                raise ValueError(f"what is timed returned a tensor that shares memory with {what}, expected a new one on every call")

    def replay_us(self, timed, replays):
        with self.torch.no_grad():
            return self.device_us(functools.partial(self.replay, timed), replays)

    def replay(self, timed):
        self.driver.launch(timed.executable)

    def chunk(self, command):
        timed = self.graphs[command["peer"]]
        timed.lead_in = command["lead_in"]
        self.replay_us(timed, timed.lead_in)
        timed.us.append(self.replay_us(timed, command["replays"]) / len(timed.outputs))
        return timed.us[-1]

    def steady(self, command):
        timed = self.graphs[command["peer"]]
        return self.replay_us(timed, command["replays"]) / len(timed.outputs)

    def host_us(self, peer):
        """Host microseconds per call, of several calls back to back. The queue is empty before the first and not full after the last."""
        sets, rounds = self.inputs(peer), []
        with peer.context(), self.torch.no_grad():
            for _ in range(HOST_ROUNDS + 1):
                self.wait()
                start = time.perf_counter()
                for i in range(HOST_CALLS):
                    peer.call(*sets[i % len(sets)])
                rounds.append((time.perf_counter() - start) / HOST_CALLS * 1e6)
        self.wait()
        return rounds[1:]

    def finish(self, command):
        torch, peer = self.torch, self.peers[command["peer"]]
        host_us = self.host_us(peer)
        timed = self.graphs.pop(command["peer"])
        sets, outputs = len(self.inputs(peer)), timed.outputs
        self.change_signs()
        with torch.no_grad():
            us = min(self.renewed_us(peer, timed) for _ in range(RENEWALS if self.candidate else 1)) / len(outputs)
            self.check_timed(peer, outputs)
            judged = []
            for i, output in enumerate(outputs):
                if not any(i % sets == of and torch.equal(bits(output), bits(other)) for of, other in judged):
                    judged.append((i % sets, output.clone()))
            if self.candidate:
                self.check_functions()
                self.check_renewed(us, statistics.median(timed.us))
                self.check_alone(peer, timed, judged)
        is_coded = self.is_coded(outputs[0])
        for i, (of, output) in enumerate(judged):
            values = (output.float() / FP8_OUTPUT_SCALE if is_coded else output).to(self.output_kind)
            self.write(f"{command['output']}{i}", self.signed(self.heads_first(peer, values), of))
        del timed, outputs, output, values
        torch.cuda.empty_cache()
        e4m3_scale = FP8_OUTPUT_SCALE if is_coded else None
        return {"host_us": host_us, "e4m3_scale": e4m3_scale, "sets": [of for of, _ in judged]}

    def renewed_us(self, peer, timed):
        """Microseconds of a replay on inputs that have changed, which finds its outputs unwritten."""
        self.put(peer, lambda content, *_: self.backwards(content))
        for _ in range(timed.lead_in):
            self.replay(timed)
        self.renew(peer, timed)
        if self.device == "cuda":
            self.torch.cuda._sleep(PAUSE)
        return self.device_us(functools.partial(self.replay, timed), 1)

    def renew(self, peer, timed):
        self.put(peer, lambda content, i, is_v: self.signed(content, i) if is_v else content)
        for output in timed.outputs:
            is_coded = self.is_coded(output)
            output.view(self.torch.uint8 if is_coded else output.dtype).fill_(0x7F if is_coded else float("nan"))

    def is_coded(self, output):
        return not self.candidate and output.dtype == self.torch.float8_e4m3fn

    @staticmethod
    def check_renewed(us, timed):
        """A result that is kept, or work that is done only where an output is unwritten, shows in the time."""
        if us > RENEWED * timed:
            raise ValueError(
                f"a call takes {us:.2f} µs where inputs have changed and outputs are unwritten, expected at most {RENEWED} times the"
                f" {timed:.2f} that were timed: it does not do all of its work every time"
            )

    def enable(self, timed, nodes, is_enabled):
        for node in nodes:
            if self.driver.kind(node) in self.driver.WORKING:
                self.driver.enable(timed.executable, node, is_enabled)

    def check_alone(self, peer, timed, judged):
        """Each call must compute its output from its inputs where no other runs, and all that others left is of other inputs."""
        for i, call in enumerate(timed.calls):
            self.put(peer, lambda content, *_: self.backwards(content))
            self.replay(timed)
            self.renew(peer, timed)
            others = [node for other in timed.calls if other is not call for node in other]
            self.enable(timed, others, False)
            self.replay(timed)
            self.enable(timed, others, True)
            found = bits(timed.outputs[i])
            if not any(of == i % len(self.inputs(peer)) and self.torch.equal(found, bits(output)) for of, output in judged):
                raise ValueError(
                    f"call {i + 1} of {len(timed.calls)} in the timed graph, where no other runs, does not write what it does among them:"
                    " its output is what another computes"
                )

    def change_signs(self):
        """Draws the heads of V that change their sign where outputs are judged, and so do those: nobody could compute them before."""
        self.signs = []
        for _ in self.sets["bhsd"]:
            extents = self.contents[0][2].shape[:2]
            drawn = [byte & 1 for byte in os.urandom(extents.numel())]
            drawn = drawn if any(drawn) else [1] * len(drawn)
            self.signs.append(self.torch.tensor(drawn, dtype=self.torch.uint8, device=self.device).reshape(*extents, 1, 1))

    def signed(self, tensor, of):
        """With the signs of this set: V, or an output."""
        kind = self.torch.uint8 if tensor.element_size() == 1 else self.torch.int16
        signs = self.signs[of].to(kind) << (8 * tensor.element_size() - 1)
        return (tensor.view(kind) ^ signs.repeat_interleave(tensor.shape[1] // signs.shape[1], dim=1)).view(tensor.dtype)

    def put(self, peer, change):
        """Writes the contents, changed, to the peer's inputs."""
        for i, tensors in enumerate(self.inputs(peer)):
            for place, (tensor, content) in enumerate(zip(tensors, self.contents[i % len(self.contents)])):
                changed = change(content, i, place == 2)
                tensor.copy_(changed if peer.heads_first else self.laid_out(changed, place))

    def heads_first(self, peer, output):
        """An output as [batch, heads, rows, head_dim]."""
        if peer.heads_first:
            return output
        return self.served.dense(output) if self.served else output.transpose(1, 2)


def supervise():
    """Goes on in a child. This process waits until that ends or standard input does, and ends with all that the child has started."""
    prctl = ctypes.CDLL(None).prctl
    # PR_SET_CHILD_SUBREAPER: processes whose parent has ended become children of this one, whatever their group.
    prctl(36, 1, 0, 0, 0)
    worker, status = os.fork(), 0
    if not worker:
        # PR_SET_PDEATHSIG
        prctl(1, signal.SIGKILL, 0, 0, 0)
        return
    caller = select.poll()
    # That it hangs up is reported always, what it writes is not.
    caller.register(COMMANDS, 0)
    while not caller.poll(50):
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            break
    with contextlib.suppress(OSError):
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children") as children:
                for child in children.read().split():
                    os.kill(int(child), signal.SIGKILL)
            os.wait()
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError, ValueError):
            os.write(2, f"it was ended by {signal.Signals(os.WTERMSIG(status)).name}\n".encode())
    os._exit(0)


def main():
    supervise()
    worker = None
    for line in os.fdopen(COMMANDS):
        try:
            command = json.loads(line)
            if worker is None:
                worker = Worker()
            answer = {"ok": getattr(worker, command["do"])(command)}
        except (Exception, SystemExit) as error:  # whatever a library raises is an answer
            answer = {"unsupported" if isinstance(error, Unsupported) else "refused": describe(error)}
        print(json.dumps(answer), file=ANSWERS)


main()
