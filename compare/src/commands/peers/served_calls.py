# Appended to peers.py by a test, in place of its last line: libraries of sequences that compute on the processor, by plain loops over
# what they are called with, and problems whose outputs are compared with those of dense tensors.
import tempfile
import types

import torch

WORKER = Worker()
CALLED = []


def attend(q, k, v, causal, scale, window, softcap, sink):
    """One sequence: [rows, heads, head_dim] of Q, K and V."""
    group = q.shape[1] // k.shape[1]
    k, v = k.float(), v.float()
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    key, (left, right) = torch.arange(k.shape[0])[None], window
    right = 0 if causal else right
    hidden = torch.zeros(q.shape[0], k.shape[0], dtype=torch.bool)
    hidden |= (key < place - left) if left not in (None, -1) else hidden
    hidden |= (key > place + right) if right not in (None, -1) else hidden
    scores = scores.masked_fill(hidden, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink.double()[:, None, None].expand(-1, q.shape[0], 1)], 2)
        v = torch.cat([v, v.new_zeros(1, *v.shape[1:])])
    return torch.einsum("hqk,khd->qhd", scores.softmax(2).nan_to_num(0.0), v)


def each(q, k, v, causal, scale, window, softcap=0.0, sink=None):
    """Lists of sequences."""
    return [attend(*one, causal, scale, window, softcap, sink) for one in zip(q, k, v)]


def split(packed, starts):
    return [packed[first:last] for first, last in itertools.pairwise(starts.tolist())]


def gathered(pages, table, lengths):
    pages = pages.float() if pages.dtype == torch.float8_e4m3fn else pages
    return [pages[entries.long()].flatten(0, 1)[:count] for entries, count in zip(table, lengths.tolist())]


def flash_attn_func(q, k, v, softmax_scale, causal=False, window_size=(-1, -1), softcap=0.0):
    CALLED.append("flash_attn_func")
    return torch.stack(each(q, k, v, causal, softmax_scale, window_size, softcap)).to(q.dtype)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, seqused_k=None, page_table=None,
    softmax_scale=None, causal=False, window_size=(None, None), softcap=0.0, learnable_sink=None,
):
    CALLED.append("flash_attn_varlen_func")
    keys = [split(of, cu_seqlens_k) if page_table is None else gathered(of, page_table, seqused_k) for of in (k, v)]
    out = each(split(q, cu_seqlens_q), *keys, causal, softmax_scale, window_size, softcap, learnable_sink)
    return torch.cat(out).to(q.dtype), "lse"


def without_sinks(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0
):
    """FlashAttention-3's."""
    starts = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    options = {"softmax_scale": softmax_scale, "causal": causal, "window_size": window_size, "softcap": softcap}
    return flash_attn_varlen_func(q, k, v, **starts, **options)


def flash_attn_with_kvcache(
    q, k_cache, v_cache, cache_seqlens, page_table=None, cu_seqlens_q=None, max_seqlen_q=None, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0,
):
    CALLED.append("flash_attn_with_kvcache")
    if page_table is None:
        keys = [[rows[:count] for rows, count in zip(of, cache_seqlens.tolist())] for of in (k_cache, v_cache)]
    else:
        keys = [gathered(of, page_table, cache_seqlens) for of in (k_cache, v_cache)]
    queries = q if cu_seqlens_q is None else split(q, cu_seqlens_q)
    out = each(queries, *keys, causal, softmax_scale, window_size, softcap)
    return (torch.stack if cu_seqlens_q is None else torch.cat)(out).to(q.dtype)


def varlen_attn(q, k, v, cu_q, cu_k, max_q, max_k, *, scale=None, window_size=(-1, -1), enable_gqa=False, seqused_k=None, block_table=None):
    CALLED.append("varlen_attn" + (" enable_gqa" if enable_gqa else ""))
    keys = [split(of, cu_k) if block_table is None else gathered(of, block_table, seqused_k) for of in (k, v)]
    return torch.cat(each(split(q, cu_q), *keys, False, scale, window_size)).to(q.dtype)


class Wrapper:
    """FlashInfer's, which is planned before it runs."""

    def __init__(self, workspace, layout, **compiled):
        assert layout == "NHD" and not workspace.any(), "its counters are zero before the first use"
        self.compiled = compiled

    def plan_masked(self, name, causal, sm_scale, window_left, logits_soft_cap, q_data_type, kv_data_type):
        assert q_data_type == torch.bfloat16 and kv_data_type in (torch.bfloat16, torch.float8_e4m3fn), "it takes float16 otherwise"
        CALLED.append(f"plan {name}{' of codes' if kv_data_type == torch.float8_e4m3fn else ''}")
        self.mask = causal, sm_scale, (window_left, None), logits_soft_cap

    def attend(self, queries, keys, out, sinks=None):
        CALLED.append("run")
        out.copy_(torch.cat(each(queries, *keys, *self.mask, sinks)))
        return out


class Ragged(Wrapper):
    def plan(self, qo_indptr, kv_indptr, heads_q, heads_kv, head_dim, *, causal, **options):
        assert (heads_q, heads_kv, head_dim) == (4, 2, 64)
        self.plan_masked("ragged", causal, **options)
        self.starts = qo_indptr, kv_indptr

    def run(self, q, k, v, *, out):
        return self.attend(split(q, self.starts[0]), [split(of, self.starts[1]) for of in (k, v)], out)


class Paged(Wrapper):
    NAME = "paged"

    def plan(self, qo_indptr, indptr, indices, last, heads_q, heads_kv, head_dim, page_size, *, causal, **options):
        assert (heads_q, heads_kv, head_dim) == (4, 2, 64)
        self.plan_masked(f"{self.NAME} {page_size}", causal, **options)
        self.starts, self.pages, self.rows = qo_indptr, split(indices, indptr), page_size
        self.lengths = (indptr.diff() - 1).clamp(min=0) * page_size + last

    def run(self, q, caches, *sinks, out, k_scale=1.0, v_scale=1.0):
        assert all(cache.shape[1] == self.rows for cache in caches)
        keys, values = (gathered(cache, self.pages, self.lengths) for cache in caches)
        keys, values = [rows.float() * k_scale for rows in keys], [rows.float() * v_scale for rows in values]
        return self.attend(split(q, self.starts), [keys, values], out, *sinks)


class Sinks(Paged):
    NAME = "sinks"

    def plan_masked(self, name, causal, sm_scale, window_left, *others, **options):
        assert self.compiled == {
            "q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16, "window_left": window_left, "head_dim_qk": 64, "head_dim_vo": 64,
        }
        super().plan_masked(name, causal, sm_scale, window_left, *others, **options)

    def run(self, q, caches, sinks, scale, *, out):
        assert scale == self.mask[1]
        return super().run(q, caches, sinks, out=out)


class Decode(Paged):
    NAME = "decode"

    def plan(self, indptr, *others, q_len_per_req, **options):
        assert self.compiled == {"use_tensor_cores": True}
        starts = torch.arange(len(indptr)) * q_len_per_req
        super().plan(starts, indptr, *others, causal=q_len_per_req > 1, **options)


def xqa_batch_decode_with_kv_cache(
    q, caches, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale, bmm2_scale, window_left, sinks, kv_layout, out
):
    CALLED.append(f"xqa {caches[0].shape[1]}")
    assert kv_layout == "NHD" and max_seq_len == max(seq_lens) and not workspace_buffer.any()
    keys = [gathered(cache, block_tables, seq_lens) for cache in caches]
    out.copy_(bmm2_scale * torch.cat(each(q[:, None], *keys, False, bmm1_scale, (window_left, None), 0, sinks)))
    return out


sys.modules["flashinfer"] = types.SimpleNamespace(
    BatchPrefillWithRaggedKVCacheWrapper=Ragged, BatchPrefillWithPagedKVCacheWrapper=Paged, BatchDecodeWithPagedKVCacheWrapper=Decode,
    BatchAttentionWithAttentionSinkWrapper=Sinks,
    decode=types.SimpleNamespace(xqa_batch_decode_with_kv_cache=xqa_batch_decode_with_kv_cache),
)
sys.modules["flash_attn_interface"] = types.SimpleNamespace(
    flash_attn_func=flash_attn_func, flash_attn_varlen_func=without_sinks, flash_attn_with_kvcache=flash_attn_with_kvcache
)
sys.modules["flash_attn"] = types.SimpleNamespace()
sys.modules["flash_attn.cute"] = types.SimpleNamespace(flash_attn_func=flash_attn_func, flash_attn_varlen_func=flash_attn_varlen_func)
sys.modules["torch.nn.attention.varlen"] = types.SimpleNamespace(varlen_attn=varlen_attn)
for library in LIBRARIES:
    if library[0] in ("flash-attn-3", "flash-attn-4", "torch-varlen", "flashinfer", "flashinfer-xqa"):
        WORKER.add(*library)

FOLDER = tempfile.TemporaryDirectory()
# What a problem without `serving` is.
EQUAL = {"sequences": None, "window": [None, None], "sinks": [], "softcap": None}


def described(sequences, rows, **serving):
    """A problem of 4 query heads and 2 key heads whose sequences have room for `rows` queries and keys."""
    torch.manual_seed(0)
    contents = []
    for name, heads, room, scale in ("q", 4, rows[0], None), ("k", 2, rows[1], 0.5), ("v", 2, rows[1], 1.5):
        extents = len(sequences), heads, room, 64
        is_coded = scale is not None and serving.get("cache")
        path = os.path.join(FOLDER.name, f"{name}{extents}{is_coded}")
        values = torch.randn(extents)
        WORKER.write(path, values.to(torch.float8_e4m3fn) if is_coded else values.bfloat16())
        contents.append({"file": path, "extents": extents, "scales": [scale] * (len(sequences) * heads) if is_coded else None})
    plain = {"packed": False, "window": [None, None], "sinks": [], "softcap": None, "page_rows": None}
    return {"dtype": "bf16", "scale": 0.125, "decode": False, "contents": [contents], "sets": 1,
            "serving": {"sequences": sequences, **plain, **serving}}


def outcome(name, causal, problem):
    WORKER.problem({**problem, "causal": causal})
    peer, serving = WORKER.peers[name], problem["serving"] or EQUAL
    WORKER.put(peer, lambda content, *_: content)
    CALLED.clear()
    try:
        output = WORKER.heads_first(peer, peer.call(*WORKER.inputs(peer)[0]))
    except NotImplementedError as error:
        return str(error)
    expected = torch.zeros_like(output, dtype=torch.float64)
    sinks = torch.tensor(serving["sinks"]) if serving["sinks"] else None
    equal = [[WORKER.contents[0][0].shape[2], WORKER.contents[0][1].shape[2]]] * len(expected)
    for batch, (queries, keys) in enumerate(serving["sequences"] or equal):
        q, k, v = (tensor[batch].transpose(0, 1)[:count] for tensor, count in zip(WORKER.contents[0], (queries, keys, keys)))
        k, v = (tensor.float() * (of["scales"] or [1.0])[0] for tensor, of in zip((k, v), problem["contents"][0][1:]))
        one = attend(q, k, v, causal, 0.125, serving["window"], serving["softcap"], sinks)
        expected[batch, :, :queries] = one.transpose(0, 1)
    error = (output - expected).abs().max().item()
    return f"{', '.join(CALLED)}: {'right' if error < 1e-2 else error}"


UNEQUAL, DECODE = [[5, 9], [0, 3], [7, 7], [1, 20]], [[1, 9], [1, 20], [1, 3]]
PROBLEMS = {
    "packed": described(UNEQUAL, (7, 20), packed=True),
    "pages": described(UNEQUAL, (7, 20), packed=True, page_rows=4),
    "pages of one query each": described(DECODE, (1, 20), packed=True, page_rows=16),
    "window": described([[9, 9]], (9, 9), window=[3, None]),
    "sinks": described(UNEQUAL, (7, 20), packed=True, sinks=[0.5, -1.0, 2.0, 0.25]),
    "cap": described(UNEQUAL, (7, 20), packed=True, softcap=2),
    "lengths of dense keys": described([[7, 9], [7, 20]], (7, 20)),
}
CACHES = {
    "decode": described([[1, 32], [1, 32]], (1, 32)),
    "verify": described([[4, 32], [4, 32]], (4, 32)),
    "a window of both sides": described([[9, 9]], (9, 9), window=[3, 1]),
    "sinks and a window": described([[8, 32]], (8, 32), sinks=[0.5, -1.0, 2.0, 0.25], window=[5, None]),
    "codes of decoding": described(DECODE, (1, 20), packed=True, page_rows=16, cache="e4m3"),
    "codes of chunks": described(UNEQUAL, (7, 20), packed=True, page_rows=4, cache="e4m3"),
    "sinks of decoding": described(DECODE, (1, 20), packed=True, page_rows=16, sinks=[0.5, -1.0, 2.0, 0.25], window=[5, None]),
}
for case in "decode", "verify":
    CACHES[case] |= {"decode": True, "serving": None}
INFER = [name for name in WORKER.peers if name.startswith("flashinfer")]


def again(name):
    """What a second call of the last problem calls."""
    CALLED.clear()
    WORKER.peers[name].call(*WORKER.inputs(WORKER.peers[name])[0])
    return ", ".join(CALLED)


os.read(COMMANDS, 1 << 16)
try:
    found = [f"{case}, {name}: {outcome(name, True, problem)}" for case, problem in PROBLEMS.items() for name in WORKER.peers]
    for case, problem in CACHES.items():
        is_causal = case not in ("decode", "a window of both sides")
        found += [f"{case}, {name}: {outcome(name, is_causal, problem)}" for name in INFER]
    found += [f"again, {name}: {outcome(name, False, CACHES['decode'])}; {again(name)}" for name in INFER]
except Exception as error:
    found = [describe(error)]
print(json.dumps({"ok": found}), file=ANSWERS)
