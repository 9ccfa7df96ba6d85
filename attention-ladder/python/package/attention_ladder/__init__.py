"""Fused attention forward (SDPA; FP16, BF16 and FP8 E4M3) on NVIDIA GPUs, with log-sum-exps on request.

Call `sdpa` directly; `torch.ops.attention_ladder.sdpa` and `sdpa_lse` are the same as registered operators, for torch.compile graphs.
Tensors that are more than memory (subclasses, fake and meta tensors, transforms of torch.func, lazily negated ones) go through PyTorch's
dispatcher, and are computed correctly or refused by name; gradients and tangents are refused. All launch on PyTorch's current stream,
in the current context (a green one, too), into memory of PyTorch's allocator, and can be captured into a CUDA graph. The kernel is the
fastest by a model of the times on this GPU, or on the most similar one that was measured, the same in a green context as outside;
`variant` names it. Profilers see a direct call under its operator's name, and FlopCounterMode counts both.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload

import torch
from torch.autograd import profiler as _profiler
from torch.utils.flop_counter import register_flop_formula

from . import _native

__all__ = ["sdpa", "variant"]
__version__: str = _native.__version__

_sdpa = _native.sdpa
_is_compiling = torch.compiler.is_dynamo_compiling
_empty_like, _empty_strided = torch.empty_like, torch.empty_strided
_f16, _bf16, _f32, _e4m3 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn
_unpack_dual = torch.autograd.forward_ad.unpack_dual
_record = torch._C._profiler._RecordFunctionFast


@overload
def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = ...,
    scale: float | None = ...,
    out: torch.Tensor | None = ...,
    *,
    q_scale: torch.Tensor | None = ...,
    k_scale: torch.Tensor | None = ...,
    v_scale: torch.Tensor | None = ...,
    return_lse: Literal[False] = ...,
    batch_invariant: bool = ...,
) -> torch.Tensor: ...
@overload
def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = ...,
    scale: float | None = ...,
    out: torch.Tensor | None = ...,
    *,
    q_scale: torch.Tensor | None = ...,
    k_scale: torch.Tensor | None = ...,
    v_scale: torch.Tensor | None = ...,
    return_lse: Literal[True],
    batch_invariant: bool = ...,
) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = ...,
    scale: float | None = ...,
    out: torch.Tensor | None = ...,
    *,
    q_scale: torch.Tensor | None = ...,
    k_scale: torch.Tensor | None = ...,
    v_scale: torch.Tensor | None = ...,
    return_lse: bool,
    batch_invariant: bool = ...,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]: ...
def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    out: torch.Tensor | None = None,
    *,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale * q @ k.T + mask) @ v, and with return_lse the pair of that and the log-sum-exp (LSE) of each row.

    q is [batch, heads_q, seq_q, head_dim], k and v are [batch, heads_kv, seq_kv, head_dim], of float16, bfloat16 or float8_e4m3fn;
    head_dim is 64 or 128. Query head h reads key head h // (heads_q // heads_kv): grouped heads are not expanded. Strides are arbitrary
    (a transposed [batch, seq, heads, head_dim] is fine), as long as head_dim is contiguous, all others are positive multiples of 16
    bytes, like the address, and rows do not overlap; clone(memory_format=torch.contiguous_format) makes them so. batch and heads are at
    most 65,535, seq_q and seq_kv at most 2^24. An extent of 0 gives an empty result, or without keys 0 and an LSE of -inf, as for a query
    that sees none.

    is_causal aligns bottom-right: key j is visible to query i if j <= i + seq_kv - seq_q. If seq_q and seq_kv differ, this is
    not the top-left mask of scaled_dot_product_attention's is_causal; a query that sees no key gives 0. As in PyTorch, NaN or inf in v at
    keys that are hidden can reach rows that do not see them (0 * NaN is NaN), and bfloat16 values of v near the largest give inf where
    their sum over the keys, before it is normalised, exceeds float32. Finite q and k give finite results while scaled scores, and their
    sums on the way, are below 2^127. Scores are float32, which cannot distinguish keys whose scores differ by less than about 2^-24 of
    their size.

    scale, a Python number, multiplies q @ k.T; None means 1 / sqrt(head_dim). float8_e4m3fn needs q_scale, k_scale and v_scale, float32
    [batch, heads] each: a value is scale * code, and scales are positive and finite (1 for a head of zeros; 0 would give NaN). The result
    is bfloat16 for bfloat16, else float16, in the layout of q; if out is given, of that type and q's shape, the result is written into it.
    out must not overlap q, k, v, scales or itself, nor require a gradient; backward through what it held before raises.

    The LSE is torch.logsumexp(scale * q @ k.T + mask, -1): float32 [batch, heads_q, seq_q], contiguous, natural logarithm, -inf for a
    query that sees no key. Use it to merge partial results over parts of the keys.

    With batch_invariant a sequence gives the same bits whatever else is in the batch: the kernel is chosen by head_dim, dtype, mask,
    seq_q and seq_kv alone, not by batch and heads, which costs some time where the grid is far from that of 32 heads.

    Raises NotImplementedError for what no kernel supports (other dtypes, layouts and head sizes, gradients), ValueError or TypeError for
    wrong arguments, and RuntimeError, which says what is missing, if there is no GPU.
    """
    if not _is_compiling():
        record = None
        if _profiler._is_profiler_enabled:
            given = (q, k, v, is_causal, scale, q_scale, k_scale, v_scale, batch_invariant)
            record = _record("attention_ladder::sdpa_lse" if return_lse else "attention_ladder::sdpa", given)
        done = _sdpa(q, k, v, out, is_causal, scale, q_scale, k_scale, v_scale, return_lse, batch_invariant, False, record)
        if done is not None:
            return done
    _check_dispatched(q, k, v, out)
    given = (q, k, v, is_causal, scale, q_scale, k_scale, v_scale, batch_invariant)
    result: torch.Tensor
    lse: torch.Tensor | None = None
    if return_lse:
        result, lse = torch.ops.attention_ladder.sdpa_lse(*given)
    else:
        result = torch.ops.attention_ladder.sdpa(*given)
    if out is not None:
        result = out.copy_(result)
    return result if lse is None else (result, lse)


def variant(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> str:
    """The stage and variant that `sdpa` launches for these arguments, such as "stage8-overlap/overlap-lazy-64x128". Raises like `sdpa`, but for
    scales and out, which it is not given."""
    _refuse_derivatives((q, k, v))
    return _native.variant(q, k, v, is_causal, scale, return_lse, batch_invariant)


def _empty_out(q: torch.Tensor) -> torch.Tensor:
    return _empty_like(q, dtype=_f16) if q.dtype is _e4m3 else _empty_like(q)


def _empty_lse(q: torch.Tensor) -> torch.Tensor:
    batch, heads, rows, _ = q.shape
    # With its strides given, PyTorch is twice as fast.
    return _empty_strided((batch, heads, rows), (heads * rows, rows, 1), dtype=_f32, device=q.device)


def _check_dispatched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None) -> None:
    """What the operators do not see, or cannot name."""
    for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out)):
        if not isinstance(tensor, torch.Tensor) and (name, tensor) != ("out", None):
            raise TypeError(f"{name} is no torch.Tensor, but a {type(tensor).__name__}")
        if tensor is not None and tensor.is_nested:
            raise NotImplementedError(f"{name} is a nested tensor: pad it, or call once for each sequence")
    if out is None:
        return
    if out.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(f"out requires a gradient, or is a view of what does: {_NO_BACKWARD}")
    # A copy would convert and broadcast.
    dtype = _bf16 if q.dtype is _bf16 else _f16
    if (out.dtype, out.shape, out.device) != (dtype, q.shape, q.device):
        raise ValueError(f"out must be a {str(dtype)[6:]} tensor {list(q.shape)} on the device of q")


_NO_BACKWARD = "backward is not supported: call it under torch.no_grad(), or on tensors that require no gradient"
_NAMES = ("q", "k", "v", "is_causal", "scale", "q_scale", "k_scale", "v_scale")


def _refuse_derivatives(given: Iterable[object]) -> None:
    for name, value in zip(_NAMES, given):
        if isinstance(value, torch.Tensor):
            if value.requires_grad and torch.is_grad_enabled():
                raise NotImplementedError(f"{name} requires a gradient: {_NO_BACKWARD}")
            if _unpack_dual(value).tangent is not None:  # type: ignore[no-untyped-call]
                raise NotImplementedError(f"{name} has a tangent: forward-mode differentiation is not supported; call it on the primals")


_Given = torch.Tensor | None
_Results = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def _register(name: str, result: str, return_lse: bool) -> None:
    # PyTorch leaves out trailing arguments that are the defaults.
    def launch(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        q_scale: _Given = None,
        k_scale: _Given = None,
        v_scale: _Given = None,
        batch_invariant: bool = False,
        *,
        is_dispatched: bool = True,
    ) -> _Results | None:
        # The dispatcher has named it.
        return _sdpa(q, k, v, None, is_causal, scale, q_scale, k_scale, v_scale, return_lse, batch_invariant, is_dispatched, None)

    def shapes(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        q_scale: _Given = None,
        k_scale: _Given = None,
        v_scale: _Given = None,
        batch_invariant: bool = False,
    ) -> _Results:
        if len({given.device for given in (q, k, v, q_scale, k_scale, v_scale) if given is not None}) > 1:
            raise ValueError("q, k, v and their scales must be on one device")
        number = scale if isinstance(scale, (int, float)) else None
        _native.check(q, k, v, is_causal, number, q_scale, k_scale, v_scale, batch_invariant)
        return (_empty_out(q), _empty_lse(q)) if return_lse else _empty_out(q)

    def autograd(keys: Any, *given: Any) -> Any:
        # Plain tensors need nothing else of the dispatcher, which would take twice as long.
        results = launch(*given, is_dispatched=False)
        if results is not None:
            return results
        # Else autograd would drop gradients and tangents silently.
        _refuse_derivatives(given)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *given)

    schema = f"{name}{_ARGUMENTS} -> {result}"
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    op = getattr(torch.ops.attention_ladder, name).default
    # On any device, to say what is missing, and for any layout, to name it.
    _library.impl(name, launch, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    _library.impl(name, autograd, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"attention_ladder::{name}", shapes, lib=_library)
    register_flop_formula(getattr(torch.ops.attention_ladder, name))(_flops)


def _flops(q: Sequence[int], k: Sequence[int], *given: object, **named: object) -> int:
    """As PyTorch counts its own: two products of every query with every key, masked or not."""
    batch, heads, rows, head_dim = q
    return 4 * batch * heads * rows * k[2] * head_dim


# A Scalar takes no tensor, whose gradient a float would drop silently.
_ARGUMENTS = (
    "(Tensor q, Tensor k, Tensor v, bool is_causal=False, Scalar? scale=None, Tensor? q_scale=None, Tensor? k_scale=None, "
    "Tensor? v_scale=None, bool batch_invariant=False)"
)
_library = torch.library.Library("attention_ladder", "DEF")  # type: ignore[no-untyped-call]
_register("sdpa", "Tensor", False)
_register("sdpa_lse", "(Tensor, Tensor)", True)
