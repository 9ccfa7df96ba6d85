"""Times what a PyTorch user would call instead of this project's kernels. `compare peers` starts it; `compare candidate` starts a
second one for the user's function.

Reads one JSON object per line from standard input and answers each with one on standard output: {"ok": true, ...} or
{"ok": false, "error": "..."}. The code under test sees neither stream. When standard input ends, so does the process, with
everything that it started. One command runs at a time, and the GPU is idle once it has been answered, so that timings of this
process can be interleaved with the caller's.

  begin                      nothing; it is answered if torch can be imported
  hello                      versions, the GPU, and which peers can be called
  load     peer, file,       the same for one peer, a function in the file, which may also be called on the CPU
           function
  call     q, k, v, place,   calls that peer once, on views of the files' bytes at the addresses of the previous call with this
           output, after ... place; writes what it returns, and the inputs' bytes after the call; findings on its memory
  ceilings                   what the GPU reaches on a large matrix product and on a large copy
  problem                    dtype (f16, bf16, e4m3), extents, mask, scale, sets to rotate over, files with Q, K and V: dense values, or
                             E4M3 codes with the scale of each tensor
  prepare  peer, launches    a CUDA graph of `launches` calls that rotate over all sets, at least one of each
  chunk    peer, lead_in,    replays of that graph after `lead_in` that are not timed; device time of one call
           replays
  calls    peer, count       single calls, each from an idle stream: time between two events; and the host time of one of several
                             calls back to back, once a round
  finish   peer, outputs     writes other values to the graph's inputs, fills its outputs with NaN, replays it, and drops it; file i
                             gets the output of set i for content i + 1, in bf16 if the inputs are, else in f16;
                             e4m3_scale: the scale of outputs that were held in E4M3
"""
import contextlib
import ctypes
import dataclasses
import functools
import importlib.metadata
import importlib.util
import inspect
import json
import os
import platform
import queue
import signal
import sys
import threading
import time
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
# The math backend is not timed above this many keys.
MATH_KEYS = 2048
# Calls back to back whose host time is measured. A stream queues about 1000 launches before the host blocks: calls of up to 50 kernels
# do not fill it.
HOST_CALLS, HOST_ROUNDS = 20, 10


def describe(error):
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

    name: str
    call: Callable
    kind: str = "library"
    dtypes: tuple = ("f16", "bf16")
    context: Callable = contextlib.nullcontext
    # [batch, heads, rows, head_dim]; otherwise [batch, rows, heads, head_dim].
    heads_first: bool = True
    # With more keys it is not timed.
    most_keys: float = float("inf")

    @property
    def is_candidate(self):
        return self.kind == "candidate"


class Worker:
    def __init__(self):
        import torch

        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.peers, self.absent = {}, {}
        self.graphs = {}
        self.candidate, self.arenas, self.kept = None, {}, []

    def add(self, name, call, **properties):
        self.peers[name] = Peer(name, call, **properties)

    def find_sdpa(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        sdpa = self.torch.nn.functional.scaled_dot_product_attention

        def call(q, k, v):
            options = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
            return sdpa(q, k, v, is_causal=self.causal, scale=self.scale, **options)

        self.add("torch-default", call)
        for name, backend in (
            ("flash", "FLASH_ATTENTION"),
            ("cudnn", "CUDNN_ATTENTION"),
            ("efficient", "EFFICIENT_ATTENTION"),
            ("math", "MATH"),
        ):
            chosen = getattr(SDPBackend, backend, None)
            if chosen is None:
                self.absent[f"torch-{name}"] = f"this torch has no SDPBackend.{backend}"
            else:
                # The math backend writes all scores to memory.
                most_keys = MATH_KEYS if name == "math" else float("inf")
                self.add(f"torch-{name}", call, context=functools.partial(sdpa_kernel, chosen), most_keys=most_keys)

    def find_flash_attn(self):
        for name, module in (("flash-attn-4", "flash_attn.cute"), ("flash-attn", "flash_attn")):
            try:
                function = importlib.import_module(module).flash_attn_func
            except Exception as error:  # a broken installation is absent too
                self.absent[name] = describe(error)
                continue

            def call(q, k, v, function=function):
                return first(function(q, k, v, softmax_scale=self.scale, causal=self.causal))

            self.add(name, call, heads_first=False)

    def find_flash_attn_3(self):
        try:
            function = importlib.import_module("flash_attn_interface").flash_attn_func
        except Exception as error:
            self.absent["flash-attn-3"] = self.absent["flash-attn-3-fp8"] = describe(error)
            return

        def call(q, k, v, *scales):
            names = ("q_descale", "k_descale", "v_descale")
            scales = dict(zip(names, (scale.expand(k.shape[0], k.shape[2]) for scale in scales)))
            return first(function(q, k, v, softmax_scale=self.scale, causal=self.causal, **scales))

        self.add("flash-attn-3", call, heads_first=False)
        self.add("flash-attn-3-fp8", call, heads_first=False, dtypes=("e4m3",))

    def find_cudnn_fp8(self):
        """cuDNN through its frontend: PyTorch does not pass E4M3 to it."""
        try:
            self.cudnn = importlib.import_module("cudnn")
            self.cudnn_handle, self.cudnn_graphs = self.cudnn.create_handle(), {}
        except Exception as error:
            self.absent["cudnn-fp8"] = describe(error)
            return
        self.add("cudnn-fp8", self.cudnn_fp8, dtypes=("e4m3",))

    def cudnn_fp8(self, q, k, v, *scales):
        torch = self.torch
        key = (q.shape, k.shape, self.causal, self.scale)
        if key not in self.cudnn_graphs:
            self.cudnn_graphs[key] = self.cudnn_graph(q, k, v)
        graph, inputs, output, constants, workspace = self.cudnn_graphs[key]
        out = torch.empty_like(q)
        tensors = dict(zip(inputs, (q, k, v, *scales)))
        self.cudnn.set_stream(handle=self.cudnn_handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute({**tensors, **constants, output: out}, workspace, handle=self.cudnn_handle)
        return out

    def cudnn_graph(self, q, k, v):
        torch, cudnn = self.torch, self.cudnn
        codes, floats = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=codes, intermediate_data_type=floats, compute_data_type=floats, handle=self.cudnn_handle
        )

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
        return {}

    def hello(self, command):
        if self.device == "cpu":
            raise RuntimeError(f"torch {self.torch.__version__} sees no CUDA device")
        self.find_sdpa()
        self.find_flash_attn()
        self.find_flash_attn_3()
        self.find_cudnn_fp8()
        return self.found()

    def load(self, command):
        try:
            path = command["file"]
            sys.path.insert(0, os.path.dirname(path))
            spec = importlib.util.spec_from_file_location("candidate", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules["candidate"] = module
            spec.loader.exec_module(module)
            function = getattr(module, command["function"])
            self.takes_scales = "scales" in inspect.signature(function).parameters
        except (Exception, SystemExit) as error:
            self.absent[command["peer"]] = describe(error)
            return self.found()

        def call(q, k, v, *scales):
            options = {"scales": scales} if scales else {}
            return function(q, k, v, causal=self.causal, softmax_scale=self.scale, **options)

        dtypes = ("f16", "bf16", "e4m3") if self.takes_scales else ("f16", "bf16")
        self.add(command["peer"], call, kind="candidate", dtypes=dtypes)
        self.candidate = self.peers[command["peer"]]
        return self.found()

    def found(self):
        torch = self.torch
        software = {"python": platform.python_version(), "torch": torch.__version__, "cuda": str(torch.version.cuda)}
        software["cudnn"] = str(torch.backends.cudnn.version())
        for package in ("flash-attn-4", "flash-attn", "flash-attn-3", "triton", "nvidia-cudnn-frontend"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                software[package] = importlib.metadata.version(package)
        device = torch.cuda.get_device_properties(0) if self.device == "cuda" else None
        uuid = getattr(device, "uuid", None)
        return {
            "software": software,
            "gpu": device and device.name,
            "uuid": None if uuid is None else str(uuid),
            "peers": [{"name": peer.name, "kind": peer.kind, "dtypes": peer.dtypes} for peer in self.peers.values()],
            "absent": self.absent,
        }

    def call(self, command):
        torch = self.torch
        self.causal, self.scale = command["causal"], command["scale"]
        kind = self.kind_of(command["dtype"])
        if kind == torch.float8_e4m3fn and not self.takes_scales:
            return {"unsupported": "it has no argument `scales`, which E4M3 needs"}
        if command["fresh"]:
            self.kept = []
        images, tensors, scales = {}, [], []
        for name in "qkv":
            operand = command[name]
            images[name] = image = self.placed(command["place"], name, operand["file"])
            elements = image[operand["offset"] :].view(kind)
            tensors.append(elements.as_strided(operand["extents"], [*operand["strides"], 1]))
            if operand["scales"]:
                scale = torch.tensor(operand["scales"], dtype=torch.float32, device=self.device)
                scales.append(scale.reshape(operand["extents"][:2]))
        extents = command["q"]["extents"]
        copy = self.unwritten(extents)
        self.poison(extents)
        try:
            with torch.no_grad():
                output = self.candidate.call(*tensors, *scales)
        except NotImplementedError as error:
            return {"unsupported": describe(error)}
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
            self.write(command["after"][name], image)
        for number, (earlier, was) in enumerate(self.kept, 1):
            if overlap(output, earlier) or not torch.equal(bits(earlier), was):
                findings.append(("C6", f"its output shares memory with that of call {number}, which is still in use"))
        self.kept.append((output, bits(output)))
        return {"findings": findings}

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
            self.torch.cuda.synchronize()

    def check(self, output, extents):
        torch = self.torch
        # A subclass could compute lazily, when it is read.
        if type(output) is not torch.Tensor:
            raise TypeError(f"returned {type(output).__name__}, expected a torch.Tensor, not a subclass")
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
        return {"matrix_flops": 2e6 * n**3 / product, "copy_bytes": 2e6 * (1 << 30) / copy}

    def least_us(self, work, repeats):
        return min(self.device_us(work, repeats) for _ in range(6))

    def device_us(self, work, repeats):
        """Microseconds per call of `work`, from `repeats` calls between two events."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        self.torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / repeats

    def problem(self, command):
        torch = self.torch
        self.graphs.clear()
        self.sets = {}
        torch.cuda.empty_cache()
        self.causal, self.scale, self.keys = command["causal"], command["scale"], command["kv_extents"][2]
        extents = [command["q_extents"], command["kv_extents"], command["kv_extents"]]
        kind = self.kind_of(command["dtype"])
        contents = []
        for paths, scales in zip(command["contents"], command["scales"]):
            tensors = [self.stored(path, kind).reshape(shape).cuda() for path, shape in zip(paths, extents)]
            each = [shape[:2] if self.candidate else (1, 1, 1, 1) for shape in extents]
            contents.append(tensors + [torch.full(of, scale, device="cuda") for of, scale in zip(each, scales)])
        # Each set has its own addresses.
        count = command["sets"]
        self.sets["bhsd"] = [[t.clone() for t in contents[i % len(contents)]] for i in range(count)]
        self.contents = len(contents)
        torch.cuda.synchronize()
        return {}

    def stored(self, path, kind):
        with open(path, "rb") as file:
            return self.torch.frombuffer(bytearray(file.read()), dtype=kind)

    def inputs(self, peer):
        if peer.heads_first:
            return self.sets["bhsd"]
        if "bshd" not in self.sets:
            self.sets["bshd"] = [
                [t.transpose(1, 2).contiguous() for t in s[:3]] + [scale.view(1, 1) for scale in s[3:]]
                for s in self.sets["bhsd"]
            ]
        return self.sets["bshd"]

    def prepare(self, command):
        torch, peer, launches = self.torch, self.peers[command["peer"]], command["launches"]
        if self.keys > peer.most_keys:
            raise ValueError(f"not timed above {peer.most_keys} keys: it writes all scores to memory")
        sets = self.inputs(peer)
        if launches < len(sets):
            raise ValueError(f"a graph of {launches} launches leaves out some of {len(sets)} sets: ask for one of each at least")
        outputs = [None] * len(sets)

        def launch(count=launches):
            for i in range(count):
                outputs[i % len(sets)] = peer.call(*sets[i % len(sets)])

        with peer.context(), torch.no_grad():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                launch(max(3, len(sets)))
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            self.check_timed(peer, outputs)
            outputs[:] = [None] * len(sets)
            entry = {"replay": launch, "outputs": outputs, "launches": launches, "eager": None}
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    launch()
                entry["replay"] = graph.replay
            except Exception as error:
                if not peer.is_candidate:
                    raise
                torch.cuda.synchronize()
                entry["eager"] = describe(error)
        for _ in range(3):
            replay_us = self.replay_us(entry, 1)
        self.check_timed(peer, entry["outputs"])
        self.graphs[peer.name] = entry
        return {"device_us": replay_us / launches, "eager": entry["eager"]}

    def check_timed(self, peer, outputs):
        """A candidate must return in timed calls what `call` demands of it."""
        if not peer.is_candidate:
            return
        sets = self.inputs(peer)
        for i, output in enumerate(outputs):
            self.check(output, sets[i][0].shape)
            for what, others in (("an input", [t for s in sets for t in s]), ("another output", outputs[:i])):
                if any(overlap(output, other) for other in others):
                    raise ValueError(f"what is timed returned a tensor that shares memory with {what}, expected a new one")

    def replay_us(self, entry, replays):
        with self.torch.no_grad():
            return self.device_us(entry["replay"], replays)

    def chunk(self, command):
        entry = self.graphs[command["peer"]]
        self.replay_us(entry, command["lead_in"])
        return {"device_us": self.replay_us(entry, command["replays"]) / entry["launches"]}

    def calls(self, command):
        torch, peer = self.torch, self.peers[command["peer"]]
        call, sets = peer.call, self.inputs(peer)
        single = []
        with peer.context(), torch.no_grad():
            for i in range(command["count"] + 10):
                single.append(self.device_us(functools.partial(call, *sets[i % len(sets)]), 1))
            host = [self.host_us(call, sets) for _ in range(HOST_ROUNDS + 1)]
        return {"single_us": single[10:], "host_us": host[1:]}

    def host_us(self, call, sets):
        """Host microseconds per call, of several calls back to back. The queue is empty before the first and not full after the last."""
        self.wait()
        start = time.perf_counter()
        for i in range(HOST_CALLS):
            call(*sets[i % len(sets)])
        elapsed = time.perf_counter() - start
        self.wait()
        return elapsed / HOST_CALLS * 1e6

    def finish(self, command):
        torch, peer = self.torch, self.peers[command["peer"]]
        entry = self.graphs.pop(peer.name)
        outputs = entry["outputs"]
        is_coded = not peer.is_candidate and outputs[0].dtype == torch.float8_e4m3fn
        for output in outputs:
            output.view(torch.uint8 if is_coded else output.dtype).fill_(0x7F if is_coded else float("nan"))
        with self.other_values(peer):
            if entry["eager"]:
                self.poison(outputs[0].shape)
            self.replay_us(entry, 1)
        self.check_timed(peer, outputs)
        for path, output in zip(command["outputs"], outputs):
            values = output.float() / FP8_OUTPUT_SCALE if is_coded else output
            self.write(path, self.turned_back(self.heads_first(peer, values)).to(self.output_kind))
        del entry, outputs, output, values
        torch.cuda.empty_cache()
        return {"e4m3_scale": FP8_OUTPUT_SCALE if is_coded else None}

    @contextlib.contextmanager
    def other_values(self, peer):
        """Other values at the same addresses, so that a result computed before or during capture is wrong: each set gets the content of
        the next one with its heads rotated by one, V negated, and every second column of Q and K negated. That leaves the scores of a
        head as they were; only the sign and the position of its output change, which `turned_back` undoes."""
        sets, contents = self.inputs(peer), self.contents
        before = [[tensor.clone() for tensor in s] for s in sets[:contents]]

        def put(shift):
            for i, of in enumerate(sets):
                for tensor, was in zip(of, before[(i + shift) % contents]):
                    tensor.copy_(was)

        put(1)
        for of in sets:
            # E4M3 has one scale per tensor here, so that heads can be rotated.
            q, k, v = (self.heads_first(peer, self.sign_bits(tensor)) for tensor in of[:3])
            self.kv_heads = k.shape[1]
            for tensor, columns in ((q, slice(0, None, 2)), (k, slice(0, None, 2)), (v, slice(None))):
                turned = self.rolled(tensor, 1)
                turned[..., columns] ^= 0x80 if turned.dtype == self.torch.uint8 else -0x8000
                tensor.copy_(turned)
        try:
            yield
        finally:
            put(0)

    def sign_bits(self, tensor):
        """The same memory as integers whose highest bit is the sign."""
        return tensor.view(self.torch.uint8 if tensor.element_size() == 1 else self.torch.int16)

    def heads_first(self, peer, tensor):
        return tensor if peer.heads_first else tensor.transpose(1, 2)

    def rolled(self, tensor, by):
        """A copy, rotated by `by` in the batches, in the key heads, and in the query heads of each key head."""
        batch, heads, rows, columns = tensor.shape
        groups = tensor.reshape(batch, self.kv_heads, heads // self.kv_heads, rows, columns)
        return groups.roll((by, by, by), (0, 1, 2)).reshape(tensor.shape)

    def turned_back(self, output):
        return -self.rolled(output, -1)


def commands():
    """Commands, one per line."""
    lines = queue.SimpleQueue()

    def read():
        rest = b""
        while data := os.read(COMMANDS, 1 << 16):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                lines.put(line)
        # The caller is gone, perhaps while a command hangs.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, None)


def main():
    worker = None
    for line in commands():
        try:
            command = json.loads(line)
            if worker is None:
                worker = Worker()
            answer = {"ok": True, **getattr(worker, command["do"])(command)}
        except (Exception, SystemExit) as error:  # whatever a library raises is an answer
            answer = {"ok": False, "error": describe(error)}
        print(json.dumps(answer), file=ANSWERS)


main()
