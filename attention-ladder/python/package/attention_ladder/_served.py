"""`varlen_attn`, and the operator of all calls on sequences of lengths of their own."""

import contextlib
import dataclasses
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.autograd import profiler as _profiler
from torch.utils.flop_counter import register_flop_formula

from . import _dispatch, _memory, _native
from ._dispatch import Given, Results, check_dispatched, is_compiling, library, refuse_derivatives

_varlen = _native.varlen
_UNRECORDED = contextlib.nullcontext()
_NAMES = (
    *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "scale", "window_left", "window_right"),
    *("seqused_k", "block_table", "sinks", "softcap", "k_descale", "v_descale"),
)


class AuxRequest(Protocol):
    """torch.nn.attention.varlen.AuxRequest, or an object like it."""

    @property
    def lse(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Sequences:
    """The tensors of a call: queries are packed, or without cu_seqlens_q padded; keys are packed, padded or in pages.

    k and v have the type of q, or float8_e4m3fn with a scale for each sequence and key head, float32 [batch, heads_kv].
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    cu_seqlens_q: Given = None
    cu_seqlens_k: Given = None
    # Of padded tensors their rows are read.
    max_seqlen_q: int = 0
    max_seqlen_k: int = 0
    seqused_k: Given = None
    block_table: Given = None
    sinks: Given = None
    k_descale: Given = None
    v_descale: Given = None

    def attend(
        self, window: tuple[int, int], scale: float | None, softcap: float, return_lse: bool, out: Given = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Launches, by the dispatcher where it has to take the call apart, and returns out or the pair of it and log-sum-exps."""
        left, right = window
        tensors = (self.q, self.k, self.v)
        lengths = (self.cu_seqlens_q, self.cu_seqlens_k, self.max_seqlen_q, self.max_seqlen_k)
        arrays = (self.seqused_k, self.block_table, self.sinks)
        descales = (self.k_descale, self.v_descale)
        given = (*tensors, *lengths, scale, left, right, *arrays, softcap, *descales)
        if not is_compiling():
            arguments: Any = (*tensors, out, *lengths, scale, left, right, *arrays, softcap, *descales, return_lse, False)
            record: contextlib.AbstractContextManager[object] = _UNRECORDED
            if _profiler._is_profiler_enabled:
                record = _dispatch.record("attention_ladder::varlen", given)
            with record:
                done = _varlen(*arguments)
            if done is not None:
                return done
        check_dispatched(*tensors, out)
        result: torch.Tensor
        lse: torch.Tensor
        result, lse = torch.ops.attention_ladder.varlen(*given)
        if out is not None:
            result = out.copy_(result)
        return (result, lse) if return_lse else result


def refuse_splits(num_splits: int | None) -> None:
    """Refuses a number of splits above 1."""
    if num_splits not in (None, 0, 1):
        raise NotImplementedError(f"num_splits = {num_splits} is not supported: keys are never split")


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
    block_table [pages, page_size, heads_kv, head_dim], of float16 or bfloat16; head_dim is a multiple of 8 up to 128. Strides are arbitrary, as for
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

    Raises like `sdpa`. Not supported, and refused by name: dropout, bias, gradients, other head sizes, float8_e4m3fn. What lies on the GPU
    is not looked at: starts that fall, lengths beyond a table and pages that do not exist are read as they are, and can fault. Where the
    environment variable ATTENTION_LADDER_CHECK is set when a GPU is first used, each launch copies them to the host, waits, and raises
    ValueError for the first; it then refuses a stream that is being captured into a CUDA graph.
    """
    if not isinstance(query, torch.Tensor) or not isinstance(key, torch.Tensor):
        raise TypeError("query and key must be torch.Tensor")
    if not enable_gqa and query.shape[-2:-1] != key.shape[-2:-1]:
        raise ValueError(f"query is {list(query.shape)} and key {list(key.shape)}: fewer key heads than query heads need enable_gqa=True")
    refuse_splits(num_splits)
    arrays = Sequences(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, seqused_k, block_table, sinks)
    return arrays.attend(window_size, scale, softcap, return_aux is not None and return_aux.lse)


def _register() -> None:
    # PyTorch leaves out trailing arguments that are the defaults.
    def launch(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: Given,
        cu_seqlens_k: Given,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float | None = None,
        window_left: int = -1,
        window_right: int = -1,
        seqused_k: Given = None,
        block_table: Given = None,
        sinks: Given = None,
        softcap: float = 0.0,
        k_descale: Given = None,
        v_descale: Given = None,
        *,
        is_dispatched: bool = True,
    ) -> Results | None:
        numbers = (max_seqlen_q, max_seqlen_k, scale, window_left, window_right)
        arrays = (seqused_k, block_table, sinks)
        given: Any = (*numbers, *arrays, softcap, k_descale, v_descale, True, is_dispatched)
        return _varlen(q, k, v, None, cu_seqlens_q, cu_seqlens_k, *given)

    def shapes(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: Given,
        cu_seqlens_k: Given,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float | None = None,
        window_left: int = -1,
        window_right: int = -1,
        seqused_k: Given = None,
        block_table: Given = None,
        sinks: Given = None,
        softcap: float = 0.0,
        k_descale: Given = None,
        v_descale: Given = None,
    ) -> Results:
        tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, sinks, k_descale, v_descale)
        if len({given.device for given in tensors if given is not None}) > 1:
            raise ValueError("q, k, v and the arrays beside them must be on one device")
        lengths = (_number(max_seqlen_q, 1), _number(max_seqlen_k, 1))
        window = (_number(window_left, -1), _number(window_right, -1))
        number = scale if isinstance(scale, (int, float)) else None
        cap = softcap if isinstance(softcap, (int, float)) else 0.0
        arrays = (seqused_k, block_table, sinks)
        arguments: Any = (q, k, v, cu_seqlens_q, cu_seqlens_k, *lengths, number, *window, *arrays, cap, k_descale, v_descale)
        _native.check_varlen(*arguments)
        return _memory.empty_like(q), _memory.empty_varlen_lse(q)

    def autograd(keys: Any, *given: Any) -> Any:
        # Plain tensors need nothing else of the dispatcher, which would take twice as long.
        results = launch(*given, is_dispatched=False)
        if results is not None:
            return results
        # Else autograd would drop gradients and tangents silently.
        refuse_derivatives(given, _NAMES)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *given)

    schema = (
        "varlen(Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, "
        "Scalar? scale=None, SymInt window_left=-1, SymInt window_right=-1, Tensor? seqused_k=None, Tensor? block_table=None, "
        "Tensor? sinks=None, float softcap=0.0, Tensor? k_descale=None, Tensor? v_descale=None) -> (Tensor, Tensor)"
    )
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    op = torch.ops.attention_ladder.varlen.default
    library.impl("varlen", launch, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    library.impl("varlen", autograd, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
    torch.library.register_fake("attention_ladder::varlen", shapes, lib=library)
    register_flop_formula(torch.ops.attention_ladder.varlen, get_raw=True)(_flops)


def _number(value: int, default: int) -> int:
    """Returns a number, or `default` for a symbol, which a conversion would bind to its value."""
    return value if isinstance(value, int) else default


def _flops(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: Given,
    cu_seqlens_k: Given,
    max_seqlen_q: int,
    max_seqlen_k: int,
    scale: float | None = None,
    window_left: int = -1,
    window_right: int = -1,
    seqused_k: Given = None,
    *given: object,
    out_val: object = None,
    **named: object,
) -> int:
    """Two products of every query with every key that it sees, lengths and window counted.

    As in PyTorch's own formula lengths are read from the tensors. Where those are fake it is PyTorch's convention: every sequence is as long as
    the longest, and windows are not counted.
    """
    heads, head_dim = q.shape[-2:]
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    rows = q.shape[1] if cu_seqlens_q is None else max_seqlen_q
    is_padded = cu_seqlens_k is None and k.dim() == 4 and k.shape[0] == batch
    keys = k.shape[1] if is_padded and seqused_k is None else max_seqlen_k or k.shape[1]
    lengths = [array for array in (cu_seqlens_q, cu_seqlens_k, seqused_k) if array is not None]
    if any(is_fake(array) or array.is_meta for array in lengths) or is_fake(q) or q.is_meta:
        return 4 * batch * heads * rows * keys * head_dim
    all_rows = [rows] * batch if cu_seqlens_q is None else cu_seqlens_q.diff().tolist()
    all_keys = [keys] * batch if cu_seqlens_k is None else cu_seqlens_k.diff().tolist()
    all_keys = all_keys if seqused_k is None else seqused_k.tolist()
    seen = sum(_seen(*lengths, window_left, window_right) for lengths in zip(all_rows, all_keys))
    return 4 * heads * head_dim * seen


def _seen(rows: int, keys: int, left: int, right: int) -> int:
    """Returns the number of pairs of a query and a key that it sees."""
    own = torch.arange(rows) + keys - rows
    last = own + right if right >= 0 else torch.full_like(own, keys - 1)
    first = own - left if left >= 0 else torch.zeros_like(own)
    return int((last.clamp(max=keys - 1) - first.clamp(min=0) + 1).clamp(min=0).sum())


_register()
