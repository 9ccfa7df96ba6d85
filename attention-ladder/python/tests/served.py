"""Windows, sinks and caps in `sdpa`, FlashAttention-3's functions, padded sequences, FLOPs: right, or refused by name. `check.py` runs them,
by a reference in float64 without a GPU, and with kernels where there is one of Hopper."""

import functools
import inspect
import itertools

import torch

import attention_ladder
from emulation import SERVED, raises, varlen_reference
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

OP = torch.ops.attention_ladder.varlen
F16, BF16, E4M3 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
ROW_BOUND, LSE_BOUND = {F16: 2e-3, BF16: 1.6e-2}, 1e-5
WINDOWS = ((-1, -1), (-1, 0), (7, 0), (3, 5), (0, 0))


def made(*shape, dtype=F16, device="cpu", seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def near(result, expected, lse=None, expected_lse=None):
    error = (result.double() - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=result.shape[-1] ** 0.5 * 2**-14)
    assert torch.isfinite(result).all() and error.max() <= ROW_BOUND[result.dtype], f"{error.max():.1e} of a row's norm"
    if lse is not None:
        seen = torch.isfinite(expected_lse)
        assert lse.dtype is torch.float32 and (lse[~seen] == float("-inf")).all()
        assert ((lse - expected_lse).abs() / expected_lse.abs().clamp(min=1))[seen].max() <= LSE_BOUND


def padded(q, k, v, window=(-1, -1), scale=None, sinks=None, softcap=0.0, used=None):
    """Of [batch, rows, heads, head_dim]."""
    return varlen_reference(q, k, v, None, None, scale, *window, used, None, sinks, softcap)


class Cases:
    """A method is a case, named after what is right or refused."""

    def __init__(self, device):
        self.device = device
        self.q = made(2, 37, 4, 64, device=device, seed=1)
        self.k, self.v = (made(2, 50, 2, 64, device=device, seed=seed) for seed in (2, 3))
        self.qkv = (self.q, self.k, self.v)
        self.heads = tuple(x.transpose(1, 2) for x in self.qkv)
        self.sinks = torch.tensor([-3.0, 0.0, 2.0, 9.0], device=device)

    def int32(self, *values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def sdpa_takes_windows_sinks_and_caps(self):
        for window, sinks, softcap in itertools.product(WINDOWS, (None, self.sinks), (0.0, 2.0)):
            if (window, sinks, softcap) == ((-1, -1), None, 0.0):
                continue
            expected, expected_lse = padded(*self.qkv, window, 0.2, sinks, softcap)
            given = dict(scale=0.2, window=window, sinks=sinks, softcap=softcap)
            out, lse = attention_ladder.sdpa(*self.heads, return_lse=True, **given)
            near(out.transpose(1, 2), expected, lse, expected_lse)
            assert out.stride() == self.heads[0].stride()
            assert torch.equal(out, attention_ladder.sdpa(*self.heads, **given))
        causal = attention_ladder.sdpa(*self.heads, True, window=(7, 9))
        assert torch.equal(causal, attention_ladder.sdpa(*self.heads, window=(7, 0)))

    def sdpa_writes_to_out_within_a_window(self):
        expected = attention_ladder.sdpa(*self.heads, window=(7, 0))
        for out in (torch.zeros_like(self.heads[0]), torch.zeros(2, 4, 37, 64, dtype=F16, device=self.device)):
            before = out._version
            assert attention_ladder.sdpa(*self.heads, out=out, window=(7, 0)) is out
            assert torch.equal(out, expected) and out._version > before
            _, lse = attention_ladder.sdpa(*self.heads, out=out, window=(7, 0), return_lse=True)
            assert lse.shape == (2, 4, 37)
        q = self.heads[0]
        raises(ValueError, "the output overlaps q", attention_ladder.sdpa, *self.heads, out=q, window=(7, 0))
        raises(ValueError, "out must be a float16 tensor", attention_ladder.sdpa, *self.heads, out=q.bfloat16(), window=(7, 0))
        leaf = torch.zeros_like(q, requires_grad=True)
        raises(NotImplementedError, "out requires a gradient", attention_ladder.sdpa, *self.heads, out=leaf, window=(7, 0))

    def sdpa_refuses_what_windows_do_not_combine_with(self):
        call = functools.partial(attention_ladder.sdpa, *self.heads)
        for named in ({"window": (7, 0)}, {"sinks": self.sinks}, {"softcap": 30.0}):
            words = "is not supported together with window, sinks or softcap"
            raises(NotImplementedError, f"batch_invariant {words}", call, batch_invariant=True, **named)
            raises(ValueError, "q_scale is of float8_e4m3fn, which is not supported", call, q_scale=self.sinks, **named)
            codes = [x.to(torch.float8_e4m3fn) for x in self.heads]
            raises(NotImplementedError, f"float8_e4m3fn {words}", attention_ladder.sdpa, *codes, **named)
            raises(NotImplementedError, "torch.float32 is not supported", attention_ladder.sdpa, *[x.float() for x in self.heads], **named)
            raises(NotImplementedError, "head_dim = 36", attention_ladder.sdpa, *[x[..., :36] for x in self.heads], **named)
            raises(ValueError, "q has 3 dimensions", attention_ladder.sdpa, *[x[0] for x in self.heads], **named)
            raises(TypeError, "k is no torch.Tensor, but a list", attention_ladder.sdpa, self.heads[0], [], self.heads[2], **named)
            one = self.heads[1][:1]
            raises(ValueError, "k and v must have one shape, and batch and head_dim of q", attention_ladder.sdpa, self.heads[0], one, one, **named)
        raises(ValueError, "window_left is -2", call, window=(-2, 0))
        raises(ValueError, "window_right is -7", call, window=(0, -7))
        raises(ValueError, "softcap = -1", call, softcap=-1.0)
        raises(ValueError, "sinks must be a contiguous float32 tensor [4]", call, sinks=self.sinks[:2])
        raises(ValueError, "sinks must be a contiguous float32 tensor [4]", call, sinks=self.sinks.half())
        raises(ValueError, "scale = -1", call, scale=-1.0, softcap=1.0)
        for place, name in enumerate("qkv"):
            given = [x.clone().requires_grad_() if i == place else x for i, x in enumerate(self.heads)]
            raises(NotImplementedError, f"{name} requires a gradient: backward is not supported", attention_ladder.sdpa, *given, window=(7, 0))
        learned = self.sinks.clone().requires_grad_()
        raises(NotImplementedError, "sinks requires a gradient", call, sinks=learned)
        with torch.no_grad():
            call(sinks=learned)

    def a_refused_call_has_allocated_nothing(self):
        memory = attention_ladder._memory
        allocators = memory.empty_like, memory.empty_strided
        memory.empty_like = memory.empty_strided = None
        try:
            flash = attention_ladder.flash_attn_func
            raises(NotImplementedError, "head_dim = 36", flash, *[x[..., :36] for x in self.qkv], window_size=(7, 0))
            raises(ValueError, "does not divide", flash, self.q[:, :, :3], self.k, self.v, softcap=1.0)
            raises(ValueError, "the row stride of k is 0", flash, self.q, self.k[:, :1].expand_as(self.k), self.v, softcap=1.0)
            raises(ValueError, "the last dimension of q", flash, self.q.mT.contiguous().mT, self.k, self.v, softcap=1.0)
            cache = attention_ladder.flash_attn_with_kvcache
            lengths = self.int32(3, 4, 5)
            raises(ValueError, "seqused_k must be a contiguous int32 tensor [2]", cache, *self.qkv, cache_seqlens=lengths)
            pages = self.k.reshape(-1, 10, 2, 64)
            table = self.int32(0, 1).view(2, 1)
            raises(NotImplementedError, "page_size = 10", cache, self.q, pages, pages, cache_seqlens=lengths[:2], page_table=table)
        finally:
            memory.empty_like, memory.empty_strided = allocators

    def fakes_refuse_what_launches_refuse(self):
        starts = self.int32(0, 30, 74)
        q, k = (made(74, heads, 64, device=self.device) for heads in (4, 2))
        pages, table, used = made(9, 16, 2, 64, device=self.device), self.int32(*range(8)).view(2, 4), self.int32(3, 4)
        with FakeTensorMode() as mode:
            q, k, starts, pages, table, used, sinks = (mode.from_tensor(x) for x in (q, k, starts, pages, table, used, self.sinks))
            raises(NotImplementedError, "head_dim = 36", OP, q[..., :36], k[..., :36], k[..., :36], starts, starts, 44, 44)
            raises(NotImplementedError, "torch.float32 is not supported", OP, q.float(), k.float(), k.float(), starts, starts, 44, 44)
            raises(TypeError, "one dtype", OP, q, k.bfloat16(), k, starts, starts, 44, 44)
            raises(ValueError, "cu_seqlens_q must be a contiguous int32", OP, q, k, k, starts.long(), starts, 44, 44)
            raises(ValueError, "cu_seqlens_k must be a contiguous int32 tensor [3]", OP, q, k, k, starts, starts[:2], 44, 44)
            raises(ValueError, "q has 3 dimensions: expected [batch, rows", OP, q, k, k, None, starts, 44, 44)
            raises(ValueError, "sinks must be", OP, q, k, k, starts, starts, 44, 44, sinks=sinks[:3])
            raises(ValueError, "window_left is -2", OP, q, k, k, starts, starts, 44, 44, window_left=-2)
            raises(ValueError, "softcap = -1", OP, q, k, k, starts, starts, 44, 44, softcap=-1.0)
            raises(ValueError, "does not divide", OP, q[:, :3], k, k, starts, starts, 44, 44)
            raises(ValueError, "the row stride of q is 260", OP, mode.from_tensor(made(74, 4, 65, device=self.device))[..., :64], k, k, starts, starts, 44, 44)
            raises(ValueError, "block_table needs seqused_k", OP, q, pages, pages, starts, None, 44, 64, block_table=table)
            raises(ValueError, "both cu_seqlens_k and block_table", OP, q, pages, pages, starts, starts, 44, 64, seqused_k=used, block_table=table)
            raises(NotImplementedError, "page_size = 8", OP, q, pages[:, :8], pages[:, :8], starts, None, 44, 64, seqused_k=used, block_table=table)
            raises(ValueError, "block_table must be an int32", OP, q, pages, pages, starts, None, 44, 64, seqused_k=used, block_table=table[:1])
            out, lse = OP(q, pages, pages, starts, None, 44, 64, seqused_k=used, block_table=table)
            assert (out.shape, lse.shape) == ((74, 4, 64), (4, 74))

    def flash_attn_func_has_flash_attention_3s_signature(self):
        order = "q k v softmax_scale causal qv q_descale k_descale v_descale window_size attention_chunk softcap num_splits pack_gqa"
        order = [*order.split(), "deterministic", "sm_margin", "return_attn_probs", "sinks"]
        assert list(inspect.signature(attention_ladder.flash_attn_func).parameters) == order

    def flash_attn_func_is_the_dense_kernel_unless_it_cannot(self):
        call = attention_ladder.flash_attn_func
        for options, is_served in (
            ({}, False),
            ({"causal": True}, False),
            ({"window_size": (-1, 0)}, False),
            ({"window_size": (7, 0)}, True),
            ({"window_size": (-1, 3)}, True),
            ({"softcap": 2.0}, True),
            ({"sinks": self.sinks, "causal": True}, True),
        ):
            SERVED.clear()
            out, lse = call(*self.qkv, softmax_scale=0.2, return_attn_probs=True, **options)
            left, right = options.get("window_size", (-1, -1))
            window = (left, 0 if options.get("causal") else right)
            expected = padded(*self.qkv, window, 0.2, options.get("sinks"), options.get("softcap", 0.0))
            near(out, expected[0], lse, expected[1])
            assert out.shape == self.q.shape and out.is_contiguous() and lse.shape == (2, 4, 37)
            assert torch.equal(out, call(*self.qkv, softmax_scale=0.2, **options))
            if self.device == "cpu":
                assert bool(SERVED) == is_served, options

    def head_sizes_between_are_served(self):
        for head_dim in (40, 72, 96):
            q, k = made(2, 37, 4, head_dim, device=self.device), made(2, 50, 2, head_dim, device=self.device)
            for causal in (False, True):
                out, lse = attention_ladder.flash_attn_func(q, k, k, causal=causal, return_attn_probs=True)
                expected = padded(q, k, k, (-1, 0 if causal else -1))
                near(out, expected[0], lse, expected[1])

    def flash_attn_func_refuses_by_name(self):
        call = functools.partial(attention_ladder.flash_attn_func, *self.qkv)
        for name in ("qv", "q_descale", "k_descale", "v_descale"):
            raises(NotImplementedError, f"{name} is not supported", call, **{name: self.sinks})
        raises(NotImplementedError, "attention_chunk is not supported", call, attention_chunk=64)
        raises(NotImplementedError, "sm_margin is not supported", call, sm_margin=2)
        raises(NotImplementedError, "num_splits = 3 is not supported", call, num_splits=3)
        raises(TypeError, "dropout_p", call, dropout_p=0.1)
        raises(ValueError, "v has 3 dimensions: expected [batch, rows, heads, head_dim]", attention_ladder.flash_attn_func, self.q, self.k, self.v[0])
        raises(TypeError, "q is no torch.Tensor", attention_ladder.flash_attn_func, None, self.k, self.v)
        raises(NotImplementedError, "q requires a gradient", attention_ladder.flash_attn_func, self.q.clone().requires_grad_(), self.k, self.v)

    def a_cache_has_lengths_of_sequences(self):
        call = functools.partial(attention_ladder.flash_attn_with_kvcache, *self.qkv, return_softmax_lse=True)
        for lengths, options in itertools.product(((50, 50), (37, 41), (5, 0)), ({}, {"causal": True}, {"window_size": (9, 2), "softcap": 2.0})):
            used = self.int32(*lengths)
            left, right = options.get("window_size", (-1, -1))
            window = (left, 0 if options.get("causal") else right)
            expected = padded(*self.qkv, window, softcap=options.get("softcap", 0.0), used=used)
            out, lse = call(cache_seqlens=used, **options)
            near(out, expected[0], lse, expected[1])
        for count in (50, 41, 1):
            used = self.int32(count, count)
            out, lse = call(cache_seqlens=count, causal=True)
            expected = padded(*self.qkv, (-1, 0), used=used)
            near(out, expected[0], lse, expected[1])
        out, lse = call()
        expected = padded(*self.qkv)
        near(out, expected[0], lse, expected[1])
        only = attention_ladder.flash_attn_with_kvcache(*self.qkv, cache_seqlens=50)
        assert isinstance(only, torch.Tensor) and torch.equal(only, out)

    def a_cache_takes_packed_queries(self):
        starts, used = self.int32(0, 4, 37), self.int32(50, 40)
        rows = self.q[0]
        out, lse = attention_ladder.flash_attn_with_kvcache(
            rows, self.k, self.v, cache_seqlens=used, cu_seqlens_q=starts, max_seqlen_q=33, causal=True, return_softmax_lse=True
        )
        expected = varlen_reference(rows, self.k, self.v, starts, None, None, -1, 0, used, None, None, 0.0)
        near(out, expected[0], lse, expected[1])
        raises(ValueError, "cu_seqlens_q needs max_seqlen_q", attention_ladder.flash_attn_with_kvcache, rows, self.k, self.v, cu_seqlens_q=starts)

    def a_cache_in_pages_has_a_table(self):
        pools = [made(9, 16, 2, 64, device=self.device, seed=seed) for seed in (4, 5)]
        table, used = self.int32(8, 0, 3, -9, 2, 5, 1, 7).view(2, 4), self.int32(40, 61)
        call = functools.partial(attention_ladder.flash_attn_with_kvcache, self.q, *pools, page_table=table, return_softmax_lse=True)
        for count, window, sinks in itertools.product((used, 40), ((-1, -1), (-1, 0), (20, 3)), (None, self.sinks)):
            lengths = used if count is used else self.int32(40, 40)
            out, lse = call(cache_seqlens=count, window_size=window, sinks=sinks)
            expected = varlen_reference(self.q, *pools, None, None, None, *window, lengths, table, sinks, 0.0)
            near(out, expected[0], lse, expected[1])
        raises(ValueError, "page_table needs cache_seqlens", call)
        raises(ValueError, "page_table must be an int32 tensor", call, cache_seqlens=used, page_table=table.long())
        raises(ValueError, "block_table must be an int32 tensor [2", call, cache_seqlens=used, page_table=table[:1])
        raises(ValueError, "both page_table and cache_batch_idx", call, cache_seqlens=used, cache_batch_idx=used)
        raises(ValueError, "cache_seqlens = 65: the cache has 64 rows", call, cache_seqlens=65)

    def a_cache_in_e4m3_has_scales(self):
        codes = [x.to(E4M3) for x in (self.k, self.v)]
        scales = [torch.tensor(values, device=self.device) for values in ([[0.5, 2.0], [1.5, 0.25]], [[3.0, 0.75], [1.25, 4.0]])]
        call = functools.partial(attention_ladder.flash_attn_with_kvcache, self.q, *codes, return_softmax_lse=True)
        used = self.int32(50, 41)
        for count, lengths in ((used, used), (50, None), (41, self.int32(41, 41)), (None, None)):
            # Of each sequence and head, of each head, of all, and those that FlashAttention-3's callers expand.
            for k_scale, v_scale in (
                scales,
                [x[1] for x in scales],
                [x[:1] for x in scales],
                [x[0, 1] for x in scales],
                [x[:1, :1].expand(2, 2) for x in scales],
                (None, scales[1]),
            ):
                wide = [None if x is None else x.expand(2, 2) for x in (k_scale, v_scale)]
                out, lse = call(cache_seqlens=count, causal=True, k_descale=k_scale, v_descale=v_scale)
                expected = varlen_reference(self.q, *codes, None, None, None, -1, 0, lengths, None, None, 0.0, wide)
                near(out, expected[0], lse, expected[1])

    def pages_and_packed_keys_in_e4m3_have_scales(self):
        pools = [made(9, 16, 2, 64, device=self.device, seed=seed).to(E4M3) for seed in (4, 5)]
        scales = [torch.tensor(values, device=self.device) for values in ([[0.5, 2.0], [1.5, 0.25]], [[3.0, 0.75], [1.25, 4.0]])]
        named = dict(zip(("k_descale", "v_descale"), scales))
        table, used = self.int32(8, 0, 3, -9, 2, 5, 1, 7).view(2, 4), self.int32(40, 61)
        out, lse = attention_ladder.flash_attn_with_kvcache(
            self.q, *pools, page_table=table, cache_seqlens=used, causal=True, sinks=self.sinks, return_softmax_lse=True, **named
        )
        expected = varlen_reference(self.q, *pools, None, None, None, -1, 0, used, table, self.sinks, 0.0, scales)
        near(out, expected[0], lse, expected[1])
        starts_q, starts_k = self.int32(0, 30, 37), self.int32(0, 10, 50)
        packed = (self.q[0], *[x[0].to(E4M3) for x in (self.k, self.v)], starts_q, starts_k, 30, 40)
        out, lse = attention_ladder.flash_attn_varlen_func(*packed, return_attn_probs=True, **named)
        expected = varlen_reference(*packed[:5], None, -1, -1, None, None, None, 0.0, scales)
        near(out, expected[0], lse, expected[1])

    def scales_without_a_meaning_are_refused(self):
        codes = [x.to(E4M3) for x in (self.k, self.v)]
        call = functools.partial(attention_ladder.flash_attn_with_kvcache, self.q, *codes)
        ones = torch.ones(2, 2, device=self.device)
        raises(ValueError, "k_descale is [4]: expected [batch, heads_kv] = [2, 2]", call, k_descale=self.sinks)
        raises(ValueError, "v_descale is [2, 4]", call, v_descale=ones.repeat(1, 2))
        raises(ValueError, "k_descale must be a contiguous float32 tensor [2, 2]", call, k_descale=ones.half())
        raises(TypeError, "k_descale is no torch.Tensor, but a float", call, k_descale=0.5)
        raises(ValueError, "k is not E4M3 and has scales", attention_ladder.flash_attn_with_kvcache, *self.qkv, k_descale=ones)
        used = self.int32(50, 41)
        every = functools.partial(attention_ladder.flash_attn_with_kvcache, self.q.to(E4M3), *codes, cache_seqlens=used)
        raises(NotImplementedError, "E4M3 is not supported for queries", every)
        raises(TypeError, "k and v may be float8_e4m3fn", attention_ladder.flash_attn_with_kvcache, self.q, codes[0], self.v)
        narrow = [x[..., :40] for x in (self.q, *codes)]
        raises(NotImplementedError, "head_dim = 40 is not supported with cache=e4m3", attention_ladder.flash_attn_with_kvcache, *narrow)

    def a_sequence_reads_the_row_of_the_cache_that_it_names(self):
        for rows in (64, 48):
            caches = [made(5, rows, 2, 64, device=self.device, seed=seed) for seed in (6, 7)]
            index, used = self.int32(4, 1), self.int32(rows, 40)
            chosen = [cache[index.long()] for cache in caches]
            call = functools.partial(attention_ladder.flash_attn_with_kvcache, self.q, *caches, cache_batch_idx=index, return_softmax_lse=True)
            for count, lengths in ((used, used), (None, self.int32(rows, rows)), (40, self.int32(40, 40))):
                out, lse = call(cache_seqlens=count, causal=True)
                expected = padded(self.q, *chosen, (-1, 0), used=lengths)
                near(out, expected[0], lse, expected[1])
            raises(ValueError, "cache_batch_idx must be an int32 tensor [batch]", call, cache_batch_idx=index.long())
        short = [cache[:, :50] for cache in caches]
        raises(NotImplementedError, "for caches of 42 rows", attention_ladder.flash_attn_with_kvcache, self.q, *[x[:, :42] for x in short], cache_batch_idx=index)
        wide = [made(5, 96, 2, 64, device=self.device)[:, :48] for _ in caches]
        raises(NotImplementedError, "does not lie row after row", attention_ladder.flash_attn_with_kvcache, self.q, *wide, cache_batch_idx=index)

    def a_cache_refuses_by_name(self):
        call = functools.partial(attention_ladder.flash_attn_with_kvcache, *self.qkv)
        names = "k v qv rotary_cos rotary_sin rotary_seqlens cache_leftpad cu_seqlens_k_new q_descale"
        for name in names.split():
            raises(NotImplementedError, f"{name} is not supported", call, **{name: self.sinks})
        raises(NotImplementedError, "attention_chunk is not supported", call, attention_chunk=64)
        raises(NotImplementedError, "sm_margin is not supported", call, sm_margin=2)
        raises(NotImplementedError, "num_splits = 3 is not supported", call, num_splits=3)
        raises(ValueError, "cache_seqlens = 51: the cache has 50 rows", call, cache_seqlens=51)
        raises(ValueError, "cache_seqlens = -1", call, cache_seqlens=-1)
        raises(TypeError, "cache_seqlens is a bool", call, cache_seqlens=True)
        raises(TypeError, "cache_seqlens is a float", call, cache_seqlens=3.0)
        raises(ValueError, "q has 3 dimensions", attention_ladder.flash_attn_with_kvcache, self.q[0], self.k, self.v)
        raises(ValueError, "k_cache has 3 dimensions", attention_ladder.flash_attn_with_kvcache, self.q, self.k[0], self.v)

    def kvcache_has_flash_attention_3s_signature(self):
        order = (
            "q k_cache v_cache k v qv rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad page_table cu_seqlens_q "
            "cu_seqlens_k_new max_seqlen_q rotary_seqlens q_descale k_descale v_descale softmax_scale causal window_size attention_chunk "
            "softcap rotary_interleaved scheduler_metadata num_splits pack_gqa sm_margin return_softmax_lse sinks"
        )
        assert list(inspect.signature(attention_ladder.flash_attn_with_kvcache).parameters) == order.split()

    def nothing_gives_nothing(self):
        q, k, v = self.heads
        for given in ((q[:0], k[:0], v[:0]), (q[:, :, :0], k, v)):
            out, lse = attention_ladder.sdpa(*given, window=(7, 0), return_lse=True)
            assert (out.shape, lse.shape) == (given[0].shape, given[0].shape[:3])
        out, lse = attention_ladder.sdpa(q, k[:, :, :0], v[:, :, :0], softcap=1.0, return_lse=True)
        assert not out.any() and (lse == float("-inf")).all()
        out, lse = attention_ladder.sdpa(q, k[:, :, :0], v[:, :, :0], sinks=self.sinks, return_lse=True)
        assert not out.any() and torch.equal(lse, self.sinks[:, None].expand_as(lse))

    def graphs_hold_one_operator(self):
        def call(q, k, v, used):
            windowed = attention_ladder.sdpa(q, k, v, window=(7, 0), scale=q.shape[2] ** -0.5)
            rows = [x.transpose(1, 2) for x in (q, k, v)]
            return windowed, attention_ladder.flash_attn_with_kvcache(*rows, cache_seqlens=used, causal=True)

        compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
        graphs = torch._dynamo.utils.counters["stats"]
        torch._dynamo.reset()
        before = graphs["unique_graphs"]
        for rows in (36, 20, 11):
            given = (self.heads[0][:, :, :rows], *self.heads[1:], self.int32(50, 41))
            for found, expected in zip(compiled(*given), call(*given)):
                assert torch.equal(found, expected)
        assert graphs["unique_graphs"] == before + 1, "a shape was bound to its value"
        exported = torch.export.export(Windowed(), self.heads)
        assert [node.target for node in exported.graph.nodes].count(OP.default) == 1
        assert torch.equal(exported.module()(*self.heads), attention_ladder.sdpa(*self.heads, window=(7, 0)))

    def the_operator_is_a_good_one(self):
        torch.library.opcheck(OP, (*self.qkv, None, None, 0, 0, 0.3, 7, 0))
        starts = self.int32(0, 30, 74)
        q, k = (made(74, heads, 64, device=self.device) for heads in (4, 2))
        torch.library.opcheck(OP, (q, k, k, starts, starts, 44, 44), {"softcap": 2.0})
        codes, ones = k.to(E4M3), torch.ones(2, 2, device=self.device)
        # torch multiplies no codes, as its other checks would.
        given = (q, codes, codes, starts, starts, 44, 44)
        torch.library.opcheck(OP, given, {"k_descale": ones, "v_descale": ones}, test_utils="test_faketensor")

    def profilers_see_the_operators_name(self):
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            attention_ladder.sdpa(*self.heads, window=(7, 0))
        assert [event.count for event in prof.key_averages() if event.key == "attention_ladder::varlen"] == [1]

    def flops_are_of_keys_that_are_seen(self):
        def count(call, *given, **named):
            with FlopCounterMode(display=False) as counter:
                call(*given, **named)
            return counter.get_total_flops()

        per_pair = 4 * 4 * 64
        square = [x[:, :, :37] for x in self.heads]
        assert count(attention_ladder.sdpa, *square) == per_pair * 2 * 37 * 37
        assert count(attention_ladder.sdpa, *square, window=(-1, 0)) == per_pair * 2 * sum(range(1, 38))
        assert count(attention_ladder.sdpa, *square, window=(0, 0)) == per_pair * 2 * 37
        used = self.int32(50, 10)
        assert count(attention_ladder.flash_attn_with_kvcache, *self.qkv, cache_seqlens=used) == per_pair * 37 * 60
        starts_q, starts_k = self.int32(0, 30, 37), self.int32(0, 10, 50)
        packed = (self.q[0], self.k[0], self.v[0], starts_q, starts_k, 30, 40)
        assert count(attention_ladder.flash_attn_varlen_func, *packed) == per_pair * (30 * 10 + 7 * 40)
        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in packed]
            assert count(attention_ladder.flash_attn_varlen_func, *fake, causal=True) == per_pair * 2 * 30 * 40


class Windowed(torch.nn.Module):
    def forward(self, q, k, v):
        return attention_ladder.sdpa(q, k, v, window=(7, 0))


def run(device="cpu"):
    cases = Cases(device)
    for name, case in vars(Cases).items():
        if not name.startswith("_") and name not in ("int32",):
            case(cases)
