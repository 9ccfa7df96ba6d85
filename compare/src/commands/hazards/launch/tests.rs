use super::LaunchFile;
use ptx::case::Argument;
use ptx::number::Number;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const START: &str = "grid = 1\nblock = 1\n";

/// Returns the reason why a launch file is refused, with its cause.
fn refusal(path: &Path, text: &str) -> String {
    let read = LaunchFile::parse(path, text);
    let error = read.and_then(|file| file.case(1)).unwrap_err();
    format!("{error:#}")
}

/// Asserts that a launch file with this text is refused for the reason.
fn assert_refused(text: &str, reason: &str) {
    let message = refusal(Path::new("launch.toml"), &format!("{START}{text}\n"));
    assert!(message.contains(reason), "{text}: {message}");
}

/// Returns the text of a buffer.
fn buffer(element: &str, fill: &str) -> String {
    format!("[[buffer]]\nname = 'x'\ntype = '{element}'\nshape = [2]\noutput = true\n{fill}\n")
}

#[test]
fn a_number_that_its_type_does_not_hold_is_refused() {
    for (element, number) in [
        ("u8", "300"),
        ("u8", "-5"),
        ("i32", "2.7"),
        ("i32", "nan"),
        ("i32", "4294967296"),
        ("i32", "-2147483649"),
        ("i64", "18446744073709551616"),
        ("i64", "9007199254740993.0"),
        ("e4m3", "1000"),
        ("e4m3", "inf"),
        ("f16", "70000"),
        ("f32", "1e39"),
    ] {
        let reason = format!("does not fit in {element}, which takes ");
        let text = format!("[[argument]]\ntype = '{element}'\nvalue = {number}");
        assert_refused(&text, "argument 1: `value`: ");
        assert_refused(&text, &reason);
        let filled = buffer(element, &format!("fill = {number}"));
        assert_refused(&filled, "buffer `x`: `fill`: ");
        assert_refused(&filled, &reason);
    }
    let filled = buffer("i32", "fill = 99999999999");
    assert_refused(&filled, "`fill`: 99999999999 does not fit in i32");
    let indexed = buffer("u8", "fill = 'index'").replace("[2]", "[257]");
    assert_refused(&indexed, "the index of the last element: 256 does not fit");
}

#[test]
fn a_number_is_read_without_loss() {
    for (element, number) in [
        ("i32", u32::MAX.into()),
        ("i64", 9_007_199_254_740_993),
        ("i64", u64::MAX.into()),
    ] {
        let text = format!("{START}[[argument]]\ntype = '{element}'\nvalue = {number}\n");
        let file = LaunchFile::parse(Path::new("launch.toml"), &text).unwrap();
        let arguments = file.case(1).unwrap().arguments;
        let Argument::Scalar(_, read) = arguments[0] else {
            panic!("{arguments:?}");
        };
        assert_eq!(read, Number::Whole(number));
    }
}

#[test]
fn a_key_that_says_nothing_is_refused() {
    for (argument, reason) in [
        ("at = 8\nbuffer = 'x'", "argument 1: `at` places a part"),
        (
            "type = 'i32'\nvalue = 1\noffset = 4",
            "`offset` says nothing beside `type`",
        ),
        (
            "bytes = 8\noffset = 4",
            "`offset` says nothing beside `bytes`",
        ),
        (
            "buffer = 'x'\nparts = []",
            "`parts` says nothing beside `buffer`",
        ),
        (
            "buffer = 'x'\nvalue = 1",
            "`value` says nothing beside `buffer`",
        ),
        ("hex = '00'\nbytes = 1", "`bytes` says nothing beside `hex`"),
    ] {
        assert_refused(&format!("[[argument]]\n{argument}"), reason);
    }
}

#[test]
fn parts_that_overlap_are_refused() {
    let text = "[[argument]]\nbytes = 24\nparts = [{ at = 12, hex = '00' }, { at = 6, buffer = \
                'x' }]";
    assert_refused(
        text,
        "`parts`: the one at 6 ends at byte 14, behind the start of the one at 12",
    );
    let apart = text.replace("at = 12", "at = 14");
    let file = LaunchFile::parse(Path::new("launch.toml"), &format!("{START}{apart}\n"));
    assert!(file.unwrap().case(1).is_ok());
}

#[test]
fn digits_with_a_sign_are_refused() {
    assert_refused(
        "[[argument]]\nhex = '+1+1'",
        "`+1+1` is not two hexadecimal digits",
    );
}

#[test]
fn two_buffers_of_one_name_are_refused() {
    let twice = buffer("i32", "") + &buffer("f32", "");
    assert_refused(&twice, "two buffers have the `name` `x`");
}

#[test]
fn an_expectation_that_can_not_be_met_is_refused() {
    let expected = |rest: &str| buffer("u8", "") + "[[expect]]\nbuffer = 'x'\n" + rest;
    for tolerance in ["inf", "-1.0", "nan"] {
        let text = expected(&format!("values = [1]\ntolerance = {tolerance}"));
        assert_refused(&text, "`expect` for `x`: `tolerance` is ");
    }
    assert_refused(
        &expected("values = [1, 300]"),
        "`values`: 300 does not fit in u8",
    );
}

#[test]
fn an_extent_that_is_none_is_refused_with_what_it_may_be() {
    for grid in ["-1", "1.5", "'1'", "[1, -1]"] {
        let text = format!("grid = {grid}\nblock = 1\n");
        let message = refusal(Path::new("launch.toml"), &text);
        let reason = "launch.toml:1: `grid` and `block` have one to three sizes";
        assert!(message.starts_with(reason), "{message}");
    }
    for (text, reason) in [
        ("grid = 0\nblock = 1\n", "`grid` has a size of 0"),
        ("grid = 1\nblock = [1, 0]\n", "`block` has a size of 0"),
    ] {
        let message = refusal(Path::new("launch.toml"), text);
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_filling_that_is_none_is_refused_with_what_it_may_be() {
    assert_refused(
        &buffer("i32", "fill = [1]"),
        "launch.toml:8: invalid type: sequence, expected a number or one of 'unset', 'index'",
    );
    assert_refused(&buffer("i32", "fill = true"), "expected a number or one of");
    for seed in ["x", "-1", ""] {
        let text = buffer("i32", &format!("fill = 'random:{seed}'"));
        assert_refused(
            &text,
            &format!("`random:{seed}`: the seed is a whole number"),
        );
    }
    let text = "[[argument]]\ntype = 'i32'\nvalue = '3'";
    assert_refused(
        text,
        "launch.toml:5: invalid type: string \"3\", expected a number",
    );
}

#[test]
fn a_file_that_does_not_fill_its_buffer_is_refused_before_it_is_read() {
    assert_refused(
        &buffer("i32", "fill = 'file:/dev/zero'"),
        "buffer `x`: `fill`: /dev/zero is no regular file",
    );
    let folder = TempDir::new().unwrap();
    let large = fs::File::create(folder.path().join("large.bin")).unwrap();
    // It has no blocks on the disk, and does not fit in memory.
    large.set_len(1 << 42).unwrap();
    let text = format!("{START}{}", buffer("i32", "fill = 'file:large.bin'"));
    let message = refusal(&folder.path().join("launch.toml"), &text);
    let reason = "large.bin has 4398046511104 bytes, and the buffer takes 8";
    assert!(message.contains(reason), "{message}");
}
