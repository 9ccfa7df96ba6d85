//! Boxes of three to five dimensions that TMA loads and stores, against values that are written out.

use ptx::Module;
use ptx::case::{Argument, Buffer, Case, CaseError, ElementType, Filling, MapOver, Verdict};
use ptx::number::Number;

const LOADED: &str = include_str!("kernels/boxes.ptx");
const STORED: &str = include_str!("kernels/tensor_store.ptx");

/// The 32-bit words of a box's row.
const WORDS: usize = 32;

/// Returns a map over rows of 128 bytes of 4-byte numbers, as many as these extents say.
fn map(extents: &[u64], strides: &[u64], box_extents: &[u32]) -> MapOver {
    MapOver {
        buffer: "from".to_owned(),
        offset: 0,
        extents: [&[WORDS as u64], extents].concat(),
        strides: strides.to_vec(),
        box_extents: [&[WORDS as u32], box_extents].concat(),
        swizzle: 128,
    }
}

/// Three planes of three rows, one behind the other, of which a box has two of each.
fn planes() -> MapOver {
    map(&[3, 3], &[128, 384], &[2, 2])
}

fn buffer(name: &str, filling: Filling, rows: usize) -> Buffer {
    Buffer {
        name: name.to_owned(),
        element: ElementType::I32,
        elements: rows * WORDS,
        is_output: filling == Filling::Unset,
        filling,
    }
}

/// Returns a launch that loads a box whose coordinates in the outer dimensions these are. The
/// elements of the tensor count themselves.
fn load(tensor: MapOver, at: &[i32]) -> Case {
    let number = |value: i32| Argument::Scalar(ElementType::I32, Number::Whole(value.into()));
    let mut arguments = vec![Argument::Map(tensor), number(0)];
    arguments.extend(at.iter().map(|&value| number(value)));
    arguments.push(Argument::Address {
        buffer: "to".to_owned(),
        offset: 0,
    });
    Case {
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 0,
        buffers: vec![
            buffer("from", Filling::Index, 24),
            buffer("to", Filling::Unset, 4),
        ],
        arguments,
        history: None,
    }
}

/// Returns the kernel that loads a box of five dimensions.
fn in_five_dimensions() -> String {
    LOADED
        .replace("tensor.3d", "tensor.5d")
        .replace("{%r4, %r5, %r6}", "{%r4, %r5, %r6, %r16, %r17}")
        .replace(
            ".param .u32 plane,",
            ".param .u32 plane, .param .u32 fourth, .param .u32 fifth,",
        )
        .replace(
            "\tld.param.u32 %r6, [plane];\n",
            "\tld.param.u32 %r6, [plane];\n\tld.param.u32 %r16, [fourth];\n\
             \tld.param.u32 %r17, [fifth];\n",
        )
}

fn judge(text: &str, launch: &Case) -> Result<Verdict, CaseError> {
    let module = Module::parse("tests/kernel.ptx", text).unwrap();
    let name = module.entries()[0].name.clone();
    launch.judge(&module.entry(&name).unwrap(), None)
}

/// A row of zeros.
const OUTSIDE: i64 = -1;

/// Returns the first element of each of the box's rows, whose others follow it.
fn rows(text: &str, launch: &Case) -> Vec<i64> {
    let verdict = judge(text, launch).unwrap();
    assert!(verdict.is_green(), "{verdict:?}");
    let values = ElementType::I32.decode(&verdict.outputs[0]);
    let mut firsts = Vec::new();
    for row in values.chunks(WORDS) {
        if row == [0.0; WORDS] {
            firsts.push(OUTSIDE);
            continue;
        }
        let first = row[0] as i64;
        let following: Vec<f64> = (first..).take(WORDS).map(|value| value as f64).collect();
        assert_eq!(row, following);
        firsts.push(first);
    }
    firsts
}

#[test]
fn a_box_of_three_dimensions_has_the_rows_of_one_plane_after_those_of_another() {
    let inside = rows(LOADED, &load(planes(), &[1, 1]));
    assert_eq!(inside, [128, 160, 224, 256]);
}

#[test]
fn what_lies_outside_in_any_dimension_is_zero() {
    for (at, expected) in [
        ([2, 1], [160, OUTSIDE, 256, OUTSIDE]),
        ([1, 2], [224, 256, OUTSIDE, OUTSIDE]),
        ([-1, 1], [OUTSIDE, 96, OUTSIDE, 192]),
        ([1, -1], [OUTSIDE, OUTSIDE, 32, 64]),
        ([2, 2], [256, OUTSIDE, OUTSIDE, OUTSIDE]),
        ([3, 0], [OUTSIDE; 4]),
        ([0, 3], [OUTSIDE; 4]),
        ([0, -2], [OUTSIDE; 4]),
        ([i32::MAX, i32::MIN], [OUTSIDE; 4]),
    ] {
        assert_eq!(rows(LOADED, &load(planes(), &at)), expected, "{at:?}");
    }
}

#[test]
fn rows_and_planes_lie_as_the_strides_say() {
    let spread = map(&[3, 3], &[256, 1024], &[2, 2]);
    assert_eq!(rows(LOADED, &load(spread, &[1, 1])), [320, 384, 576, 640]);
}

#[test]
fn a_stride_that_is_wrong_brings_other_rows() {
    let narrow = map(&[3, 3], &[128, 256], &[2, 2]);
    assert_eq!(rows(LOADED, &load(narrow, &[1, 1])), [96, 128, 160, 192]);
}

#[test]
fn dimensions_in_another_order_bring_other_rows() {
    let tall = map(&[3, 3], &[128, 384], &[4, 1]);
    let deep = map(&[3, 3], &[128, 384], &[1, 4]);
    let swapped = map(&[3, 3], &[384, 128], &[2, 2]);
    assert_eq!(rows(LOADED, &load(tall, &[0, 1])), [96, 128, 160, OUTSIDE]);
    assert_eq!(
        rows(LOADED, &load(deep, &[0, 1])),
        [96, 192, OUTSIDE, OUTSIDE]
    );
    assert_eq!(rows(LOADED, &load(swapped, &[1, 1])), [128, 224, 160, 256]);
}

/// 2 x 2 x 2 x 3 rows of 128 bytes: the box has two of the third dimension and two of the fifth.
#[test]
fn a_box_of_five_dimensions_goes_through_the_inner_ones_first() {
    let five = || map(&[2, 2, 2, 3], &[128, 256, 512, 1024], &[1, 2, 1, 2]);
    let text = in_five_dimensions();
    for (at, expected) in [
        ([0, 0, 0, 0], [0, 64, 256, 320]),
        ([1, 0, 1, 1], [416, 480, 672, 736]),
        ([1, 1, 1, 1], [480, OUTSIDE, 736, OUTSIDE]),
        ([1, 0, 1, 2], [672, 736, OUTSIDE, OUTSIDE]),
        ([1, 0, 2, 0], [OUTSIDE; 4]),
        ([2, 0, 0, 0], [OUTSIDE; 4]),
        ([1, 0, 0, -1], [OUTSIDE, OUTSIDE, 32, 96]),
    ] {
        let launch = load(five(), &at);
        let found = rows(&text, &launch);
        assert_eq!(found, expected, "{at:?}");
    }
}

/// Returns the kernel that stores a box of eight rows, at these outer coordinates.
fn stored_at(coordinates: &str) -> String {
    STORED
        .replace("tensor.2d", "tensor.3d")
        .replace("{%r6, %r6}", &format!("{{%r6, {coordinates}}}"))
}

/// Returns the launch of a store to three planes of three rows, and a row behind them.
fn store() -> Case {
    let tensor = MapOver {
        buffer: "to".to_owned(),
        ..map(&[3, 3], &[128, 384], &[2, 4])
    };
    Case {
        buffers: vec![buffer("to", Filling::Unset, 10)],
        arguments: vec![Argument::Map(tensor)],
        ..load(planes(), &[])
    }
}

#[test]
fn a_store_writes_what_lies_inside_and_nothing_else() {
    for (at, written) in [
        ("0, 1", vec![3, 4, 6, 7]),
        ("2, 0", vec![2, 5, 8]),
        ("1, 2", vec![7, 8]),
        ("3, 0", vec![]),
    ] {
        let verdict = judge(&stored_at(at), &store()).unwrap();
        assert!(verdict.is_green(), "{verdict:?}");
        let values = ElementType::I32.decode(&verdict.outputs[0]);
        let stored = f64::from(0x3C00_3C00);
        for (row, found) in values.chunks(WORDS).enumerate() {
            let expected = if written.contains(&row) { stored } else { -1.0 };
            assert_eq!(found, [expected; WORDS], "row {row} at {at}");
        }
    }
}

#[test]
fn a_plane_that_is_read_before_the_store_is_complete_is_a_race() {
    let read = "cp.async.bulk.commit_group;\n\tld.global.u32 %r7, [%rd3+512]; // early\n";
    let text = stored_at("0, 1")
        .replace("cp.async.bulk.commit_group;", read)
        .replace("map[128])", "map[128], .param .u64 to)")
        .replace(
            "mov.b64 %rd1, map;",
            "mov.b64 %rd1, map; ld.param.u64 %rd3, [to];",
        );
    let mut launch = store();
    launch.arguments.push(Argument::Address {
        buffer: "to".to_owned(),
        offset: 0,
    });
    let verdict = judge(&text, &launch).unwrap();
    let said: Vec<String> = verdict.hazards.iter().map(ToString::to_string).collect();
    let is_named = said
        .iter()
        .any(|line| line.contains("race") && line.contains("tma_store"));
    assert!(is_named, "{said:?}");
    // The row behind the tensor is nobody's.
    let behind = text.replace("[%rd3+512]", "[%rd3+1152]");
    assert!(judge(&behind, &launch).unwrap().hazards.is_empty());
}

#[test]
fn a_map_that_is_none_says_why() {
    let refused = |tensor: MapOver| {
        let error = judge(LOADED, &load(tensor, &[0, 0])).unwrap_err();
        error.to_string()
    };
    for (tensor, reason) in [
        (
            map(&[3, 3], &[128], &[2, 2]),
            "has 3 extents, 1 strides and a box of 3; it has 1 to 5 dimensions",
        ),
        (
            map(&[3, 3], &[128, 384], &[2, 2, 1]),
            "has 3 extents, 2 strides and a box of 4",
        ),
        (
            map(&[1; 5], &[128; 5], &[1]),
            "has 6 extents, 5 strides and a box of 2",
        ),
        (
            map(&[3, 9], &[128, 384], &[2, 2]),
            "reaches byte 3456, and the buffer has 3072",
        ),
        (
            map(&[3, u64::MAX], &[128, 384], &[2, 2]),
            "reaches byte 18446744073709551615",
        ),
        (
            map(&[3, 3], &[128, 384], &[2, 257]),
            "dimension 2 of a box has 1 to 256 elements, not 257",
        ),
        (
            map(&[3, 3], &[128, 392], &[2, 2]),
            "the stride of dimension 2 of a tensor map is a multiple of 16 bytes",
        ),
    ] {
        let message = refused(tensor);
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_box_beyond_shared_memory_stops_its_thread() {
    let launch = load(map(&[3, 3], &[128, 384], &[2, 4]), &[0, 0]);
    let verdict = judge(LOADED, &launch).unwrap();
    let said: Vec<String> = verdict.hazards.iter().map(ToString::to_string).collect();
    let all = said.join("\n");
    assert!(
        all.contains("its box of 1024 bytes at byte 0 is not in shared"),
        "{all}"
    );
}
