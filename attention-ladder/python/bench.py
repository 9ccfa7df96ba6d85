"""Host time of one call, next to scaled_dot_product_attention's: how long Python waits before it can go on, while the GPU keeps up.
Then device time of one call in float16 and bfloat16, without and with log-sum-exps.

usage: python attention-ladder/python/bench.py
"""

import functools
import statistics
import time

import torch
import torch.nn.functional as F

import attention_ladder

CALLS, ROUNDS = 200, 15


def host_us(call):
    """Median over rounds of the microseconds of one call; the queue is empty before each round and not full after it."""
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(rounds), min(rounds), max(rounds)


def device_us(calls):
    """Median over rounds of the microseconds of a launch of each of `calls`, in interleaved CUDA graphs."""
    graphs = []
    for call in calls:
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
        graphs.append(graph)
    rounds = [[] for _ in graphs]
    for _ in range(ROUNDS + 1):
        for graph, times in zip(graphs, rounds):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / CALLS * 1e3)
    return [statistics.median(times[1:]) for times in rounds]


def main():
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, host time of a call in µs: median (min, max) of {ROUNDS} rounds")
    op = torch.ops.attention_ladder.sdpa.default
    for shape in [(1, 8, 128, 64), (1, 8, 512, 64)]:
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
        out = torch.empty_like(q)
        backend = torch.nn.attention.SDPBackend
        print("x".join(map(str, shape)), attention_ladder.variant(q, k, v))
        calls = {
            "attention_ladder.sdpa, out=": lambda: attention_ladder.sdpa(q, k, v, out=out),
            "attention_ladder.sdpa": lambda: attention_ladder.sdpa(q, k, v),
            "attention_ladder.sdpa, return_lse": lambda: attention_ladder.sdpa(q, k, v, return_lse=True),
            "torch.ops.attention_ladder.sdpa": lambda: torch.ops.attention_ladder.sdpa(q, k, v),
            "torch.ops.attention_ladder.sdpa.default": lambda: op(q, k, v),
            "torch.ops.attention_ladder.sdpa_lse": lambda: torch.ops.attention_ladder.sdpa_lse(q, k, v),
            "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, k, v),
            "torch.empty_like": lambda: torch.empty_like(q),
        }
        with torch.no_grad():
            for name, call in calls.items():
                call()
                print("  %-42s %6.2f (%.2f, %.2f)" % (name, *host_us(call)))
            for kind in (backend.FLASH_ATTENTION, backend.CUDNN_ATTENTION):
                with torch.nn.attention.sdpa_kernel(kind):
                    call = calls["scaled_dot_product_attention"]
                    call()
                    print("  %-42s %6.2f (%.2f, %.2f)" % (f"scaled_dot_product_attention {kind.name}", *host_us(call)))
    print("device time of a call in µs: f16, f16 with log-sum-exps, bf16, bf16 with log-sum-exps")
    for shape in [(1, 8, 512, 64), (1, 8, 2048, 64), (1, 8, 2048, 128), (4, 16, 2048, 128)]:
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
        tensors = [[x.to(dtype) for x in (q, k, v)] for dtype in (torch.float16, torch.bfloat16)]
        calls = [
            functools.partial(attention_ladder.sdpa, *given, out=torch.empty_like(given[0]), return_lse=return_lse)
            for given in tensors
            for return_lse in (False, True)
        ]
        names = dict.fromkeys(attention_ladder.variant(*given) for given in tensors)
        print("  %-14s %s  %s" % ("x".join(map(str, shape)), "".join(f"{us:9.2f}" for us in device_us(calls)), ", ".join(names)))


if __name__ == "__main__":
    main()
