# How FlashInfer is called: planned for the lengths of a problem, as engines plan one step for all layers of a model, and then run.
# This file follows served.py.
import math


class FlashInfer:
    """Wrappers of FlashInfer over the sequences of a `Served`. Caches, and sequences with sinks, lie in pages; other keys are packed."""

    # Bytes of the memory that a wrapper splits its work in, as engines reserve it. It is zero before its first use.
    WORKSPACE = 384 << 20
    # A step of decoding has up to so many queries for each sequence; its wrapper takes equally many of each.
    DECODED = 8
    # Rows that XQA's pages may have.
    XQA_ROWS = 16, 32, 64, 128

    def __init__(self, library, served, q, k, causal, scale):
        """`q`, `k`: tensors as `Served` lays them out."""
        self.library, self.served, self.causal, self.scale = library, served, causal, scale
        self.workspace = served.torch.zeros(self.WORKSPACE, dtype=served.torch.uint8, device=q.device)
        self.heads = q.shape[-2], k.shape[-2], q.shape[-1]
        serving = served.serving
        self.queries, self.keys = ([lengths[side] for lengths in serving.sequences] for side in (0, 1))
        left, right = serving.window
        if right is not None and not causal:
            raise NotImplementedError("its windows have no bound on keys behind the query")
        self.options = {
            "sm_scale": scale, "window_left": -1 if left is None else left, "logits_soft_cap": float(serving.softcap or 0),
            "q_data_type": q.dtype, "kv_data_type": k.dtype,
        }

    def wrapper(self, is_cache):
        """A function of Q, K, V and the output, planned."""
        if self.served.sinks is not None:
            return self.with_sinks()
        if not is_cache:
            if self.served.serving.cache:
                raise NotImplementedError("its wrapper of packed keys is not given scales")
            return self.ragged()
        return self.decode() if self.is_decode() else self.paged()

    def is_decode(self):
        """Whether sequences have equally many queries, few, which see what the wrapper of decoding lets them: several are causal."""
        queries = max(self.queries)
        are_few = {queries} == set(self.queries) and queries <= min(self.DECODED, *self.keys)
        return are_few and (queries == 1 or self.causal)

    def ragged(self):
        wrapper = self.library.BatchPrefillWithRaggedKVCacheWrapper(self.workspace, "NHD")
        starts = [self.served.whole([0, *itertools.accumulate(lengths)]) for lengths in (self.queries, self.keys)]
        wrapper.plan(*starts, *self.heads, causal=self.causal, **self.options)
        return lambda q, k, v, out: wrapper.run(q, k.flatten(0, -3), v.flatten(0, -3), out=out)

    def paged(self):
        wrapper = self.library.BatchPrefillWithPagedKVCacheWrapper(self.workspace, "NHD")
        rows = self.planned_prefill(wrapper)
        return lambda q, k, v, out, *scales: wrapper.run(q, (cut(k, rows), cut(v, rows)), out=out, **named(scales))

    def with_sinks(self):
        """Compiled for sinks, and for a window or none."""
        if self.served.serving.softcap or self.served.serving.cache:
            raise NotImplementedError("it has neither a softcap nor scales of K and V beside sinks")
        kinds = {name: self.options[name] for name in ("q_data_type", "kv_data_type", "window_left")}
        dims = {"head_dim_qk": self.heads[-1], "head_dim_vo": self.heads[-1]}
        wrapper = self.library.BatchAttentionWithAttentionSinkWrapper(self.workspace, "NHD", **kinds, **dims)
        rows, sinks = self.planned_prefill(wrapper), self.served.sinks
        return lambda q, k, v, out: wrapper.run(q, (cut(k, rows), cut(v, rows)), sinks, self.scale, out=out)

    def planned_prefill(self, wrapper):
        rows, pages = self.pages()
        starts = self.served.whole([0, *itertools.accumulate(self.queries)])
        wrapper.plan(starts, *self.lists(rows, pages), *self.heads, rows, causal=self.causal, **self.options)
        return rows

    def decode(self):
        """On tensor cores, as engines ask for it where query heads share a key head."""
        wrapper = self.library.BatchDecodeWithPagedKVCacheWrapper(self.workspace, "NHD", use_tensor_cores=True)
        rows, pages = self.pages()
        wrapper.plan(*self.lists(rows, pages), *self.heads, rows, q_len_per_req=max(self.queries), **self.options)
        return lambda q, k, v, out, *scales: wrapper.run(q, (cut(k, rows), cut(v, rows)), out=out, **named(scales))

    def xqa(self):
        """TensorRT-LLM's kernel of decoding, which plans nothing."""
        if set(self.queries) != {1} or self.served.serving.softcap:
            raise NotImplementedError("it takes one query of each sequence and no softcap")
        rows, pages = self.pages()
        if rows not in self.XQA_ROWS:
            raise NotImplementedError(f"it takes no pages of {rows} rows")
        width = max(map(len, pages))
        fixed = {
            "workspace_buffer": self.workspace, "block_tables": self.served.whole([of + [0] * (width - len(of)) for of in pages]),
            "seq_lens": self.served.keys, "max_seq_len": max(self.keys),
            "window_left": self.options["window_left"], "sinks": self.served.sinks, "kv_layout": "NHD",
        }
        function = self.library.decode.xqa_batch_decode_with_kv_cache

        def call(q, k, v, out, k_scale=1.0, v_scale=1.0):
            scales = {"bmm1_scale": self.scale * k_scale, "bmm2_scale": v_scale}
            return function(q, (cut(k, rows), cut(v, rows)), out=out, **fixed, **scales)

        return call

    def pages(self):
        """Rows of a page, and the pages of each sequence. Tensors without pages are cut into the largest that no sequence starts within."""
        served, rows = self.served, self.served.serving.page_rows
        if rows:
            counts = [-(-keys // rows) for keys in self.keys]
            return rows, [entries[:count] for entries, count in zip(served.table.tolist(), counts)]
        room = [served.rows[1]] * len(self.keys)
        starts = [0, *itertools.accumulate(self.keys if served.serving.packed else room)]
        rows = math.gcd(64, *starts)
        firsts = [start // rows for start in starts]
        return rows, [list(range(first, first + -(-keys // rows))) for first, keys in zip(firsts, self.keys)]

    def lists(self, rows, pages):
        """How FlashInfer names pages: where each sequence's begin, all of them, and the rows that are used of each last one."""
        used = [keys - rows * (len(of) - 1) if of else 0 for keys, of in zip(self.keys, pages)]
        starts = [0, *itertools.accumulate(map(len, pages))]
        return self.served.whole(starts), self.served.whole(list(itertools.chain(*pages))), self.served.whole(used)


def cut(tensor, rows):
    """A view of K or V in pages of so many rows."""
    return tensor.flatten(0, -3).unflatten(0, (-1, rows))


def named(scales):
    """Those of K and V, numbers, as wrappers take them; none where these have the type of Q."""
    return dict(zip(("k_scale", "v_scale"), scales))


def flattened(call):
    """A function of Q, K and V as `Served` lays them out, and of the scales of K and V, if these have any. It allocates the output of
    `call`, as engines do, whose queries lie one after the other."""

    def attention(q, k, v, *scales):
        rows = q.flatten(0, -3)
        out = rows.new_empty(rows.shape)
        call(rows, k, v, out, *scales)
        return out.view(q.shape)

    return attention
