"""Fused attention forward (SDPA; FP16, BF16 and FP8 E4M3) on NVIDIA GPUs, with log-sum-exps on request.

`varlen_attn` and `flash_attn_varlen_func` take sequences of unequal lengths, packed one after the other or with keys in pages, on Hopper.

Call `sdpa` directly; `torch.ops.attention_ladder.sdpa` and `sdpa_lse` are the same as registered operators, for torch.compile graphs.
Tensors that are more than memory (subclasses, fake and meta tensors, transforms of torch.func, lazily negated ones) go through PyTorch's
dispatcher, and are computed correctly or refused by name; gradients and tangents are refused. All launch on PyTorch's current stream,
in the current context (a green one, too), into memory of PyTorch's allocator, and can be captured into a CUDA graph. The kernel is the
fastest by a model of the times on this GPU, or on the most similar one that was measured, the same in a green context as outside;
`variant` names it. Profilers see a direct call under its operator's name, and FlopCounterMode counts both.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, overload

import torch
from torch.autograd import profiler as _profiler
from torch.utils.flop_counter import register_flop_formula

from . import _native

__all__ = ["flash_attn_varlen_func", "sdpa", "variant", "varlen_attn"]
__version__: str = _native.__version__

_sdpa = _native.sdpa
_varlen = _native.varlen
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


class AuxRequest(Protocol):
    """torch.nn.attention.varlen.AuxRequest, or an object like it."""

    @property
    def lse(self) -> bool: ...


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
    sinks: torch.Tensor | None = None,
    softcap: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of sequences of unequal lengths, with the signature of torch.nn.attention.varlen.varlen_attn. On Hopper (sm_90).

    query is [total_q, heads_q, head_dim], the sequences one after the other, key and value are [total_k, heads_kv, head_dim], or with
    block_table [pages, page_size, heads_kv, head_dim], of float16 or bfloat16; head_dim is 64 or 128. Strides are arbitrary, as for
    `sdpa`. cu_seq_q and cu_seq_k, int32 [batch + 1], ascend from 0: sequence b has rows cu_seq[b] to cu_seq[b + 1] - 1. max_q and max_k
    are the most rows of a sequence. seqused_k, int32 [batch], counts the keys of each sequence, the first of those that it has. With
    block_table, int32 [batch, pages of a sequence], cu_seq_k is None, seqused_k is needed, and page_size is a power of two from 16 to
    32,768; entries behind the last key are not read. Lengths and pages stay on the GPU, so that a CUDA graph is valid for others.

    window_size is the number of keys before and behind a query's own that it sees, -1 for all: (-1, 0) is the causal mask. Query i of a
    sequence stands at key i + keys - queries. A query that sees no key gives 0. enable_gqa allows fewer key heads than query heads.
    Beyond PyTorch: sinks, float32 [heads_q], are logits that take weight from every row of their head and have no value; with softcap
    scaled scores s become softcap * tanh(s / softcap).

    The result has the type and layout of query. If return_aux.lse is true it is the pair of that and the log-sum-exp of each row, sinks
    included: float32 [heads_q, total_q], -inf for a row without keys. Keys are never split over blocks: num_splits is None, 0 or 1.

    Raises like `sdpa`. Not supported, and refused by name: dropout, bias, gradients, other head sizes, float8_e4m3fn.
    """
    if not isinstance(query, torch.Tensor) or not isinstance(key, torch.Tensor):
        raise TypeError("query and key must be torch.Tensor")
    if not enable_gqa and query.shape[-2:-1] != key.shape[-2:-1]:
        raise ValueError(f"query is {list(query.shape)} and key {list(key.shape)}: fewer key heads than query heads need enable_gqa=True")
    return_lse = return_aux is not None and return_aux.lse
    return _attend_varlen(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale, window_size, seqused_k, block_table, num_splits, sinks, softcap, return_lse
    )


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`varlen_attn` with the signature of FlashAttention-3's function, and sinks. return_attn_probs returns the log-sum-exps, as there.

    causal ends the window at the query: window_size[1] counts as 0. pack_gqa and deterministic change nothing. Not supported, and refused
    by name: seqused_q, qv, q_descale, k_descale, v_descale, attention_chunk, sm_margin, and num_splits above 1.
    """
    del pack_gqa, deterministic
    refused: dict[str, object] = {"seqused_q": seqused_q, "qv": qv, "q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    refused |= {"attention_chunk": attention_chunk or None, "sm_margin": sm_margin or None}
    for name, value in refused.items():
        if value is not None:
            raise NotImplementedError(f"{name} is not supported")
    left, right = window_size
    window = (left, 0 if causal else right)
    return _attend_varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, window, seqused_k, None, num_splits, sinks, softcap,
        return_attn_probs,
    )  # fmt: skip


def _attend_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    scale: float | None,
    window_size: tuple[int, int],
    seqused_k: torch.Tensor | None,
    block_table: torch.Tensor | None,
    num_splits: int | None,
    sinks: torch.Tensor | None,
    softcap: float,
    return_lse: bool,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    if num_splits not in (None, 0, 1):
        raise NotImplementedError(f"num_splits = {num_splits} is not supported: keys are never split")
    left, right = window_size
    arrays = (seqused_k, block_table, sinks)
    if not _is_compiling():
        given = (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, scale, left, right, *arrays, softcap)
        done = _varlen(*given, return_lse, False)
        if done is not None:
            return done
    out: torch.Tensor
    lse: torch.Tensor
    out, lse = torch.ops.attention_ladder.varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, scale, left, right, *arrays, softcap
    )
    return (out, lse) if return_lse else out


def _empty_varlen_lse(q: torch.Tensor) -> torch.Tensor:
    rows, heads, _ = q.shape
    return _empty_strided((heads, rows), (rows, 1), dtype=_f32, device=q.device)


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


_VARLEN_NAMES = (
    *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "scale", "window_left", "window_right"),
    *("seqused_k", "block_table", "sinks", "softcap"),
)


def _refuse_derivatives(given: Iterable[object], names: Iterable[str] = _NAMES) -> None:
    for name, value in zip(names, given):
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


def _register_varlen() -> None:
    # PyTorch leaves out trailing arguments that are the defaults.
    def launch(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: _Given,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float | None = None,
        window_left: int = -1,
        window_right: int = -1,
        seqused_k: _Given = None,
        block_table: _Given = None,
        sinks: _Given = None,
        softcap: float = 0.0,
        *,
        is_dispatched: bool = True,
    ) -> _Results | None:
        numbers = (max_seqlen_q, max_seqlen_k, scale, window_left, window_right)
        arrays = (seqused_k, block_table, sinks)
        return _varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, *numbers, *arrays, softcap, True, is_dispatched)

    def shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object, **named: object) -> _Results:
        if q.dtype not in (_f16, _bf16):
            raise NotImplementedError(f"{q.dtype} is not supported: q, k and v are float16 or bfloat16")
        if q.dim() != 3 or k.dim() not in (3, 4) or k.shape != v.shape:
            raise ValueError(f"q is {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}: expected [rows, heads, head_dim]")
        return _empty_like(q), _empty_varlen_lse(q)

    def autograd(keys: Any, *given: Any) -> Any:
        results = launch(*given, is_dispatched=False)
        if results is not None:
            return results
        _refuse_derivatives(given, _VARLEN_NAMES)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *given)

    schema = (
        "varlen(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor? cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, "
        "Scalar? scale=None, SymInt window_left=-1, SymInt window_right=-1, Tensor? seqused_k=None, Tensor? block_table=None, "
        "Tensor? sinks=None, float softcap=0.0) -> (Tensor, Tensor)"
    )
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    op = torch.ops.attention_ladder.varlen.default
    _library.impl("varlen", launch, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    _library.impl("varlen", autograd, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
    torch.library.register_fake("attention_ladder::varlen", shapes, lib=_library)


_register_varlen()
