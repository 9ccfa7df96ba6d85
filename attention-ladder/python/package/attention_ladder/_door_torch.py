"""PyTorch's flash attention: an implementation of torch.nn.attention.register_flash_attention_impl."""

from collections.abc import Callable
from typing import Any

import torch

from . import _doors
from ._dense import sdpa
from ._dispatch import DENSE_HEAD_DIMS, Given
from ._served import Sequences

NAME = "attention_ladder"
# The last is not in PyTorch 2.11.
_DENSE, _PACKED, _INPLACE = (
    "_scaled_dot_product_flash_attention",
    "_flash_attention_forward",
    "_flash_attention_forward_no_dropout_inplace",
)


def open() -> Callable[[], None]:
    """Registers and activates the implementation. Returns what activates the one before."""
    from torch.nn import attention

    if not hasattr(attention, "register_flash_attention_impl") or not hasattr(torch.library, "get_kernel"):
        raise NotImplementedError(f"PyTorch {torch.__version__} has no torch.nn.attention.register_flash_attention_impl: it needs a later one")
    before = attention.current_flash_attention_impl()
    attention.register_flash_attention_impl(NAME, register_fn=Kernels)
    attention.activate_flash_attention_impl(NAME)

    def undo() -> None:
        # Another one that was activated since stays.
        if attention.current_flash_attention_impl() == NAME:
            attention.restore_flash_attention_impl()
            if before is not None:
                attention.activate_flash_attention_impl(before)

    return undo


class Kernels:
    """PyTorch's operators for CUDA, ours while it is active: PyTorch's own take what ours refuse."""

    def __init__(self) -> None:
        functions: dict[str, Callable[..., Any]] = {_DENSE: attend_dense, _PACKED: attend_packed, _INPLACE: attend_in_place}
        present = {name: function for name, function in functions.items() if hasattr(torch.ops.aten, name)}
        self._own = {name: torch.library.get_kernel(f"aten::{name}", "CUDA") for name in present}
        library = torch.library.Library("aten", "IMPL", "CUDA")  # type: ignore[no-untyped-call]
        for name, function in present.items():
            library.impl(name, self._with_fallback(name, function), "CUDA", with_keyset=True)  # type: ignore[no-untyped-call]
        self._library: torch.library.Library | None = library

    def remove(self) -> None:
        """Gives the operators back."""
        if self._library is not None:
            self._library._destroy()  # type: ignore[no-untyped-call]
        self._library = None

    def _with_fallback(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        own = self._own[name]

        def call(keys: Any, *given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except (NotImplementedError, ValueError, TypeError) as error:
                _doors.count("torch", str(error))
            return own.call_boxed(keys, *given, **named)

        return call


def _refuse(tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], dropout_p: float, return_debug_mask: bool, is_served: bool) -> None:
    reason = _doors.refusal(*tensors, is_served=is_served)
    if dropout_p:
        reason = "dropout is not supported"
    if return_debug_mask:
        reason = "return_debug_mask is not supported"
    if reason is not None:
        raise NotImplementedError(reason)


def _auxiliary(query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns a seed, an offset and a mask of a dropout that there is not."""
    return (
        torch.zeros(2, dtype=torch.uint64, device=query.device),
        torch.zeros((), dtype=torch.uint64, device=query.device),
        query.new_empty(0),
    )


def attend_dense(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """aten::_scaled_dot_product_flash_attention, of [batch, heads, rows, head_dim]."""
    _refuse((query, key, value), dropout_p, return_debug_mask, is_served=False)
    q, k, v = (tensor.detach() for tensor in (query, key, value))
    if query.shape[-1] in DENSE_HEAD_DIMS:
        out, lse = sdpa(q, k, v, is_causal, scale, return_lse=True)
    else:
        sequences = Sequences(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        results = sequences.attend((-1, 0 if is_causal else -1), scale, 0.0, True)
        out, lse = results[0].transpose(1, 2), results[1]
    return (out, lse, None, None, query.shape[2], key.shape[2], *_auxiliary(query))


def attend_packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: Given,
    cum_seq_k: Given,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    **named: Any,
) -> tuple[Any, ...]:
    """aten::_flash_attention_forward, of [rows, heads, head_dim], or [batch, rows, heads, head_dim] without starts."""
    _refuse((query, key, value), dropout_p, return_debug_mask, is_served=True)
    results = _attend(None, (query, key, value), (cum_seq_q, cum_seq_k, max_q, max_k), is_causal, **named)
    return (*results, *_auxiliary(query))


def attend_in_place(
    out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: Given,
    cum_seq_k: Given,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    **named: Any,
) -> torch.Tensor:
    """aten::_flash_attention_forward_no_dropout_inplace: it writes to out, and returns log-sum-exps."""
    _refuse((query, key, value), dropout_p, return_debug_mask, is_served=True)
    return _attend(out, (query, key, value), (cum_seq_q, cum_seq_k, max_q, max_k), is_causal, **named)[1]


def _attend(
    out: Given,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    lengths: tuple[Given, Given, int, int],
    is_causal: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Given = None,
    alibi_slopes: Given = None,
    block_table: Given = None,
    num_splits: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if alibi_slopes is not None:
        raise NotImplementedError("alibi_slopes are not supported")
    if num_splits not in (None, 0, 1):
        raise NotImplementedError(f"num_splits = {num_splits} is not supported")
    q, k, v = (tensor.detach() for tensor in tensors)
    sequences = Sequences(q, k, v, *lengths, seqused_k, block_table)
    left = -1 if window_size_left is None else window_size_left
    right = -1 if window_size_right is None else window_size_right
    results = sequences.attend((left, 0 if is_causal else right), scale, 0.0, True, None if out is None else out.detach())
    assert isinstance(results, tuple)
    return results
