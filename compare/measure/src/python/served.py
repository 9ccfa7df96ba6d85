# What libraries are called with where sequences are as they are served: rows one after the other, keys in pages, windows, sinks and caps.
# flashinfer.py and peers.py follow this file.
import dataclasses
import functools
import inspect
import itertools


@dataclasses.dataclass
class Serving:
    """A problem's sequences, as `problem` names them; common/src/serving.rs says what each means."""

    # [queries, keys] of each.
    sequences: list
    # Rows of all sequences lie one after the other; those of K and V where they have no pages.
    packed: bool
    # Keys before and behind a query's own; None for all.
    window: list
    # A logit for each query head, or none.
    sinks: list
    softcap: float | None
    page_rows: int | None
    # The type of K and V where it is not that of Q: "e4m3".
    cache: str | None = None


class Served:
    """The tensors of a `Serving`, made from dense ones of [batch, heads, rows, head_dim], and the arrays that name lengths and pages."""

    # Of the order of pages.
    SEED = 20260101

    def __init__(self, torch, device, serving, rows):
        """`rows`: of a sequence of the dense Q and K."""
        self.torch, self.serving, self.rows = torch, serving, rows
        queries, keys = ([lengths[side] for lengths in serving.sequences] for side in (0, 1))
        self.whole = functools.partial(torch.tensor, dtype=torch.int32, device=device)
        self.starts = self.whole([0, *itertools.accumulate(queries)]), self.whole([0, *itertools.accumulate(keys)])
        self.longest = max(queries), max(keys)
        self.keys = self.whole(keys)
        # Of a row of the packed tensors, its number in the dense ones.
        self.places = tuple(
            torch.cat([torch.arange(count) + batch * room for batch, count in enumerate(counts)]).to(device)
            for counts, room in zip((queries, keys), rows)
        )
        self.sinks = torch.tensor(serving.sinks, dtype=torch.float32, device=device) if serving.sinks else None
        self.table = self.pages(keys) if serving.page_rows else None

    def pages(self, keys):
        """[sequence, entries]: the pages in an order of their own. Entries behind the last key name page 0, which nobody reads there."""
        torch, rows = self.torch, self.serving.page_rows
        counts = [-(-count // rows) for count in keys]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(self.SEED)).tolist()
        table = [[order.pop() for _ in range(count)] for count in counts]
        return self.whole([entries + [0] * (max(counts) - len(entries)) for entries in table])

    @property
    def is_cache(self):
        """Whether there are rows or pages of K and V beyond what a sequence uses."""
        has_unused = not self.serving.packed and any(keys != self.rows[1] for _, keys in self.serving.sequences)
        return self.table is not None or has_unused

    @property
    def is_packed(self):
        return self.serving.packed or self.serving.page_rows is not None

    def laid_out(self, tensor, place):
        """Q, K or V, by its place, as libraries take it: [rows, heads, head_dim], [pages, rows, heads, head_dim], or as dense tensors are."""
        if tensor.dtype == self.torch.float8_e4m3fn:  # whose rows torch takes as bytes
            return self.laid_out(tensor.view(self.torch.uint8), place).view(tensor.dtype)
        flat = tensor.transpose(1, 2)
        if not self.is_packed:
            return flat.contiguous()
        side = min(place, 1)
        packed = flat.flatten(0, 1)[self.places[side]]
        return packed if place == 0 or self.table is None else self.paged(packed)

    def paged(self, packed):
        """Rows that are no key's are zero: libraries may multiply them by a probability of zero."""
        rows = self.serving.page_rows
        pages = packed.new_zeros((int(self.table.max()) + 1) * rows, *packed.shape[1:])
        key = self.torch.cat([self.torch.arange(keys) for _, keys in self.serving.sequences]).to(packed.device)
        sequence = self.torch.repeat_interleave(self.torch.arange(len(self.keys), device=packed.device), self.keys)
        pages[self.table[sequence, key // rows].long() * rows + key % rows] = packed
        return pages.unflatten(0, (-1, rows))

    def dense(self, output):
        """[batch, heads, rows, head_dim] of an output; rows that do not exist are zero."""
        if not self.is_packed:
            return output.transpose(1, 2)
        flat = output.new_zeros(len(self.keys) * self.rows[0], *output.shape[1:])
        flat[self.places[0]] = output
        return flat.unflatten(0, (len(self.keys), self.rows[0])).transpose(1, 2)

    def options(self, function, causal, scale):
        """Mask, scale, window, cap and sinks by the names that a function of FlashAttention has for them."""
        parameters = inspect.signature(function).parameters
        options = {"causal": causal, "softmax_scale": scale}
        if self.serving.window != [None, None]:
            # -1 in FlashAttention-3, None in FlashAttention-4.
            every_key = parameters["window_size"].default[0]
            options["window_size"] = tuple(every_key if side is None else side for side in self.serving.window)
        if self.serving.softcap:
            options["softcap"] = float(self.serving.softcap)
        if self.sinks is not None:
            name = next((name for name in ("learnable_sink", "s_aux", "sinks") if name in parameters), None)
            if name is None:
                raise NotImplementedError("it has no sinks")
            # In bf16 as FlashAttention-4 wants it: they have few digits.
            options[name] = self.sinks.to(self.torch.bfloat16)
        return options

    def flash_attention(self, module, q, k, v, causal, scale):
        """Pages and lengths of dense keys by the function for caches, where there is one."""
        cached = getattr(module, "flash_attn_with_kvcache", None)
        packed = {"max_seqlen_q": self.longest[0], "cu_seqlens_q": self.starts[0]}
        if self.table is not None and cached is not None:
            options = self.options(cached, causal, scale) | {"cache_seqlens": self.keys, "page_table": self.table}
            sequences = len(self.keys)
            if q.shape[0] == sequences * self.longest[0]:  # as many queries each: as in decoding
                return first(cached(q.unflatten(0, (sequences, -1)), k, v, **options)).flatten(0, 1)
            return first(cached(q, k, v, **options, **packed))
        if self.is_packed:
            options = self.options(module.flash_attn_varlen_func, causal, scale) | packed
            if self.table is None:
                options |= {"cu_seqlens_k": self.starts[1], "max_seqlen_k": self.longest[1]}
            else:
                options |= {"seqused_k": self.keys, "page_table": self.table}
            return first(module.flash_attn_varlen_func(q, k, v, **options))
        if self.is_cache:
            if cached is None:
                raise NotImplementedError("it takes no lengths of dense keys")
            return first(cached(q, k, v, **self.options(cached, causal, scale), cache_seqlens=self.keys))
        return first(module.flash_attn_func(q, k, v, **self.options(module.flash_attn_func, causal, scale)))

    def torch_varlen(self, varlen_attn, q, k, v, causal, scale):
        """torch.nn.attention.varlen: causal is a window of 0 to the right."""
        if self.sinks is not None or self.serving.softcap:
            raise NotImplementedError("it has neither sinks nor a softcap")
        if not self.is_packed:
            raise NotImplementedError("it takes packed sequences")
        left, right = (-1 if side is None else side for side in self.serving.window)
        options = {"scale": scale, "window_size": (left, 0 if causal else right)}
        if q.shape[-2] != k.shape[-2]:
            options["enable_gqa"] = True
        starts = self.starts[1]
        if self.table is not None:
            options |= {"seqused_k": self.keys, "block_table": self.table}
            starts = None
        return first(varlen_attn(q, k, v, self.starts[0], starts, *self.longest, **options))


