"""Fused attention forward (SDPA; FP16 and FP8 E4M3) on NVIDIA GPUs.

`sdpa` is called directly; `torch.ops.attention_ladder.sdpa` is the same as a registered operator, for graphs of torch.compile. Both
launch on PyTorch's current stream into its memory, and can be captured into a CUDA graph. Which kernel runs follows from what was
fastest on this GPU, or on one like it, at the nearest problem: `variant` says which.
"""

import torch

from . import _native

__all__ = ["sdpa", "variant"]
__version__ = _native.__version__

_launch = _native.launch
_is_compiling = torch.compiler.is_compiling
_empty_like, _f16 = torch.empty_like, torch.float16


def sdpa(q, k, v, is_causal=False, scale=None, out=None, *, q_scale=None, k_scale=None, v_scale=None, return_lse=False):
    """softmax(scale * q @ k.T + mask) @ v.

    q is [batch, heads_q, seq_q, head_dim], k and v are [batch, heads_kv, seq_kv, head_dim], of float16 or float8_e4m3fn; head_dim is 64
    or 128. Query head h reads key head h // (heads_q // heads_kv): grouped heads are not expanded. Strides are free (a transposed
    [batch, seq, heads, head_dim] is fine), as long as head_dim is contiguous and all others are multiples of 16 bytes.

    is_causal aligns bottom right: key j is visible to query i where j <= i + seq_kv - seq_q. Where seq_q and seq_kv differ, this is
    not the top-left mask of scaled_dot_product_attention's is_causal; a query that sees no key gives 0.

    scale multiplies q @ k.T; None is 1 / sqrt(head_dim). float8_e4m3fn takes q_scale, k_scale and v_scale, float32 [batch, heads] each:
    a value is scale * code. The result is float16 in the layout of q, or is written into out, float16 in q's shape, and returned.

    Raises NotImplementedError for what no kernel supports (other dtypes and head sizes, backward, return_lse), ValueError for
    arguments that do not fit each other, and RuntimeError, which says what is missing, where there is no GPU.
    """
    if return_lse:
        raise NotImplementedError("return_lse: log-sum-exp output is not supported")
    if _is_compiling():
        result = torch.ops.attention_ladder.sdpa(q, k, v, is_causal, scale, q_scale, k_scale, v_scale)
        return result if out is None else out.copy_(result)
    if out is None:
        out = _empty_like(q) if q.dtype is _f16 else _empty_like(q, dtype=_f16)
    _launch(q, k, v, out, is_causal, scale, q_scale, k_scale, v_scale)
    return out


def variant(q, k, v, is_causal=False, scale=None):
    """The stage and variant that `sdpa` launches for these arguments: "stage8-overlap/overlap-lazy-64x128". Raises what it raises."""
    return _native.variant(q, k, v, is_causal, scale)


def _sdpa(q, k, v, is_causal=False, scale=None, q_scale=None, k_scale=None, v_scale=None):
    out = _empty_like(q) if q.dtype is _f16 else _empty_like(q, dtype=_f16)
    _launch(q, k, v, out, is_causal, scale, q_scale, k_scale, v_scale)
    return out


def _fake(q, k, v, is_causal=False, scale=None, q_scale=None, k_scale=None, v_scale=None):
    return torch.empty_like(q, dtype=torch.float16)


_library = torch.library.Library("attention_ladder", "DEF")
_library.define(
    "sdpa(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None, Tensor? q_scale=None, Tensor? k_scale=None, "
    "Tensor? v_scale=None) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.impl("sdpa", _sdpa, "CUDA")
_library.impl("sdpa", _sdpa, "CPU")  # which says what is missing
torch.library.register_fake("attention_ladder::sdpa", _fake, lib=_library)
