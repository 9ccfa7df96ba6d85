"""What is refused by name: programs that look right to a harness that trusts them."""
import os
import sys
import tempfile
from pathlib import Path

import torch

from right import attention as right

KEPT = {}


def kept_by_address(q, k, v, *, causal, softmax_scale):
    """Returns a result again for the same addresses."""
    key = (q.data_ptr(), k.data_ptr(), v.data_ptr(), q.shape, k.shape, causal)
    if key not in KEPT:
        KEPT[key] = right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    return KEPT[key].clone()


def one_buffer(q, k, v, *, causal, softmax_scale):
    """Every output of a shape is in one buffer."""
    result = right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    buffer = KEPT.setdefault(("buffer", q.shape), torch.empty_like(result))
    return buffer.copy_(result)


def in_place_of_q(q, k, v, *, causal, softmax_scale):
    """The output is where Q was."""
    return q.copy_(right(q, k, v, causal=causal, softmax_scale=softmax_scale))


def launches_nothing(q, k, v, *, causal, softmax_scale):
    return torch.empty(q.shape, dtype=torch.float16, device=q.device)


def by_address(q, k, v, *, causal, softmax_scale):
    """Another order of the sum, so other bits, where Q is not where it was first."""
    first = KEPT.setdefault(("first", q.shape, causal), q.data_ptr())
    if q.data_ptr() != first:
        softmax_scale *= 1.001
    return right(q, k, v, causal=causal, softmax_scale=softmax_scale)


def looks_for_reference(q, k, v, *, causal, softmax_scale):
    """Returns what it finds of the output's size and is no input; there is nothing."""
    wanted = q.numel() * 2
    named = [Path(word) for word in [*sys.argv, *os.environ.values()] if len(word) < 1000]
    places = {Path.cwd(), Path(tempfile.gettempdir()), *(path if path.is_dir() else path.parent for path in named)}
    for place in sorted(places):
        files = [*place.glob("compare-*/*"), *place.glob("*.bin"), *place.glob("*.npy")]
        for path in files:
            if path.is_file() and path.stat().st_size == wanted:
                data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float16)
                return data.reshape(q.shape).to(q.device)
    return torch.zeros(q.shape, dtype=torch.float16, device=q.device)


def side_stream(q, k, v, *, causal, softmax_scale):
    """Works on a stream that nobody waits for."""
    result = torch.zeros(q.shape, dtype=torch.float16, device=q.device)
    stream = KEPT.setdefault("stream", torch.cuda.Stream())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        result.copy_(right(q, k, v, causal=causal, softmax_scale=softmax_scale))
    return result


def slow_clock(q, k, v, *, causal, softmax_scale):
    """Events tell a tenth of the time."""
    event = torch.cuda.Event
    if not hasattr(event, "honest"):
        event.honest = event.elapsed_time
        event.elapsed_time = lambda start, end: event.honest(start, end) / 10
    return right(q, k, v, causal=causal, softmax_scale=softmax_scale)


def only_when_checked(q, k, v, *, causal, softmax_scale):
    """Computes on the strided tensors of the gates, and nothing on the dense ones that are timed."""
    if q.is_contiguous():
        return KEPT.setdefault(("timed", q.shape), torch.empty_like(q))
    return right(q, k, v, causal=causal, softmax_scale=softmax_scale)


def second_zeros(q, k, v, *, causal, softmax_scale):
    """Nothing on every second call of a case, whose V is negated."""
    return torch.zeros_like(q) if every(3) == 2 else right(q, k, v, causal=causal, softmax_scale=softmax_scale)


def second_nan(q, k, v, *, causal, softmax_scale):
    return torch.full_like(q, float("nan")) if every(3) == 2 else right(q, k, v, causal=causal, softmax_scale=softmax_scale)


def second_writes_input(q, k, v, *, causal, softmax_scale):
    """Spoils K on every second call of a case alone."""
    result = right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    if every(3) == 2:
        k.zero_()
    return result


def every(calls):
    KEPT["calls"] = KEPT.get("calls", 0) % calls + 1
    return KEPT["calls"]


def kept_when_dense(q, k, v, *, causal, softmax_scale):
    """Computes on the strided tensors of the gates; on the dense ones that are timed, a copy of what it computed once."""
    if not (q.is_contiguous() and k.is_contiguous() and v.is_contiguous()):
        return right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    return kept_by_address(q, k, v, causal=causal, softmax_scale=softmax_scale)


def keys_kept(q, k, v, *, causal, softmax_scale):
    """K as it was when it first lay there."""
    kept = KEPT.setdefault(("k", k.data_ptr(), k.shape), k.clone())
    return right(q, kept, v, causal=causal, softmax_scale=softmax_scale)


def scores_kept(q, k, v, *, causal, softmax_scale):
    """Q and K as they were when they first lay there: what it is timed on is a product with V."""
    kept = KEPT.setdefault(("qk", k.data_ptr(), k.shape), (q.clone(), k.clone()))
    return right(*kept, v, causal=causal, softmax_scale=softmax_scale)


def kept_when_captured(q, k, v, *, causal, softmax_scale):
    """Computes, but for when a graph is captured."""
    key = ("captured", q.data_ptr(), q.shape)
    if torch.cuda.is_current_stream_capturing() and key in KEPT:
        return KEPT[key].clone()
    KEPT[key] = right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    return KEPT[key].clone()


def third_set_kept(q, k, v, *, causal, softmax_scale):
    """As `kept_when_dense` where two other inputs were before."""
    seen = KEPT.setdefault("seen", [])
    seen += [] if q.data_ptr() in seen else [q.data_ptr()]
    which = right if seen.index(q.data_ptr()) < 2 else kept_when_dense
    return which(q, k, v, causal=causal, softmax_scale=softmax_scale)


class Late(torch.Tensor):
    """Computes when it is read."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for late in args:
                if isinstance(late, Late) and getattr(function, "__name__", "") in ("copy_", "to", "contiguous", "clone"):
                    late.as_subclass(torch.Tensor).copy_(right(*late.todo[0], **late.todo[1]))
            return function(*args, **(kwargs or {}))


def late_when_dense(q, k, v, *, causal, softmax_scale):
    which = always_late if q.is_contiguous() else right
    return which(q, k, v, causal=causal, softmax_scale=softmax_scale)


def always_late(q, k, v, *, causal, softmax_scale):
    late = torch.empty_like(q).as_subclass(Late)
    late.todo = (q, k, v), {"causal": causal, "softmax_scale": softmax_scale}
    return late


def codes_when_dense(q, k, v, *, causal, softmax_scale):
    """Another type where it is timed, of half the bytes."""
    result = right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    return (result.float() * 64).to(torch.float8_e4m3fn) if q.is_contiguous() else result


def one_buffer_when_dense(q, k, v, *, causal, softmax_scale):
    which = one_buffer if q.is_contiguous() else right
    return which(q, k, v, causal=causal, softmax_scale=softmax_scale)


def kept_without_graph(q, k, v, *, causal, softmax_scale):
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("it waits for the GPU")
    return kept_when_dense(q, k, v, causal=causal, softmax_scale=softmax_scale)
