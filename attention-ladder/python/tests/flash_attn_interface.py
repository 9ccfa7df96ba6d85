"""FlashAttention-3's own tests of the forward pass, on the wheel: dense and packed sequences, windows, softcap, and caches in rows and pages.

usage: python attention-ladder/python/tests/flash_attn_interface.py CHECKOUT [--sample N[:I]] [pytest's flags]     (-k "kvcache and 3-799")

CHECKOUT is one of github.com/Dao-AILab/flash-attention. The Python needs torch, the wheel, pytest and einops. --sample runs one test in N:
those whose names have the hash I, or 0, modulo N, so that N processes of one I each run all of them. What the wheel refuses is skipped, and
its message is the reason. One line of the tests is left out: each begins with an attention_chunk, which is refused, and would end there.
Exit codes of pytest.
"""

import functools
import os
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
import torch

import attention_ladder

TESTS = "test_flash_attn_output or test_flash_attn_varlen_output or test_flash_attn_kvcache"
DISABLED = "BACKWARD SPLIT APPENDKV HDIM192 HDIM256".split()
# A test goes through these one after the other.
CHUNKS, NO_CHUNKS = "[torch.randint(1, seqlen_k * 2, (1,)).item(), 0]", "[0]"
E4M3 = torch.float8_e4m3fn


def skips_what_is_refused(function):
    """Without gradients: the tests ask for those of backward, which is disabled."""

    @functools.wraps(function)
    def call(*given, **named):
        try:
            with torch.no_grad():
                return function(*given, **named)
        except NotImplementedError as error:
            pytest.skip(f"the wheel: {error}")

    return call


def by_columns(call, v, head_dim):
    """`call` of V as wide as K, which the wheel's is: columns beyond are values of their own."""
    results = [call(columns) for columns in v.split(head_dim, -1)]
    return torch.cat([out for out, _ in results], -1), results[0][1]


def numbers(window):
    """Some tests have a tensor of two."""
    return tuple(int(size) for size in window)


def attend_codes(q, k, v, causal, scale=None, scales=(None, None, None)):
    """`sdpa` of E4M3, of [batch, rows, heads, head_dim]."""
    # FlashAttention has one scale for the query heads of a key head.
    group = q.shape[2] // k.shape[2]
    ones = torch.ones(k.shape[0], k.shape[2], device=k.device)
    q_scale, k_scale, v_scale = (ones if scale is None else scale for scale in scales)
    out, lse = attention_ladder.sdpa(
        *(tensor.transpose(1, 2) for tensor in (q, k, v)), causal, scale, return_lse=True,
        q_scale=q_scale.repeat_interleave(group, 1), k_scale=k_scale.contiguous(), v_scale=v_scale.contiguous(),
    )  # fmt: skip
    return out.transpose(1, 2), lse


def refuse_codes(**options):
    for name, value in options.items():
        if value not in (None, False, 0, 1, (-1, -1)):
            raise NotImplementedError(f"{name} is not supported with float8_e4m3fn")


@skips_what_is_refused
def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), **options
):
    window = numbers(window_size)
    if q.dtype is E4M3:
        refuse_codes(qv=None if qv is None else "qv", window_size=window, **options | {"pack_gqa": None})
        return attend_codes(q, k, v, causal, softmax_scale, (q_descale, k_descale, v_descale))[0]
    options |= {"softmax_scale": softmax_scale, "causal": causal, "qv": qv, "window_size": window, "return_attn_probs": True}
    options |= {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}

    def call(columns):
        return attention_ladder.flash_attn_func(q, k, columns, **options)

    return by_columns(call, v, q.shape[-1])[0]


@skips_what_is_refused
def flash_attn_varlen_func(q, k, v, cu_seqlens_q, *lengths, seqused_q=None, window_size=(-1, -1), **options):
    if seqused_q is not None and torch.equal(seqused_q, cu_seqlens_q.diff()):
        seqused_q = None  # all rows
    options |= {"seqused_q": seqused_q, "window_size": numbers(window_size), "return_attn_probs": True}

    def call(columns):
        return attention_ladder.flash_attn_varlen_func(q, k, columns, cu_seqlens_q, *lengths, **options)

    return by_columns(call, v, q.shape[-1])[0]


@skips_what_is_refused
def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, *, rotary_cos=None, rotary_seqlens=None, cache_batch_idx=None, page_table=None,
    window_size=(-1, -1), return_softmax_lse=False, **options,
):  # fmt: skip
    window = numbers(window_size)
    if page_table is not None and cache_batch_idx is not None:
        page_table, cache_batch_idx = page_table[cache_batch_idx], None
    if q.dtype is E4M3:
        refuse_codes(k=None if k is None else "k", window_size=window, page_table=None if page_table is None else "page_table")
        return decode_codes(q, k_cache, v_cache, cache_batch_idx, **options)
    options |= {"k": k, "v": v, "cache_batch_idx": cache_batch_idx, "page_table": page_table, "window_size": window}
    # Without a rotation its lengths mean nothing.
    options |= {"rotary_cos": rotary_cos, "rotary_seqlens": None if rotary_cos is None else rotary_seqlens}

    def call(columns):
        return attention_ladder.flash_attn_with_kvcache(q, k_cache, columns, return_softmax_lse=True, **options)

    out, lse = by_columns(call, v_cache, q.shape[-1])
    return (out, lse) if return_softmax_lse else out


def decode_codes(q, k_cache, v_cache, cache_batch_idx, *, cache_seqlens, cache_leftpad=None, cu_seqlens_q=None, causal=False, **_):
    """Caches of E4M3, one sequence after the other: `sdpa` has no lengths of sequences."""
    outs, lses = [], []
    ends = None if cu_seqlens_q is None else cu_seqlens_q.tolist()
    for i, length in enumerate(cache_seqlens.tolist()):
        rows = q[i : i + 1] if ends is None else q[None, ends[i] : ends[i + 1]]
        place = i if cache_batch_idx is None else int(cache_batch_idx[i])
        start = 0 if cache_leftpad is None else int(cache_leftpad[i])
        keys, values = (cache[place : place + 1, start:length] for cache in (k_cache, v_cache))
        out, lse = attend_codes(rows, keys, values, causal)
        outs.append(out if ends is None else out[0])
        lses.append(lse if ends is None else lse[0])
    return torch.cat(outs), torch.cat(lses, 0 if ends is None else 1)


def flash_attn_combine(*_, **__):
    pytest.skip("the wheel has no flash_attn_combine")


def get_scheduler_metadata(*_, **__):
    """Returns what the wheel's function takes, and does not need."""
    return None


class Sample:
    """One test in `count`."""

    def __init__(self, count, remainder):
        self.count, self.remainder = count, remainder

    def pytest_collection_modifyitems(self, config, items):
        kept = [item for item in items if zlib.crc32(item.name.encode()) % self.count == self.remainder]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def sample_of(flags):
    """Takes --sample from pytest's flags."""
    if "--sample" not in flags:
        return Sample(1, 0)
    place = flags.index("--sample")
    count, _, remainder = flags[place + 1].partition(":")
    del flags[place : place + 2]
    return Sample(int(count), int(remainder or 0))


def copied(tests, folder):
    """A copy of the tests, without chunks."""
    text = (tests / "test_flash_attn.py").read_text()
    if CHUNKS not in text:
        sys.exit(f"{tests / 'test_flash_attn.py'} is of another version: it has no {CHUNKS}")
    copy = Path(folder) / "test_flash_attn.py"
    copy.write_text(text.replace(CHUNKS, NO_CHUNKS))
    return copy


def run(checkout, flags):
    tests = Path(checkout) / "hopper"
    os.environ |= {f"FLASH_ATTENTION_DISABLE_{name}": "TRUE" for name in DISABLED}
    sys.modules["flash_attn_interface"] = sys.modules[__name__]
    sys.path.insert(0, str(tests))
    sample = sample_of(flags)
    with tempfile.TemporaryDirectory() as folder:
        given = [str(copied(tests, folder)), "-q", "-rs", "--import-mode=importlib", "-p", "no:cacheprovider", "-k", TESTS, *flags]
        return pytest.main(given, plugins=[sample])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
