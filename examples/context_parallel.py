#!/usr/bin/env python3
"""Attention over a sequence that is split over the ranks of torch.distributed and merged by log-sum-exps (LSE).

Each rank holds two of 2 x ranks equal chunks of the sequence, rank r the chunks r and 2 x ranks - 1 - r: under the causal mask
the early chunk has little work and the late one much, so every rank does the same work in every step. K and V travel round
the ring while they are multiplied: before a rank computes on the K and V it has, it posts their sends and the receives of the
next ones. A partial output and its LSE are all that the merge needs (Liu, Zaharia and Abbeel 2023, ring attention; Brandon et al. 2023
for the order of chunks).

  .python/bin/python examples/context_parallel.py --ranks 2 --seq 512 --device cpu     on CPUs: gloo, reference arithmetic
  .python/bin/python examples/context_parallel.py --ranks 2 --seq 16384,65536          on the GPUs of one host: NCCL
  torchrun --nproc-per-node 8 --nnodes 2 ... examples/context_parallel.py    on those of several hosts

For each length and mask: gate C2 of `compare` on sampled rows, against FP64, with one rank alone for comparison; on GPUs also the time
of one GPU alone, of all, and of the exchange alone. "Hidden" is the share of the exchange that arithmetic does not wait for. The exchange
also takes SMs and bandwidth from arithmetic; the last figure includes that: all GPUs with and without the exchange.
Exit codes: 0 within C2, 1 not, 2 wrong usage, no PyTorch, or what --attend names is unavailable.
"""
import argparse
import math
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(
        f"{os.path.basename(sys.argv[0])}: {sys.executable} has no PyTorch ({missing}): run scripts/python, then .python/bin/python with this file",
        file=sys.stderr,
    )
    sys.exit(2)

# Gate C2 (common/src/gate/mod.rs): the largest error is at most PLAIN_FACTOR times that of a same-precision baseline, plus OUTPUT_ULPS
# f16 units at the largest value; the root mean square of row errors at most ROWS_FACTOR times the baseline's, and a little more for
# few rows.
PLAIN_FACTOR, OUTPUT_ULPS, ROWS_FACTOR, ROWS_NOISE = 2.0, 2.0, 1.15, 4.0
# Query rows per head that are compared with FP64.
SAMPLED_ROWS = 64
# Timed repeats, as many as fit in three seconds; the median counts.
LEAST_REPEATS, MOST_REPEATS, TIMED_US = 5, 31, 3e6


# Local attention of one rank: q, k, v [B, H, rows, D] to O [B, H, rows, D] and LSE [B, H, rows] in f32, natural logarithm.


def attend_reference(q, k, v, causal, scale):
    """In f32, all scores at once; for tests. The output is not rounded."""
    scores = q.float() @ k.float().transpose(-1, -2) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse.unsqueeze(-1)).exp() @ v.float(), lse


def attend_flash(q, k, v, causal, scale):
    """PyTorch's FlashAttention-2."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def attend_ladder(q, k, v, causal, scale):
    """This project's wheel."""
    import attention_ladder

    return attention_ladder.sdpa(q, k, v, is_causal=causal, scale=scale, return_lse=True)


ATTEND = {"reference": attend_reference, "flash": attend_flash, "ladder": attend_ladder}


class Partial:
    """O and LSE of queries over the keys seen so far; in the first keys every query sees at least one."""

    def __init__(self, out, lse):
        self.out, self.lse = out.float(), lse

    def merge(self, out, lse, first_row=0):
        """Merges results of the same queries, from `first_row` on, over other keys: each side is weighted by its share of the sum of
        exponentials."""
        mine, total = self.out[:, :, first_row:], self.lse[:, :, first_row:]
        share = torch.sigmoid(lse - total).unsqueeze(-1)
        mine.lerp_(out.float(), share)
        total.copy_(torch.logaddexp(total, lse))


class Ring:
    """Ranks in a ring: each sends to the next and receives from the previous one."""

    def __init__(self):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def start(self, sent, received):
        """Posts the exchange; the tensors are in use until `wait` returns."""
        to, source = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        operations = [dist.P2POp(dist.isend, tensor, to) for tensor in sent]
        operations += [dist.P2POp(dist.irecv, tensor, source) for tensor in received]
        return dist.batch_isend_irecv(operations)

    @staticmethod
    def wait(requests):
        for request in requests:
            request.wait()


def chunks_of(rank, ranks):
    """The chunks that a rank holds, in the order of its rows."""
    return rank, 2 * ranks - 1 - rank


def shard(tensor, rank, ranks):
    """The rows of dimension 2 that a rank holds; their number is a multiple of 2 x ranks."""
    chunks = tensor.chunk(2 * ranks, dim=2)
    return torch.cat([chunks[i] for i in chunks_of(rank, ranks)], dim=2)


def gather(local, ranks):
    """All rows in sequence order, on every rank."""
    parts = [torch.empty_like(local) for _ in range(ranks)]
    dist.all_gather(parts, local.contiguous())
    chunks = [None] * (2 * ranks)
    for rank, part in enumerate(parts):
        for index, chunk in zip(chunks_of(rank, ranks), part.chunk(2, dim=2)):
            chunks[index] = chunk
    return torch.cat(chunks, dim=2)


def context_parallel_attention(q, k, v, *, causal, scale, attend, ring, exchange=True):
    """O of this rank's rows [B, H, rows, D], in the type of q. q, k and v are its shards (`shard`). Without `exchange` every step
    uses this rank's own K and V, for timing: the same amount of arithmetic, but another result."""
    held, requests = [k.contiguous(), v.contiguous()], []
    spare = [torch.empty_like(tensor) for tensor in held]
    half = q.shape[2] // 2
    for step in range(ring.ranks):
        source = (ring.rank - step) % ring.ranks  # whose K and V these are
        if exchange and step + 1 < ring.ranks:
            requests = ring.start(held, spare)
        if step == 0:
            total = Partial(*attend(q, *held, causal, scale))
        elif not causal:
            total.merge(*attend(q, *held, False, scale))
        elif source < ring.rank:
            # Its early chunk is before all of our rows, its late one after them.
            total.merge(*attend(q, *(tensor[:, :, :half] for tensor in held), False, scale))
        else:
            # Our late chunk sees both of its chunks, our early one neither.
            total.merge(*attend(q[:, :, half:], *held, False, scale), first_row=half)
        if exchange and step + 1 < ring.ranks:
            ring.wait(requests)
            held, spare = spare, held
    return total.out.to(q.dtype)


def inputs(seq, args, device):
    """Q, K and V of the whole sequence, the same on every rank."""
    random = torch.Generator(device).manual_seed(seq)
    shape = (args.batch, args.heads, seq, args.head_dim)
    return [torch.randn(shape, generator=random, device=device).half() for _ in range(3)]


def judge(out, q, k, v, causal, scale):
    """C2 on sampled rows of every head of the first batch: whether it holds, and its figures. `out` is in f16."""
    seq = q.shape[2]
    rows = torch.linspace(0, seq - 1, min(SAMPLED_ROWS, seq), device=q.device).long()
    worst, off, largest = {}, {}, 0.0
    for head in range(q.shape[1]):
        keys, values = k[0, head].double(), v[0, head].double()
        scores = q[0, head, rows].double() @ keys.T * scale
        if causal:
            scores.masked_fill_(torch.arange(seq, device=q.device) > rows[:, None], -math.inf)
        exact = scores.softmax(-1) @ values
        norm = exact.norm(dim=-1).clamp(min=math.sqrt(q.shape[3]) / 2**14)
        largest = max(largest, exact.abs().max().item())
        # P normalised, then rounded to f16; the output rounded to f16.
        baseline = (scores.float().softmax(-1).half().double() @ values).half()
        for side, rounded in (("ours", out[0, head, rows]), ("baseline", baseline)):
            error = rounded.double() - exact
            worst.setdefault(side, []).append(error.abs().max())
            off.setdefault(side, []).append(error.norm(dim=-1) / norm)
    # A NaN stays NaN and fails every bound.
    worst = {side: torch.stack(errors).max().item() for side, errors in worst.items()}
    ours, baseline = torch.cat(off["ours"]), torch.cat(off["baseline"])
    ulp = 2.0 ** max(math.floor(math.log2(largest)) - 10, -24)
    bound = PLAIN_FACTOR * worst["baseline"] + OUTPUT_ULPS * ulp
    rows_in_effect = (baseline**2).sum() ** 2 / (baseline**4).sum()
    rows_bound = (ROWS_FACTOR + ROWS_NOISE / rows_in_effect) * (baseline**2).mean().sqrt()
    rms = (ours**2).mean().sqrt()
    holds = worst["ours"] <= bound and bool(rms <= rows_bound)
    return holds, f"max error {worst['ours']:.2e} of {bound:.2e}, rows {rms.item():.2e} of {rows_bound.item():.2e}"


def recorded(work):
    """The events before and after what `work` puts into the current stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    return start, end


class TimedRing(Ring):
    """A ring that records how long arithmetic waits for data in flight."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, requests):
        self.waits.append(recorded(lambda: Ring.wait(requests)))


def measure(q, k, v, local, options):
    """Microseconds on the slowest rank, a row for each repeat: one GPU alone, all of them, all without the exchange, the exchange
    alone, and how long arithmetic waited in the second. The arms are interleaved in each repeat, so that drift affects all alike."""
    attend, causal, scale = (options[name] for name in ("attend", "causal", "scale"))
    held, spare = local[1:], [torch.empty_like(tensor) for tensor in local[1:]]
    ring = TimedRing()

    def exchange():
        for _ in range(ring.ranks - 1):
            ring.wait(ring.start(held, spare))

    works = (
        lambda: attend(q, k, v, causal, scale),
        lambda: context_parallel_attention(*local, **options, ring=ring),
        lambda: context_parallel_attention(*local, **options, ring=ring, exchange=False),
        exchange,
    )

    def repeat():
        times, waits = [], []
        for work in works:
            ring.waits.clear()
            dist.barrier()
            span = recorded(work)
            torch.cuda.synchronize()
            times.append(span[0].elapsed_time(span[1]) * 1e3)
            waits.append(sum(start.elapsed_time(end) for start, end in ring.waits) * 1e3)
        return [*times, waits[1]]

    def slowest(rows):
        rows = torch.tensor(rows, device=q.device)
        dist.all_reduce(rows, dist.ReduceOp.MAX)
        return rows

    repeat()
    repeats = TIMED_US / slowest([repeat()])[0, :4].sum().item()
    return slowest([repeat() for _ in range(int(min(max(repeats, LEAST_REPEATS), MOST_REPEATS)))])


def in_words(times, ranks):
    """Medians of `measure`; for the total cost of the exchange, the quartiles of differences within a repeat."""
    one, all_, _, moved, waited = times.quantile(0.5, dim=0).tolist()
    words = f"one GPU {one:.0f} us, {ranks} {all_:.0f} us: {one / all_:.2f}x"
    if ranks == 1:
        return words
    low, cost, high = (times[:, 1] - times[:, 2]).quantile(times.new_tensor([0.25, 0.5, 0.75])).tolist()
    hidden = max(0.0, 1 - waited / moved)
    words += f"; exchange alone {moved:.0f} us, {hidden:.0%} of it hidden"
    return f"{words}; it costs {cost:.0f} us in all (quartiles {low:.0f} to {high:.0f})"


def attend_for(args, device, say):
    """The attention that all ranks use: the requested one, or exit 2; without a request the default, or FlashAttention-2."""
    name = args.attend or ("ladder" if args.device == "cuda" else "reference")
    q = torch.zeros(args.batch, args.heads, 2, args.head_dim, dtype=torch.float16, device=device)
    why = None
    try:
        ATTEND[name](q, q, q, True, 1.0)
    except (ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        why = f"rank {dist.get_rank()}: {str(error).strip().splitlines()[0]}"
    whys = [None] * dist.get_world_size()
    dist.all_gather_object(whys, why)
    why = next(filter(None, whys), None)
    if why is None:
        return name
    if args.attend:
        say(f"--attend {name} is unavailable: {why}", file=sys.stderr)
        sys.exit(2)
    say(f"{name} is unavailable ({why}); using --attend flash instead")
    return "flash"


def run(args):
    """Runs all lengths and masks on this rank; returns whether C2 held."""
    ring = Ring()
    device = torch.device("cuda", torch.cuda.current_device()) if args.device == "cuda" else torch.device("cpu")
    say = print if ring.rank == 0 else lambda *_, **__: None
    attend = attend_for(args, device, say)
    say(f"{ring.ranks} ranks on {args.device}, {attend}, B {args.batch}, H {args.heads}, D {args.head_dim}, f16")
    all_hold = True
    for seq in args.seq:
        for causal in (False, True):
            q, k, v = inputs(seq, args, device)
            local = [shard(tensor, ring.rank, ring.ranks).contiguous() for tensor in (q, k, v)]
            options = {"attend": ATTEND[attend], "causal": causal, "scale": 1 / math.sqrt(args.head_dim)}
            out = gather(context_parallel_attention(*local, **options, ring=ring), ring.ranks)
            holds, words = judge(out, q, k, v, causal, options["scale"])
            all_hold &= holds
            line = f"S {seq:6} {'causal' if causal else 'full':6} C2 {'PASS' if holds else 'FAIL'}: {words}"
            if args.device == "cuda":
                alone, _ = options["attend"](q, k, v, causal, options["scale"])
                line += f" (one GPU: {judge(alone.half(), q, k, v, causal, options['scale'])[1]})"
                del out, alone
                line += f"\n    {in_words(measure(q, k, v, local, options), ring.ranks)}"
            say(line, flush=True)
    verdict = torch.tensor(int(all_hold), device=device)
    dist.all_reduce(verdict, dist.ReduceOp.MIN)
    return bool(verdict)


def join(rank, ranks, args, rendezvous=None):
    """Runs one rank, from joining the others to its exit code."""
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    backend = "nccl" if args.device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=ranks)
    try:
        holds = run(args)
    finally:
        dist.destroy_process_group()
    return 0 if holds else 1


def spawned(rank, ranks, args, rendezvous):
    sys.exit(join(rank, ranks, args, rendezvous))


def positive(word):
    if not (word.isascii() and word.isdigit() and int(word) > 0):
        raise argparse.ArgumentTypeError(f"'{word}' is not a whole number of at least 1")
    return int(word)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq", default="16384,65536,262144", help="lengths of the sequence [default: %(default)s]")
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--heads", type=positive, default=16)
    parser.add_argument("--head-dim", type=positive, default=128)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attend", choices=ATTEND, help="attention of one rank [default: on GPUs ladder, or flash where that is unavailable; else reference]")
    parser.add_argument("--ranks", type=positive, help="start this many processes here; under torchrun, leave it out")
    args = parser.parse_args(words)
    # torchrun says how many ranks there are on all hosts, and how many on this one.
    started = int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else None
    if started and args.ranks not in (None, started):
        parser.error(f"--ranks {args.ranks}: torchrun has started {started}; leave it out")
    args.ranks = started or args.ranks or 1
    here = int(os.environ.get("LOCAL_WORLD_SIZE", args.ranks)) if started else args.ranks
    try:
        args.seq = [positive(seq) for seq in args.seq.split(",")]
    except argparse.ArgumentTypeError:
        parser.error(f"--seq {args.seq}: give whole numbers of at least 1, separated by commas")
    for seq in args.seq:
        if seq % (2 * args.ranks):
            parser.error(f"--seq {seq}: give a multiple of {2 * args.ranks}, two chunks for each of {args.ranks} ranks")
    if args.device == "cuda" and here > torch.cuda.device_count():
        parser.error(f"{here} ranks on this host: it has {torch.cuda.device_count()} GPUs")
    return args


def main():
    args = arguments()
    if "RANK" in os.environ:
        return join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args)
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{folder}/rendezvous"
        context = torch.multiprocessing.get_context("spawn")
        ranks = [context.Process(target=spawned, args=(rank, args.ranks, args, rendezvous)) for rank in range(args.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        return max(2 if process.exitcode == 2 else 1 if process.exitcode else 0 for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
