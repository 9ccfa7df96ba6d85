"""Times what a user of PyTorch would call instead of this project's kernels. Started by `compare peers`.

Reads one JSON object per line from standard input and answers each with one on standard output: {"ok": true, ...} or
{"ok": false, "error": "..."}. Only one command runs at a time, and nothing is on the GPU when it has been answered, so
that timings of this process and of the one that asks can be interleaved.

  hello                      versions, the GPU, and which peers can be called
  ceilings                   what the GPU reaches on a large matrix product and on a large copy
  problem                    dtype (f16, bf16, e4m3), extents, mask, scale, sets to rotate over, files with Q, K and V: dense values, or
                             E4M3 codes with the scale of each tensor
  prepare  peer, launches    a CUDA graph of `launches` calls that rotate over the sets
  chunk    peer, us          replays of that graph for about `us` microseconds; device time of one call
  calls    peer, count       single calls: time between two events, and the host's time until the call returns
  finish   peer, outputs     fills the graph's outputs with NaN, replays it, writes the outputs to files, as bf16 where the inputs are, else as f16, and
                             forgets the graph;
                             e4m3_scale if they were held in E4M3, and under which scale

Peers whose name ends in -fp8 take E4M3, all others f16 and bf16.
"""
import contextlib
import ctypes
import importlib.metadata
import json
import os
import platform
import sys
import time

# Libraries print what they like; answers have a descriptor of their own.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

# Chunks begin with this share of untimed replays: the GPU has just run the other process.
LEAD_IN = 0.25
# cuDNN's FP8 attention writes E4M3 on this architecture. Under this scale outputs of up to 7 keep within its range.
FP8_OUTPUT_SCALE = 64.0
# The math backend writes all scores to memory: more keys than this say nothing new.
MATH_KEYS = 2048


def describe(error):
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


class Worker:
    def __init__(self):
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} sees no CUDA device")
        self.torch = torch
        self.peers, self.absent = {}, {}
        self.graphs = {}
        self.find_sdpa()
        self.find_flash_attn()
        self.find_flash_attn_3()
        self.find_cudnn_fp8()

    def find_sdpa(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        sdpa = self.torch.nn.functional.scaled_dot_product_attention

        def call(q, k, v):
            options = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
            return sdpa(q, k, v, is_causal=self.causal, scale=self.scale, **options)

        self.peers["torch-default"] = (call, contextlib.nullcontext)
        for name, backend in (
            ("flash", "FLASH_ATTENTION"),
            ("cudnn", "CUDNN_ATTENTION"),
            ("efficient", "EFFICIENT_ATTENTION"),
            ("math", "MATH"),
        ):
            if hasattr(SDPBackend, backend):
                chosen = getattr(SDPBackend, backend)
                self.peers[f"torch-{name}"] = (call, lambda chosen=chosen: sdpa_kernel(chosen))
            else:
                self.absent[f"torch-{name}"] = f"this torch has no SDPBackend.{backend}"

    def find_flash_attn(self):
        """FlashAttention takes [batch, rows, heads, head_dim]; the sets are kept that way for it."""
        for name, module in (("flash-attn-4", "flash_attn.cute"), ("flash-attn", "flash_attn")):
            try:
                function = importlib.import_module(module).flash_attn_func
            except Exception as error:  # a broken installation is absent too
                self.absent[name] = describe(error)
                continue

            def call(q, k, v, function=function):
                result = function(q, k, v, softmax_scale=self.scale, causal=self.causal)
                return result[0] if isinstance(result, tuple) else result

            self.peers[name] = (call, contextlib.nullcontext)

    def find_flash_attn_3(self):
        """From its package, or from a library of operators, vLLM's build of it, which takes packed sequences alone."""
        library = os.environ.get("FLASH_ATTN_3")
        try:
            if library:
                self.torch.ops.load_library(library)
                self.packed_forward, self.offsets = self.torch.ops._vllm_fa3_C.fwd, {}
                call = self.packed
            else:
                function = importlib.import_module("flash_attn_interface").flash_attn_func

                def call(q, k, v, *scales):
                    names = ("q_descale", "k_descale", "v_descale")
                    scales = dict(zip(names, (scale.expand(k.shape[0], k.shape[2]) for scale in scales)))
                    result = function(q, k, v, softmax_scale=self.scale, causal=self.causal, **scales)
                    return result[0] if isinstance(result, tuple) else result
        except Exception as error:
            self.absent["flash-attn-3"] = self.absent["flash-attn-3-fp8"] = describe(error)
            return
        self.peers["flash-attn-3"] = self.peers["flash-attn-3-fp8"] = (call, contextlib.nullcontext)

    def packed(self, q, k, v, *scales):
        def ends(tensor):
            batch, rows = tensor.shape[:2]
            if (batch, rows) not in self.offsets:
                ends = self.torch.arange(0, batch + 1, device="cuda", dtype=self.torch.int32) * rows
                self.offsets[batch, rows] = ends
            return self.offsets[batch, rows]

        flat = [tensor.flatten(0, 1) for tensor in (q, k, v)]
        ends_q, ends_kv = ends(q), ends(k)
        scales = [scale.expand(k.shape[0], k.shape[2]) for scale in scales] or [None, None, None]
        # q, k, v; k_new, v_new, q_v, out; ends; unused ends; lengths; paging; rotary; descale; scale, mask, window, ...
        result = self.packed_forward(
            *flat, None, None, None, None, ends_q, ends_kv, None, None, None, q.shape[1], k.shape[1], None, None, None, None,
            None, None, *scales, self.scale, self.causal, -1, -1, 0.0, True, None, 1, None, 0, None, 1, 0, None,
        )
        return result[0].reshape(q.shape)

    def find_cudnn_fp8(self):
        """cuDNN by its frontend, since PyTorch hands no E4M3 to it."""
        try:
            self.cudnn = importlib.import_module("cudnn")
            self.cudnn_handle, self.cudnn_graphs = self.cudnn.create_handle(), {}
        except Exception as error:
            self.absent["cudnn-fp8"] = describe(error)
            return
        self.peers["cudnn-fp8"] = (self.cudnn_fp8, contextlib.nullcontext)

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

    def hello(self, command):
        torch = self.torch
        software = {"python": platform.python_version(), "torch": torch.__version__, "cuda": str(torch.version.cuda)}
        software["cudnn"] = str(torch.backends.cudnn.version())
        for package in ("flash-attn-4", "flash-attn", "flash-attn-3", "vllm", "triton", "nvidia-cudnn-frontend"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                software[package] = importlib.metadata.version(package)
        device = torch.cuda.get_device_properties(0)
        uuid = getattr(device, "uuid", None)
        return {
            "software": software,
            "gpu": device.name,
            "uuid": None if uuid is None else str(uuid),
            "peers": list(self.peers),
            "absent": self.absent,
        }

    def ceilings(self, command):
        torch = self.torch
        n = 8192
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
        out = torch.empty_like(a)
        product = self.best_seconds(lambda: torch.matmul(a, b, out=out), 20)
        source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
        target = torch.empty_like(source)
        copy = self.best_seconds(lambda: target.copy_(source), 10)
        del a, b, out, source, target
        torch.cuda.empty_cache()
        return {"matrix_flops": 2 * n**3 / product, "copy_bytes": 2 * (1 << 30) / copy}

    def best_seconds(self, work, repeats):
        times = []
        for _ in range(6):
            start, end = self.event(), self.event()
            start.record()
            for _ in range(repeats):
                work()
            end.record()
            self.torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3 / repeats)
        return min(times)

    def event(self):
        return self.torch.cuda.Event(enable_timing=True)

    def problem(self, command):
        torch = self.torch
        self.graphs.clear()
        self.sets = {}
        torch.cuda.empty_cache()
        self.causal, self.scale, self.keys = command["causal"], command["scale"], command["kv_extents"][2]
        extents = [command["q_extents"], command["kv_extents"], command["kv_extents"]]
        kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
        kind = kinds[command["dtype"]]
        self.output_kind = torch.bfloat16 if kind == torch.bfloat16 else torch.float16
        contents = []
        for paths, scales in zip(command["contents"], command["scales"]):
            tensors = [self.read(path, shape, kind) for path, shape in zip(paths, extents)]
            contents.append(tensors + [torch.full((1, 1, 1, 1), scale, device="cuda") for scale in scales])
        # Every set has addresses of its own.
        count = command["sets"]
        self.sets["bhsd"] = [[t.clone() for t in contents[i % len(contents)]] for i in range(count)]
        self.contents = len(contents)
        torch.cuda.synchronize()
        return {}

    def read(self, path, shape, kind):
        with open(path, "rb") as file:
            data = bytearray(file.read())
        return self.torch.frombuffer(data, dtype=kind).reshape(shape).cuda()

    def inputs(self, peer):
        if self.is_heads_first(peer):
            return self.sets["bhsd"]
        if "bshd" not in self.sets:
            self.sets["bshd"] = [
                [t.transpose(1, 2).contiguous() for t in s[:3]] + [scale.view(1, 1) for scale in s[3:]]
                for s in self.sets["bhsd"]
            ]
        return self.sets["bshd"]

    @staticmethod
    def is_heads_first(peer):
        return peer.startswith(("torch-", "cudnn-"))

    def prepare(self, command):
        torch, peer, launches = self.torch, command["peer"], command["launches"]
        if peer == "torch-math" and self.keys > MATH_KEYS:
            raise ValueError(f"not timed above {MATH_KEYS} keys: it writes all scores to memory")
        call, context = self.peers[peer]
        sets = self.inputs(peer)
        outputs = [None] * len(sets)
        with context(), torch.no_grad():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for i in range(max(3, len(sets))):
                    outputs[i % len(sets)] = call(*sets[i % len(sets)])
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            outputs = [None] * len(sets)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for i in range(launches):
                    outputs[i % len(sets)] = call(*sets[i % len(sets)])
        entry = {"graph": graph, "outputs": outputs, "launches": launches, "replay_us": None}
        for _ in range(3):
            entry["replay_us"] = self.replay_us(entry, 1)
        self.graphs[peer] = entry
        return {"device_us": entry["replay_us"] / launches}

    def replay_us(self, entry, replays):
        start, end = self.event(), self.event()
        start.record()
        for _ in range(replays):
            entry["graph"].replay()
        end.record()
        self.torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / replays

    def chunk(self, command):
        entry = self.graphs[command["peer"]]
        replays = max(1, -(-int(command["us"]) // max(1, int(entry["replay_us"]))))
        self.replay_us(entry, max(1, int(LEAD_IN * replays)))
        return {"device_us": self.replay_us(entry, replays) / entry["launches"]}

    def calls(self, command):
        torch, peer = self.torch, command["peer"]
        call, context = self.peers[peer]
        sets = self.inputs(peer)
        single, host = [], []
        with context(), torch.no_grad():
            for i in range(command["count"] + 10):
                start, end = self.event(), self.event()
                start.record()
                before = time.perf_counter()
                output = call(*sets[i % len(sets)])
                after = time.perf_counter()
                end.record()
                torch.cuda.synchronize()
                single.append(start.elapsed_time(end) * 1e3)
                host.append((after - before) * 1e6)
        del output
        return {"single_us": single[10:], "host_us": host[10:]}

    def finish(self, command):
        torch, peer = self.torch, command["peer"]
        entry = self.graphs.pop(peer)
        is_coded = entry["outputs"][0].dtype == torch.float8_e4m3fn
        for output in entry["outputs"]:
            output.view(torch.uint8 if is_coded else output.dtype).fill_(0x7F if is_coded else float("nan"))
        entry["graph"].replay()
        torch.cuda.synchronize()
        for path, output in zip(command["outputs"], entry["outputs"]):
            if not self.is_heads_first(peer):
                output = output.transpose(1, 2)
            values = output.float() / FP8_OUTPUT_SCALE if is_coded else output
            host = values.to(self.output_kind).contiguous().cpu()
            with open(path, "wb") as file:
                file.write(ctypes.string_at(host.data_ptr(), host.numel() * host.element_size()))
        del entry, output, values, host
        torch.cuda.empty_cache()
        return {"e4m3_scale": FP8_OUTPUT_SCALE if is_coded else None}


def main():
    worker = None
    for line in sys.stdin:
        try:
            command = json.loads(line)
            if worker is None:
                worker = Worker()
            answer = {"ok": True, **getattr(worker, command["do"])(command)}
        except Exception as error:  # whatever a library raises is an answer
            answer = {"ok": False, "error": describe(error)}
        print(json.dumps(answer), file=ANSWERS)


main()
