"""Unmodified models with random weights, through the doors: whole outputs against float32 and the models' own attention, calls that were taken
and left, and one graph under torch.compile. With a GPU the kernels compute, without one a reference in float64.

usage: python attention-ladder/python/tests/doors.py [CASE ...]

The Python needs torch, the wheel, transformers 5 and diffusers (those that are not installed are skipped). Prints the errors, of bfloat16 with
the models' own attention beside ours. Exit code 1: an error is more than the bound, or a call went elsewhere than expected.
"""

import contextlib
import importlib.util
import sys
from pathlib import Path

import torch

import attention_ladder

sys.path.insert(0, str(Path(__file__).parent))
from emulation import answered  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The error may be so many times that of the model's own attention in bfloat16, both as a share of float32's norm.
FACTOR = 1.25
# While they are traced, some versions of transformers hand "sdpa" a mask that they would leave out.
MASKED = "attention_mask is not of a known pattern"
CALLS = []  # to the kernels, by the operator's name


@contextlib.contextmanager
def doors(*names):
    """Doors are open meanwhile; without a GPU the reference answers, and tensors count as being on one."""
    module, dense, served = attention_ladder._doors, attention_ladder._dense, attention_ladder._served
    seen = module.is_on_gpu, module.capability
    if DEVICE == "cpu":
        module.is_on_gpu, module.capability = lambda _: True, lambda _: 90
    for name in names:
        attention_ladder.install(name)
    with answered():
        natives = dense._sdpa, served._varlen
        dense._sdpa = lambda *given: CALLS.append("sdpa") or natives[0](*given)
        served._varlen = lambda *given: CALLS.append("varlen") or natives[1](*given)
        try:
            yield
        finally:
            dense._sdpa, served._varlen = natives
            module.is_on_gpu, module.capability = seen
            for name in names:
                attention_ladder.uninstall(name)


def share(found, expected):
    return ((found.double() - expected).norm() / expected.norm()).item()


def difference(before, after, door):
    """The fallbacks of a door that are new."""
    old = before.get(door, {})
    return {reason: count - old.get(reason, 0) for reason, count in after.get(door, {}).items() if count > old.get(reason, 0)}


def has_own_break(model, call):
    """Whether a model is not one graph with its own attention either."""
    model.set_attn_implementation("eager")
    torch._dynamo.reset()
    try:
        call(torch.compile(model, fullgraph=True, backend="aot_eager"))
    except torch._dynamo.exc.Unsupported:
        return True
    return False


def traces_closures():
    """Whether torch.compile sees what a nested function has captured, as PyTorch 2.11 does not."""

    def closure(x):
        def inner():
            return x

        kind, _, _ = inner.__qualname__.partition(".")
        return x + len(kind) * inner.__closure__[0].cell_contents

    torch._dynamo.reset()
    try:
        torch.compile(closure, fullgraph=True, backend="eager")(torch.ones(1))
    except torch._dynamo.exc.Unsupported:
        return False
    return True


def judge_compiled(model, call, expected, bound, expected_count, door, attention):
    """Returns words about the error of one graph."""
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    before = attention_ladder.fallbacks()
    try:
        # Tracing calls the operators, too.
        call(compiled)
    except torch._dynamo.exc.Unsupported as error:
        if "in window_of" in str(error) and not traces_closures():
            return ", no one graph: this PyTorch traces no closures, which hold windows"
        if has_own_break(model, call):
            return ", no one graph with its own attention either"
        raise
    masked = difference(before, attention_ladder.fallbacks(), door).get(MASKED, 0) if attention == "sdpa" else 0
    CALLS.clear()
    error = share(call(compiled), expected)
    words = f", compiled {error:.2e}, {masked} masked"
    assert error <= bound and len(CALLS) == max(expected_count - masked, 0), f"{words}, calls {CALLS}"
    return words


def judge(name, model, call, door, expected_calls, expected_fallbacks, attention=None, is_compiled=True):
    """`call` runs the model and returns a tensor; `attention` is what transformers calls it."""
    model = model.to(DEVICE).eval()
    with torch.no_grad():
        if door == "transformers":
            model.set_attn_implementation("eager")
        expected = call(model.float()).double()
        own = share(call(model.to(torch.bfloat16)), expected)
        with doors(door):
            if attention is not None:
                model.set_attn_implementation(attention)
            CALLS.clear()
            before = attention_ladder.fallbacks()
            error = share(call(model), expected)
            counts = {kind: CALLS.count(kind) for kind in ("sdpa", "varlen") if kind in CALLS}
            left = difference(before, attention_ladder.fallbacks(), door)
            words = f"{name}: error {error:.2e} (own attention {own:.2e}), calls {counts}, left {left}"
            assert error <= FACTOR * own, words
            assert (counts, left) == (expected_calls, expected_fallbacks), words
            if is_compiled:
                words += judge_compiled(model, call, expected, FACTOR * own, sum(expected_calls.values()), door, attention)
    print(words, flush=True)


def ids(batch, rows, vocabulary=300):
    return torch.randint(0, vocabulary, (batch, rows), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def padding(batch, rows, left=(), right=()):
    mask = torch.ones(batch, rows, dtype=torch.long)
    for sequence, count in left:
        mask[sequence, :count] = 0
    for sequence, count in right:
        mask[sequence, rows - count :] = 0
    return mask.to(DEVICE)


SIZES = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=300)


def llama():
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))


class Cases:
    """A method is a case: a model and its inputs."""

    def llama_with_padding(self):
        mask = padding(4, 96, left=((0, 17), (3, 1)), right=((1, 30), (3, 5)))
        real = mask.bool()
        judge(
            "Llama, GQA, padding on both sides", llama(), lambda m: m(ids(4, 96), attention_mask=mask).logits[real],
            "transformers", {"varlen": 2}, {}, "attention_ladder",
        )  # fmt: skip

    def llama_by_default(self):
        judge("Llama, no padding, sdpa", llama(), lambda m: m(ids(2, 96)).logits, "transformers", {"sdpa": 2}, {}, "sdpa")
        judge("Llama, no padding", llama(), lambda m: m(ids(2, 96)).logits, "transformers", {"sdpa": 2}, {}, "attention_ladder")

    def llama_with_holes(self):
        mask = padding(2, 96)
        mask[0, 40:50] = 0
        left = {"attention_mask is not of a known pattern": 2}
        judge(
            "Llama, a mask with holes", llama(), lambda m: m(ids(2, 96), attention_mask=mask).logits[mask.bool()],
            "transformers", {}, left, "attention_ladder", is_compiled=False,
        )  # fmt: skip

    def gpt_oss(self):
        import transformers

        torch.manual_seed(0)
        config = transformers.GptOssConfig(
            **SIZES, num_key_value_heads=2, head_dim=64, sliding_window=32, num_local_experts=2, num_experts_per_tok=2,
            layer_types=["sliding_attention", "full_attention"],
        )  # fmt: skip
        model = transformers.GptOssForCausalLM(config)
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks)
        mask = padding(2, 96, left=((0, 17),))
        judge("gpt-oss, sinks and window", model, lambda m: m(ids(2, 96)).logits, "transformers", {"varlen": 2}, {}, "attention_ladder")
        judge(
            "gpt-oss, sinks, window and padding", model, lambda m: m(ids(2, 96), attention_mask=mask).logits[mask.bool()],
            "transformers", {"varlen": 2}, {}, "attention_ladder",
        )  # fmt: skip

    def mistral(self):
        import transformers

        torch.manual_seed(0)
        model = transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, num_key_value_heads=2, head_dim=64, sliding_window=24))
        judge("Mistral, window", model, lambda m: m(ids(2, 96)).logits, "transformers", {"varlen": 2}, {}, "attention_ladder")

    def modernbert(self):
        import transformers

        torch.manual_seed(0)
        config = transformers.ModernBertConfig(
            **SIZES | {"num_hidden_layers": 3}, local_attention=32, global_attn_every_n_layers=3, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, cls_token_id=1, sep_token_id=2,
        )  # fmt: skip
        mask = padding(3, 96, right=((0, 40), (2, 7)))
        judge(
            "ModernBERT, local windows and padding", transformers.ModernBertModel(config),
            lambda m: m(ids(3, 96), attention_mask=mask).last_hidden_state[mask.bool()], "transformers", {"varlen": 3}, {}, "attention_ladder",
        )  # fmt: skip

    def whisper(self):
        import transformers

        torch.manual_seed(0)
        config = transformers.WhisperConfig(
            vocab_size=300, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=100, num_mel_bins=16, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        features = torch.randn(2, 16, 200, generator=torch.Generator().manual_seed(1)).to(DEVICE)

        def call(model):
            return model(input_features=features.to(model.dtype), decoder_input_ids=ids(2, 30)).last_hidden_state

        judge("Whisper", transformers.WhisperModel(config), call, "transformers", {"sdpa": 6}, {}, "sdpa", is_compiled=False)
        judge("Whisper, by name", transformers.WhisperModel(config), call, "transformers", {"sdpa": 6}, {}, "attention_ladder")

    def vits_of_head_dim_72_and_36(self):
        import transformers

        torch.manual_seed(0)
        sizes = dict(intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=8)
        config, small = (transformers.ViTConfig(hidden_size=4 * head_dim, **sizes) for head_dim in (72, 36))
        pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)).to(DEVICE)

        def call(model):
            return model(pixels.to(model.dtype)).last_hidden_state

        judge("ViT, head_dim 72", transformers.ViTModel(config), call, "transformers", {"varlen": 2}, {}, "sdpa")
        left = {"head_dim = 36 is not supported": 2}
        judge("ViT, head_dim 36", transformers.ViTModel(small), call, "transformers", {}, left, "sdpa")
        judge("ViT, head_dim 36, by name", transformers.ViTModel(small), call, "transformers", {}, left, "attention_ladder")

    def a_static_cache(self):
        import transformers

        tokens = ids(2, 48)
        for words, mask in (("", None), (", padding", padding(2, 48, left=((0, 5),)))):
            seen = torch.ones(2, 48, dtype=torch.bool, device=DEVICE) if mask is None else mask.bool()

            def call(model):
                """Prefills 40 tokens, and decodes 8."""
                cache = transformers.StaticCache(config=model.config, max_cache_len=64)
                logits = []
                for first, end in [(0, 40), *((row, row + 1) for row in range(40, 48))]:
                    given = None if mask is None else mask[:, :end]
                    logits.append(model(tokens[:, first:end], attention_mask=given, past_key_values=cache).logits)
                return torch.cat(logits, 1)[seen]

            calls = {"varlen": 18}
            judge(f"Llama, static cache{words}", llama(), call, "transformers", calls, {}, "attention_ladder")

    def generation_with_a_static_cache(self):
        model = llama().to(DEVICE, torch.bfloat16).eval()
        mask = padding(2, 40, left=((0, 5),))
        with doors("transformers"), torch.no_grad():
            model.set_attn_implementation("attention_ladder")
            for cache in ("dynamic", "static"):
                CALLS.clear()
                before = attention_ladder.fallbacks()
                out = model.generate(
                    ids(2, 40), attention_mask=mask, max_new_tokens=6, do_sample=False, cache_implementation=cache, pad_token_id=0,
                    disable_compile=DEVICE == "cpu",
                )  # fmt: skip
                left = difference(before, attention_ladder.fallbacks(), "transformers")
                assert out.shape[1] <= 46 and CALLS and not left, (CALLS, left)
                print(f"Llama, generate, {cache} cache: {out.shape[1] - 40} tokens, {len(CALLS)} calls, left {left}", flush=True)

    def flux(self):
        import diffusers

        torch.manual_seed(0)
        model = diffusers.FluxTransformer2DModel(
            in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=64, num_attention_heads=4, joint_attention_dim=64,
            pooled_projection_dim=32, axes_dims_rope=(16, 24, 24),
        )  # fmt: skip
        generator = torch.Generator().manual_seed(1)
        image, text, pooled = (torch.randn(shape, generator=generator).to(DEVICE) for shape in ((2, 64, 16), (2, 24, 64), (2, 32)))
        image_ids, text_ids = torch.zeros(64, 3, device=DEVICE), torch.zeros(24, 3, device=DEVICE)

        def call(model):
            dtype = next(model.parameters()).dtype
            return model(
                hidden_states=image.to(dtype), encoder_hidden_states=text.to(dtype), pooled_projections=pooled.to(dtype),
                timestep=torch.ones(2, device=DEVICE, dtype=dtype), img_ids=image_ids, txt_ids=text_ids,
            ).sample  # fmt: skip

        judge("FLUX", model, call, "diffusers", {"sdpa": 4}, {})

    def stable_diffusion_3(self):
        import diffusers

        torch.manual_seed(0)
        model = diffusers.SD3Transformer2DModel(
            sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=64, num_attention_heads=4, joint_attention_dim=64,
            caption_projection_dim=256, pooled_projection_dim=32, out_channels=4, pos_embed_max_size=16,
        )  # fmt: skip
        generator = torch.Generator().manual_seed(1)
        image, text, pooled = (torch.randn(shape, generator=generator).to(DEVICE) for shape in ((2, 4, 16, 16), (2, 24, 64), (2, 32)))

        def call(model):
            dtype = next(model.parameters()).dtype
            return model(
                hidden_states=image.to(dtype), encoder_hidden_states=text.to(dtype), pooled_projections=pooled.to(dtype),
                timestep=torch.ones(2, device=DEVICE, dtype=dtype),
            ).sample  # fmt: skip

        # Its layers call PyTorch themselves. Without a GPU PyTorch has no flash backend for the door.
        judge("SD3, through PyTorch's door", model, call, "torch", {"sdpa": 2} if DEVICE == "cuda" else {}, {}, is_compiled=False)


NEEDS_DIFFUSERS = {"flux", "stable_diffusion_3"}


def run(names):
    """Returns how many cases were run."""
    cases, count = Cases(), 0
    for name, case in vars(Cases).items():
        package = "diffusers" if name in NEEDS_DIFFUSERS else "transformers"
        if name.startswith("_") or names and name not in names:
            continue
        if importlib.util.find_spec(package) is None:
            print(f"{name}: not run, {package} is not installed")
            continue
        case(cases)
        count += 1
    return count


if __name__ == "__main__":
    print(f"{run(sys.argv[1:])} cases on {DEVICE}: all right")
