"""Host time of one call, next to scaled_dot_product_attention's: how long Python waits before it can go on, while the GPU keeps up.

usage: python attention-ladder/python/bench.py
"""

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


if __name__ == "__main__":
    main()
