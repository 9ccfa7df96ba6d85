"""Fused attention forward (SDPA; FP16, BF16 and FP8 E4M3) on NVIDIA GPUs, with log-sum-exps on request.

Call `sdpa` directly; `torch.ops.attention_ladder.sdpa` and `sdpa_lse` are the same as registered operators, for torch.compile graphs.
All launch on PyTorch's current stream into its memory, and can be captured into a CUDA graph. The kernel is the one that was
fastest on this GPU, or on one like it, at the nearest problem; `variant` names it.
"""

import torch

from . import _native

__all__ = ["sdpa", "variant"]
__version__ = _native.__version__

_launch = _native.launch
_is_compiling = torch.compiler.is_compiling
_empty_like, _f16, _f32, _e4m3 = torch.empty_like, torch.float16, torch.float32, torch.float8_e4m3fn


def sdpa(q, k, v, is_causal=False, scale=None, out=None, *, q_scale=None, k_scale=None, v_scale=None, return_lse=False):
    """softmax(scale * q @ k.T + mask) @ v, and with return_lse the pair of that and the log-sum-exp (LSE) of each row.

    q is [batch, heads_q, seq_q, head_dim], k and v are [batch, heads_kv, seq_kv, head_dim], of float16, bfloat16 or float8_e4m3fn;
    head_dim is 64 or 128. Query head h reads key head h // (heads_q // heads_kv): grouped heads are not expanded. Strides are arbitrary
    (a transposed [batch, seq, heads, head_dim] is fine), as long as head_dim is contiguous and all others are multiples of 16 bytes.

    is_causal aligns bottom-right: key j is visible to query i if j <= i + seq_kv - seq_q. If seq_q and seq_kv differ, this is
    not the top-left mask of scaled_dot_product_attention's is_causal; a query that sees no key gives 0.

    scale multiplies q @ k.T; None means 1 / sqrt(head_dim). float8_e4m3fn takes q_scale, k_scale and v_scale, float32 [batch, heads] each:
    a value is scale * code, and scales are positive and finite (1 for a head of zeros; 0 would give NaN). The result is bfloat16 for
    bfloat16, else float16, in the layout of q; if out is given, of that type and q's shape, the result is written into it.

    The LSE is torch.logsumexp(scale * q @ k.T + mask, -1): float32 [batch, heads_q, seq_q], contiguous, natural logarithm, -inf for a
    query that sees no key. Use it to merge partial results over parts of the keys.

    Raises NotImplementedError for what no kernel supports (other dtypes and head sizes, backward), ValueError for inconsistent
    arguments, and RuntimeError, which says what is missing, if there is no GPU.
    """
    if _is_compiling():
        given = (q, k, v, is_causal, scale, q_scale, k_scale, v_scale)
        ops = torch.ops.attention_ladder
        result, lse = ops.sdpa_lse(*given) if return_lse else (ops.sdpa(*given), None)
        result = result if out is None else out.copy_(result)
        return (result, lse) if return_lse else result
    if out is None:
        out = _empty_out(q)
    lse = _empty_lse(q) if return_lse else None
    _launch(q, k, v, out, lse, is_causal, scale, q_scale, k_scale, v_scale)
    return (out, lse) if return_lse else out


def variant(q, k, v, is_causal=False, scale=None, *, return_lse=False):
    """The stage and variant that `sdpa` launches for these arguments, such as "stage8-overlap/overlap-lazy-64x128". Raises like `sdpa`."""
    return _native.variant(q, k, v, is_causal, scale, return_lse)


def _empty_out(q):
    return _empty_like(q, dtype=_f16) if q.dtype is _e4m3 else _empty_like(q)


def _empty_lse(q):
    return q.new_empty(q.shape[:-1], dtype=_f32)


def _sdpa(q, k, v, is_causal=False, scale=None, q_scale=None, k_scale=None, v_scale=None):
    out = _empty_out(q)
    _launch(q, k, v, out, None, is_causal, scale, q_scale, k_scale, v_scale)
    return out


def _sdpa_lse(q, k, v, is_causal=False, scale=None, q_scale=None, k_scale=None, v_scale=None):
    out, lse = _empty_out(q), _empty_lse(q)
    _launch(q, k, v, out, lse, is_causal, scale, q_scale, k_scale, v_scale)
    return out, lse


def _fake(q, *others, **options):
    return _empty_out(q)


def _fake_lse(q, *others, **options):
    return _empty_out(q), _empty_lse(q)


def _no_backward(*_, **__):
    raise NotImplementedError(_native.NO_BACKWARD)


_ARGUMENTS = (
    "(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None, Tensor? q_scale=None, Tensor? k_scale=None, "
    "Tensor? v_scale=None)"
)
_library = torch.library.Library("attention_ladder", "DEF")
for _name, _result, _impl, _shapes in (("sdpa", "Tensor", _sdpa, _fake), ("sdpa_lse", "(Tensor, Tensor)", _sdpa_lse, _fake_lse)):
    _library.define(f"{_name}{_ARGUMENTS} -> {_result}", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(_name, _impl, "CUDA")
    _library.impl(_name, _impl, "CPU")  # raises, saying what is missing
    torch.library.register_fake(f"attention_ladder::{_name}", _shapes, lib=_library)
    # Without a formula, autograd would drop the gradient silently. The context is set up in the forward pass, if a gradient will be
    # needed: that is refused there, as in a call without torch.compile.
    torch.library.register_autograd(f"attention_ladder::{_name}", _no_backward, setup_context=_no_backward, lib=_library)
