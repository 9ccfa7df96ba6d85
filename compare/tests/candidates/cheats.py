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
