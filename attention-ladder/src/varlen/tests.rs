use super::*;
use crate::failure::Code;
use common::params::{
    AttentionMask_ATTENTION_CAUSAL as CAUSAL, AttentionMask_ATTENTION_FULL as FULL,
};
use std::cell::RefCell;
use std::ptr::{null, null_mut};

/// Three sequences of at most 200 queries and 300 keys, one after the other: 350 and 700 rows of 8
/// and 2 heads, as rows of a tensor [rows, heads, 64].
pub(crate) fn packed() -> AttentionLadderVarlenCall {
    let tensor = |address: usize, heads: i64| AttentionLadderTensor {
        data: address as *mut _,
        scales: null(),
        batch_stride: 0,
        head_stride: 64,
        row_stride: heads * 64,
    };
    AttentionLadderVarlenCall {
        q: tensor(1 << 30, 8),
        k: tensor(2 << 30, 2),
        v: tensor(3 << 30, 2),
        o: tensor(4 << 30, 8),
        lse: null_mut(),
        cu_seqlens_q: 0x1000 as *const _,
        cu_seqlens_k: 0x2000 as *const _,
        seqused_k: null(),
        block_table: null(),
        sinks: null(),
        dtype: crate::ATTENTION_LADDER_BF16,
        mask: crate::ATTENTION_LADDER_FULL,
        batch: 3,
        heads_q: 8,
        heads_kv: 2,
        max_seqlen_q: 200,
        max_seqlen_k: 300,
        head_dim: 64,
        total_q: 350,
        total_k: 700,
        pages: 0,
        page_size: 0,
        block_table_stride: 0,
        window_left: -1,
        window_right: -1,
        softcap: 0.0,
        softmax_scale: 0.0,
        flags: 0,
        kv_dtype: 0,
    }
}

/// The same queries, and keys in 40 pages of 16 rows.
fn paged() -> AttentionLadderVarlenCall {
    let mut call = packed();
    call.cu_seqlens_k = null();
    call.seqused_k = 0x3000 as *const _;
    call.block_table = 0x4000 as *const _;
    call.pages = 40;
    call.page_size = 16;
    call.block_table_stride = 20;
    for pages in [&mut call.k, &mut call.v] {
        pages.batch_stride = 16 * 2 * 64;
    }
    call
}

/// The same pages in E4M3, with scales.
fn cached() -> AttentionLadderVarlenCall {
    let mut call = paged();
    call.kv_dtype = crate::ATTENTION_LADDER_E4M3;
    call.k.scales = 0x7000 as *const _;
    call.v.scales = 0x8000 as *const _;
    call
}

/// What a launch hands over, and the maps of Q, K, V and O.
struct Launched {
    argument: AttentionServed,
    maps: Vec<TensorMap>,
}

fn launched(call: &AttentionLadderVarlenCall) -> Launched {
    let checked = CheckedVarlen::new(call).unwrap();
    checked.addresses().unwrap();
    let boxes = BoxRows {
        q: 16,
        k: 128,
        v: 128,
        o: 16,
    };
    let maps = RefCell::new(Vec::new());
    let argument = checked.argument(Some(boxes), |map| {
        maps.borrow_mut().push(*map);
        Ok::<_, ()>([7; 16])
    });
    Launched {
        argument: argument.unwrap(),
        maps: maps.into_inner(),
    }
}

fn expect_refusal(
    mut call: AttentionLadderVarlenCall,
    change: impl FnOnce(&mut AttentionLadderVarlenCall),
    code: Code,
    words: &str,
) {
    change(&mut call);
    let failure = match CheckedVarlen::new(&call) {
        Ok(checked) => checked.addresses().unwrap_err(),
        Err(failure) => failure,
    };
    assert_eq!(failure.code, code, "{failure:?}");
    assert!(failure.message.contains(words), "{failure:?}");
}

fn expect_unsupported(change: impl FnOnce(&mut AttentionLadderVarlenCall), words: &str) {
    expect_refusal(packed(), change, Code::Unsupported, words);
}

fn expect_invalid(change: impl FnOnce(&mut AttentionLadderVarlenCall), words: &str) {
    expect_refusal(packed(), change, Code::Invalid, words);
}

fn expect_bad_pages(change: impl FnOnce(&mut AttentionLadderVarlenCall), code: Code, words: &str) {
    expect_refusal(paged(), change, code, words);
}

#[test]
fn what_no_kernel_has_is_unsupported_by_name() {
    expect_unsupported(
        |c| c.dtype = crate::ATTENTION_LADDER_E4M3,
        "E4M3 is not supported",
    );
    expect_unsupported(|c| c.dtype = 3, "dtype 3 is not supported");
    expect_unsupported(|c| c.kv_dtype = 2, "kv_dtype 2 is not supported");
    expect_unsupported(|c| c.mask = 2, "mask 2 is not supported");
    expect_unsupported(
        |c| c.flags = crate::ATTENTION_LADDER_BATCH_INVARIANT,
        "flags 1 are not supported",
    );
    expect_unsupported(|c| c.head_dim = 36, "head_dim = 36 is not supported");
    expect_unsupported(|c| c.head_dim = 256, "head_dim = 256 is not supported");
    expect_unsupported(|c| c.batch = 65_536, "batch = 65536 is too large");
}

#[test]
fn extents_windows_and_scales_without_a_meaning_are_invalid() {
    expect_invalid(|c| c.batch = 0, "batch is 0");
    expect_invalid(|c| c.max_seqlen_q = 0, "max_seqlen_q is 0");
    expect_invalid(|c| c.max_seqlen_k = -1, "max_seqlen_k is -1");
    expect_invalid(|c| c.total_q = 0, "total_q is 0");
    expect_invalid(|c| c.total_k = 0, "total_k is 0");
    expect_invalid(|c| c.heads_kv = 3, "does not divide heads_q = 8");
    expect_invalid(|c| c.window_left = -2, "window_left is -2");
    expect_invalid(|c| c.window_right = -2, "window_right is -2");
    expect_invalid(|c| c.softcap = -1.0, "softcap = -1");
    expect_invalid(|c| c.softcap = f32::NAN, "softcap = NaN");
    expect_invalid(|c| c.softmax_scale = -1.0, "softmax_scale = -1");
    expect_invalid(|c| c.q.scales = 16 as *const f32, "q is not E4M3");
    expect_invalid(|c| c.k.scales = 16 as *const f32, "k is not E4M3");
}

#[test]
fn keys_in_e4m3_have_scales_and_rows_of_16_bytes() {
    let refused = |change: fn(&mut AttentionLadderVarlenCall), code, words| {
        expect_refusal(cached(), change, code, words);
    };
    refused(
        |c| c.q.scales = 16 as *const f32,
        Code::Invalid,
        "q is not E4M3 and has scales",
    );
    refused(
        |c| c.k.scales = 65 as *const f32,
        Code::Invalid,
        "the address of k's scales is 0x41: it must be a multiple of 4 bytes",
    );
    refused(
        |c| c.v.scales = c.o.data.cast_const().cast(),
        Code::Invalid,
        "the output overlaps v's scales",
    );
    refused(
        |c| c.head_dim = 72,
        Code::Unsupported,
        "head_dim = 72 is not supported with cache=e4m3: a multiple of 16",
    );
    refused(
        |c| c.k.head_stride = 72,
        Code::Invalid,
        "the head stride of k is 72 elements",
    );
    // Scales of 1.
    let mut unscaled = cached();
    unscaled.k.scales = null();
    assert!(
        launched(&unscaled)
            .argument
            .launch
            .params
            .k
            .scales
            .is_null()
    );
}

#[test]
fn codes_arrive_with_boxes_of_their_own_and_scales() {
    let Launched { argument, maps } = launched(&cached());
    assert_eq!((maps[0].element_bytes, maps[0].box_columns), (2, 64));
    for map in &maps[1..3] {
        assert_eq!((map.element_bytes, map.box_columns), (1, 64));
        assert_eq!((map.swizzle, map.strides[1]), (64, 64));
    }
    let params = argument.launch.params;
    assert_eq!(params.k.scales as usize, 0x7000);
    assert_eq!(params.v.scales as usize, 0x8000);
    // Rows of 96 codes are in one box of 128.
    let mut wide = cached();
    wide.head_dim = 96;
    for tensor in [&mut wide.q, &mut wide.k, &mut wide.v, &mut wide.o] {
        tensor.head_stride = 96;
        tensor.row_stride *= 2;
        tensor.batch_stride *= 2;
    }
    let map = launched(&wide).maps[1];
    assert_eq!(
        (map.box_columns, map.swizzle, map.extents[0]),
        (128, 128, 96)
    );
}

#[test]
fn addresses_and_strides_are_those_that_kernels_can_use() {
    expect_invalid(|c| c.k.data = null_mut(), "the address of k is null");
    expect_invalid(|c| c.o.data = null_mut(), "the address of o is null");
    expect_invalid(|c| c.v.data = 8 as *mut _, "the address of v is 0x8");
    expect_invalid(|c| c.q.row_stride = 68, "the row stride of q is 68");
    expect_invalid(|c| c.k.head_stride = 0, "the head stride of k is 0");
    for (name, change) in [
        (
            "cu_seqlens_q",
            (|c| c.cu_seqlens_q = 0x1002 as *const _) as fn(&mut AttentionLadderVarlenCall),
        ),
        ("cu_seqlens_k", |c| c.cu_seqlens_k = 0x1002 as *const _),
        ("seqused_k", |c| c.seqused_k = 0x1002 as *const _),
        ("sinks", |c| c.sinks = 0x1002 as *const _),
        ("lse", |c| c.lse = 0x1002 as *mut _),
    ] {
        let words = format!("the address of {name} is 0x1002: it must be a multiple of 4 bytes");
        expect_invalid(change, &words);
    }
}

#[test]
fn an_output_over_anything_that_is_read_is_invalid() {
    expect_invalid(|c| c.o = c.q, "the output overlaps q");
    let last_row = (4_usize << 30) + (350 * 8 - 1) * 128;
    let last_elements = (last_row + 124) as *const i32;
    expect_invalid(
        |c| c.cu_seqlens_q = last_elements,
        "the output overlaps cu_seqlens_q",
    );
    expect_invalid(
        |c| c.cu_seqlens_k = last_elements,
        "the output overlaps cu_seqlens_k",
    );
    expect_invalid(
        |c| c.sinks = last_elements.cast(),
        "the output overlaps sinks",
    );
    expect_invalid(
        |c| c.lse = last_elements.cast_mut().cast(),
        "the output overlaps lse",
    );
    expect_invalid(
        |c| c.seqused_k = last_elements,
        "the output overlaps seqused_k",
    );
    expect_bad_pages(
        |c| c.block_table = last_elements,
        Code::Invalid,
        "the output overlaps block_table",
    );
    // Behind its last element.
    let mut call = packed();
    call.sinks = (last_row + 128) as *const f32;
    CheckedVarlen::new(&call).unwrap();
}

#[test]
fn pages_have_rows_a_table_and_no_starts() {
    for rows in [0, 8, 24, 48, 1 << 16, -16] {
        expect_bad_pages(
            |c| c.page_size = rows,
            Code::Unsupported,
            &format!("page_size = {rows} is not supported: a power of two from 16 to 32768"),
        );
    }
    expect_bad_pages(
        |c| c.cu_seqlens_k = 0x2000 as *const _,
        Code::Invalid,
        "both cu_seqlens_k and block_table",
    );
    expect_bad_pages(|c| c.pages = 0, Code::Invalid, "pages is 0");
    expect_bad_pages(
        |c| c.block_table_stride = 0,
        Code::Invalid,
        "block_table_stride is 0",
    );
    // 18 pages hold 288 of the 300 keys that every sequence has without seqused_k.
    expect_bad_pages(
        |c| {
            c.block_table_stride = 18;
            c.seqused_k = null();
        },
        Code::Invalid,
        "less than max_seqlen_k = 300",
    );
    let mut call = paged();
    call.block_table_stride = 18;
    CheckedVarlen::new(&call).unwrap();
}

#[test]
fn packed_sequences_are_one_batch_of_all_rows() {
    let Launched { argument, maps } = launched(&packed());
    let [q, k, v, o] = maps.try_into().unwrap();
    assert_eq!(
        (q.base, q.extents, q.box_rows),
        (1 << 30, [64, 350, 8, 1], 16)
    );
    assert_eq!(
        (k.base, k.extents, k.box_rows),
        (2 << 30, [64, 700, 2, 1], 128)
    );
    assert_eq!(
        (v.base, v.extents, v.box_rows),
        (3 << 30, [64, 700, 2, 1], 128)
    );
    assert_eq!(
        (o.base, o.extents, o.box_rows),
        (4 << 30, [64, 350, 8, 1], 16)
    );
    assert_eq!(q.strides[..2], [8 * 128, 128]);
    assert_eq!(k.strides[..2], [2 * 128, 128]);
    let params = argument.launch.params;
    assert_eq!(
        [
            params.batch,
            params.seq_q,
            params.seq_kv,
            params.heads_q,
            params.heads_kv
        ],
        [3, 200, 300, 8, 2]
    );
    assert_eq!(params.softmax_scale, 0.125);
    assert_eq!(params.mask, FULL as i32);
    let serving = argument.serving;
    assert_eq!(serving.q_starts as usize, 0x1000);
    assert_eq!(serving.kv_starts as usize, 0x2000);
    assert!(serving.kv_used.is_null() && serving.pages.is_null() && serving.sinks.is_null());
    assert_eq!(serving.total_q, 350);
    assert_eq!([serving.page_rows, serving.pages_stride], [0, 0]);
    assert_eq!([serving.window_left, serving.window_right], [-1, -1]);
    assert_eq!(serving.softcap, 0.0);
}

#[test]
fn pages_are_batches_and_their_boxes_are_no_taller() {
    let Launched { argument, maps } = launched(&paged());
    for map in &maps[1..3] {
        assert_eq!((map.extents, map.box_rows), ([64, 16, 2, 40], 16));
        assert_eq!(map.strides, [2 * 128, 128, 16 * 2 * 128]);
    }
    let serving = argument.serving;
    assert!(serving.kv_starts.is_null());
    assert_eq!(serving.kv_used as usize, 0x3000);
    assert_eq!(serving.pages as usize, 0x4000);
    assert_eq!([serving.page_rows, serving.pages_stride], [16, 20]);
    let mut tall = paged();
    tall.page_size = 256;
    assert_eq!(launched(&tall).maps[1].box_rows, 128);
}

#[test]
fn a_head_dim_between_the_compiled_ones_has_the_boxes_of_the_larger() {
    let mut call = packed();
    call.head_dim = 72;
    for tensor in [&mut call.q, &mut call.k, &mut call.v, &mut call.o] {
        tensor.head_stride = 72;
        tensor.row_stride = 8 * 72;
    }
    let Launched { argument, maps } = launched(&call);
    for map in &maps {
        assert_eq!(
            (map.extents[0], map.box_columns, map.swizzle),
            (72, 64, 128)
        );
    }
    assert_eq!(argument.serving.head_dim, 72);
    call.head_dim = 40;
    assert_eq!(launched(&call).maps[0].box_columns, 64);
}

#[test]
fn padded_sequences_have_batches_of_the_longest() {
    let mut call = packed();
    call.cu_seqlens_q = null();
    call.cu_seqlens_k = null();
    call.seqused_k = 0x3000 as *const _;
    for (tensor, rows, heads) in [
        (&mut call.q, 200, 8),
        (&mut call.k, 300, 2),
        (&mut call.v, 300, 2),
        (&mut call.o, 200, 8),
    ] {
        tensor.batch_stride = rows * heads * 64;
    }
    let Launched { argument, maps } = launched(&call);
    assert_eq!(maps[0].extents, [64, 200, 8, 3]);
    assert_eq!(maps[1].extents, [64, 300, 2, 3]);
    assert_eq!(maps[3].extents, [64, 200, 8, 3]);
    assert!(argument.serving.q_starts.is_null());
    assert_eq!(argument.serving.total_q, 0);
    assert_eq!(argument.serving.kv_used as usize, 0x3000);
}

#[test]
fn masks_windows_sinks_caps_and_scales_arrive() {
    let mut call = packed();
    call.mask = crate::ATTENTION_LADDER_CAUSAL;
    call.window_left = 127;
    call.window_right = 5;
    call.sinks = 0x5000 as *const _;
    call.softcap = 30.5;
    call.softmax_scale = 0.3;
    call.lse = 0x6000 as *mut _;
    let AttentionServed { launch, serving } = launched(&call).argument;
    assert_eq!(launch.params.mask, CAUSAL as i32);
    assert_eq!([serving.window_left, serving.window_right], [127, 5]);
    assert_eq!(serving.sinks as usize, 0x5000);
    assert_eq!(serving.softcap, 30.5);
    assert_eq!(launch.params.softmax_scale, 0.3);
    assert_eq!(launch.params.lse as usize, 0x6000);
}

#[test]
fn memory_that_was_allocated_since_takes_the_place_of_the_calls() {
    let mut call = packed();
    let mut output = call.o;
    call.o.data = null_mut();
    let mut checked = CheckedVarlen::new(&call).unwrap();
    checked.addresses().unwrap_err();
    checked.write_to(&output, 0x6000 as *mut _).unwrap();
    checked.addresses().unwrap();
    assert_eq!(checked.tensors[3].data, output.data);
    assert_eq!(checked.lse as usize, 0x6000);
    output.row_stride = 4;
    checked.write_to(&output, null_mut()).unwrap_err();
}
