"""Checks the installed module. Without a GPU: the import, what a call says is missing, shapes under torch.compile, and calls among
all kinds of PyTorch's tensors, modes and profilers, for which a float64 reference stands in for the kernels. With a GPU: those calls
again, and results and log-sum-exps against a float64 reference, in float16, bfloat16 and float8, on ragged, grouped, causal and strided
problems, with CUDA graphs, a side stream, torch.compile, green contexts and, where there are two, another GPU.

usage: python attention-ladder/python/tests/check.py [--gpu | --contexts]     (--gpu: fail without a GPU; --contexts: green contexts alone)
"""

import ast
import ctypes
import functools
import inspect
import itertools
import sys
import threading
import types
import warnings
from pathlib import Path

import torch

import attention_ladder
import torch.autograd.forward_ad as forward_ad
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import doors_alone  # noqa: E402
import emulation  # noqa: E402
import served  # noqa: E402
from candidate import attention as candidate  # noqa: E402
from emulation import ASKED, answered, lacks_gpu, raises, reference  # noqa: E402

OP_VARLEN = torch.ops.attention_ladder.varlen
OP, OP_LSE = torch.ops.attention_ladder.sdpa, torch.ops.attention_ladder.sdpa_lse
F16, BF16, E4M3 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
# Row error bound, as a share of the row's norm: gate C3 of `compare` for normal inputs (for E4M3 bf16's, which its least precise
# variants declare). Error bound of log-sum-exps (C8), relative or absolute.
ROW_BOUND, LSE_BOUND = {F16: 2e-3, BF16: 1.6e-2}, 1e-5


# Each gives the output and, or None, the log-sum-exps.
CALLS = {
    "sdpa": lambda *given, **named: (attention_ladder.sdpa(*given, **named), None),
    "sdpa, return_lse": functools.partial(attention_ladder.sdpa, return_lse=True),
    "sdpa, batch_invariant": lambda *given, **named: (attention_ladder.sdpa(*given, **named, batch_invariant=True), None),
    "operator": lambda *given, **named: (OP(*given, **named), None),
    "operator, lse": lambda *given, **named: OP_LSE(*given, **named),
}
WITH_OUT = [call for name, call in CALLS.items() if name.startswith("sdpa")]
NAMES = ("q_scale", "k_scale", "v_scale")


class Plain(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def map_(kind, work, tree):
            return torch.utils._pytree.tree_map_only(kind, work, tree)

        unwrapped = map_(cls, lambda x: x.inner, (args, kwargs or {}))
        return map_(torch.Tensor, cls, func(*unwrapped[0], **unwrapped[1]))


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen = func
        return func(*args, **(kwargs or {}))


class SeenFunction(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen = func
        return func(*args, **(kwargs or {}))


class AmongTensors:
    """A method is a kind of tensor or of call; each is right or refused by name, by `sdpa` and both operators alike."""

    def __init__(self, device):
        self.device = device
        self.q, self.k, self.v = (torch.randn(2, 4, 17, 64, device=device).to(F16) for _ in range(3))
        self.qkv = (self.q, self.k, self.v)
        self.codes = [x.to(E4M3) for x in self.qkv]
        self.scales = [torch.rand(2, 4, device=device) + 0.5 for _ in range(3)]

    def right(self, call, *qkv, plain=None, **named):
        """`plain`: the same q, k and v in tensors that are nothing else."""
        out, lse = call(*qkv, **named)
        given = dict(is_causal=False, scale=None) | {name: named[name] for name in named if name in ("is_causal", "scale")}
        close(torch.Tensor(out) if type(out) is Plain else out, *(plain or qkv), **given, lse=lse)
        return out

    def refused(self, kind, words, *given, calls=CALLS.values(), **named):
        for call in calls:
            raises(kind, words, call, *given, **named)

    def gradients(self):
        for place, call in itertools.product(range(3), CALLS.values()):
            given = [x.clone().requires_grad_(i == place) for i, x in enumerate(self.qkv)]
            for given in (given, [x * 1 for x in given]):
                raises(NotImplementedError, f"{'qkv'[place]} requires a gradient: backward is not supported", call, *given)
                with torch.no_grad():
                    self.right(call, *given)
                with torch.inference_mode():
                    self.right(call, *given)
            scales = [x.clone().requires_grad_(i == place) for i, x in enumerate(self.scales)]
            raises(NotImplementedError, f"{NAMES[place]} requires a gradient", call, *self.codes, **dict(zip(NAMES, scales)))
            with torch.no_grad():
                expected, _ = reference(*[x.float() * s[..., None, None] for x, s in zip(self.codes, scales)], False)
                out, _ = call(*self.codes, **dict(zip(NAMES, scales)))
                assert ((out - expected).norm(dim=-1) <= ROW_BOUND[BF16] * expected.norm(dim=-1)).all()
        raises(NotImplementedError, "backward is not supported", attention_ladder.variant, self.q.clone().requires_grad_(), self.k, self.v)
        parameter = torch.nn.Parameter(self.q.clone(), requires_grad=False)
        with torch.inference_mode():
            of_inference = self.q.clone()
        for call in CALLS.values():
            self.right(call, parameter, self.k, self.v)
            self.right(call, of_inference, self.k, self.v)

    def tangents(self):
        with forward_ad.dual_level():
            for place, call in itertools.product(range(3), CALLS.values()):
                given = [forward_ad.make_dual(x, x) if i == place else x for i, x in enumerate(self.qkv)]
                for mode in (torch.enable_grad, torch.no_grad):
                    with mode():
                        raises(NotImplementedError, f"{'qkv'[place]} has a tangent", call, *given)
                scales = [forward_ad.make_dual(x, x) if i == place else x for i, x in enumerate(self.scales)]
                raises(NotImplementedError, f"{NAMES[place]} has a tangent", call, *self.codes, **dict(zip(NAMES, scales)))
                self.right(call, *self.qkv)

    def transforms(self):
        q, k, v = self.qkv
        for call in CALLS.values():
            def summed(x):
                return call(x, k, v)[0].float().sum()

            backward, forward = (NotImplementedError, "q requires a gradient"), (NotImplementedError, "q has a tangent")
            raises(*backward, torch.func.grad(summed), q)
            raises(*backward, torch.func.vjp, summed, q)
            raises(*backward, torch.func.jacrev(summed), q)
            raises(*forward, torch.func.jvp, summed, (q,), (q,))
            raises(*backward, torch.func.vmap(torch.func.grad(summed)), q[None])
            for derived in (torch.func.grad, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))[1]):
                assert derived(lambda x: (2 * x).sum() + call(q, k, v)[0].sum() * 0)(torch.ones((), device=self.device)) == 2
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch.jit is deprecated
                traced = torch.jit.trace(lambda x: call(x, k, v)[0], (q,), check_trace=False)
            close(traced(2 * q), 2 * q, k, v, False)
            close(torch.func.functionalize(lambda *x: call(*x)[0])(q, k, v), q, k, v, False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the loop over the batch
                shared = torch.func.vmap(lambda x: call(x, k, v)[0])(torch.stack([q, 2 * q]))
                all_mapped = torch.func.vmap(lambda *x: call(*x)[0], in_dims=(1, 0, 2))(
                    torch.stack([q, q], 1), torch.stack([k, 2 * k]), torch.stack([v, v], 2)
                )
                twice = torch.func.vmap(torch.func.vmap(lambda x: call(x, k, v)[0]))(torch.stack([q, q])[None])
            for out, given in ((shared[1], (2 * q, k, v)), (all_mapped[1], (q, 2 * k, v)), (twice[0, 1], (q, k, v))):
                close(out, *given, False)

    def outputs(self):
        q, k, v = self.qkv
        leaf = torch.zeros_like(q, requires_grad=True)
        with torch.no_grad():
            hidden_view = leaf[:]
            early_view = (late := torch.zeros_like(q))[:]
            whole = torch.zeros_like(leaf.repeat(1, 2, 1, 1)).requires_grad_()
        late.requires_grad_()
        for call in WITH_OUT:
            for out in (leaf, leaf * 1, hidden_view, early_view, whole[:, :4]):
                raises(NotImplementedError, "out requires a gradient, or is a view of what does: backward", call, q, k, v, out=out)
            with torch.no_grad():
                assert self.right(call, q, k, v, out=leaf) is leaf
                self.right(call, Plain(q), k, v, plain=(q, k, v), out=leaf)
                self.right(call, q, k, v, out=leaf.zero_()[:])
            held, weight = torch.ones_like(q), torch.ones_like(q, requires_grad=True)
            for given in (q, Plain(q), torch._neg_view(-q)):
                product, before = (weight * held).sum(), held._version
                self.right(call, given, k, v, plain=(q, k, v), out=held)
                assert held._version > before
                raises(RuntimeError, "modified by an inplace operation", product.backward)
            before = held._version
            raises(ValueError, "the output overlaps q", call, q, k, v, out=q)
            for given in (q, Plain(q)):
                for other in (held.bfloat16(), held[:1], held[..., :32], held.to("meta")):
                    raises(ValueError, "out must be a float16 tensor [2, 4, 17, 64] on the device of q", call, given, k, v, out=other)
                raises(TypeError, "out is no torch.Tensor, but a list", call, given, k, v, out=[])
            raises(ValueError, "must be contiguous", call, q, k, v, out=held.mT.contiguous().mT)
            raises(ValueError, "must be positive", call, q, k, v, out=held[:1].expand_as(q))
            raises(ValueError, "the output overlaps itself", call, q, k, v, out=held.as_strided(q.shape, (64 * 17, 64, 64, 1)))
            raises(ValueError, "a multiple of 16 bytes", call, q, k, v, out=torch.empty(q.numel() + 1, dtype=F16, device=self.device)[1:].view(q.shape))
            assert held._version == before, "a refusal is no write"
            held[0, 0, 0] = 1
            scales = dict(zip(NAMES, [held.view(torch.float32).flatten()[:8].view(2, 4), *self.scales[1:]]))
            raises(ValueError, "the output overlaps q's scales", call, *self.codes, **scales, out=held)
            packed = torch.randn(2, 17, 4, 4, 64, device=self.device).to(F16).permute(2, 0, 3, 1, 4)
            self.right(call, *packed[:3], plain=list(packed[:3].clone()), out=packed[3])
            for place, words in enumerate("qkv"):
                raises(ValueError, f"the output overlaps {words}", call, *packed[:3], out=packed[place])
            with torch.inference_mode():
                of_inference = torch.zeros_like(q)
                self.right(call, q, k, v, out=of_inference)
                self.right(call, q, k, v, out=held)
            raises(RuntimeError, "Inplace update to inference tensor outside InferenceMode", call, q, k, v, out=of_inference)
            assert type(self.right(call, q, k, v, out=Plain(torch.empty_like(q)))) is Plain
            wide = [x.bfloat16() for x in self.qkv]
            self.right(call, Plain(wide[0]), *wide[1:], plain=wide, out=torch.empty_like(wide[0]))
            self.right(call, q, k, v, out=torch._neg_view(torch.empty_like(q)))
            before = q.clone()
            self.right(call, before, k, v, out=torch._lazy_clone(q))
            assert torch.equal(q, before), "a copy on write was written through"

    def lazy_bits(self):
        for place, call in itertools.product(range(3), CALLS.values()):
            given = [torch._neg_view(-x) if i == place else x for i, x in enumerate(self.qkv)]
            self.right(call, *given, plain=self.qkv)
        conjugate = torch.complex(self.q.float(), -self.q.float()).conj()
        assert conjugate.imag.is_neg()
        for call in CALLS.values():
            self.right(call, conjugate.imag.to(F16), self.k, self.v, plain=self.qkv)
            negated = [torch._neg_view(-s) for s in self.scales]
            out, _ = call(*self.codes, **dict(zip(NAMES, negated)))
            assert torch.equal(out, call(*self.codes, **dict(zip(NAMES, self.scales)))[0])
        self.refused(NotImplementedError, "torch.complex64 is not supported", *[conjugate] * 3)
        zeros = torch._efficientzerotensor(self.q.shape, dtype=F16, device=self.device)
        self.refused(ValueError, "must be contiguous", zeros, self.k, self.v)

    def without_memory(self):
        fakes = FakeTensorMode()
        meta = [x.to("meta") for x in self.qkv]
        for call, given in itertools.product(CALLS.values(), (meta, [fakes.from_tensor(x) for x in self.qkv])):
            out, lse = call(*given)
            assert (out.shape, out.dtype, out.device, out.stride()) == (self.q.shape, F16, given[0].device, self.q.stride())
            assert lse is None or (lse.shape, lse.dtype, lse.device) == (self.q.shape[:3], torch.float32, given[0].device)
            q, k, v = given
            for kind, words, wrong, named in (
                (NotImplementedError, "torch.float32 is not supported", [x.float() for x in given], {}),
                (NotImplementedError, "head_dim = 32 is not supported", [x[..., :32] for x in given], {}),
                (ValueError, "k and v must have one shape", (q, k, v[:, :2]), {}),
                (ValueError, "does not divide", (q, k[:, :3], v[:, :3]), {}),
                (ValueError, "has 3 dimensions", (q[0], k, v), {}),
                (ValueError, "has 5 dimensions", (q[None], k, v), {}),
                (ValueError, "must be positive", (q, k[:, :, :1].expand_as(k), v), {}),
                (ValueError, "q has no scales", [x.to(E4M3) for x in given], {}),
                (ValueError, "scale = -1", given, {"scale": -1.0}),
            ):
                raises(kind, words, call, *wrong, **named)
        with FakeTensorMode():
            for call in CALLS.values():
                fake = torch.empty(2, 4, 17, 64, dtype=F16, device=self.device)
                assert call(fake, fake, fake)[0].shape == fake.shape
        self.refused(ValueError, "on one device", self.q, self.k.to("meta"), self.v)
        self.refused(ValueError, "on one device", *[x.to(E4M3) for x in meta], **dict(zip(NAMES, self.scales)))

    def subclasses(self):
        for call in CALLS.values():
            Plain.seen.clear()
            assert type(self.right(call, Plain(self.q), self.k, self.v, plain=self.qkv)) is Plain
            assert {OP, OP_LSE} & set(Plain.seen)
            wrapped, lse = call(*map(Wrapper, self.qkv))
            close(wrapped.inner, *self.qkv, False, lse=None if lse is None else lse.inner)
            with Seen() as mode:
                self.right(lambda *given: (call(*given), setattr(mode, "kept", mode.seen))[0], *self.qkv)
            assert mode.kept in (OP.default, OP_LSE.default)
            with SeenFunction() as mode:
                call(*self.qkv)
            assert mode.seen in (OP, OP_LSE, OP.default, OP_LSE.default)

    def counted_operations(self):
        """As PyTorch counts its own: 4 * batch * heads_q * seq_q * seq_kv * head_dim, whatever the mask and type."""

        def counted(call, *given, **named):
            with FlopCounterMode(display=False) as counter:
                call(*given, **named)
            return counter.get_total_flops()

        q, k, v = self.qkv
        own = 4 * 2 * 4 * 17 * 17 * 64
        if q.is_cuda:  # some versions do not count what they run on a CPU
            assert counted(torch.nn.functional.scaled_dot_product_attention, q, k, v) == own
        grouped, other = [x[:, ::2].contiguous() for x in (k, v)], [x[:, :, :5] for x in (k, v)]
        for call in CALLS.values():
            assert counted(call, *self.qkv) == own
            assert counted(call, *self.qkv, is_causal=True, scale=0.3) == own
            assert counted(call, q, *grouped) == own
            assert counted(call, q, *other) == 4 * 2 * 4 * 17 * 5 * 64
            assert counted(call, *[x.bfloat16() for x in self.qkv]) == own
            assert counted(call, *self.codes, **dict(zip(NAMES, self.scales))) == own
            assert counted(call, Plain(q), k, v) == own
            assert counted(call, *[x.to("meta") for x in self.qkv]) == own
            assert counted(call, q[:0], k[:0], v[:0]) == 0
            assert counted(lambda: [call(*self.qkv) for _ in range(3)]) == 3 * own
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the loop over the batch
                assert counted(torch.func.vmap(lambda x: call(x, k, v)[0]), torch.stack([q, q])) == 2 * own
        for call in WITH_OUT:
            assert counted(call, *self.qkv, out=torch.empty_like(q)) == own

        class Layer(torch.nn.Module):
            def forward(self, *given):
                return attention_ladder.sdpa(*given)

        with FlopCounterMode(display=False) as counter:
            torch.nn.Sequential(Layer())[0](*self.qkv)
        assert counter.get_flop_counts()["Layer"] == {OP: own}

    def profiled_names(self):
        """Once each: the operator's name, with shapes, whoever gives it."""

        def names(prof):
            return {event.key: event for event in prof.key_averages(group_by_input_shape=True) if event.key.startswith("attention_ladder")}

        def profiled(call, *given, kind=profile, **named):
            options = {"activities": [ProfilerActivity.CPU]} if kind is profile else {}
            with kind(record_shapes=True, **options) as prof:
                call(*given, **named)
            return names(prof)

        q, k, v = self.qkv
        for kind, (name, call) in itertools.product((profile, torch.autograd.profiler.profile), CALLS.items()):
            expected = "attention_ladder::sdpa_lse" if "lse" in name else "attention_ladder::sdpa"
            for given, named in (
                (self.qkv, {}),
                ((q, k, v, True, 0.3), {}),
                (self.codes, dict(zip(NAMES, self.scales))),
                ((Plain(q), k, v), {}),
                (self.qkv, {"out": torch.empty_like(q)} if call in WITH_OUT else {}),
            ):
                seen = profiled(call, *given, **named, kind=kind)
                assert list(seen) == [expected] and seen[expected].count == 1, (name, seen)
                shapes = [list(x) for x in seen[expected].input_shapes]
                assert shapes[:3] == [[2, 4, 17, 64]] * 3, shapes
        for call in WITH_OUT:
            with profile(activities=[ProfilerActivity.CPU]) as prof, torch.autograd.profiler.record_function("around"):
                raises(NotImplementedError, "head_dim = 32", call, *[x[..., :32] for x in self.qkv])
                self.right(call, *self.qkv)
            assert all(event.count <= 2 for event in names(prof).values())
            assert [event.count for event in prof.key_averages() if event.key == "around"] == [1], "a refused call is over"
        done = []
        thread = threading.Thread(target=lambda: done.append(attention_ladder.sdpa(*self.qkv)))
        with profile(activities=[ProfilerActivity.CPU]):
            thread.start()
            thread.join()
        assert done, "a thread that is not profiled failed"
        record = attention_ladder._dispatch.record
        attention_ladder._dispatch.record = None
        try:
            for call in CALLS.values():
                call(*self.qkv)  # nothing is recorded where nobody asks
        finally:
            attention_ladder._dispatch.record = record

    def nothing(self):
        q, k, v = self.qkv
        torch_sdpa = torch.nn.functional.scaled_dot_product_attention
        for call, is_causal in itertools.product(CALLS.values(), (False, True)):
            for given in ((q[:0], k[:0], v[:0]), (q[:, :0], k[:, :0], v[:, :0]), (q[:, :0], k, v), (q[:, :, :0], k, v)):
                out, lse = call(*given, is_causal)
                assert out.shape == given[0].shape and out.dtype is F16
                assert lse is None or lse.shape == out.shape[:3]
            given = q, k[:, :, :0], v[:, :, :0]
            out, lse = call(*given, is_causal)
            assert torch.equal(out, torch.zeros_like(q)) and torch.equal(out, torch_sdpa(*given))
            assert lse is None or (lse == float("-inf")).all()
            codes = [x.to(E4M3) for x in given]
            ASKED.clear()
            assert torch.equal(call(*codes, is_causal, **dict(zip(NAMES, self.scales)))[0], out)
            assert not ASKED, "something was launched"
            no_heads = [x[:, :0] for x in self.codes]
            assert call(*no_heads, is_causal, **{name: x[:, :0] for name, x in zip(NAMES, self.scales)})[0].shape == no_heads[0].shape
            raises(ValueError, "heads_kv = 0 does not divide heads_q = 4", call, q, k[:, :0], v[:, :0])
            raises(NotImplementedError, "head_dim = 0 is not supported", call, *[x[..., :0] for x in self.qkv])
            raises(ValueError, "scale = -1", call, q[:0], k[:0], v[:0], is_causal, -1.0)
            raises(NotImplementedError, "torch.float32 is not supported", call, *[x[:0].float() for x in self.qkv])
        for call in WITH_OUT:
            out = torch.ones_like(q)
            assert call(*given, out=out)[0] is out and not out.any() and out._version > 0

    def sizes(self):
        one = 1, 1, 1, 64
        for name, q, kv in (
            ("batch = 70000", (70_000, 1, 1, 64), (70_000, 1, 1, 64)),
            ("heads_q = 70000", (1, 70_000, 1, 64), one),
            ("heads_kv = 70000", one, (1, 70_000, 1, 64)),
            ("seq_q = 2147483647", (1, 1, 2**32 + 1, 64), one),
            ("seq_kv = 2147483647", one, (1, 1, 2**32 + 1, 64)),
            ("head_dim = 2147483647", (1, 1, 1, 2**32 + 64), (1, 1, 1, 2**32 + 64)),
        ):
            self.refused(NotImplementedError, name, *[torch.empty(shape, dtype=F16, device="meta") for shape in (q, kv, kv)])

    def scales_of_codes(self):
        wide = torch.rand(2, 8, device=self.device)
        for call, (name, right) in itertools.product(CALLS.values(), zip(NAMES, self.scales)):
            for wrong in (right[:1], right.double(), wide.as_strided((2, 4), (4, 2)), wide[:, :4]):
                given = dict(zip(NAMES, self.scales)) | {name: wrong}
                raises(ValueError, f"{name} must be a contiguous float32 tensor", call, *self.codes, **given)

    def memory(self):
        q, k, v = self.qkv
        shifted = torch.empty(q.numel() + 8, dtype=F16, device=self.device)
        padded = torch.zeros(2, 4, 17, 128, dtype=F16, device=self.device)
        for call in CALLS.values():
            for view in (shifted[8:].view(q.shape), padded[..., 64:], torch.empty_like(q.transpose(1, 2)).transpose(1, 2)):
                self.right(call, view.copy_(q), k, v)
            raises(ValueError, "address of q is", call, shifted[1:-7].view(q.shape), k, v)
            raises(ValueError, "the row stride of k is 68", call, q, torch.zeros(2, 4, 17, 68, dtype=F16, device=self.device)[..., :64], v)
            raises(ValueError, "the batch stride of v is 0", call, q, k, v[:1].expand_as(v))
            raises(ValueError, "last dimension of q", call, q.mT.contiguous().mT, k, v)
            raises(NotImplementedError, "q has no memory that a kernel could read (torch.sparse_coo, torch.float16", call, q.to_sparse(), k, v)
        for dtype in (torch.float64, torch.complex64, torch.int8, torch.float8_e5m2, torch.bool):
            self.refused(NotImplementedError, f"{dtype} is not supported", *[x.to(dtype) for x in self.qkv])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_tensor(q.float(), 0.1, 0, torch.quint8)
            self.refused(NotImplementedError, "torch.quint8", *[quantized] * 3)
            for layout in (torch.strided, torch.jagged):
                nested = torch.nested.nested_tensor([q[0].transpose(0, 1)] * 2, layout=layout).transpose(1, 2)
                self.refused(NotImplementedError, "q is a nested tensor: pad it", nested, nested, nested, calls=WITH_OUT)
                self.refused(NotImplementedError, "attention_ladder", nested, nested, nested, calls=[OP, OP_LSE])
        self.refused(TypeError, "one dtype", q, k, v.bfloat16())
        self.refused((TypeError, RuntimeError), "q", None, k, v)
        self.refused((TypeError, RuntimeError), "list", [], k, v)
        if torch.cuda.is_available():
            other = "cpu" if self.device == "cuda" else "cuda"
            self.refused(ValueError, "on one device", q, k.to(other), v)
            self.refused(ValueError, "on one device", q, k, v.to(other))
            self.refused(ValueError, "q_scale must be", *self.codes, **{name: x.to(other) for name, x in zip(NAMES, self.scales)})
            self.refused(ValueError, "out must be", q, k, v, out=q.to(other), calls=WITH_OUT)

    def refusals(self):
        """Of every kind of check, by plain calls and by the dispatcher: nothing has been allocated by then."""
        q, k, v = self.qkv
        memory = attention_ladder._memory
        allocators = memory.empty_like, memory.empty_strided
        taken = []

        def counted(allocator):
            return lambda *given, **named: taken.append(allocator) or allocator(*given, **named)

        memory.empty_like, memory.empty_strided = map(counted, allocators)
        try:
            for call, kind in itertools.product(CALLS.values(), (lambda x: x, Plain)):
                for words, *wrong in (
                    ("is not supported", *(kind(x[..., :32]) for x in self.qkv)),
                    ("does not divide", kind(q), k[:, :3], v[:, :3]),
                    ("must be positive", kind(q[:, :, :1].expand_as(q)), k, v),
                    ("q_scale must be", *map(kind, self.codes), False, None, *[x[:1] for x in self.scales]),
                    ("q has no scales", *map(kind, self.codes)),
                ):
                    named = dict(zip(NAMES, wrong[5:]))
                    raises((ValueError, NotImplementedError), words, call, *wrong[:5], **named)
                raises(ValueError, "scale = -1", call, kind(q), k, v, scale=-1.0)
                if call in WITH_OUT:
                    raises(ValueError, "out must be", call, kind(q), k, v, out=q.bfloat16())
                assert not taken
                self.right(call, kind(q), k, v, plain=self.qkv)
                assert taken
                taken.clear()
        finally:
            memory.empty_like, memory.empty_strided = allocators

    def numbers(self):
        for call in CALLS.values():
            for scale in (2, 0.25):
                self.right(call, *self.qkv, scale=scale)
            for scale in (float("nan"), float("inf"), -1.0, 0, 1e-60):
                raises(ValueError, "is not a positive finite number", call, *self.qkv, scale=scale)
            for scale in (True, torch.tensor(0.1), torch.tensor(0.1, requires_grad=True), "0.1", 1j):
                raises((TypeError, RuntimeError), "scale", call, *self.qkv, scale=scale)
            raises((TypeError, RuntimeError), "'bool'", call, *self.qkv, self.q)

    def options(self):
        if self.device != "cpu":
            return
        invariant = {call: functools.partial(call, batch_invariant=True) for call in CALLS.values() if call is not CALLS["sdpa, batch_invariant"]}
        for q, (name, call) in itertools.product((self.q, Plain(self.q)), CALLS.items()):
            is_invariant = "batch_invariant" in name
            for called, expected in ((call, is_invariant), (invariant.get(call, call), True)):
                ASKED.clear()
                called(q, self.k, self.v)
                assert ASKED == [("lse" in name, expected)], (name, ASKED)
        native = attention_ladder._native
        attention_ladder._dense._native = types.SimpleNamespace(variant=lambda *given: given[3:])
        assert attention_ladder.variant(*self.qkv, True, 0.5, return_lse=True) == (True, 0.5, True, False)
        attention_ladder._dense._native = native

    def registered(self):
        for op in (OP, OP_LSE):
            torch.library.opcheck(op, (*self.qkv, True, 0.3))

    def compiled(self):
        graphs = torch._dynamo.utils.counters["stats"]
        for call in CALLS.values():
            torch._dynamo.reset()
            # The scale is a symbol, like the rows.
            compiled = torch.compile(
                lambda q, k, v, **named: call(q, k, v, True, q.shape[2] ** -0.5, **named), backend="aot_eager", fullgraph=True, dynamic=True
            )
            before = graphs["unique_graphs"]
            for rows in (16, 9, 13):
                given = [x[:, :, :rows] for x in self.qkv]
                out, lse = compiled(*given)
                close(out, *given, True, rows**-0.5, lse)
            assert graphs["unique_graphs"] == before + 1, "a shape was bound to its value"
            # Dynamo's own errors quote ours.
            raises(Exception, "is not supported", compiled, *[x.float() for x in self.qkv])
            if call in WITH_OUT:
                out = torch.zeros_like(self.q)
                assert compiled(*self.qkv, out=out)[0] is out
                close(out, *self.qkv, True, 17**-0.5)
                raises(Exception, "out must be a float16 tensor", compiled, *self.qkv, out=self.q.bfloat16())
                raises(Exception, "out requires a gradient", compiled, *self.qkv, out=out.clone().requires_grad_())

    def run(self):
        for name, case in vars(AmongTensors).items():
            if not name.startswith("_") and name not in ("right", "refused", "run"):
                case(self)


def anywhere():
    def tensor(*shape):
        return torch.zeros(*shape, dtype=F16)

    q = tensor(1, 8, 512, 64)
    raises(TypeError, "one dtype", attention_ladder.sdpa, q, q.bfloat16(), q)
    raises(ValueError, "must be contiguous", attention_ladder.sdpa, q, tensor(1, 8, 512, 128)[..., ::2], q)
    raises(ValueError, "are not expanded", attention_ladder.sdpa, q, q[:, :1].expand(1, 8, 512, 64), q)
    raises(ValueError, "out must be a bfloat16 tensor", attention_ladder.sdpa, *[q.bfloat16()] * 3, out=q)
    rows = torch.zeros(1, 8, 512)
    raises(NotImplementedError, "head_dim = 96", candidate, *[tensor(1, 8, 512, 96)] * 3, causal=True, softmax_scale=0.1)
    raises(ValueError, "scale = 0 is not a positive", candidate, q, q, q, causal=True, softmax_scale=0.0)
    raises(ValueError, "q_scale", candidate, *[q.to(E4M3)] * 3, causal=True, softmax_scale=0.1, scales=[rows] * 3)
    with FakeTensorMode():
        for dtype, stored in ((F16, F16), (BF16, BF16), (E4M3, F16)):
            fake = torch.empty(2, 512, 8, 64, dtype=dtype, device="cuda").transpose(1, 2)
            scales = {name: torch.empty(2, 8, device="cuda") for name in NAMES if dtype is E4M3}
            result, lse = OP_LSE(fake, fake, fake, True, scale=0.5, **scales)
            assert (result.shape, result.stride(), result.dtype) == (fake.shape, fake.stride(), stored)
            assert (lse.shape, lse.dtype, lse.is_contiguous(), lse.device) == ((2, 8, 512), torch.float32, True, fake.device)
            result = OP(fake, fake, fake, True, **scales)
            assert (result.shape, result.stride(), result.dtype) == (fake.shape, fake.stride(), stored)
    for return_lse, op in ((False, OP), (True, OP_LSE)):
        seen = []

        def backend(graph, _):
            seen.append(graph)
            return lambda q, *_: (q, rows) if return_lse else (q,)

        call = torch.compile(lambda *qkv: attention_ladder.sdpa(*qkv, is_causal=True, return_lse=return_lse), backend=backend, fullgraph=True)
        assert isinstance(call(q, q, q), tuple) == return_lse
        assert any(node.target in (op, op.default) for node in seen[0].graph.nodes), seen[0].graph
        refuses_backward(q, return_lse)


class Aux:
    lse = True


def sequences(dtype=F16, device="cpu", q_lengths=(5, 0, 130), k_lengths=(70, 3, 130), heads=(4, 2), dim=64):
    """Packed q, k and v, and what `varlen_attn` wants beside them."""

    def starts(lengths):
        return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)

    torch.manual_seed(0)
    q = torch.randn(sum(q_lengths), heads[0], dim, device=device).to(dtype)
    k, v = (torch.randn(sum(k_lengths), heads[1], dim, device=device).to(dtype) for _ in range(2))
    return q, k, v, starts(q_lengths), starts(k_lengths), max(q_lengths), max(k_lengths)


def paged(given, rows, extra=0):
    """The same keys in pages, and what names them."""
    q, k, v, cu_q, cu_k, max_q, max_k = given
    lengths = cu_k.diff()
    table = torch.zeros(len(lengths), -(-max_k // rows), dtype=torch.int32, device=q.device)
    pools = [torch.full((table.numel() + extra, rows, *x.shape[1:]), float("nan"), dtype=x.dtype, device=q.device) for x in (k, v)]
    order = torch.randperm(len(pools[0])).tolist()
    for b, length in enumerate(lengths.tolist()):
        for page in range(-(-length // rows)):
            table[b, page] = order.pop()
            first, last = cu_k[b] + page * rows, min(cu_k[b] + (page + 1) * rows, cu_k[b + 1])
            for pool, x in zip(pools, (k, v)):
                pool[table[b, page], : last - first] = x[first:last]
    return (q, *pools, cu_q, None, max_q, max_k), {"seqused_k": lengths, "block_table": table}


def varlen_reference(given, window=(-1, -1), scale=None, sinks=None, softcap=0.0):
    """Attention and log-sum-exps of each packed sequence in float64."""
    q, k, v, cu_q, cu_k, _, _ = given
    return emulation.varlen_reference(q, k, v, cu_q, cu_k, scale, *window, None, None, sinks, softcap)


def packed_sequences():
    """Signatures, refusals by name, fake tensors and torch.compile."""
    try:
        from torch.nn.attention.varlen import varlen_attn as torchs
    except ImportError:
        torchs = None
    own = inspect.signature(attention_ladder.varlen_attn).parameters
    if torchs is not None and torch.__version__ >= "2.15":
        expected = inspect.signature(torchs).parameters
        assert [(x.name, x.kind, x.default) for x in expected.values()] == [(x.name, x.kind, x.default) for x in own.values()][: len(expected)]
    assert list(own)[-2:] == ["sinks", "softcap"]
    names = list(inspect.signature(attention_ladder.flash_attn_varlen_func).parameters)
    assert names[:7] == ["q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"], names
    assert names[-2:] == ["return_attn_probs", "sinks"], names

    given = sequences()
    q, k, v, cu_q, cu_k, max_q, max_k = given
    call = functools.partial(attention_ladder.varlen_attn, enable_gqa=True)
    flash = attention_ladder.flash_attn_varlen_func
    for name, value in {
        **dict.fromkeys(("seqused_q", "qv", "q_descale"), cu_q),
        "attention_chunk": 64,
        "sm_margin": 2,
    }.items():
        raises(NotImplementedError, f"{name} is not supported", flash, *given, **{name: value})
    raises(NotImplementedError, "num_splits = 4 is not supported", flash, *given, num_splits=4)
    raises(NotImplementedError, "num_splits = 2 is not supported", call, *given, num_splits=2)
    raises(TypeError, "dropout_p", call, *given, dropout_p=0.1)
    raises(ValueError, "need enable_gqa=True", attention_ladder.varlen_attn, *given)
    raises(NotImplementedError, "E4M3 is not supported", call, q.to(E4M3), k.to(E4M3), v.to(E4M3), *given[3:])
    raises(NotImplementedError, "torch.float32 is not supported", call, q.float(), k.float(), v.float(), *given[3:])
    raises(NotImplementedError, "head_dim = 256 is not supported", call, *sequences(dim=256))
    raises(TypeError, "one dtype", call, q.bfloat16(), *given[1:])
    raises(ValueError, "q has 4 dimensions", call, q[None], *given[1:])
    raises(ValueError, "k and v must have one shape", call, q, k, v[:-1], *given[3:])
    raises(ValueError, "does not divide", call, q[:, :3], *given[1:])
    raises(ValueError, "cu_seqlens_q must be a contiguous int32 tensor", call, q, k, v, cu_q.long(), cu_k, max_q, max_k)
    raises(ValueError, "cu_seqlens_k must be a contiguous int32 tensor [4]", call, q, k, v, cu_q, cu_k[:3], max_q, max_k)
    raises(ValueError, "cu_seqlens_k and block_table are None", call, q, k, v, cu_q, None, max_q, max_k)
    raises(ValueError, "window_left is -2", call, *given, window_size=(-2, 0))
    raises(ValueError, "softcap = -1", call, *given, softcap=-1.0)
    raises(ValueError, "scale = 0 is not a positive", call, *given, scale=0.0)
    raises(ValueError, "sinks must be a contiguous float32 tensor [4]", call, *given, sinks=torch.zeros(2))
    pages, named = paged(given, 16)
    raises(NotImplementedError, "page_size = 8 is not supported", call, *paged(given, 8)[0], **paged(given, 8)[1])
    raises(ValueError, "block_table needs seqused_k", call, *pages, block_table=named["block_table"])
    raises(ValueError, "both cu_seqlens_k and block_table", call, *pages[:4], cu_k, *pages[5:], **named)
    raises(ValueError, "block_table must be an int32 tensor [3", call, *pages, **(named | {"block_table": named["block_table"][:2]}))
    for place, name in enumerate("qkv"):
        wanted = [x.clone().requires_grad_() if i == place else x for i, x in enumerate(given)]
        raises(NotImplementedError, f"{name} requires a gradient: backward is not supported", call, *wanted)
        raises(NotImplementedError, f"{name} requires a gradient: backward is not supported", OP_VARLEN, *wanted)
    for right, named in ((given, {}), (pages, named), (given, {"window_size": (64, 0), "sinks": torch.zeros(4), "softcap": 30.0})):
        if not torch.cuda.is_available():
            missing = None
            try:
                call(*right, **named)
            except (RuntimeError, ValueError) as error:
                missing = str(error)
            assert missing and lacks_gpu(missing), missing

    # Nothing to read or write: no launch.
    out, lse = call(q[:0], k, v, cu_q * 0, cu_k, 1, max_k, return_aux=Aux)
    assert (out.shape, lse.shape) == ((0, 4, 64), (4, 0))
    out, lse = call(q, k[:0], v[:0], cu_q, cu_k * 0, max_q, 0, return_aux=Aux)
    assert not out.any() and (lse == float("-inf")).all()
    sinks = torch.arange(4.0)
    _, lse = call(q, k[:0], v[:0], cu_q, cu_k * 0, max_q, 0, return_aux=Aux, sinks=sinks)
    assert torch.equal(lse, sinks[:, None].expand(4, len(q)))

    def right_shapes(out, lse, device):
        assert (out.shape, out.dtype, out.device) == (q.shape, F16, device)
        assert (lse.shape, lse.dtype, lse.device) == ((4, len(q)), torch.float32, device)

    right_shapes(*call(*[x.to("meta") if isinstance(x, torch.Tensor) else x for x in given], return_aux=Aux), torch.device("meta"))
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in given]
        right_shapes(*call(*fake, return_aux=Aux), q.device)
        right_shapes(*flash(*fake, causal=True, return_attn_probs=True), q.device)
        right_shapes(*OP_VARLEN(*fake, softcap=30.0), q.device)
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return lambda *_: (q,)

    compiled = torch.compile(lambda *x: call(*x, max_q, max_k, window_size=(-1, 0)), backend=backend, fullgraph=True)
    assert isinstance(compiled(*given[:5]), torch.Tensor)
    assert any(node.target in (OP_VARLEN, OP_VARLEN.default) for node in seen[0].graph.nodes), seen[0].graph


def packed_sequences_with_gpu():
    """Against float64: packed and in pages, windows, sinks, caps, and a graph whose lengths change."""

    def right(result, given, **options):
        (out, lse), (expected, expected_lse) = result, varlen_reference(given, **options)
        assert ((out - expected).norm(dim=-1) <= ROW_BOUND[given[0].dtype] * expected.norm(dim=-1)).all()
        lse_close(lse, expected_lse)

    for dtype, dim, heads in itertools.product((F16, BF16), (64, 128), ((4, 4), (8, 2))):
        given = sequences(dtype, "cuda", (5, 0, 130, 1), (70, 3, 130, 500), heads, dim)
        call = functools.partial(attention_ladder.varlen_attn, return_aux=Aux, enable_gqa=True)
        sinks = torch.randn(heads[0], device="cuda")
        for named in ({}, {"window": (-1, 0)}, {"window": (64, 0), "sinks": sinks}, {"softcap": 30.0, "scale": 0.2}):
            options = {"window_size" if name == "window" else name: value for name, value in named.items()}
            right(call(*given, **options), given, **named)
            for rows in (16, 64, 256):
                pages, table = paged(given, rows, extra=2)
                right(call(*pages, **table, **options), given, **named)
        flash = attention_ladder.flash_attn_varlen_func(*given, causal=True, return_attn_probs=True)
        right(flash, given, window=(-1, 0))
    graph, late = torch.cuda.CUDAGraph(), sequences(F16, "cuda", (30, 40, 65), (90, 50, 63))
    given = sequences(F16, "cuda")
    with torch.cuda.graph(graph):
        kept = call(*given[:5], 130, 130)
    for values in (given, late):
        for tensor, value in zip(given[:5], values[:5]):
            tensor.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        right(kept, given)


def annotated():
    """The stub of the native module has its functions, with their arguments."""
    package = Path(attention_ladder.__file__).parent
    assert (package / "py.typed").is_file()
    native = attention_ladder._native
    described = {
        function.name: [argument.arg for argument in function.args.posonlyargs]
        for function in ast.parse((package / "_native.pyi").read_text()).body
        if isinstance(function, ast.FunctionDef)
    }
    functions = {name: function for name, function in vars(native).items() if callable(function)}
    assert described == {name: list(inspect.signature(function).parameters) for name, function in functions.items()}


def refuses_backward(q, return_lse):
    """A gradient that will be needed is refused with and without torch.compile; without need there is no refusal."""
    words, asked = "backward is not supported", q.clone().requires_grad_()

    def call(*qkv):
        return attention_ladder.sdpa(*qkv, return_lse=return_lse)

    for place in range(3):
        qkv = [asked if i == place else q for i in range(3)]
        # Dynamo's own error quotes ours.
        raises(RuntimeError, words, torch.compile(call, backend="aot_eager", fullgraph=True), *qkv)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(asked)] * 3
        op = OP_LSE if return_lse else OP
        raises(NotImplementedError, words, op, *fake)
        with torch.no_grad():
            op(*fake)
            op(*[mode.from_tensor(q)] * 3)


def without_gpu():
    q = torch.zeros(1, 8, 512, 64, dtype=F16)
    attention_ladder._memory.empty_like = attention_ladder._memory.empty_strided = None  # there is nothing to allocate for
    for call in (attention_ladder.sdpa, OP, OP_LSE, attention_ladder.variant):
        for tensor, options in ((q, {}), (q.bfloat16(), {} if call in (OP, OP_LSE) else {"return_lse": True})):
            said = None
            try:
                call(tensor, tensor, tensor, **options)
            except (RuntimeError, ValueError) as error:
                said = str(error)
            assert said and lacks_gpu(said), said
    print(f"no GPU: {said}")


def lse_close(lse, expected):
    """The largest error of log-sum-exps."""
    seen = torch.isfinite(expected)
    assert (lse[~seen] == float("-inf")).all(), "a row that sees no key"
    error = ((lse - expected).abs() / expected.abs().clamp(min=1))[seen]
    assert torch.isfinite(lse[seen]).all() and error.max() <= LSE_BOUND, f"log-sum-exps off by {error.max():.1e}"
    return error.max().item()


def close(result, q, k, v, is_causal, scale=None, lse=None):
    """The largest errors of rows and, if given, of log-sum-exps."""
    expected, expected_lse = reference(q, k, v, is_causal, scale)
    error = (result.double() - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=q.shape[-1] ** 0.5 * 2**-14)
    assert torch.isfinite(result).all() and error.max() <= ROW_BOUND[result.dtype], f"{error.max():.1e} of a row's norm"
    return error.max().item(), 0.0 if lse is None else lse_close(lse, expected_lse)


def made(b, hq, hkv, sq, skv, d, layout="bhsd", seed=0, dtype=F16):
    generator = torch.Generator("cuda").manual_seed(seed)

    def tensor(heads, rows):
        shape = (b, heads, rows, d) if layout == "bhsd" else (b, rows, heads, d)
        values = torch.randn(shape, generator=generator, device="cuda", dtype=dtype)
        return values if layout == "bhsd" else values.transpose(1, 2)

    return tensor(hq, sq), tensor(hkv, skv), tensor(hkv, skv)


class Contexts:
    """A method is a way to be in a green context; what PyTorch has enqueued before a call is done by then, in each of ten turns."""

    TURNS = 10

    def __init__(self):
        from torch.cuda import green_contexts

        self.green = green_contexts.GreenContext
        self.driver = ctypes.CDLL("libcuda.so.1")

    def current(self):
        context = ctypes.c_void_p()
        assert self.driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    def turn(self, q, k, v, out, seed, call=None):
        """q is written late, by PyTorch and on the current stream: a call that does not wait for it reads NaN."""
        late = self.late(q, seed)
        torch.cuda._sleep(2_000_000)
        q.copy_(late)
        before = self.current()  # a thread's first call of PyTorch's makes the primary context current
        (call or attention_ladder.sdpa)(q, k, v, out=out)
        assert self.current() == before, "another context is current after a call"
        return late

    @staticmethod
    def late(q, seed):
        return LATE[seed % len(LATE)][: q.shape[0], : q.shape[1], : q.shape[2], : q.shape[3]]

    def turns(self, enter, leave, shape=(1, 8, 8, 512, 512, 64), call=None):
        """Each between `enter` and `leave`."""
        q, k, v = made(*shape)
        for seed in range(self.TURNS):
            q.fill_(float("nan"))
            out = torch.full_like(q, float("nan"))
            torch.cuda.synchronize()
            enter()
            late = self.turn(q, k, v, out, seed, call)
            leave()
            torch.cuda.synchronize()
            close(out, late, k, v, False)

    def default_streams(self):
        for num_sms in (8, 16, 32, 64, 128):
            context = self.green.create(num_sms=num_sms)
            # PyTorch's own, as a control.
            attention = torch.nn.functional.scaled_dot_product_attention
            self.turns(context.set_context, context.pop_context, call=lambda q, k, v, out: out.copy_(attention(q, k, v)))
            for shape in ((1, 8, 8, 512, 512, 64), (4, 16, 16, 512, 512, 64), (2, 16, 4, 1024, 1024, 128), (1, 32, 8, 1, 2048, 128)):
                self.turns(context.set_context, context.pop_context, shape)
            self.turns(context.set_context, context.pop_context, call=lambda q, k, v, out: out.copy_(OP(q, k, v)))
            self.turns(context.set_context, context.pop_context, call=lambda q, k, v, out: out.copy_(OP_LSE(q, k, v)[0]))

    def same_bits(self):
        """The kernel is chosen for the whole GPU."""
        context = self.green.create(num_sms=32)
        for shape in ((1, 8, 8, 512, 512, 64), (4, 16, 16, 512, 512, 64), (1, 32, 8, 1, 2048, 128)):
            q, k, v = made(*shape)
            outside, name = attention_ladder.sdpa(q, k, v), attention_ladder.variant(q, k, v)
            context.set_context()
            inside, name_inside = attention_ladder.sdpa(q, k, v), attention_ladder.variant(q, k, v)
            context.pop_context()
            torch.cuda.synchronize()
            assert torch.equal(outside, inside) and name == name_inside

    def side_streams(self):
        """Made outside of the context and inside, and used in both."""
        context = self.green.create(num_sms=32)
        outside = torch.cuda.Stream()
        context.set_context()
        inside = torch.cuda.Stream()
        context.pop_context()
        for stream, is_within in itertools.product((outside, inside), (False, True)):
            block = torch.cuda.stream(stream)

            def enter():
                if is_within:
                    context.set_context()
                block.__enter__()

            def leave():
                block.__exit__(None, None, None)
                stream.synchronize()
                if is_within:
                    context.pop_context()

            self.turns(enter, leave)

    def streams_of_contexts(self):
        """Without `set_context`, as newer versions of PyTorch recommend."""
        if not hasattr(self.green, "Stream"):
            return
        for num_sms in (16, 32):
            context = self.green.create(num_sms=num_sms)
            block = torch.cuda.stream(context.Stream())
            self.turns(block.__enter__, lambda: block.__exit__(None, None, None))

    def nested(self):
        outer, inner = self.green.create(num_sms=32), self.green.create(num_sms=64)
        bottom = self.current()

        def enter():
            outer.set_context()
            inner.set_context()

        def leave():
            inner.pop_context()
            outer.pop_context()

        self.turns(enter, leave)
        q, k, v = made(1, 8, 8, 512, 512, 64)
        outs = torch.full((4, *q.shape), float("nan"), device="cuda", dtype=q.dtype)
        torch.cuda.synchronize()
        outer.set_context()
        first = self.turn(q, k, v, outs[0], 0)
        inner.set_context()
        second = self.turn(q, k, v, outs[1], 1)
        inner.pop_context()
        third = self.turn(q, k, v, outs[2], 2)
        outer.pop_context()
        fourth = self.turn(q, k, v, outs[3], 3)
        torch.cuda.synchronize()
        for out, late in zip(outs, (first, second, third, fourth)):
            close(out, late, k, v, False)
        assert self.current() == bottom

    def graphs(self):
        """Captured in a context, of a problem that was never loaded; replayed in it and outside."""
        context = self.green.create(num_sms=32)
        for heads, stream in ((3, None), (7, context.Stream() if hasattr(self.green, "Stream") else None)):
            q, k, v = made(1, heads, heads, 333, 333, 64)
            out, graph = torch.empty_like(q), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            if stream is None:
                context.set_context()
            with torch.cuda.graph(graph, stream=stream):
                doubled = q * 2
                attention_ladder.sdpa(doubled, k, v, out=out)
            if stream is None:
                torch.cuda.synchronize()
                context.pop_context()
            for seed in range(self.TURNS):
                out.fill_(float("nan"))
                q.copy_(self.late(q, seed))
                torch.cuda.synchronize()
                if seed % 2:
                    context.set_context()
                graph.replay()
                torch.cuda.synchronize()
                if seed % 2:
                    context.pop_context()
                close(out, 2 * q, k, v, False)

    def threads(self):
        """Each in a context of its own, all at once; and one in none, whose first call of CUDA is ours."""
        made_for = [made(1, 8, 8, 512, 512, 64, seed=i) for i in range(5)]
        outs = torch.full((5, *made_for[0][0].shape), float("nan"), device="cuda", dtype=F16)
        contexts = [self.green.create(num_sms=num_sms) for num_sms in (16, 32, 32, 64)] + [None]
        kept, errors = [None] * 5, []
        torch.cuda.synchronize()

        def work(i):
            try:
                if contexts[i] is None:
                    attention_ladder.sdpa(*made_for[i], out=outs[i])
                else:
                    contexts[i].set_context()
                for seed in range(self.TURNS):
                    kept[i] = self.turn(*made_for[i], outs[i], seed + i)
                if contexts[i] is not None:
                    contexts[i].pop_context()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        torch.cuda.synchronize()
        for out, late, (_, k, v) in zip(outs, kept, made_for):
            close(out, late, k, v, False)

    def other_gpu(self):
        if torch.cuda.device_count() < 2:
            return
        context = self.green.create(num_sms=32, device_id=0)
        q, k, v = (x.to("cuda:1") for x in made(1, 8, 8, 512, 512, 64))
        torch.cuda.synchronize(1)
        out = torch.empty_like(q)
        context.set_context()
        before = self.current()
        attention_ladder.sdpa(q, k, v, out=out)
        assert self.current() == before
        context.pop_context()
        torch.cuda.synchronize(1)
        close(out, q, k, v, False)

    def run(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of set_context
            LATE.extend(torch.randn(4, 64, 1024, 128, device="cuda").to(F16) for _ in range(4))
            for name in ("default_streams", "same_bits", "side_streams", "streams_of_contexts", "nested", "graphs", "threads", "other_gpu"):
                getattr(self, name)()
                print(f"green contexts, {name}: right")


LATE = []  # what `Contexts` writes late


def with_gpu():
    worst, worst_lse, kernels = {F16: 0.0, BF16: 0.0}, 0.0, {}
    for shape in [
        (1, 8, 8, 512, 512, 64), (2, 8, 8, 512, 512, 64), (4, 16, 16, 512, 512, 64), (1, 8, 8, 2048, 2048, 64), (1, 8, 8, 512, 512, 128),
        (2, 8, 2, 113, 203, 64), (1, 4, 4, 799, 3, 64), (1, 4, 1, 1, 239, 128), (3, 6, 3, 1023, 1023, 128), (1, 1, 1, 17, 17, 64),
        (2, 16, 4, 4096, 4096, 64), (2, 16, 4, 4096, 4096, 128),
    ]:
        for layout in ("bhsd", "bshd"):
            for is_causal, dtype in itertools.product((False, True), (F16, BF16)):
                q, k, v = made(*shape, layout, dtype=dtype)
                out, lse = attention_ladder.sdpa(q, k, v, is_causal=is_causal, return_lse=True)
                assert (out.stride(), out.dtype, lse.shape, lse.is_contiguous()) == (q.stride(), dtype, q.shape[:3], True)
                assert torch.equal(out, attention_ladder.sdpa(q, k, v, is_causal=is_causal)), "log-sum-exps change the output"
                error, lse_error = close(out, q, k, v, is_causal, lse=lse)
                worst[dtype], worst_lse = max(worst[dtype], error), max(worst_lse, lse_error)
                name = attention_ladder.variant(q, k, v, is_causal, return_lse=True)
                words = f"{'x'.join(map(str, shape))}{' causal' if is_causal else ''}{' bf16' if dtype is BF16 else ''}"
                kernels.setdefault(name, []).append(words)
    for name in sorted(kernels):
        print(f"{name}: {', '.join(dict.fromkeys(kernels[name]))}")

    AmongTensors("cuda").run()
    served.run("cuda")
    for dtype, is_causal, rows in itertools.product((F16, BF16), (False, True), (1, 17, 512, 2048)):
        q, k, v = made(8, 32, 8, rows, rows, 64, dtype=dtype)
        invariant = functools.partial(attention_ladder.sdpa, is_causal=is_causal, batch_invariant=True)
        whole, lse = invariant(q, k, v, return_lse=True)
        for part in (invariant(q[3:4], k[3:4], v[3:4]), invariant(q[3:5, :8], k[3:5, :2], v[3:5, :2])):
            assert torch.equal(part, whole[3 : 3 + len(part), : part.shape[1]]), (dtype, is_causal, rows)
    values = [torch.randn(1, 8, 512, 64, device="cuda") for _ in range(3)]
    # Codes up to the largest, and codes of the values themselves: scores of the former may be accumulated on FP8 tensor cores.
    error = 0.0
    for largest in (448, None):
        scales = [value.abs().amax((2, 3)) / largest if largest else torch.ones(1, 8, device="cuda") for value in values]
        codes = [(value / scale[..., None, None]).to(E4M3) for value, scale in zip(values, scales)]
        exact = [code.float() * scale[..., None, None] for code, scale in zip(codes, scales)]
        given = dict(zip(("q_scale", "k_scale", "v_scale"), scales))
        alone = attention_ladder.sdpa(*codes, **given)
        result, lse = attention_ladder.sdpa(*codes, **given, return_lse=True)
        expected, expected_lse = reference(*exact, False)
        for found in (alone, result):
            error = max(error, ((found.double() - expected).norm(dim=-1) / expected.norm(dim=-1)).max().item())
        assert error <= ROW_BOUND[BF16], error
        worst_lse = max(worst_lse, lse_close(lse, expected_lse))
    # A new problem is loaded during stream capture.
    q, k, v = made(1, 5, 5, 700, 700, 128)
    out, graph = torch.empty_like(q), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention_ladder.sdpa(q, k, v, is_causal=True, out=out)
        kept, kept_lse = OP_LSE(q, k, v)
    for seed in (1, 2):
        for tensor, value in zip((q, k, v), made(1, 5, 5, 700, 700, 128, seed=seed)):
            tensor.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        close(out, q, k, v, True)
        close(kept, q, k, v, False, lse=kept_lse)

    q, k, v = made(1, 8, 8, 512, 512, 64)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        late = q.clone().mul_(2)
        result = attention_ladder.sdpa(late, k, v)
        assert not side.query(), "it waited"
    torch.cuda.current_stream().wait_stream(side)
    close(result, q * 2, k, v, False)

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        attention_ladder.sdpa(q, k, v)
        torch.nn.functional.scaled_dot_product_attention(q, k, v)
        torch.cuda.synchronize()
    on_device = {event.key: event.device_time_total > 0 for event in prof.key_averages()}
    assert on_device["attention_ladder::sdpa"] == on_device["aten::scaled_dot_product_attention"], on_device

    # By Inductor.
    compiled = torch.compile(lambda q, k, v: attention_ladder.sdpa(q + 0, k, v, return_lse=True), fullgraph=True)
    given = [tensor.bfloat16() for tensor in (q, k, v)]
    out, lse = compiled(*given)
    close(out, *given, False, lse=lse)
    rows = f"{worst[F16]:.1e} (f16, bound {ROW_BOUND[F16]}), {worst[BF16]:.1e} (bf16, bound {ROW_BOUND[BF16]}), {error:.1e} (e4m3, bound {ROW_BOUND[BF16]})"
    print(f"with a GPU: all right, largest row error {rows}; log-sum-exps off by at most {worst_lse:.1e} (bound {LSE_BOUND})")


if __name__ == "__main__":
    if "--contexts" in sys.argv:
        Contexts().run()
        sys.exit()
    anywhere()
    packed_sequences()
    annotated()
    with answered():
        AmongTensors("cpu").run()
        served.run()
        doors_alone.run()
    if torch.cuda.is_available():
        with_gpu()
        packed_sequences_with_gpu()
        Contexts().run()
    else:
        assert "--gpu" not in sys.argv, "there is no GPU"
        without_gpu()
