"""The doors without the libraries that they lead to: this module stands in for transformers and diffusers. `check.py` runs the cases, while a
reference answers native calls; `doors.py` goes through the doors with the libraries' own models."""

import contextlib
import itertools
import sys
import types

import torch
from torch.nn import attention

import attention_ladder
from attention_ladder import _door_torch, _doors
from emulation import ASKED, SERVED, raises, reference, varlen_reference

F16, BOUND = torch.float16, 2e-3


# As in transformers.masking_utils, by whose names the door knows them.
def causal_mask_function(batch, head, query, key):
    return key <= query


def bidirectional_mask_function(batch, head, query, key):
    return query >= 0


def and_masks(*mask_functions):
    def and_mask(batch, head, query, key):
        result = torch.ones((), dtype=torch.bool)
        for mask in mask_functions:
            result = result & mask(batch, head, query, key)
        return result

    return and_mask


def sliding_window_overlay(sliding_window):
    def inner_mask(batch, head, query, key):
        return key > query - sliding_window

    return inner_mask


def sliding_window_bidirectional_overlay(sliding_window):
    def inner_mask(batch, head, query, key):
        return abs(query - key) <= sliding_window

    return inner_mask


def packed_sequence_mask_function(packed_sequence_mask):
    def inner_mask(batch, head, query, key):
        return packed_sequence_mask[batch, query] == packed_sequence_mask[batch, key]

    return inner_mask


def prepare_padding_mask(attention_mask, kv_length, kv_offset):
    missing = kv_length + kv_offset - attention_mask.shape[-1]
    return torch.nn.functional.pad(attention_mask, (0, missing)) if missing > 0 else attention_mask


def sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, device, **_):
    """The whole mask, always."""
    batch, query, key = torch.arange(batch_size), torch.arange(q_length) + q_offset, torch.arange(kv_length) + kv_offset
    seen = mask_function(batch[:, None, None, None], 0, query[:, None], key[None]).expand(batch_size, 1, q_length, kv_length)
    if attention_mask is not None:
        padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
        seen = seen & padding[:, None, None, kv_offset : kv_offset + kv_length]
    return seen


def sdpa_attention_forward(module, query, key, value, attention_mask, **named):
    return "before", named


def eager_attention_forward(module, query, key, value, attention_mask, **named):
    return "eager", attention_mask


class Layer(torch.nn.Module):
    is_causal = True


@contextlib.contextmanager
def stand_ins():
    """transformers and diffusers are modules of this one meanwhile."""
    masks = sys.modules[__name__]
    masks.AttentionMaskInterface = types.SimpleNamespace(_global_mapping={"sdpa": sdpa_mask})
    modeling = types.ModuleType("transformers.modeling_utils")
    modeling.AttentionInterface = types.SimpleNamespace(_global_mapping={"sdpa": sdpa_attention_forward})
    registry = types.SimpleNamespace(_backends={"native": lambda **named: ("before", named)})
    dispatch = types.ModuleType("diffusers.models.attention_dispatch")
    dispatch._AttentionBackendRegistry = registry
    dispatch.AttentionBackendName = types.SimpleNamespace(NATIVE="native")
    models = types.ModuleType("diffusers.models")
    models.attention_dispatch = dispatch
    transformers, diffusers = types.ModuleType("transformers"), types.ModuleType("diffusers")
    transformers.masking_utils, transformers.modeling_utils, diffusers.models = masks, modeling, models
    modules = {
        "transformers": transformers, "transformers.masking_utils": masks, "transformers.modeling_utils": modeling,
        "diffusers": diffusers, "diffusers.models": models, "diffusers.models.attention_dispatch": dispatch,
    }  # fmt: skip
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("transformers", "diffusers")}
    for name in kept:
        del sys.modules[name]
    sys.modules.update(modules)
    try:
        yield modeling.AttentionInterface._global_mapping, masks.AttentionMaskInterface._global_mapping, registry._backends
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(kept)


@contextlib.contextmanager
def opened(name):
    """A door is open meanwhile, and tensors count as being on a GPU of Hopper."""
    kept = _doors.is_on_gpu, _doors.capability
    _doors.is_on_gpu, _doors.capability = lambda _: True, lambda _: 90
    _doors._counts.clear()
    attention_ladder.install(name)
    try:
        yield
    finally:
        attention_ladder.uninstall(name)
        _doors.is_on_gpu, _doors.capability = kept


def made(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(F16)


def near(found, expected):
    error = (found.double() - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=2**-10)
    assert torch.isfinite(found).all() and error.max() <= BOUND, f"{error.max():.1e} of a row's norm"


class Cases:
    """A method is a case."""

    def there_are_three_doors(self):
        for call in (attention_ladder.install, attention_ladder.uninstall):
            raises(ValueError, "'jax' is not a door: 'torch', 'transformers', 'diffusers'", call, "jax")
        for name in ("torch", "transformers", "diffusers"):
            attention_ladder.uninstall(name)
        assert not _doors._undo

    def reasons_are_counted_and_their_number_is_bounded(self):
        _doors._counts.clear()
        for number in (*range(200), 0):
            _doors.count("torch", f"shape {number}")
        counts = attention_ladder.fallbacks()
        assert counts["torch"]["shape 0"] == 2 and counts["torch"]["other reasons"] == 200 - 64 and len(counts["torch"]) == 65
        counts["torch"].clear()
        assert attention_ladder.fallbacks()["torch"], "a copy"
        _doors._counts.clear()

    def a_refusal_names_what_no_kernel_takes(self):
        q, k = made(2, 4, 8, 64), made(2, 2, 8, 64)
        assert "tensors are on cpu" in _doors.refusal(q, k, k)
        kept = _doors.is_on_gpu, _doors.capability
        _doors.is_on_gpu, _doors.capability = lambda _: True, lambda _: 90
        try:
            assert _doors.refusal(q, k, k, is_served=True) is None
            for words, *given in (
                ("backward is not supported", q, k.clone().requires_grad_(), k),
                ("torch.float32 is not supported", q.float(), k, k),
                ("more than one dtype", q, k.bfloat16(), k),
                ("head_dim = 36 is not supported", made(2, 4, 8, 36), k, k),
                ("head_dim = 136 is not supported", made(2, 4, 8, 136), k, k),
                ("more than one head_dim", q, k, made(2, 2, 8, 128)),
                ("head_dim is not contiguous", q.mT.contiguous().mT, k, k),
                ("a stride is 0", q, k[:, :1].expand_as(k), k),
                ("no multiple of 16 bytes", made(2, 4, 8, 68)[..., :64], k, k),
            ):
                reason = _doors.refusal(*given)
                assert reason is not None and words in reason, (words, reason)
            with torch.no_grad():
                assert _doors.refusal(q, k.clone().requires_grad_(), k) is None
            _doors.capability = lambda _: 80
            assert _doors.refusal(q, k, k) is None and "need sm_90" in _doors.refusal(q, k, k, is_served=True)
        finally:
            _doors.is_on_gpu, _doors.capability = kept

    def dynamo_reads_the_capability_of_a_gpu(self):
        kept = _doors.is_on_gpu, _doors._capability
        _doors.is_on_gpu, _doors._capability = lambda _: True, lambda _: 90
        try:
            q = made(1, 4, 8, 72)
            step = lambda x: x if _doors.refusal(x, x, x, is_served=True) else x + 1  # noqa: E731
            assert torch.equal(torch.compile(step, backend="eager", fullgraph=True)(q), q + 1)
        finally:
            _doors.is_on_gpu, _doors._capability = kept

    def pytorchs_door_takes_the_place_of_its_kernels_and_gives_it_back(self):
        operators = (_door_torch._DENSE, _door_torch._PACKED, _door_torch._INPLACE)
        names = [f"aten::{name}" for name in operators if hasattr(torch.ops.aten, name)]
        assert names[:2] == [f"aten::{name}" for name in operators[:2]]
        kernels = [str(torch.library.get_kernel(name, "CUDA")) for name in names]
        with opened("torch"):
            attention_ladder.install("torch")
            assert attention.current_flash_attention_impl() == "attention_ladder"
            assert all(str(torch.library.get_kernel(name, "CUDA")) != kernel for name, kernel in zip(names, kernels))
        assert attention.current_flash_attention_impl() is None
        assert [str(torch.library.get_kernel(name, "CUDA")) for name in names] == kernels

    def pytorchs_door_activates_what_was_there_before(self):
        log = []

        class Handle:
            def remove(self):
                log.append("removed")

        attention.register_flash_attention_impl("stand-in", register_fn=lambda: log.append("active") or Handle())
        attention.activate_flash_attention_impl("stand-in")
        with opened("torch"):
            assert log == ["active", "removed"]
        assert log == ["active", "removed", "active"] and attention.current_flash_attention_impl() == "stand-in"
        attention.restore_flash_attention_impl()
        with opened("torch"):
            attention.activate_flash_attention_impl("stand-in")
        assert attention.current_flash_attention_impl() == "stand-in", "activated since"
        attention.restore_flash_attention_impl()

    def pytorchs_door_needs_a_version_that_has_it(self):
        function = attention.register_flash_attention_impl
        del attention.register_flash_attention_impl
        try:
            raises(NotImplementedError, "has no torch.nn.attention.register_flash_attention_impl", attention_ladder.install, "torch")
        finally:
            attention.register_flash_attention_impl = function
        assert "torch" not in _doors._undo

    def pytorchs_operators_are_right(self):
        q, k = made(2, 4, 9, 64, seed=1), made(2, 2, 17, 64, seed=2)
        starts_q, starts_k, used = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3, 9], [0, 10, 17], [10, 6]))
        rows, keys = made(9, 4, 64, seed=3), made(17, 2, 64, seed=4)
        with opened("torch"):
            out, lse, *rest = _door_torch.attend_dense(q, k, k, is_causal=True, scale=0.2)
            expected = reference(q, k, k, True, 0.2)
            near(out, expected[0])
            between = made(2, 4, 9, 72)
            near(_door_torch.attend_dense(between, between, between)[0], reference(between, between, between, False)[0])
            assert (lse - expected[1]).abs().max() < 1e-5 and rest[:4] == [None, None, 9, 17]
            assert [x.dtype for x in rest[4:]] == [torch.uint64, torch.uint64, F16] and rest[4].shape == (2,)
            given = (rows, keys, keys, starts_q, starts_k, 6, 10, 0.0)
            for is_causal, left, right, window in ((True, None, None, (-1, 0)), (False, 4, 2, (4, 2)), (False, None, None, (-1, -1))):
                named = dict(window_size_left=left, window_size_right=right, seqused_k=used, num_splits=1)
                expected = varlen_reference(rows, keys, keys, starts_q, starts_k, None, *window, used, None, None, 0.0)
                out, lse, *_ = _door_torch.attend_packed(*given, is_causal, False, **named)
                near(out, expected[0])
                written = torch.zeros_like(rows)
                lse_in_place = _door_torch.attend_in_place(written, *given, is_causal, False, **named)
                assert torch.equal(written, out) and torch.equal(lse_in_place, lse)
            dense = [x.transpose(1, 2) for x in (q, k, k)]
            out, *_ = _door_torch.attend_packed(*dense, None, None, 9, 17, 0.0, True, False)
            near(out.transpose(1, 2), reference(q, k, k, True)[0])

    def pytorchs_operators_leave_to_its_own_what_they_refuse(self):
        q, starts = made(9, 4, 64), torch.tensor([0, 9], dtype=torch.int32)
        own = types.SimpleNamespace(call_boxed=lambda keys, *given, **named: ("own", keys, len(given), sorted(named)))
        kernels = types.SimpleNamespace(_own={"packed": own, "dense": own})
        wrap = _door_torch.Kernels._with_fallback
        packed = wrap(kernels, "packed", _door_torch.attend_packed)
        dense = wrap(kernels, "dense", _door_torch.attend_dense)
        with opened("torch"):
            given = (q, q, q, starts, starts, 9, 9)
            assert packed("keys", *given, 0.5, False, False) == ("own", "keys", 10, [])
            assert packed("keys", *given, 0.0, False, True) == ("own", "keys", 10, [])
            assert packed("keys", *given, 0.0, False, False, alibi_slopes=q) == ("own", "keys", 10, ["alibi_slopes"])
            assert packed("keys", *given, 0.0, False, False, num_splits=4)[0] == "own"
            assert packed("keys", q, q, q, starts.long(), starts, 9, 9, 0.0, False, False)[0] == "own"
            assert packed("keys", *given, 0.0, False, False)[0].shape == q.shape
            heads = made(1, 4, 9, 36)
            assert dense("keys", heads, heads, heads) == ("own", "keys", 3, [])
            trained = made(1, 4, 9, 64).requires_grad_()
            assert dense("keys", trained, trained, trained)[0] == "own"
            assert dict(attention_ladder.fallbacks()["torch"]) == {
                "dropout is not supported": 1,
                "return_debug_mask is not supported": 1,
                "alibi_slopes are not supported": 1,
                "num_splits = 4 is not supported": 1,
                "cu_seqlens_q must be a contiguous int32 tensor [2] on the device of q": 1,
                "head_dim = 36 is not supported": 1,
                "backward is not supported": 1,
            }

    def transformers_has_an_attention_and_its_default_until_it_is_uninstalled(self):
        with stand_ins() as (functions, masks, _):
            with opened("transformers"):
                assert set(functions) == {"sdpa", "attention_ladder"} and functions["sdpa"] is not sdpa_attention_forward
                assert set(masks) == {"sdpa", "attention_ladder"} and masks["sdpa"] is sdpa_mask
            assert functions == {"sdpa": sdpa_attention_forward} and masks == {"sdpa": sdpa_mask}
            with opened("transformers"):
                functions["sdpa"] = other = object()
            assert functions["sdpa"] is other, "taken since"

    def transformers_default_takes_calls_without_a_mask(self):
        q, k = made(2, 4, 9, 64, seed=1), made(2, 2, 17, 64, seed=2)
        layer, free = Layer(), Layer()
        free.is_causal = False
        with stand_ins() as (functions, _, _), opened("transformers"):
            call = functions["sdpa"]
            ASKED.clear()
            for module, named, keys, is_causal in (
                (free, {}, k, False),
                (layer, {"is_causal": False}, k, False),
                (layer, {}, k[:, :, :9], True),
                # "sdpa" aligns to the first keys: the others are an empty cache's.
                (layer, {}, k, True),
            ):
                seen = keys[:, :, :9] if is_causal else keys
                out, weights = call(module, q, keys, keys, None, scaling=0.2, **named)
                near(out.transpose(1, 2), reference(q, seen, seen, is_causal, 0.2)[0])
                assert weights is None and out.is_contiguous()
            between = made(2, 4, 9, 72)
            out, _ = call(layer, between, between, between, None)
            near(out.transpose(1, 2), reference(between, between, between, True)[0])
            out, _ = call(layer, q[:, :, :1], k, k, None)
            near(out.transpose(1, 2), reference(q[:, :, :1], k, k, False)[0])
            assert len(ASKED) == 5 and not attention_ladder.fallbacks()
            mask = torch.ones(2, 1, 9, 17, dtype=torch.bool)
            for given, named in (
                ((q, k, k, mask), {}),
                ((q, k, k, mask[:, 0, 0]), {}),
                ((q, k, k, None), {"dropout": 0.1}),
                ((q, k, k, None), {"position_bias": mask}),
                ((q, k, k, None), {"output_attentions": True}),
                ((q.float(), k.float(), k.float(), None), {"scaling": 0.3}),
            ):
                assert call(layer, *given, **named) == ("before", named)
            assert len(ASKED) == 5 and list(attention_ladder.fallbacks()["transformers"]) == [
                "attention_mask is not of a known pattern",
                "attention_mask has 2 dimensions",
                "dropout is not supported",
                "position_bias is not supported",
                "output_attentions is not supported",
                "torch.float32 is not supported",
            ]

    def transformers_masks_are_what_they_code(self):
        """Padding on either side, caches that are longer, windows: all queries that are no padding see the same keys."""
        functions = (
            causal_mask_function,
            bidirectional_mask_function,
            and_masks(sliding_window_overlay(5), causal_mask_function),
            and_masks(sliding_window_bidirectional_overlay(4), bidirectional_mask_function),
        )
        paddings = (None, (0, 0, 0), (3, 0, 1), (0, -2, -4), (2, -3, 0))
        # Queries, keys, the queries' place.
        lengths = ((12, 12, 0), (5, 12, 7), (1, 12, 11), (5, 20, 7), (12, 20, 0), (5, 20, torch.tensor(7)), (1, 20, torch.tensor(11)))
        kinds = set()
        with stand_ins() as (attentions, masks, _), opened("transformers"):
            for function, padding, (rows, keys, offset) in itertools.product(functions, paddings, lengths):
                present = None
                if padding is not None:
                    present = torch.ones(3, int(offset) + rows, dtype=torch.bool)
                    for b, count in enumerate(padding):
                        present[b, :count] = count <= 0
                        present[b, count or keys :] = count >= 0
                is_free = function is bidirectional_mask_function or function is functions[3]
                named = dict(mask_function=function, attention_mask=present, allow_is_bidirectional_skip=is_free, device="cpu")
                sizes = dict(batch_size=3, q_length=rows, kv_length=keys, q_offset=offset, kv_offset=0)
                mask, whole = masks["attention_ladder"](**sizes, **named), sdpa_mask(**sizes, **named)
                kinds.add("none" if mask is None else str(mask.dtype) + str(mask.dtype is torch.int32 and mask.shape[1] > 1))
                q, k, v = made(3, 4, rows, 64, seed=1), made(3, 2, keys, 64, seed=2), made(3, 2, keys, 64, seed=3)
                layer = Layer()
                layer.is_causal = not is_free
                if mask is not None and mask.dtype is torch.bool:
                    assert torch.equal(mask, whole)
                    assert attentions["attention_ladder"](layer, q, k, v, mask, scaling=0.2)[0] == "before"
                    continue
                out, _ = attentions["attention_ladder"](layer, q, k, v, mask, scaling=0.2)
                assert out.is_contiguous() and out.shape == (3, rows, 4, 64)
                scores = (q.double() @ k.double().repeat_interleave(2, 1).mT * 0.2).masked_fill(~whole, float("-inf"))
                expected = (torch.softmax(scores, -1).nan_to_num(0.0) @ v.double().repeat_interleave(2, 1)).transpose(1, 2)
                real = torch.ones(3, rows, dtype=torch.bool)
                if present is not None and function is not bidirectional_mask_function:
                    real = present[:, int(offset) : int(offset) + rows]
                near(out[real], expected[real])
                if mask is not None:
                    from attention_ladder._door_transformers import Coded

                    coded = Coded(mask).boolean(rows, keys)
                    assert torch.equal(coded.expand_as(whole)[:, 0][real], whole[:, 0][real])
        assert kinds == {"none", "torch.bool" + "False", "torch.int32False", "torch.int32True"}, kinds

    def transformers_masks_of_other_patterns_are_those_of_sdpa(self):
        packed = torch.tensor([[0] * 5 + [1] * 7])
        holes = torch.ones(1, 12, dtype=torch.bool)
        holes[0, 4] = False
        with stand_ins() as (_, masks, _), opened("transformers"):
            sizes = dict(batch_size=1, q_length=12, kv_length=12, q_offset=0, kv_offset=0, device="cpu")
            for named in (
                {"mask_function": and_masks(causal_mask_function, packed_sequence_mask_function(packed)), "attention_mask": None},
                {"mask_function": lambda batch, head, query, key: key <= query, "attention_mask": None},
                {"mask_function": causal_mask_function, "attention_mask": holes},
                {"mask_function": causal_mask_function, "attention_mask": None, "allow_is_causal_skip": False},
                {"mask_function": bidirectional_mask_function, "attention_mask": None},
            ):
                mask = masks["attention_ladder"](**sizes, **named)
                assert torch.equal(mask, sdpa_mask(**sizes, **named)), named

    def transformers_sinks_and_caps_arrive_and_fall_back_to_the_models_own(self):
        q, k = made(2, 4, 9, 64, seed=1), made(2, 2, 9, 64, seed=2)
        sinks, layer = torch.tensor([0.0, 3.0, -1.0, 9.0]), Layer()
        rows = [x.transpose(1, 2) for x in (q, k, k)]
        with stand_ins() as (functions, _, _), opened("transformers"):
            call = functions["attention_ladder"]
            SERVED.clear()
            out, _ = call(layer, q, k, k, None, scaling=0.2, s_aux=sinks.to(torch.bfloat16), softcap=5.0, sliding_window=4)
            near(out, varlen_reference(*rows, None, None, 0.2, -1, 0, None, None, sinks, 5.0)[0])
            assert len(SERVED) == 1 and not attention_ladder.fallbacks()
            given = (layer, q.float(), k.float(), k.float())
            kind, mask = call(*given, None, scaling=0.2, s_aux=sinks)
            lowest = torch.finfo(torch.float32).min
            expected = torch.zeros(9, 9).masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), lowest)
            assert kind == "eager" and torch.equal(mask[0, 0], expected)
            assert call(*given, None, scaling=0.2)[0] == "before"
            assert attention_ladder.fallbacks() == {"transformers": {"torch.float32 is not supported": 2}}
            raises(NotImplementedError, "Linear has no eager attention", call, torch.nn.Linear(1, 1), *given[1:], None, s_aux=sinks)

    def diffusers_default_backend_is_ours_until_it_is_uninstalled(self):
        q, k = made(2, 9, 4, 64, seed=1), made(2, 17, 4, 64, seed=2)
        with stand_ins() as (_, _, backends):
            before = backends["native"]
            with opened("diffusers"):
                call = backends["native"]
                named = dict(attn_mask=None, dropout_p=0.0, is_causal=False, scale=0.2, enable_gqa=False, _parallel_config=None)
                out = call(query=q, key=k, value=k, **named)
                near(out.transpose(1, 2), reference(*(x.transpose(1, 2) for x in (q, k, k)), False, 0.2)[0])
                few = call(query=q, key=k[:, :, :2], value=k[:, :, :2], enable_gqa=True)
                near(few.transpose(1, 2), reference(*(x.transpose(1, 2) for x in (q, k[:, :, :2], k[:, :, :2])), False)[0])
                assert not attention_ladder.fallbacks()
                for words, change in (
                    ("attn_mask is not supported", {"attn_mask": q}),
                    ("dropout is not supported", {"dropout_p": 0.1}),
                    ("a parallel_config is not supported", {"_parallel_config": 1}),
                    ("return_lse is not supported", {"return_lse": True}),
                    ("a causal mask over another number of keys is not supported", {"is_causal": True}),
                    ("fewer key heads without enable_gqa", {"key": k[:, :, :2], "value": k[:, :, :2]}),
                    ("torch.float32 is not supported", {"query": q.float()}),
                    ("k and v must have one shape", {"value": k[:, :5]}),
                ):
                    given = {"query": q, "key": k, "value": k} | named | change
                    result = call(**given)
                    assert result[0] == "before" and result[1].keys() == given.keys()
                    assert words in list(attention_ladder.fallbacks()["diffusers"])[-1], attention_ladder.fallbacks()
            assert backends["native"] is before


def run():
    cases = Cases()
    for name, case in vars(Cases).items():
        if not name.startswith("_"):
            case(cases)
    _doors._counts.clear()
