"""Checks the installed module. Without a GPU: the import, what a call says is missing, and shapes under torch.compile. With
a GPU: results and log-sum-exps against a float64 reference, in float16, bfloat16 and float8, on ragged, grouped, causal and strided
problems, with CUDA graphs, a side stream and torch.compile.

usage: python attention-ladder/python/tests/check.py [--gpu]     (--gpu: fail without a GPU)
"""

import itertools
import sys
from pathlib import Path

import torch

import attention_ladder
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidate import attention as candidate  # noqa: E402

OP, OP_LSE = torch.ops.attention_ladder.sdpa, torch.ops.attention_ladder.sdpa_lse
F16, BF16, E4M3 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
# Row error bound, as a share of the row's norm: gate C3 of `compare` for normal inputs (for E4M3 bf16's, which its least precise
# variants declare). Error bound of log-sum-exps (C8), relative or absolute.
ROW_BOUND, LSE_BOUND = {F16: 2e-3, BF16: 1.6e-2}, 1e-5


def raises(kind, words, call, *args, **keywords):
    try:
        call(*args, **keywords)
    except kind as error:
        assert words in str(error), f"{error} is without '{words}'"
    else:
        raise AssertionError(f"no {kind.__name__} with '{words}'")


def reference(q, k, v, is_causal, scale=None):
    """Attention and log-sum-exps in float64, the mask aligned bottom-right, 0 and -inf where no key is visible."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if is_causal:
        rows, keys = torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device)
        scores = scores.masked_fill(keys[None, :] > rows[:, None] + k.shape[2] - q.shape[2], float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v, torch.logsumexp(scores, -1)


def anywhere():
    def tensor(*shape, dtype=F16):
        return torch.zeros(*shape, dtype=dtype)

    q = tensor(1, 8, 512, 64)
    raises(NotImplementedError, "torch.float32 is not supported", attention_ladder.sdpa, *[q.float()] * 3)
    raises(TypeError, "one dtype", attention_ladder.sdpa, q, q.bfloat16(), q)
    raises(NotImplementedError, "head_dim = 96 is not supported", attention_ladder.sdpa, *[tensor(1, 8, 512, 96)] * 3)
    raises(NotImplementedError, "head_dim = 96", attention_ladder.sdpa, *[tensor(1, 8, 512, 96, dtype=BF16)] * 3, return_lse=True)
    raises(NotImplementedError, "backward is not supported", attention_ladder.sdpa, q.clone().requires_grad_(), q, q)
    raises(ValueError, "has 3 dimensions", attention_ladder.sdpa, q[0], q, q)
    raises(ValueError, "k and v must have one shape", attention_ladder.sdpa, q, q, q[:, :4])
    raises(ValueError, "does not divide heads_q = 8", attention_ladder.sdpa, q, q[:, :3], q[:, :3])
    raises(ValueError, "must be contiguous", attention_ladder.sdpa, q, tensor(1, 8, 512, 128)[..., ::2], q)
    raises(ValueError, "are not expanded", attention_ladder.sdpa, q, q[:, :1].expand(1, 8, 512, 64), q)
    raises(ValueError, "scale = 0 is not a positive", attention_ladder.sdpa, q, q, q, scale=0.0)
    raises(ValueError, "out must be a float16 tensor", attention_ladder.sdpa, q, q, q, out=q.bfloat16())
    raises(ValueError, "out must be a bfloat16 tensor", attention_ladder.sdpa, *[q.bfloat16()] * 3, out=q)
    rows = torch.zeros(1, 8, 512)
    for lse in (rows.double(), rows[:, :, :17], torch.zeros(1, 512, 8).transpose(1, 2), torch.zeros(1, 8, 512, 1)):
        raises(ValueError, "lse must be a contiguous float32 tensor", attention_ladder._native.launch, *[q] * 4, lse, False, *[None] * 4)
    raises(NotImplementedError, "head_dim = 96", candidate, *[tensor(1, 8, 512, 96)] * 3, causal=True, softmax_scale=0.1)
    raises(ValueError, "scale = 0 is not a positive", candidate, q, q, q, causal=True, softmax_scale=0.0)
    raises(ValueError, "q_scale", candidate, *[q.to(E4M3)] * 3, causal=True, softmax_scale=0.1, scales=[rows] * 3)
    with FakeTensorMode():
        for dtype, stored in ((F16, F16), (BF16, BF16), (E4M3, F16)):
            fake = torch.empty(2, 512, 8, 64, dtype=dtype, device="cuda").transpose(1, 2)
            result, lse = OP_LSE(fake, fake, fake, True, scale=0.5)
            assert (result.shape, result.stride(), result.dtype) == (fake.shape, fake.stride(), stored)
            assert (lse.shape, lse.dtype, lse.is_contiguous(), lse.device) == ((2, 8, 512), torch.float32, True, fake.device)
            result = OP(fake, fake, fake, True)
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
    for call in (attention_ladder.sdpa, OP, OP_LSE, attention_ladder.variant):
        for tensor, options in ((q, {}), (q.bfloat16(), {} if call in (OP, OP_LSE) else {"return_lse": True})):
            said = None
            try:
                call(tensor, tensor, tensor, **options)
            except (RuntimeError, ValueError) as error:
                said = str(error)
            assert said and any(words in said for words in ("no CUDA driver", "no GPU", "holds no GPU code", "not on a GPU", "NVIDIA driver")), said
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

    q, k, v = made(2, 8, 8, 512, 512, 64)
    close(attention_ladder.sdpa(q, k, v, scale=0.3), q, k, v, False, 0.3)
    packed = torch.randn(2, 500, 3, 8, 64, device="cuda", dtype=F16)
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    out = torch.full((2, 8, 500, 64), float("nan"), device="cuda", dtype=F16)
    assert attention_ladder.sdpa(q, k, v, True, out=out) is out
    close(out, q, k, v, True)
    returned, lse = attention_ladder.sdpa(q, k, v, scale=0.3, out=out.zero_(), return_lse=True)
    assert returned is out
    close(out, q, k, v, False, 0.3, lse)
    attention_ladder.sdpa(q, k, v, True, out=out)
    # Like scaled_dot_product_attention, where both masks are the same.
    torch_out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (out - torch_out).abs().max() < 5e-3

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
    raises(ValueError, "q has no scales", attention_ladder.sdpa, *codes)

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

    compiled = torch.compile(lambda q, k, v: attention_ladder.sdpa(q + 0, k, v, is_causal=True) * 1, fullgraph=True)
    close(compiled(q, k, v), q, k, v, True)
    compiled = torch.compile(lambda q, k, v: attention_ladder.sdpa(q + 0, k, v, return_lse=True), fullgraph=True)
    given = [tensor.bfloat16() for tensor in (q, k, v)]
    out, lse = compiled(*given)
    close(out, *given, False, lse=lse)
    for op in (OP, OP_LSE):
        asked = q.clone().requires_grad_()
        raises(NotImplementedError, "backward is not supported", torch.compile(lambda q: op(q, k, v), backend="aot_eager"), asked)
        raises(NotImplementedError, "backward is not supported", op, asked, k, v)
        torch.library.opcheck(op, (q, k, v, True), test_utils=("test_schema", "test_faketensor"))
    raises(NotImplementedError, "torch.float32 is not supported", OP, q.float(), k.float(), v.float())
    rows = f"{worst[F16]:.1e} (f16, bound {ROW_BOUND[F16]}), {worst[BF16]:.1e} (bf16, bound {ROW_BOUND[BF16]}), {error:.1e} (e4m3, bound {ROW_BOUND[BF16]})"
    print(f"with a GPU: all right, largest row error {rows}; log-sum-exps off by at most {worst_lse:.1e} (bound {LSE_BOUND})")


if __name__ == "__main__":
    anywhere()
    if torch.cuda.is_available():
        with_gpu()
    else:
        assert "--gpu" not in sys.argv, "there is no GPU"
        without_gpu()
