"""`sdpa` and `variant`: tensors [batch, heads, rows, head_dim], and the operators of the same."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch.autograd import profiler as _profiler
from torch.utils.flop_counter import register_flop_formula

from . import _dispatch, _memory, _native, _served
from ._dispatch import Given, Results, check_dispatched, is_compiling, library, refuse_derivatives

_sdpa = _native.sdpa
_NAMES = ("q", "k", "v", "is_causal", "scale", "q_scale", "k_scale", "v_scale")


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
    window: tuple[int, int] | None = ...,
    sinks: torch.Tensor | None = ...,
    softcap: float = ...,
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
    window: tuple[int, int] | None = ...,
    sinks: torch.Tensor | None = ...,
    softcap: float = ...,
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
    window: tuple[int, int] | None = ...,
    sinks: torch.Tensor | None = ...,
    softcap: float = ...,
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
    window: tuple[int, int] | None = None,
    sinks: torch.Tensor | None = None,
    softcap: float = 0.0,
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

    window is the number of keys before and behind a query's own that it sees, -1 for all; query i stands at key i + seq_kv - seq_q, and
    is_causal makes the second 0. sinks, float32 [heads_q], are logits that take weight from every row of their head and have no value;
    the LSE includes them. With softcap scaled scores s become softcap * tanh(s / softcap). These three need Hopper (sm_90) and float16
    or bfloat16, take head_dim up to 128 in multiples of 8, and refuse batch_invariant; as an operator the call is `attention_ladder::varlen`.

    Raises NotImplementedError for what no kernel supports (other dtypes, layouts and head sizes, gradients), ValueError or TypeError for
    wrong arguments, and RuntimeError, which says what is missing, if there is no GPU.
    """
    if window is not None or sinks is not None or softcap:
        scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
        _refuse_served(q, scales, batch_invariant)
        left, right = (-1, -1) if window is None else window
        heads = Served(q, k, v, (left, 0 if is_causal else right), scale, sinks, softcap)
        return heads.attend(out, return_lse)
    given = (q, k, v, is_causal, scale, q_scale, k_scale, v_scale, batch_invariant)
    if not is_compiling():
        record = None
        if _profiler._is_profiler_enabled:
            record = _dispatch.record("attention_ladder::sdpa_lse" if return_lse else "attention_ladder::sdpa", given)
        done = _sdpa(q, k, v, out, is_causal, scale, q_scale, k_scale, v_scale, return_lse, batch_invariant, False, record)
        if done is not None:
            return done
    check_dispatched(q, k, v, out)
    result: torch.Tensor
    lse: torch.Tensor | None = None
    if return_lse:
        result, lse = torch.ops.attention_ladder.sdpa_lse(*given)
    else:
        result = torch.ops.attention_ladder.sdpa(*given)
    if out is not None:
        result = out.copy_(result)
    return result if lse is None else (result, lse)


def _refuse_served(q: object, scales: dict[str, torch.Tensor | None], batch_invariant: bool) -> None:
    """Refuses what window, sinks and softcap do not combine with."""
    options = "together with window, sinks or softcap"
    if batch_invariant:
        raise NotImplementedError(f"batch_invariant is not supported {options}")
    if isinstance(q, torch.Tensor) and q.dtype is torch.float8_e4m3fn:
        raise NotImplementedError(f"float8_e4m3fn is not supported {options}: q, k and v are float16 or bfloat16")
    for name, scale in scales.items():
        if scale is not None:
            raise ValueError(f"{name} is of float8_e4m3fn, which is not supported {options}")


@dataclasses.dataclass(frozen=True)
class Served:
    """A call on [batch, heads, rows, head_dim] for the kernel that knows windows, sinks and caps."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    window: tuple[int, int]
    scale: float | None
    sinks: torch.Tensor | None
    softcap: float

    def attend(self, out: torch.Tensor | None, return_lse: bool) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Attends to views of the tensors with heads last but one, and returns views of the results."""
        for name, tensor in (("q", self.q), ("k", self.k), ("v", self.v), ("out", out)):
            if isinstance(tensor, torch.Tensor) and not tensor.is_nested and tensor.dim() != 4:
                raise ValueError(f"{name} has {tensor.dim()} dimensions: expected [batch, heads, rows, head_dim]")
        check_dispatched(self.q, self.k, self.v, out)
        q, k, v = (tensor.transpose(1, 2) for tensor in (self.q, self.k, self.v))
        rows = None if out is None else out.transpose(1, 2)
        sequences = _served.Sequences(q, k, v, sinks=self.sinks)
        result = sequences.attend(self.window, self.scale, self.softcap, return_lse, rows)
        if isinstance(result, tuple):
            return (result[0].transpose(1, 2) if out is None else out), result[1]
        return result.transpose(1, 2) if out is None else out


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
    """The stage and variant that `sdpa` launches for these arguments, such as "stage13-persistent/persistent-256x64".

    Raises like `sdpa`, but for scales and out, which it is not given.
    """
    refuse_derivatives((q, k, v), _NAMES)
    return _native.variant(q, k, v, is_causal, scale, return_lse, batch_invariant)


def _register(name: str, result: str, return_lse: bool) -> None:
    # PyTorch leaves out trailing arguments that are the defaults.
    def launch(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        q_scale: Given = None,
        k_scale: Given = None,
        v_scale: Given = None,
        batch_invariant: bool = False,
        *,
        is_dispatched: bool = True,
    ) -> Results | None:
        # The dispatcher has named it.
        return _sdpa(q, k, v, None, is_causal, scale, q_scale, k_scale, v_scale, return_lse, batch_invariant, is_dispatched, None)

    def shapes(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        q_scale: Given = None,
        k_scale: Given = None,
        v_scale: Given = None,
        batch_invariant: bool = False,
    ) -> Results:
        if len({given.device for given in (q, k, v, q_scale, k_scale, v_scale) if given is not None}) > 1:
            raise ValueError("q, k, v and their scales must be on one device")
        number = scale if isinstance(scale, (int, float)) else None
        _native.check(q, k, v, is_causal, number, q_scale, k_scale, v_scale, batch_invariant)
        return (_memory.empty_out(q), _memory.empty_lse(q)) if return_lse else _memory.empty_out(q)

    def autograd(keys: Any, *given: Any) -> Any:
        # Plain tensors need nothing else of the dispatcher, which would take twice as long.
        results = launch(*given, is_dispatched=False)
        if results is not None:
            return results
        # Else autograd would drop gradients and tangents silently.
        refuse_derivatives(given, _NAMES)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *given)

    schema = f"{name}{_ARGUMENTS} -> {result}"
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    op = getattr(torch.ops.attention_ladder, name).default
    # On any device, to say what is missing, and for any layout, to name it.
    library.impl(name, launch, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    library.impl(name, autograd, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"attention_ladder::{name}", shapes, lib=library)
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
_register("sdpa", "Tensor", False)
_register("sdpa_lse", "(Tensor, Tensor)", True)
