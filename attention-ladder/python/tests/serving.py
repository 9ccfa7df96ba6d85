"""A server's loop over one layer: requests arrive at random, prompts are read in chunks in the batch in which others decode, and keys and values
lie in pages from a free list, of NaN until they are written and again when they are freed. Rows of random sequences are compared with float64
over keys and values that are kept apart from the pages. Faults that are planted are found, first. Without a GPU a reference stands in for the
kernel, and sizes are small.

usage: python attention-ladder/python/tests/serving.py [--steps 10000] [--seed 0] [--graph]     (--graph: calls are replayed by CUDA graphs)

Prints what was served. Exit code 1: a row is wrong or not finite, a page is not free at the end, or memory is left.
"""

import argparse
import collections
import contextlib
import dataclasses
import gc
import random
import sys
import time
from pathlib import Path

import torch

import attention_ladder

sys.path.insert(0, str(Path(__file__).parent))
from emulation import answered, attended, raises  # noqa: E402

BOUND = 2e-3  # of a row's norm, as in check.py for float16
# All of the first steps are compared, and then one in so many.
FIRST, EVERY = 200, 4
POISON = -(1 << 20)  # in the table, behind a sequence's pages


@dataclasses.dataclass(frozen=True)
class Sizes:
    slots: int  # sequences at once
    heads_q: int
    heads_kv: int
    head_dim: int
    page_rows: int
    pages: int
    chunk: int  # rows of a prompt in a step
    budget: int  # rows of all sequences in a step
    longest_prompt: int
    longest_answer: int
    arrivals: float  # in a step, on average
    window: int  # keys that a query looks back in every second step

    @property
    def longest(self):
        return self.longest_prompt + self.longest_answer


ON_GPU = Sizes(48, 32, 8, 128, 16, 1024, 256, 768, 2048, 256, 0.7, 128)
SMALL = Sizes(6, 4, 2, 64, 16, 40, 32, 64, 200, 24, 0.25, 20)


@dataclasses.dataclass(eq=False)
class Request:
    prompt: int
    total: int
    slot: int = -1
    keys: int = 0
    rows: int = 0  # in this step
    pages: list = dataclasses.field(default_factory=list)


class Engine:
    """The arrays of a batch have an entry for each slot, also where none is served there: no rows and no keys."""

    def __init__(self, sizes, device, seed, is_graph=False):
        self.sizes, self.is_graph = sizes, is_graph
        self.random = random.Random(seed)
        self.generator = torch.Generator(device).manual_seed(seed)
        row = (sizes.heads_kv, sizes.head_dim)
        halves = {"dtype": torch.float16, "device": device}
        self.pools = torch.full((2, sizes.pages, sizes.page_rows, *row), float("nan"), **halves)
        self.history = torch.zeros(2, sizes.slots, sizes.longest, *row, **halves)
        self.fresh = torch.zeros(sizes.budget, sizes.heads_q + 2 * sizes.heads_kv, sizes.head_dim, **halves)
        most = -(-sizes.longest // sizes.page_rows)
        self.lengths = torch.zeros(2, sizes.slots + 1, dtype=torch.int32, device=device)
        self.starts, self.used = self.lengths[0], self.lengths[1, : sizes.slots]
        self.host_table = torch.full((sizes.slots, most), POISON, dtype=torch.int32)
        self.table = self.host_table.to(device)
        self.slots = torch.arange(sizes.slots, device=device)
        self.not_finite = torch.zeros((), dtype=torch.int64, device=device)
        self.free = list(range(sizes.pages))
        self.random.shuffle(self.free)
        self.waiting, self.running = collections.deque(), [None] * sizes.slots
        self.graphs = {}
        self.time = self.next_arrival = 0.0
        self.reserved = self.served = self.tokens = self.compared = 0
        self.worst, self.window = 0.0, -1

    def arrive(self):
        """Requests of this step: their times are those of a Poisson process, their prompts have a heavy tail."""
        self.time += 1
        while self.next_arrival < self.time:
            self.next_arrival += self.random.expovariate(self.sizes.arrivals)
            prompt = min(int(32 * self.random.paretovariate(0.8)), self.sizes.longest_prompt)
            answer = min(1 + int(self.random.expovariate(1 / 40)), self.sizes.longest_answer)
            self.waiting.append(Request(prompt, prompt + answer))

    def pages_of(self, keys):
        return -(-keys // self.sizes.page_rows)

    def admit(self):
        """In order, while there is a slot, and all pages that a request will need."""
        while self.waiting and None in self.running:
            need = self.pages_of(self.waiting[0].total)
            if self.reserved + need > self.sizes.pages:
                return
            request = self.waiting.popleft()
            request.slot = self.running.index(None)
            self.running[request.slot] = request
            self.reserved += need

    def schedule(self):
        """A row for each sequence that decodes, and chunks of prompts in what is left of the budget."""
        requests = [request for request in self.running if request is not None]
        left = self.sizes.budget - sum(request.keys >= request.prompt for request in requests)
        for request in requests:
            request.rows = 1
            if request.keys < request.prompt:
                request.rows = min(self.sizes.chunk, request.prompt - request.keys, left)
                left -= request.rows
            request.keys += request.rows
        return requests

    def take_pages(self, requests):
        for request in requests:
            while len(request.pages) < self.pages_of(request.keys):
                assert self.free, "a page is missing: none is free, and all were reserved"
                page = self.free.pop()
                self.host_table[request.slot, len(request.pages)] = page
                request.pages.append(page)

    def upload(self):
        """Starts of queries, numbers of keys and pages. Returns the number of rows."""
        starts, used = [0], []
        for request in self.running:
            starts.append(starts[-1] + (0 if request is None else request.rows))
            used.append(0 if request is None else request.keys)
        self.lengths.copy_(torch.tensor([starts, [*used, 0]], dtype=torch.int32))
        self.table.copy_(self.host_table)
        return starts[-1]

    def write(self, rows):
        """Draws queries, keys and values, and puts keys and values into pages and into the history."""
        sizes = self.sizes
        self.fresh.normal_(generator=self.generator)
        counts = self.starts.diff()
        slot = torch.repeat_interleave(self.slots, counts, output_size=rows)
        place = torch.arange(rows, device=slot.device) + (self.used - counts - self.starts[:-1])[slot]
        line = self.table[slot, place // sizes.page_rows].long() * sizes.page_rows + place % sizes.page_rows
        keys_and_values = self.fresh[:rows, sizes.heads_q :].unflatten(1, (2, sizes.heads_kv)).transpose(0, 1)
        self.pools.flatten(1, 2)[:, line] = keys_and_values
        self.history[:, slot, place] = keys_and_values

    def call(self, q):
        return attention_ladder.flash_attn_with_kvcache(
            q, *self.pools, cache_seqlens=self.used, page_table=self.table, cu_seqlens_q=self.starts, max_seqlen_q=self.sizes.chunk,
            causal=True, window_size=(self.window, 0),
        )  # fmt: skip

    def attend(self, rows):
        q = self.fresh[:, : self.sizes.heads_q]
        if not self.is_graph:
            return self.call(q[:rows])
        if self.window not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.graphs[self.window] = graph, self.call(q)
        graph, out = self.graphs[self.window]
        graph.replay()
        return out[:rows]

    def release(self, request):
        self.free.extend(request.pages)
        self.host_table[request.slot] = POISON
        self.running[request.slot] = None
        self.reserved -= self.pages_of(request.total)
        self.served += 1

    def poison(self, pages):
        if pages:
            self.pools[:, torch.tensor(pages, device=self.pools.device)] = float("nan")

    def step(self, is_compared):
        self.window = -1 if self.time % 2 else self.sizes.window
        self.admit()
        requests = self.schedule()
        if not requests:
            return
        self.take_pages(requests)
        rows = self.upload()
        self.write(rows)
        out = self.attend(rows)
        self.not_finite += (~torch.isfinite(out)).sum()
        self.tokens += rows
        if is_compared:
            self.compare(out, [request for request in requests if request.rows])
        done = [request for request in requests if request.keys == request.total]
        self.poison([page for request in done for page in request.pages])
        for request in done:
            self.release(request)

    def compare(self, out, requests):
        """The rows of a sequence, with float64 over its history."""
        request = self.random.choice(requests)
        first = sum(other.rows for other in self.running[: request.slot] if other is not None)
        rows = slice(first, first + request.rows)
        q, (k, v) = self.fresh[rows, : self.sizes.heads_q], self.history[:, request.slot, : request.keys]
        expected, _ = attended(q, k, v, None, self.window, 0, None, 0.0)
        norms = expected.norm(dim=-1).clamp(min=self.sizes.head_dim**0.5 * 2**-14)
        error = ((out[rows].double() - expected).norm(dim=-1) / norms).max().item()
        self.worst = max(self.worst, error)
        self.compared += 1
        words = f"step {self.time:.0f}, slot {request.slot}, {request.rows} rows of {request.keys} keys, window {self.window}"
        assert error <= BOUND, f"{words}: {error:.1e} of a row's norm"
        assert not self.not_finite.item(), f"step {self.time:.0f}: an output is not finite"

    def is_busy(self):
        return bool(self.waiting) or any(request is not None for request in self.running)

    def check_end(self):
        assert not self.not_finite.item(), "an output is not finite"
        assert sorted(self.free) == list(range(self.sizes.pages)) and not self.reserved, "a page is not free, or is free twice"
        assert torch.isnan(self.pools).all(), "a page was freed as it was"
        assert (self.host_table == POISON).all()


def memory():
    """Bytes of tensors on the GPU."""
    gc.collect()
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def serve(engine, steps):
    """Steps with arrivals, and those in which the last requests are served."""
    before = None
    while engine.time < steps or engine.is_busy():
        number = int(engine.time)
        if number < steps:
            engine.arrive()
        else:
            engine.time += 1
        engine.step(number < FIRST or number % EVERY == 0)
        if number == min(FIRST, steps) - 1:
            before = memory()
    engine.check_end()
    left = memory() - before
    assert left == 0, f"{left} bytes are left on the GPU"


class Misplaced(Engine):
    """A sequence's pages are looked for one entry further."""

    def attend(self, rows):
        longest = max(filter(None, self.running), key=lambda request: request.keys)
        entries = self.table[longest.slot, : len(longest.pages)]
        entries.copy_(entries.roll(1))
        return super().attend(rows)


class FreedEarly(Engine):
    """The first page of a sequence is freed when its prompt has been read."""

    def schedule(self):
        requests = super().schedule()
        for request in requests:
            if request.keys > request.prompt and request.rows == 1:
                self.poison(request.pages[:1])
        return requests


class GivenTwice(Engine):
    """A page is free once more while a sequence has it."""

    def take_pages(self, requests):
        super().take_pages(requests)
        if self.time % 20 == 0:
            self.free.append(requests[0].pages[0])


class OneKeyShort(Engine):
    """The newest key is not counted."""

    def attend(self, rows):
        self.used -= (self.used > 1).int()
        return super().attend(rows)


class Leaking(Engine):
    """A page is not freed."""

    def release(self, request):
        request.pages.pop()
        super().release(request)


class NotPoisoned(Engine):
    """A freed page keeps what it held."""

    def poison(self, pages):
        super().poison(pages[1:])


# And what is said: "step" begins a message about a row.
FAULTS = {
    Misplaced: "step ",
    FreedEarly: "step ",
    GivenTwice: "step ",
    OneKeyShort: "step ",
    Leaking: "a page is ",
    NotPoisoned: "a page was freed as it was",
}


def find_faults(device):
    for fault, words in FAULTS.items():
        raises(AssertionError, words, serve, fault(SMALL, device, 0), 40)


def run(steps, seed=0, is_graph=False):
    is_on_gpu = torch.cuda.is_available()
    device, sizes = ("cuda", ON_GPU) if is_on_gpu else ("cpu", SMALL)
    if not is_on_gpu:
        torch.set_num_threads(1)  # threads take longer to meet than to work
    with contextlib.nullcontext() if is_on_gpu else answered():
        find_faults(device)
        engine = Engine(sizes, device, seed, is_graph)
        start = time.perf_counter()
        serve(engine, steps)
        seconds = time.perf_counter() - start
    print(
        f"{engine.time:.0f} steps on {device}{', by graphs' if is_graph else ''}: {engine.served} sequences, {engine.tokens} rows, "
        f"{engine.compared} comparisons, largest error {engine.worst:.1e} of a row's norm (bound {BOUND}), all pages free, "
        f"{seconds:.1f} s, {engine.time / seconds:.0f} steps/s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000 if torch.cuda.is_available() else 150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--graph", action="store_true")
    given = parser.parse_args()
    run(given.steps, given.seed, given.graph)
