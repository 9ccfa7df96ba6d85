"""FlashAttention-3's own tests of the forward pass, on the wheel: head_dim 64 and 128, all three types, and decode from a cache.

usage: python attention-ladder/python/tests/flash_attn_interface.py CHECKOUT [pytest's flags]     (-k "kvcache and 3-799")

CHECKOUT is one of github.com/Dao-AILab/flash-attention. The Python needs torch, the wheel, pytest and einops. What the wheel does not do
is skipped by name. Exit codes of pytest.
"""

import os
import sys
from pathlib import Path

import pytest
import torch

import attention_ladder

DISABLED = "BACKWARD SPLIT PAGEDKV APPENDKV LOCAL SOFTCAP PACKGQA HDIM96 HDIM192 HDIM256".split()


def attend(q, k, v, causal, scale=None, scales=(None, None, None)):
    """On [batch, rows, heads, head_dim]: the output and the log-sum-exp. Columns of V beyond head_dim are values of their own."""
    heads = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    options = {"is_causal": causal, "scale": scale, "return_lse": True}
    if q.dtype is torch.float8_e4m3fn:
        ones = torch.ones(k.shape[0], k.shape[2], device=k.device)
        given = [ones if scale is None else scale for scale in scales]
        # FlashAttention has one scale for the query heads of a key head.
        given[0] = given[0].repeat_interleave(q.shape[2] // k.shape[2], 1)
        options |= dict(zip(("q_scale", "k_scale", "v_scale"), (scale.contiguous() for scale in given)))
    results = [attention_ladder.sdpa(*heads[:2], part, **options) for part in heads[2].split(q.shape[3], 3)]
    return torch.cat([out for out, _ in results], 3).transpose(1, 2), results[0][1]


def refuse(**features):
    for name, value in features.items():
        if value not in (None, 0, False, (-1, -1)):
            pytest.skip(f"the wheel has no {name}")


def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, **options,
):  # fmt: skip
    refuse(qv=None if qv is None else "qv", window_size=window_size, attention_chunk=attention_chunk, softcap=softcap, **options)
    return attend(*(tensor.detach() for tensor in (q, k, v)), causal, softmax_scale, (q_descale, k_descale, v_descale))[0]


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, *, cache_seqlens, cache_batch_idx=None, cache_leftpad=None, cu_seqlens_q=None,
    softmax_scale=None, causal=False, qv=None, page_table=None, return_softmax_lse=False, **options,
):  # fmt: skip
    """One sequence after the other: the wheel has no lengths of sequences."""
    new = {"k": k, "v": v, "qv": qv, "page_table": page_table}
    refuse(**{name: None if value is None else name for name, value in new.items()})
    lengths, outs, lses = cache_seqlens.tolist(), [], []
    ends = None if cu_seqlens_q is None else cu_seqlens_q.tolist()
    for i, length in enumerate(lengths):
        rows = q[i : i + 1] if ends is None else q[None, ends[i] : ends[i + 1]]
        of = i if cache_batch_idx is None else int(cache_batch_idx[i])
        start = 0 if cache_leftpad is None else int(cache_leftpad[i])
        keys, values = (cache[of : of + 1, start:length] for cache in (k_cache, v_cache))
        out, lse = attend(rows, keys, values, causal, softmax_scale)
        outs.append(out if ends is None else out[0])
        lses.append(lse if ends is None else lse[0])
    out, lse = torch.cat(outs), torch.cat(lses, 0 if ends is None else 1)
    return (out, lse) if return_softmax_lse else out


def absent(*_, **__):
    pytest.skip("the wheel has no such function")


flash_attn_varlen_func = flash_attn_combine = absent


def get_scheduler_metadata(*_, **__):
    return None


if __name__ == "__main__":
    tests = Path(sys.argv[1]) / "hopper"
    os.environ |= {f"FLASH_ATTENTION_DISABLE_{name}": "TRUE" for name in DISABLED}
    sys.modules["flash_attn_interface"] = sys.modules["__main__"]
    sys.path.insert(0, str(tests))
    only = ["-k", "test_flash_attn_output or test_flash_attn_kvcache"]
    sys.exit(pytest.main([str(tests / "test_flash_attn.py"), "-q", "-rs", "--import-mode=importlib", *only, *sys.argv[2:]]))
