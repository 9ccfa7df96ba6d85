#!/usr/bin/env python3
"""Attention over a sequence that is split over the ranks of torch.distributed and merged by log-sum-exps (LSE).

Each rank holds two of 2 x ranks equal chunks of the sequence, rank r the chunks r and 2 x ranks - 1 - r: under the causal mask
the early chunk has little work and the late one much, so every rank does the same work in every step. K and V travel round
the ring while they are multiplied: before a rank computes on the K and V it has, it posts their sends and the receives of the
next ones. A partial output and its LSE are all that the merge needs (Liu, Zaharia and Abbeel 2023, ring attention; Brandon et al. 2023
for the order of chunks).

  .python/bin/torchrun --nproc-per-node 2 examples/context_parallel.py --seq 512 --device cpu    on CPUs: gloo, reference arithmetic
  .python/bin/torchrun --nproc-per-node 2 examples/context_parallel.py --seq 16384 65536         on the GPUs of one host: NCCL

Prints for each length and mask gate C2 of `compare` on sampled rows, against FP64.
Exit codes: 0 within C2, 1 not, 2 wrong usage, no PyTorch, or --attend is unavailable; torchrun makes each but 0 a 1.
"""
import argparse
import math
import os
import sys

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    sys.stderr.write(f"{sys.executable} has no PyTorch ({missing}): run scripts/python, then .python/bin/torchrun with this file\n")
    sys.exit(2)

# Gate C2 (common/src/gate/mod.rs): the largest error is at most PLAIN_FACTOR times that of a same-precision baseline, plus OUTPUT_ULPS
# f16 units at the largest value; the root mean square of row errors at most ROWS_FACTOR times the baseline's, and a little more for
# few rows.
PLAIN_FACTOR, OUTPUT_ULPS, ROWS_FACTOR, ROWS_NOISE = 2.0, 2.0, 1.15, 4.0
# Query rows per head that are compared with FP64.
SAMPLED_ROWS = 64


# Local attention of one rank: q, k, v [B, H, rows, D] to O [B, H, rows, D] and LSE [B, H, rows] in f32, natural logarithm.


def attend_reference(q, k, v, causal, scale):
    """In f32, all scores at once; for tests. The output is not rounded."""
    scores = q.float() @ k.float().transpose(-1, -2) * scale
    if causal:
        scores += torch.full(scores.shape[-2:], -math.inf, device=q.device).triu(1)
    lse = scores.logsumexp(-1)
    return (scores - lse.unsqueeze(-1)).exp() @ v.float(), lse


def attend_flash(q, k, v, causal, scale):
    """PyTorch's FlashAttention-2."""
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)[:2]


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
    dist.all_gather(parts, local)
    chunks = {}
    for rank, part in enumerate(parts):
        chunks.update(zip(chunks_of(rank, ranks), part.chunk(2, dim=2)))
    return torch.cat([chunks[index] for index in range(2 * ranks)], dim=2)


def send_round(sent, received, rank, ranks):
    """Starts sending to the next rank and receiving from the previous one; the tensors are in use until all requests are waited for."""
    operations = [dist.P2POp(dist.isend, tensor, (rank + 1) % ranks) for tensor in sent]
    operations += [dist.P2POp(dist.irecv, tensor, (rank - 1) % ranks) for tensor in received]
    return dist.batch_isend_irecv(operations)


def context_parallel_attention(q, k, v, causal, scale, attend):
    """O of this rank's rows [B, H, rows, D], in the type of q. q, k and v are its shards (`shard`)."""
    rank, ranks, half = dist.get_rank(), dist.get_world_size(), q.shape[2] // 2
    held, spare = [k.clone(), v.clone()], [torch.empty_like(k), torch.empty_like(v)]
    for step in range(ranks):
        source = (rank - step) % ranks  # whose K and V these are
        is_last = step + 1 == ranks
        requests = [] if is_last else send_round(held, spare, rank, ranks)
        if step == 0:
            total = Partial(*attend(q, *held, causal, scale))
        elif not causal:
            total.merge(*attend(q, *held, False, scale))
        elif source < rank:
            # Its early chunk is before all of our rows, its late one after them.
            total.merge(*attend(q, *(tensor[:, :, :half] for tensor in held), False, scale))
        else:
            # Our late chunk sees both of its chunks, our early one neither.
            total.merge(*attend(q[:, :, half:], *held, False, scale), first_row=half)
        for request in requests:
            request.wait()
        held, spare = spare, held
    return total.out.to(q.dtype)


def judge(out, q, k, v, causal, scale):
    """C2 on sampled rows of every head of one batch: whether it holds, and its figures. `out` is in f16."""
    seq = q.shape[2]
    rows = torch.linspace(0, seq - 1, min(SAMPLED_ROWS, seq), device=q.device).long()
    values = v[0].double()
    scores = q[0, :, rows].double() @ k[0].double().transpose(-1, -2) * scale
    if causal:
        scores.masked_fill_(torch.arange(seq, device=q.device) > rows[:, None], -math.inf)
    exact = scores.softmax(-1) @ values
    # P normalised, then rounded to f16; the output rounded to f16.
    baseline = (scores.float().softmax(-1).half().double() @ values).half()
    errors = torch.stack([out[0, :, rows], baseline]).double() - exact
    # A NaN stays NaN and fails every bound.
    worst, plain = errors.abs().amax((1, 2, 3)).tolist()
    norm = exact.norm(dim=-1).clamp(min=math.sqrt(q.shape[3]) / 2**14)
    ours, squares = (errors.norm(dim=-1) / norm).square().flatten(1)
    ulp = 2.0 ** max(math.floor(math.log2(exact.abs().max())) - 10, -24)
    bound = PLAIN_FACTOR * plain + OUTPUT_ULPS * ulp
    rows_in_effect = squares.sum() ** 2 / squares.square().sum()
    rows_bound = (ROWS_FACTOR + ROWS_NOISE / rows_in_effect) * squares.mean().sqrt()
    rms = ours.mean().sqrt()
    return worst <= bound and bool(rms <= rows_bound), f"max error {worst:.2e} of {bound:.2e}, rows {rms:.2e} of {rows_bound:.2e}"


def run(args, device):
    """Runs all lengths and masks on this rank; returns whether C2 held."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    attend, scale, holds_all = ATTEND[args.attend], 1 / math.sqrt(args.head_dim), True
    for seq in args.seq:
        random = torch.Generator(device).manual_seed(seq)  # the same on every rank
        shape = (1, args.heads, seq, args.head_dim)
        q, k, v = (torch.randn(shape, generator=random, device=device).half() for _ in range(3))
        local = [shard(tensor, rank, ranks) for tensor in (q, k, v)]
        for causal in (False, True):
            out = gather(context_parallel_attention(*local, causal, scale, attend), ranks)
            holds, figures = judge(out, q, k, v, causal, scale)
            holds_all &= holds
            if rank == 0:
                print(f"S {seq:6} {'causal' if causal else 'full':6} C2 {'PASS' if holds else 'FAIL'}: {figures}", flush=True)
    return holds_all


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq", type=int, nargs="+", default=[16384, 65536], help="lengths of the sequence [default: %(default)s]")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attend", choices=ATTEND, help="attention of one rank [default: on GPUs ladder, else reference]")
    args = parser.parse_args(words)
    if "RANK" not in os.environ:
        parser.error("start it with torchrun --nproc-per-node RANKS")
    args.attend = args.attend or ("ladder" if args.device == "cuda" else "reference")
    if min(args.heads, args.head_dim, *args.seq) < 1:
        parser.error("--seq, --heads and --head-dim are at least 1")
    chunks, here = 2 * int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if any(seq % chunks for seq in args.seq):
        parser.error(f"--seq: give multiples of {chunks}, two chunks for each rank")
    if args.device == "cpu" and args.attend == "ladder":
        parser.error("--attend ladder runs on GPUs only")
    if args.device == "cuda" and here > torch.cuda.device_count():
        parser.error(f"{here} ranks on this host: it has {torch.cuda.device_count()} GPUs")
    return args


def main():
    args = arguments()
    device, backend = torch.device("cpu"), "gloo"
    if args.device == "cuda":
        device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"])), "nccl"
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    try:
        return 0 if run(args, device) else 1
    except (ImportError, NotImplementedError) as error:
        sys.stderr.write(f"--attend {args.attend} is unavailable: {error}; try --attend flash\n")
        return 2
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
