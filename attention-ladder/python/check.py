"""Checks the module that is installed. Without a GPU: the import, what a call says is missing, and shapes under torch.compile. With
one: results against a reference in float64 at ragged, grouped, causal and strided problems, CUDA graphs, a side stream, torch.compile.

usage: python attention-ladder/python/check.py [--gpu]     (--gpu: without one, fail)
"""

import sys

import torch

import attention_ladder
from torch._subclasses.fake_tensor import FakeTensorMode

OP = torch.ops.attention_ladder.sdpa


def raises(kind, words, call, *args, **keywords):
    try:
        call(*args, **keywords)
    except kind as error:
        assert words in str(error), f"{error} is without '{words}'"
    else:
        raise AssertionError(f"no {kind.__name__} with '{words}'")


def reference(q, k, v, is_causal, scale=None):
    """Attention in float64, the mask aligned bottom right, 0 where no key is visible."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if is_causal:
        rows, keys = torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device)
        scores = scores.masked_fill(keys[None, :] > rows[:, None] + k.shape[2] - q.shape[2], float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v


def anywhere():
    def tensor(*shape, dtype=torch.float16):
        return torch.zeros(*shape, dtype=dtype)

    q = tensor(1, 8, 512, 64)
    raises(NotImplementedError, "torch.bfloat16 is not supported", attention_ladder.sdpa, *[q.bfloat16()] * 3)
    raises(NotImplementedError, "head_dim = 96 is not supported", attention_ladder.sdpa, *[tensor(1, 8, 512, 96)] * 3)
    raises(NotImplementedError, "log-sum-exp output is not supported", attention_ladder.sdpa, q, q, q, return_lse=True)
    raises(NotImplementedError, "backward is not supported", attention_ladder.sdpa, q.clone().requires_grad_(), q, q)
    raises(ValueError, "has 3 dimensions", attention_ladder.sdpa, q[0], q, q)
    raises(ValueError, "k and v must have one shape", attention_ladder.sdpa, q, q, q[:, :4])
    raises(ValueError, "does not divide heads_q = 8", attention_ladder.sdpa, q, q[:, :3], q[:, :3])
    raises(ValueError, "must be contiguous", attention_ladder.sdpa, q, tensor(1, 8, 512, 128)[..., ::2], q)
    raises(ValueError, "are not expanded", attention_ladder.sdpa, q, q[:, :1].expand(1, 8, 512, 64), q)
    raises(ValueError, "scale = 0 is not a positive", attention_ladder.sdpa, q, q, q, scale=0.0)
    raises(ValueError, "out must be a float16 tensor", attention_ladder.sdpa, q, q, q, out=q.float())
    with FakeTensorMode():
        fake = torch.empty(2, 512, 8, 64, dtype=torch.float16, device="cuda").transpose(1, 2)
        result = OP(fake, fake, fake, True)
        assert (result.shape, result.stride(), result.dtype) == (fake.shape, fake.stride(), torch.float16)
        codes = torch.empty(1, 8, 512, 64, dtype=torch.float8_e4m3fn, device="cuda")
        assert OP(codes, codes, codes).dtype == torch.float16
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return lambda *inputs: tuple(torch.empty_like(inputs[0]) for _ in range(1))

    compiled = torch.compile(lambda q, k, v: attention_ladder.sdpa(q, k, v, is_causal=True), backend=backend, fullgraph=True)
    assert compiled(q, q, q).shape == q.shape
    assert any(node.target in (OP, OP.default) for node in seen[0].graph.nodes), seen[0].graph


def without_gpu():
    q = torch.zeros(1, 8, 512, 64, dtype=torch.float16)
    for call in (attention_ladder.sdpa, OP, attention_ladder.variant):
        try:
            call(q, q, q)
        except (RuntimeError, ValueError) as error:
            said = str(error)
        assert any(words in said for words in ("no CUDA driver", "no GPU", "holds no GPU code", "not on a GPU", "NVIDIA driver")), said
    print(f"no GPU: {said}")


def close(result, q, k, v, is_causal, scale=None):
    expected = reference(q, k, v, is_causal, scale)
    error = (result.double() - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=q.shape[-1] ** 0.5 * 2**-14)
    assert torch.isfinite(result).all() and error.max() <= 2e-3, f"{error.max():.1e} of a row's norm"
    return error.max().item()


def made(b, hq, hkv, sq, skv, d, layout="bhsd", seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)

    def tensor(heads, rows):
        shape = (b, heads, rows, d) if layout == "bhsd" else (b, rows, heads, d)
        values = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float16)
        return values if layout == "bhsd" else values.transpose(1, 2)

    return tensor(hq, sq), tensor(hkv, skv), tensor(hkv, skv)


def with_gpu():
    worst, kernels = 0.0, {}
    for shape in [
        (1, 8, 8, 512, 512, 64), (2, 8, 8, 512, 512, 64), (4, 16, 16, 512, 512, 64), (1, 8, 8, 2048, 2048, 64), (1, 8, 8, 512, 512, 128),
        (2, 8, 2, 113, 203, 64), (1, 4, 4, 799, 3, 64), (1, 4, 1, 1, 239, 128), (3, 6, 3, 1023, 1023, 128), (1, 1, 1, 17, 17, 64),
        (2, 16, 4, 4096, 4096, 64), (2, 16, 4, 4096, 4096, 128),
    ]:
        for layout in ("bhsd", "bshd"):
            for is_causal in (False, True):
                q, k, v = made(*shape, layout)
                out = attention_ladder.sdpa(q, k, v, is_causal=is_causal)
                assert out.stride() == q.stride()
                worst = max(worst, close(out, q, k, v, is_causal))
                name = attention_ladder.variant(q, k, v, is_causal)
                kernels.setdefault(name, []).append(f"{'x'.join(map(str, shape))}{' causal' if is_causal else ''}")
    for name in sorted(kernels):
        print(f"{name}: {', '.join(dict.fromkeys(kernels[name]))}")

    q, k, v = made(2, 8, 8, 512, 512, 64)
    close(attention_ladder.sdpa(q, k, v, scale=0.3), q, k, v, False, 0.3)
    packed = torch.randn(2, 500, 3, 8, 64, device="cuda", dtype=torch.float16)
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    out = torch.full((2, 8, 500, 64), float("nan"), device="cuda", dtype=torch.float16)
    assert attention_ladder.sdpa(q, k, v, True, out=out) is out
    close(out, q, k, v, True)
    # As scaled_dot_product_attention, where both mean the same mask.
    torch_out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (out - torch_out).abs().max() < 5e-3

    values = [torch.randn(1, 8, 512, 64, device="cuda") for _ in range(3)]
    scales = [value.abs().amax((2, 3)) / 448 for value in values]
    codes = [(value / scale[..., None, None]).to(torch.float8_e4m3fn) for value, scale in zip(values, scales)]
    exact = [code.float() * scale[..., None, None] for code, scale in zip(codes, scales)]
    given = dict(zip(("q_scale", "k_scale", "v_scale"), scales))
    result, expected = attention_ladder.sdpa(*codes, **given), reference(*exact, False)
    error = ((result.double() - expected).norm(dim=-1) / expected.norm(dim=-1)).max().item()
    assert error <= 6e-2, error
    raises(ValueError, "q has no scales", attention_ladder.sdpa, *codes)

    # A problem that was never seen is loaded while a stream is captured.
    q, k, v = made(1, 5, 5, 700, 700, 128)
    out, graph = torch.empty_like(q), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention_ladder.sdpa(q, k, v, is_causal=True, out=out)
        kept = OP(q, k, v)
    for seed in (1, 2):
        for tensor, value in zip((q, k, v), made(1, 5, 5, 700, 700, 128, seed=seed)):
            tensor.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        close(out, q, k, v, True)
        close(kept, q, k, v, False)

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
    torch.library.opcheck(OP, (q, k, v, True), test_utils=("test_schema", "test_faketensor"))
    raises(NotImplementedError, "torch.bfloat16 is not supported", OP, q.bfloat16(), k.bfloat16(), v.bfloat16())
    print(f"with a GPU: all right, worst row error {worst:.1e} (f16, bound 2e-3), {error:.1e} (e4m3, bound 6e-2)")


if __name__ == "__main__":
    anywhere()
    if torch.cuda.is_available():
        with_gpu()
    else:
        assert "--gpu" not in sys.argv, "there is no GPU"
        without_gpu()
