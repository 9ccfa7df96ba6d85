"""FlashAttention-3's functions, with its signatures and sinks. What no kernel does is refused by name, before anything is allocated."""

import torch

from ._dense import sdpa
from ._dispatch import DENSE_HEAD_DIMS, Given, Results
from ._served import Sequences, refuse_splits

# The pages that a cache of rows is taken apart into are of at least and at most so many.
_LEAST_PAGE_ROWS, _MOST_PAGE_ROWS = 16, 1 << 15


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
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
    """Attention of q, k and v, [batch, rows, heads, head_dim], with the signature of FlashAttention-3's function, and sinks.

    head_dim is a multiple of 8 up to 128. Without window, softcap and sinks and at head_dim 64 or 128 it is `sdpa` of views, else needs
    Hopper (sm_90). return_attn_probs returns the log-sum-exps, float32
    [batch, heads, rows], as there. causal ends the window at the query: window_size[1] counts as 0. pack_gqa and deterministic change
    nothing. Not supported, and refused by name: qv, q_descale, k_descale, v_descale, attention_chunk, sm_margin, and num_splits above 1.
    """
    del pack_gqa, deterministic
    _refuse(qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    _refuse(attention_chunk=attention_chunk or None, sm_margin=sm_margin or None)
    refuse_splits(num_splits)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _refuse_rank(name, tensor, "[batch, rows, heads, head_dim]")
    return _attend_dense(q, k, v, softmax_scale, causal, window_size, softcap, sinks, return_attn_probs)


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

    k and v may be float8_e4m3fn under q of float16 or bfloat16, with the scales k_descale and v_descale: see `flash_attn_with_kvcache`.

    causal ends the window at the query: window_size[1] counts as 0. pack_gqa and deterministic change nothing. Not supported, and refused
    by name: seqused_q, qv, q_descale, attention_chunk, sm_margin, and num_splits above 1.
    """
    del pack_gqa, deterministic
    _refuse(seqused_q=seqused_q, qv=qv, q_descale=q_descale)
    _refuse(attention_chunk=attention_chunk or None, sm_margin=sm_margin or None)
    refuse_splits(num_splits)
    descales = _Descales(k_descale, v_descale).of(q, k, cu_seqlens_q)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k)
    arrays = Sequences(q, k, v, *lengths, None, sinks, *descales)
    return arrays.attend(_window(window_size, causal), softmax_scale, softcap, return_attn_probs)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    qv: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: torch.Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention to a cache, with the signature of FlashAttention-3's function, and sinks.

    q is [batch, rows, heads, head_dim], or with cu_seqlens_q and max_seqlen_q [rows of all sequences, heads, head_dim]. The caches are
    [batch, rows, heads_kv, head_dim], or with page_table, int32 [batch, pages of a sequence], [pages, page_size, heads_kv, head_dim].
    cache_seqlens is the number of keys, an int for all sequences or int32 [batch] on the GPU; None is all rows. With cache_batch_idx, int32
    [batch], sequence b reads row cache_batch_idx[b] of the caches, whose rows have to be a multiple of 16; a small table is computed then.

    The caches may be float8_e4m3fn under q of float16 or bfloat16, where head_dim is a multiple of 16. Then k_descale and v_descale, float32
    [batch, heads_kv], multiply their values; [heads_kv], [1, heads_kv] or a single number for all heads are expanded, and None is 1. They
    have to be positive and finite: 0 gives NaN. What is not contiguous is copied.

    causal ends the window at the query: window_size[1] counts as 0. scheduler_metadata, pack_gqa and rotary_interleaved change nothing. Not
    supported, and refused by name: k and v to append, qv, rotary_cos, rotary_sin, rotary_seqlens, cache_leftpad, cu_seqlens_k_new,
    q_descale, attention_chunk, sm_margin, and num_splits above 1.
    """
    del rotary_interleaved, scheduler_metadata, pack_gqa
    _refuse(k=k, v=v, qv=qv, rotary_cos=rotary_cos, rotary_sin=rotary_sin, rotary_seqlens=rotary_seqlens)
    _refuse(cache_leftpad=cache_leftpad, cu_seqlens_k_new=cu_seqlens_k_new)
    _refuse(q_descale=q_descale)
    _refuse(attention_chunk=attention_chunk or None, sm_margin=sm_margin or None)
    refuse_splits(num_splits)
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        _refuse_rank(name, tensor, "[batch, rows, heads, head_dim], or [pages, page_size, heads, head_dim] with page_table")
    if cu_seqlens_q is None:
        _refuse_rank("q", q, "[batch, rows, heads, head_dim] without cu_seqlens_q")
    elif max_seqlen_q is None:
        raise ValueError("cu_seqlens_q needs max_seqlen_q, the most rows of a sequence")
    descales = _Descales(k_descale, v_descale).of(q, k_cache, cu_seqlens_q)
    window = _window(window_size, causal)
    keys = cache_seqlens if isinstance(cache_seqlens, torch.Tensor) else None
    count = None if isinstance(cache_seqlens, torch.Tensor) else cache_seqlens
    places = _Places(page_table, cache_batch_idx)
    places.check(cache_seqlens, k_cache, v_cache)
    if count is not None:
        _refuse_count(count, places.rows(k_cache))
    if count is not None and places.are_rows:
        # No array of lengths is needed.
        k_cache, v_cache = k_cache[:, :count], v_cache[:, :count]
    is_of_one_type = k_cache.dtype == q.dtype and k_descale is None and v_descale is None
    if keys is None and places.are_rows and cu_seqlens_q is None and is_of_one_type:
        return _attend_dense(q, k_cache, v_cache, softmax_scale, causal, window_size, softcap, sinks, return_softmax_lse)
    if keys is None and not places.are_rows:
        batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        keys = torch.full((batch,), k_cache.shape[1] if count is None else count, dtype=torch.int32, device=q.device)
    longest = places.rows(k_cache)
    table, k_pages, v_pages = places.apply(k_cache, v_cache)
    sequences = Sequences(q, k_pages, v_pages, cu_seqlens_q, None, max_seqlen_q or 0, longest, keys, table, sinks, *descales)
    return sequences.attend(window, softmax_scale, softcap, return_softmax_lse)


class _Descales:
    """The scales of K and V in float8_e4m3fn, as FlashAttention-3 has them or with fewer dimensions."""

    def __init__(self, k_descale: Given, v_descale: Given) -> None:
        self.named = (("k_descale", k_descale), ("v_descale", v_descale))

    def of(self, q: torch.Tensor, k: torch.Tensor, cu_seqlens_q: Given) -> tuple[Given, Given]:
        """Returns both, contiguous [batch, heads_kv]; None for those that are not given."""
        if all(scales is None for _, scales in self.named):
            return None, None
        batch, heads_kv = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1, k.shape[-2]
        k_descale, v_descale = (self._expanded(name, scales, batch, heads_kv) for name, scales in self.named)
        return k_descale, v_descale

    @staticmethod
    def _expanded(name: str, scales: Given, batch: int, heads_kv: int) -> Given:
        if scales is None:
            return None
        if not isinstance(scales, torch.Tensor):
            raise TypeError(f"{name} is no torch.Tensor, but a {type(scales).__name__}")
        shape = tuple(scales.shape)
        if scales.numel() != 1 and shape not in ((batch, heads_kv), (1, heads_kv), (heads_kv,)):
            raise ValueError(f"{name} is {list(shape)}: expected [batch, heads_kv] = [{batch}, {heads_kv}], [heads_kv] or a single number")
        if scales.numel() == 1:
            scales = scales.reshape(())
        return scales.expand(batch, heads_kv).contiguous()


class _Places:
    """Where the keys of a sequence are in a cache: in pages, in a row of its own, or in the row that an array names."""

    def __init__(self, page_table: Given, batch_idx: Given) -> None:
        self.page_table, self.batch_idx = page_table, batch_idx
        self.are_rows = page_table is None and batch_idx is None

    def check(self, cache_seqlens: int | torch.Tensor | None, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
        """Refuses arrays that contradict each other, and caches that pages cannot be taken from."""
        if self.page_table is not None and self.batch_idx is not None:
            raise ValueError("both page_table and cache_batch_idx are given: pages or rows hold the keys of a sequence")
        if self.page_table is not None and cache_seqlens is None:
            raise ValueError("page_table needs cache_seqlens, the number of keys of each sequence")
        if self.page_table is not None and (self.page_table.dim() != 2 or self.page_table.dtype is not torch.int32):
            raise ValueError("page_table must be an int32 tensor [batch, pages of a sequence]")
        if self.batch_idx is None:
            return
        if self.batch_idx.dim() != 1 or self.batch_idx.dtype is not torch.int32 or self.batch_idx.device != k_cache.device:
            raise ValueError("cache_batch_idx must be an int32 tensor [batch] on the device of k_cache")
        if k_cache.shape[1] % _LEAST_PAGE_ROWS:
            raise NotImplementedError(
                f"cache_batch_idx is not supported for caches of {k_cache.shape[1]} rows: their number must be a multiple of {_LEAST_PAGE_ROWS}"
            )
        for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
            if cache.shape[1] != self._page_rows(cache) and cache.stride(0) != cache.shape[1] * cache.stride(1):
                raise NotImplementedError(
                    f"cache_batch_idx is not supported where {name}, of {cache.shape[1]} rows, does not lie row after row: make it contiguous"
                )

    @staticmethod
    def _page_rows(cache: torch.Tensor) -> int:
        rows = cache.shape[1]
        return min(rows & -rows, _MOST_PAGE_ROWS)

    def rows(self, cache: torch.Tensor) -> int:
        """Returns the most keys of a sequence."""
        return cache.shape[1] if self.page_table is None else cache.shape[1] * self.page_table.shape[1]

    def apply(self, k_cache: torch.Tensor, v_cache: torch.Tensor) -> tuple[Given, torch.Tensor, torch.Tensor]:
        """Returns a table of pages, if there is one, and what it names pages of."""
        if self.batch_idx is None:
            return self.page_table, k_cache, v_cache
        page_rows = self._page_rows(k_cache)
        pages = k_cache.shape[1] // page_rows
        table = self.batch_idx[:, None] * pages + torch.arange(pages, dtype=torch.int32, device=k_cache.device)
        k_rows, v_rows = (cache.unflatten(1, (pages, page_rows)) for cache in (k_cache, v_cache))  # type: ignore[no-untyped-call]
        return table, k_rows.flatten(0, 1), v_rows.flatten(0, 1)


def _attend_dense(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    sinks: Given,
    return_lse: bool,
) -> Results:
    """Attends to views with heads before rows, which dense kernels take; windows and the like need the kernel of sequences."""
    window = _window(window_size, causal)
    is_dense = window in ((-1, 0), (-1, -1)) and sinks is None and not softcap and q.shape[-1] in DENSE_HEAD_DIMS
    if not is_dense:
        return Sequences(q, k, v, sinks=sinks).attend(window, scale, softcap, return_lse)
    q_heads, k_heads, v_heads = (tensor.transpose(1, 2) for tensor in (q, k, v))
    results = sdpa(q_heads, k_heads, v_heads, window == (-1, 0), scale, return_lse=return_lse)
    if isinstance(results, tuple):
        return results[0].transpose(1, 2), results[1]
    return results.transpose(1, 2)


def _window(size: tuple[int, int], causal: bool) -> tuple[int, int]:
    left, right = size
    return left, 0 if causal else right


def _refuse(**features: object) -> None:
    for name, value in features.items():
        if value is not None:
            raise NotImplementedError(f"{name} is not supported")


def _refuse_rank(name: str, tensor: object, expected: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is no torch.Tensor, but a {type(tensor).__name__}")
    if tensor.dim() != 4:
        raise ValueError(f"{name} has {tensor.dim()} dimensions: expected {expected}")


def _refuse_count(count: object, rows: int) -> None:
    if isinstance(count, bool) or not isinstance(count, (int, torch.SymInt)):
        raise TypeError(f"cache_seqlens is a {type(count).__name__}: expected an int or an int32 tensor [batch]")
    if not 0 <= count <= rows:
        raise ValueError(f"cache_seqlens = {count}: the cache has {rows} rows a sequence")
