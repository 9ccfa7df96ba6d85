"""Native calls answered without a GPU: where a GPU is all that one lacks, by a reference in float64."""

import contextlib
import functools

import torch

import attention_ladder


def raises(kind, words, call, *args, **keywords):
    try:
        call(*args, **keywords)
    except kind as error:
        # Dynamo quotes the parts of a message, in PyTorch 2.11 one by one.
        assert words in str(error).replace("'), ConstantVariable(str: '", ""), f"{error} is without '{words}'"
    else:
        raise AssertionError(f"no {kind} with '{words}'")


def reference(q, k, v, is_causal, scale=None):
    """Attention and log-sum-exps in float64, the mask aligned bottom-right, 0 and -inf where no key is visible."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if is_causal:
        rows, keys = torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device)
        scores = scores.masked_fill(keys[None, :] > rows[:, None] + k.shape[2] - q.shape[2], float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v, torch.logsumexp(scores, -1)


def lacks_gpu(said):
    return any(words in said for words in ("no CUDA driver", "no GPU", "holds no GPU code", "not on a GPU", "NVIDIA driver"))


ASKED = []  # of the calls that `emulated` has answered: log-sum-exps, batch invariance


def emulated(native, *given):
    """The native call; where all that it lacks is a GPU, the reference."""
    try:
        return native(*given)
    except (RuntimeError, ValueError) as error:
        if not lacks_gpu(str(error)):
            raise
    q, k, v, out, is_causal, scale, *scales, return_lse, batch_invariant, _, _ = given
    ASKED.append((return_lse, batch_invariant))

    values = [stored(x) if s is None else stored(x).float() * stored(s)[..., None, None] for x, s in zip((q, k, v), scales)]
    result, lse = reference(*values, is_causal, scale)
    out = attention_ladder._memory.empty_out(q) if out is None else out
    stored(out).data.copy_(result)
    return (out, lse.float()) if return_lse else out


def stored(x):
    """As a kernel sees it: no lazy bit, no autograd."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def sequences_of(x, starts, lengths, table=None):
    """The rows of each sequence: of a packed tensor, of a padded one, or of pages."""
    if starts is not None:
        ends = starts[1:] if lengths is None else starts[:-1] + lengths
        return [x[first:end] for first, end in zip(starts.tolist(), ends.tolist())]
    if table is None:
        return [rows if lengths is None else rows[: lengths[b]] for b, rows in enumerate(x)]
    pages = [-(-length // x.shape[1]) for length in lengths.tolist()]
    return [x[table[b, :count].long()].flatten(0, 1)[: lengths[b]] for b, count in enumerate(pages)]


def attended(q, k, v, scale, left, right, sinks, softcap):
    """One sequence [rows, heads, head_dim] in float64, and its log-sum-exps [heads, rows]."""
    group = q.shape[1] // k.shape[1]
    rows, keys, values = (x.double().transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = rows @ keys.mT * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    own = torch.arange(rows.shape[1], device=q.device)[:, None] + keys.shape[1] - rows.shape[1]
    distance = torch.arange(keys.shape[1], device=q.device)[None] - own
    hidden = (distance > right) & (right >= 0) | (-distance > left) & (left >= 0)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        sink = sinks.double()[:, None, None].expand(-1, rows.shape[1], 1)
        scores, values = torch.cat([scores, sink], 2), torch.cat([values, values.new_zeros(values.shape[0], 1, values.shape[2])], 1)
    if scores.shape[2] == 0:
        return torch.zeros_like(q, dtype=torch.float64), scores.new_full(scores.shape[:2], float("-inf"))
    return (torch.softmax(scores, -1).nan_to_num(0.0) @ values).transpose(0, 1), torch.logsumexp(scores, -1)


def varlen_reference(q, k, v, cu_q, cu_k, scale, left, right, used, table, sinks, softcap, descales=(None, None)):
    """The output and log-sum-exps of a call of the operator `varlen`. Rows of no sequence are NaN. `descales`: of K and V in E4M3."""
    k, v = (x.float() if x.dtype is torch.float8_e4m3fn else x for x in (k, v))
    out = torch.full_like(q, float("nan"), dtype=torch.float64)
    lse = out.new_full((q.shape[1], q.shape[0]) if cu_q is not None else (q.shape[0], q.shape[2], q.shape[1]), float("nan"))
    parts = zip(sequences_of(q, cu_q, None), sequences_of(k, cu_k, used, table), sequences_of(v, cu_k, used, table))
    for b, (rows, keys, values) in enumerate(parts):
        keys, values = (x if s is None else x.double() * s[b].double()[:, None] for x, s in zip((keys, values), descales))
        result, sums = attended(rows, keys, values, scale, left, right, sinks, softcap)
        if cu_q is None:
            out[b], lse[b] = result, sums
        else:
            out[cu_q[b] : cu_q[b + 1]], lse[:, cu_q[b] : cu_q[b + 1]] = result, sums
    return out, lse


SERVED = []  # of the calls of `varlen` that the reference has answered: the shape of q, the window, sinks or not, softcap


def emulated_varlen(native, *given):
    """The native call on sequences; where all that it lacks is a GPU, the reference."""
    try:
        return native(*given)
    except (RuntimeError, ValueError) as error:
        if not lacks_gpu(str(error)):
            raise
    q, k, v, out, cu_q, cu_k, _, _, scale, left, right, used, table, sinks, softcap, *descales, return_lse, _ = given
    SERVED.append((tuple(q.shape), (left, right), sinks is not None, softcap))
    arrays = [None if x is None else stored(x) for x in (cu_q, cu_k, used, table, sinks)]
    cu_q, cu_k, used, table, sinks = arrays
    descales = [None if x is None else stored(x) for x in descales]
    result, lse = varlen_reference(stored(q), stored(k), stored(v), cu_q, cu_k, scale, left, right, used, table, sinks, softcap, descales)
    out = attention_ladder._memory.empty_like(q) if out is None else out
    stored(out).data.copy_(result)
    return (out, lse.float()) if return_lse else out


@contextlib.contextmanager
def answered():
    """Both native calls are answered by references meanwhile."""
    dense, served = attention_ladder._dense, attention_ladder._served
    natives = dense._sdpa, served._varlen
    dense._sdpa, served._varlen = functools.partial(emulated, natives[0]), functools.partial(emulated_varlen, natives[1])
    try:
        yield
    finally:
        dense._sdpa, served._varlen = natives
