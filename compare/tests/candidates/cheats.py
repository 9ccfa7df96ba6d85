"""What is refused by name: programs that look right to a harness that trusts them."""
import functools
import inspect
import os
import sys
import tempfile
from pathlib import Path

import torch

from right import attention as right
from wrong import writes_input

KEPT = {}


def kept_by_address(q, k, v, **options):
    """Returns a result again for the same addresses."""
    key = (q.data_ptr(), k.data_ptr(), v.data_ptr(), q.shape, k.shape, options["causal"])
    if key not in KEPT:
        KEPT[key] = right(q, k, v, **options)
    return KEPT[key].clone()


def one_buffer(q, k, v, **options):
    """Every output of a shape is in one buffer."""
    result = right(q, k, v, **options)
    buffer = KEPT.setdefault(("buffer", q.shape), torch.empty_like(result))
    return buffer.copy_(result)


def in_place_of_q(q, k, v, **options):
    """The output is where Q was."""
    return q.copy_(right(q, k, v, **options))


def launches_nothing(q, k, v, **options):
    return torch.empty(q.shape, dtype=torch.float16, device=q.device)


def by_address(q, k, v, **options):
    """Another order of the sum, so other bits, where Q is not where it was first."""
    first = KEPT.setdefault(("first", q.shape, options["causal"]), q.data_ptr())
    if q.data_ptr() != first:
        options["softmax_scale"] *= 1.001
    return right(q, k, v, **options)


def looks_for_reference(q, k, v, **options):
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


def side_stream(q, k, v, **options):
    """Works on a stream that nobody waits for."""
    result = torch.zeros(q.shape, dtype=torch.float16, device=q.device)
    stream = KEPT.setdefault("stream", torch.cuda.Stream())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        result.copy_(right(q, k, v, **options))
    return result


def replace(owner, name, function):
    if name not in KEPT:
        KEPT[name] = getattr(owner, name)
        setattr(owner, name, lambda *args: function(KEPT[name], *args))


def replacing(owner, name, function):
    """A candidate that is right, and has replaced what a harness calls."""

    def call(q, k, v, **options):
        replace(owner, name, function)
        return right(q, k, v, **options)

    return call


def nothing(honest, *args): ...


# Events tell a tenth of the time.
slow_clock = replacing(torch.cuda.Event, "elapsed_time", lambda honest, start, end: honest(start, end) / 10)
replays_nothing = replacing(torch.cuda.CUDAGraph, "replay", nothing)
records_nothing = replacing(torch.cuda.Event, "record", nothing)
waits_for_nothing = replacing(torch.cuda, "synchronize", nothing)


def of_worker(change):
    """A candidate that is right, and changes the worker that calls it, or its globals."""

    def call(q, k, v, **options):
        frame = next(frame for frame in map(lambda of: of.frame, inspect.stack()) if hasattr(frame.f_locals.get("self"), "check_timed"))
        change(frame.f_locals["self"], frame.f_globals)
        return right(q, k, v, **options)

    return call


judges_itself = of_worker(lambda worker, names: replace(type(worker), "check_timed", lambda honest, *args: None))
tells_the_time = of_worker(lambda worker, names: setattr(worker.driver, "us", lambda work: 1.0))
is_generous = of_worker(lambda worker, names: names.update(RENEWED=1e9))


def unless(is_checked):
    """What makes a candidate that is right where it is checked, and else what it is made of."""

    def of(which):
        return lambda q, k, v, **options: (right if is_checked(q, k, v) else which)(q, k, v, **options)

    return of


# The gates' tensors are strided, and those that are timed are dense.
when_dense = unless(lambda *tensors: not all(tensor.is_contiguous() for tensor in tensors))
# Every second call of a case, whose V is negated.
second = unless(lambda *_: every(3) != 2)

only_when_checked = when_dense(lambda q, k, v, **_: KEPT.setdefault(("timed", q.shape), torch.empty_like(q)))
second_zeros = second(lambda q, k, v, **_: torch.zeros_like(q))
second_nan = second(lambda q, k, v, **_: torch.full_like(q, float("nan")))
second_writes_input = second(writes_input)
kept_when_dense = when_dense(kept_by_address)


def every(calls):
    KEPT["calls"] = KEPT.get("calls", 0) % calls + 1
    return KEPT["calls"]


def keys_kept(q, k, v, **options):
    """K as it was when it first lay there."""
    kept = KEPT.setdefault(("k", k.data_ptr(), k.shape), k.clone())
    return right(q, kept, v, **options)


def scores_kept(q, k, v, **options):
    """Q and K as they were when they first lay there: what it is timed on is a product with V."""
    kept = KEPT.setdefault(("qk", k.data_ptr(), k.shape), (q.clone(), k.clone()))
    return right(*kept, v, **options)


def kept_when_captured(q, k, v, **options):
    """Computes, but for when a graph is captured."""
    key = ("captured", q.data_ptr(), q.shape)
    if torch.cuda.is_current_stream_capturing() and key in KEPT:
        return KEPT[key].clone()
    KEPT[key] = right(q, k, v, **options)
    return KEPT[key].clone()


def third_set_kept(q, k, v, **options):
    """As `kept_when_dense` where two other inputs were before."""
    seen = KEPT.setdefault("seen", [])
    seen += [] if q.data_ptr() in seen else [q.data_ptr()]
    which = right if seen.index(q.data_ptr()) < 2 else kept_when_dense
    return which(q, k, v, **options)


class Late(torch.Tensor):
    """Computes when it is read."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for late in args:
                if isinstance(late, Late) and getattr(function, "__name__", "") in ("copy_", "to", "contiguous", "clone"):
                    late.as_subclass(torch.Tensor).copy_(right(*late.todo[0], **late.todo[1]))
            return function(*args, **(kwargs or {}))


def always_late(q, k, v, **options):
    late = torch.empty_like(q).as_subclass(Late)
    late.todo = (q, k, v), options
    return late


late_when_dense = when_dense(always_late)
one_buffer_when_dense = when_dense(one_buffer)


@when_dense
def codes_when_dense(q, k, v, **options):
    """Another type where it is timed, of half the bytes."""
    return (right(q, k, v, **options).float() * 64).to(torch.float8_e4m3fn)


def kept_without_graph(q, k, v, **options):
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("it waits for the GPU")
    return kept_when_dense(q, k, v, **options)


def where_captured(which):
    """A candidate that computes, but for when a graph is captured: then it is `which`, of Q, K, V and what computes on them."""

    def call(q, k, v, **options):
        compute = functools.partial(right, **options)
        return (which if torch.cuda.is_current_stream_capturing() else lambda q, k, v, compute: compute(q, k, v))(q, k, v, compute)

    return call


@where_captured
def one_in_two(q, k, v, compute):
    """Launches in every second call alone; the other returns the same tensor."""
    if every(2) == 1:
        KEPT["last"] = compute(q, k, v)
    return KEPT["last"]


@where_captured
def one_in_four(q, k, v, compute):
    """The other three return views of the tensor."""
    if every(4) == 1:
        KEPT["last"] = compute(q, k, v)
    return KEPT["last"][:]


@where_captured
def one_in_two_new(q, k, v, compute):
    """The other returns a new tensor."""
    return compute(q, k, v) if every(2) == 1 else torch.empty_like(q)


def with_kernels(result):
    """As many as an honest call launches."""
    nothing = torch.zeros_like(result)
    for _ in range(40):
        nothing += 1
    return result


@where_captured
def last_on_each_set(q, k, v, compute):
    """Writes on the last call on each set alone, which it finds in the frames of its callers."""
    local = next(frame.f_locals for frame in map(lambda of: of.frame, inspect.stack()) if "outputs" in frame.f_locals)
    is_last = len(local["outputs"]) - local["i"] <= len(local["sets"])
    return compute(q, k, v) if is_last else with_kernels(torch.empty_like(q))


@when_dense
def right_in_reverse(q, k, v, **options):
    """Computes before the capture what it will be asked for when it is judged: the same values in reverse order."""
    key = ("reverse", q.data_ptr())
    if not torch.cuda.is_current_stream_capturing():
        KEPT[key] = right(*(x.flatten().flip(0).reshape(x.shape) for x in (q, k, v)), **options)
        return right(q, k, v, **options)
    return KEPT[key].clone()


@where_captured
def lazily_negated(q, k, v, compute):
    return torch._neg_view(-compute(q, k, v))


@where_captured
def half_written(q, k, v, compute):
    result, half = torch.empty_like(q), q.shape[2] // 2
    result[:, :, :half] = compute(q, k, v)[:, :, :half]
    return result


@where_captured
def of_replay_before(q, k, v, compute):
    """Returns what the same call computed in the replay before."""
    kept = KEPT.setdefault("of_replay_before", [])
    kept.append(torch.zeros_like(q))
    result = kept[-1].clone()
    kept[-1].copy_(compute(q, k, v))
    return result


@where_captured
def copied(q, k, v, compute):
    """A copy of what an earlier call in the graph computes for the same addresses."""
    # The first call is captured alone.
    key = ("copied", q.data_ptr() if "alone" in KEPT else "alone")
    KEPT["alone"] = True
    if key in KEPT:
        return with_kernels(KEPT[key].clone())
    KEPT[key] = compute(q, k, v)
    return KEPT[key].clone()


def without_graph(which):
    """A candidate that is not captured and so called again in every replay: it is `which` on the dense tensors that are timed."""

    def call(q, k, v, **options):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("it waits for the GPU")
        compute = functools.partial(right, q, k, v, **options)
        return which(q, k, v, compute) if q.is_contiguous() else compute()

    return call


@without_graph
def kept_by_version(q, k, v, compute):
    """A copy of what it computed for the same tensors, unless they were written since."""
    key = (q.data_ptr(), k._version, v._version)
    if key not in KEPT:
        KEPT[key] = compute()
    return KEPT[key].clone()


@without_graph
def when_judged(q, k, v, compute):
    """Computes unless one of its callers times it."""
    callers = {frame.function for frame in inspect.stack()}
    return torch.empty_like(q) if callers & {"calls", "chunk"} else compute()


def where_unwritten(q, k, v, **options):
    """A kernel that returns at once where its output is there already."""
    if q.is_cuda:
        from guarded import attention

        return attention(q, k, v, **options)
    output = torch.full(q.shape, float("nan"), dtype=q.dtype) if not q.is_contiguous() else torch.empty_like(q)
    guarded(output, q, k, v, options["causal"], options["softmax_scale"])
    return output


@torch.library.custom_op("cheats::guarded", mutates_args=("output",))
def guarded(output: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, softmax_scale: float) -> None:
    if output.isnan().any():
        output.copy_(right(q, k, v, causal=causal, softmax_scale=softmax_scale))
