"""Attention forward in Triton: online softmax over tiles of keys; f16, causal and full, grouped heads, any lengths."""
import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def forward(
    q, k, v, o, scale_log2,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    heads, heads_per_kv, rows, keys,
    CAUSAL: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    block = tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    kv_head = head // heads_per_kv
    m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, DIM)
    q_at = q + batch * q_batch + head * q_head + m[:, None] * q_row + d[None, :]
    k_at = k + batch * k_batch + kv_head * k_head + n[None, :] * k_row + d[:, None]
    v_at = v + batch * v_batch + kv_head * v_head + n[:, None] * v_row + d[None, :]
    q_tile = tl.load(q_at, mask=m[:, None] < rows, other=0.0)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, DIM], tl.float32)
    # Row i sees keys up to i + keys - rows: the last row of the block says where its tiles end.
    last = keys
    if CAUSAL:
        last = tl.minimum(keys, tl.maximum(0, (block + 1) * BLOCK_M + keys - rows))
    for start in range(0, last, BLOCK_N):
        there = start + n < keys
        k_tile = tl.load(k_at + start * k_row, mask=there[None, :], other=0.0)
        scores = tl.dot(q_tile, k_tile) * scale_log2
        seen = there[None, :]
        if CAUSAL:
            seen = seen & (start + n[None, :] <= m[:, None] + keys - rows)
        scores = tl.where(seen, scores, float("-inf"))
        new_most = tl.maximum(most, tl.max(scores, 1))
        # No key yet: -inf - -inf is no number.
        base = tl.where(new_most == float("-inf"), 0.0, new_most)
        p = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(most - base)
        total = total * rescale + tl.sum(p, 1)
        v_tile = tl.load(v_at + start * v_row, mask=there[:, None], other=0.0)
        result = tl.dot(p.to(tl.float16), v_tile, result * rescale[:, None])
        most = new_most
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    o_at = o + batch * o_batch + head * o_head + m[:, None] * o_row + d[None, :]
    tl.store(o_at, result.to(tl.float16), mask=m[:, None] < rows)


def attention(q, k, v, *, causal, softmax_scale):
    batch, heads, rows, dim = q.shape
    if q.dtype != torch.float16:
        raise NotImplementedError("float16 alone")
    output = torch.empty(q.shape, dtype=torch.float16, device=q.device)
    block_m, block_n = 128 if rows > 64 else 64, 64
    grid = (triton.cdiv(rows, block_m), batch * heads)
    forward[grid](
        q, k, v, output, softmax_scale * LOG2_E,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *output.stride()[:3],
        heads, heads // k.shape[1], rows, k.shape[2],
        CAUSAL=causal, DIM=dim, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4, num_stages=3,
    )
    return output
