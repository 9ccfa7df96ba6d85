use super::launch::LaunchFile;
use super::{HazardsArgs, Report, hazards, read, remove_each};
use results::judge::verdict::Exit;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../common/ptx/tests/kernels");

const BARRIER_LAUNCH: &str = "
grid = 1
block = 128
[[buffer]]
name = 'to'
type = 'i32'
shape = [128]
output = true
[[argument]]
buffer = 'to'
";

/// Writes a kernel and its launch file to a folder, and returns the arguments that name them.
fn arguments(folder: &TempDir, kernel: &str, launch: &str) -> HazardsArgs {
    let paths = [
        folder.path().join("kernel.ptx"),
        folder.path().join("launch.toml"),
    ];
    fs::write(&paths[0], kernel).unwrap();
    fs::write(&paths[1], launch).unwrap();
    let [kernel_path, launch_path] = paths;
    HazardsArgs {
        kernel: kernel_path,
        launch: launch_path,
        suppress: false,
        schedules: 0,
        memory: None,
        json: false,
        annotations: false,
    }
}

fn kernel(name: &str) -> String {
    fs::read_to_string(Path::new(KERNELS).join(name)).unwrap()
}

#[test]
fn a_right_kernel_is_green() {
    let folder = TempDir::new().unwrap();
    let args = arguments(&folder, &kernel("barrier.ptx"), BARRIER_LAUNCH);
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    assert!(answer.text.contains("no hazard"), "{}", answer.text);
}

#[test]
fn a_missing_barrier_is_red_with_both_lines() {
    let folder = TempDir::new().unwrap();
    let text = kernel("barrier.ptx").replace("bar.sync 0;", "");
    let answer = hazards(&arguments(&folder, &text, BARRIER_LAUNCH)).unwrap();
    assert_eq!(answer.exit, Exit::Fail);
    assert!(answer.text.contains("race"), "{}", answer.text);
    assert_eq!(
        answer.text.matches("kernel.ptx:").count(),
        2,
        "{}",
        answer.text
    );
}

#[test]
fn a_race_is_annotated_at_its_line() {
    let folder = TempDir::new().unwrap();
    let text = kernel("barrier.ptx").replace("bar.sync 0;", "");
    let mut args = arguments(&folder, &text, BARRIER_LAUNCH);
    args.annotations = true;
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Fail);
    let annotation = answer.text.lines().last().unwrap();
    assert!(annotation.starts_with("::error file="), "{annotation}");
    let position = "kernel.ptx,line=18,title=hazard::race";
    assert!(annotation.contains(position), "{annotation}");
}

#[test]
fn an_output_that_is_not_expected_is_annotated_at_the_module() {
    let folder = TempDir::new().unwrap();
    let launch = format!("{BARRIER_LAUNCH}[[expect]]\nbuffer = 'to'\nvalues = [0.0]\n");
    let mut args = arguments(&folder, &kernel("barrier.ptx"), &launch);
    args.annotations = true;
    let answer = hazards(&args).unwrap();
    let annotation = answer.text.lines().last().unwrap();
    let position = "kernel.ptx,title=hazards::element 0";
    assert!(annotation.contains(position), "{annotation}");
}

#[test]
fn nothing_is_annotated_where_nothing_was_found() {
    let folder = TempDir::new().unwrap();
    let mut args = arguments(&folder, &kernel("barrier.ptx"), BARRIER_LAUNCH);
    args.annotations = true;
    let answer = hazards(&args).unwrap();
    assert!(!answer.text.contains("::error"), "{}", answer.text);
}

#[test]
fn an_output_that_is_not_expected_is_red() {
    let folder = TempDir::new().unwrap();
    let launch = format!("{BARRIER_LAUNCH}[[expect]]\nbuffer = 'to'\nvalues = [0.0]\n");
    let answer = hazards(&arguments(&folder, &kernel("barrier.ptx"), &launch)).unwrap();
    assert_eq!(answer.exit, Exit::Fail);
    assert!(
        answer.text.contains("element 0 of `to` is 127"),
        "{}",
        answer.text
    );
}

/// Returns the arguments that name a kernel and a launch file of the repository.
fn committed(kernel_name: &str, launch_name: &str) -> HazardsArgs {
    HazardsArgs {
        kernel: Path::new(KERNELS).join(kernel_name),
        launch: Path::new(KERNELS).join(launch_name),
        suppress: false,
        schedules: 0,
        memory: None,
        json: false,
        annotations: false,
    }
}

#[test]
fn initialisers_that_nvcc_has_lost_are_a_wrong_output_with_its_source_line() {
    let args = committed("array_initialisers.ptx", "by_member_initialisers.toml");
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Fail, "{}", answer.text);
    let finding = "element 2 of `maxima` is 0, beyond 0 of -3, which is expected: it was last \
                   stored at kernels/array_initialisers.cu:28";
    assert_eq!(answer.text, finding);
}

#[test]
fn a_named_function_initialises_what_nvcc_keeps() {
    let args = committed("array_initialisers.ptx", "by_named_function.toml");
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
}

#[test]
fn an_infinity_that_is_expected_is_met() {
    let folder = TempDir::new().unwrap();
    let launch = kernel("by_named_function.toml").replace("-3.0", "-inf");
    let answer = hazards(&arguments(
        &folder,
        &kernel("array_initialisers.ptx"),
        &launch,
    ));
    let text = answer.unwrap().text;
    assert!(text.contains("no hazard"), "{text}");
}

#[test]
fn a_box_of_three_dimensions_is_described_by_its_extents() {
    let answer = hazards(&committed("boxes.ptx", "boxes.toml")).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
}

#[test]
fn a_box_whose_dimensions_are_in_another_order_is_a_wrong_output() {
    let folder = TempDir::new().unwrap();
    for (from, to) in [
        ("box = [32, 2, 2]", "box = [32, 4, 1]"),
        ("strides = [128, 384]", "strides = [384, 128]"),
        ("strides = [128, 384]", "strides = [128, 256]"),
    ] {
        let launch = kernel("boxes.toml").replace(from, to);
        let answer = hazards(&arguments(&folder, &kernel("boxes.ptx"), &launch)).unwrap();
        assert_eq!(answer.exit, Exit::Fail, "{to}: {}", answer.text);
        assert!(answer.text.contains("of `to` is"), "{}", answer.text);
    }
}

#[test]
fn a_launch_beyond_the_memory_is_refused_before_it_runs() {
    let folder = TempDir::new().unwrap();
    let mut args = arguments(&folder, &kernel("barrier.ptx"), BARRIER_LAUNCH);
    args.memory = Some("1MiB".parse().unwrap());
    let message = format!("{:#}", hazards(&args).unwrap_err());
    for words in [
        "launch.toml: needs up to",
        "for 1 block, 1 at once; --memory allows 1.0 MiB: ",
        "or raise the limit by --memory",
    ] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_impossible_buffer_is_refused_before_it_is_filled() {
    let folder = TempDir::new().unwrap();
    let launch = BARRIER_LAUNCH.replace("[128]", "[4611686018427387904, 2]");
    let args = arguments(&folder, &kernel("barrier.ptx"), &launch);
    let message = format!("{:#}", hazards(&args).unwrap_err());
    assert!(message.contains("make the"), "{message}");
}

#[test]
fn a_kernel_that_is_remembered_at_great_length_is_given_more_or_refused() {
    let folder = TempDir::new().unwrap();
    let launch = BARRIER_LAUNCH
        .replace("block = 128", "block = 32")
        .replace("[128]", "[32]");
    let mut args = arguments(&folder, &kernel("rounds.ptx"), &launch);
    args.memory = Some("4GiB".parse().unwrap());
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    args.memory = Some("400MiB".parse().unwrap());
    let message = format!("{:#}", hazards(&args).unwrap_err());
    let remedy = "let its loops go round fewer times, or raise the limit by --memory";
    assert!(message.contains(remedy), "{message}");
}

#[test]
fn every_removal_is_noticed_and_json_says_so() {
    let folder = TempDir::new().unwrap();
    let mut args = arguments(&folder, &kernel("barrier.ptx"), BARRIER_LAUNCH);
    (args.suppress, args.json) = (true, true);
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    let object: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(object["unnoticed"], serde_json::json!([]));
    assert_eq!(object["synchronisation"], 1);
    assert!(object["memory_bytes"].as_u64() > Some(1 << 20), "{object}");
}

/// Returns the arguments that name a kernel of Triton's and its launch file, with every removal.
fn triton(folder: &TempDir, name: &str, more: &str) -> HazardsArgs {
    let launch = kernel(&format!("{name}.toml")) + more;
    HazardsArgs {
        suppress: true,
        ..arguments(folder, &kernel(&format!("{name}.ptx")), &launch)
    }
}

/// Triton fences behind the barrier: each thread fences what the others have stored.
#[test]
fn a_product_by_triton_is_right_and_needs_every_place_that_synchronises() {
    let folder = TempDir::new().unwrap();
    let answer = hazards(&triton(&folder, "triton_product", "")).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    assert!(answer.text.contains("10 places"), "{}", answer.text);
}

#[test]
fn a_product_by_triton_without_its_fence_is_red() {
    let folder = TempDir::new().unwrap();
    let args = triton(&folder, "triton_product", "");
    let text = kernel("triton_product.ptx").replace("fence.proxy.async.shared::cta;", "");
    fs::write(&args.kernel, text).unwrap();
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Fail);
    let fence = "it is missing in the thread that wrote";
    assert!(answer.text.contains(fence), "{}", answer.text);
}

/// K is 0, so that each of 256 rows is the mean of the rows of V until its own; V counts its
/// elements, 64 a row, in f16.
#[test]
fn attention_by_triton_is_right_and_needs_every_place_that_synchronises() {
    let mut means = Vec::new();
    for row in 0..256 {
        for column in 0..64 {
            means.push(format!("{}.0", 32 * row + column));
        }
    }
    let values = means.join(", ");
    let expected = format!("\n[[expect]]\nbuffer = 'o'\nvalues = [{values}]\ntolerance = 8.0\n");
    let folder = TempDir::new().unwrap();
    let answer = hazards(&triton(&folder, "triton_attention", &expected)).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    assert!(answer.text.contains("15 places"), "{}", answer.text);
}

#[test]
fn an_interrupted_search_counts_the_removals_that_it_left_out() {
    let folder = TempDir::new().unwrap();
    let args = arguments(&folder, &kernel("barrier.ptx"), BARRIER_LAUNCH);
    let (program, launch_file) = read(&args).unwrap();
    let case = launch_file.case(program.cluster()).unwrap();
    let verdict = case.judge(&program, None).unwrap();
    let removals = remove_each(&program, &case, &verdict, &AtomicBool::new(true)).unwrap();
    assert!(removals.unnoticed.is_empty());
    let report = Report {
        synchronisation: verdict.sync_sites.len(),
        not_removed: removals.not_made,
        ..Report::default()
    };
    assert_eq!(report.exit(), Exit::Interrupted);
    assert_eq!(report.text(), "interrupted: 1 of 1 removals were not made");
}

#[test]
fn an_instruction_that_is_not_there_is_refused_by_name_and_line() {
    let folder = TempDir::new().unwrap();
    let text = kernel("barrier.ptx").replace("bar.sync 0;", "tcgen05.fence;");
    let error = hazards(&arguments(&folder, &text, BARRIER_LAUNCH)).unwrap_err();
    let message = format!("{error:#}");
    assert!(
        message.contains("kernel.ptx:19: `tcgen05.fence` is not implemented"),
        "{message}"
    );
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    for (launch, reason) in [
        (
            "grid = 1\nblock = 128\n",
            "takes 1 arguments, and the launch has 0",
        ),
        ("grid = 1\nblock = 128\nblok = 1\n", "unknown field `blok`"),
        ("grid = []\nblock = 128\n", "one to three sizes"),
        (
            &format!("{BARRIER_LAUNCH}[[expect]]\nbuffer = 'to'\nvalues = []\n"),
            "`expect` has 0 values for `to`: give one for all elements, or one for each of its 128",
        ),
        (
            &format!("{BARRIER_LAUNCH}[[expect]]\nbuffer = 'to'\nvalues = [1, 2]\n"),
            "`expect` has 2 values for `to`",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let error = hazards(&arguments(&folder, &kernel("barrier.ptx"), launch)).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains(reason), "{message}");
        assert!(message.contains("launch.toml"), "{message}");
    }
}

#[test]
fn what_is_no_launch_file_is_refused_by_file_and_line() {
    for (text, message) in [
        ("grid = 1\nblock = 1 2\n", "launch.toml:2: "),
        ("grid = 1\ngrid = 2\n", "launch.toml:2: duplicate key"),
        (
            "grid = 1\nblock = 1\n\nblok = 1\n",
            "launch.toml:4: unknown field `blok`",
        ),
        (
            "grid = 1\nblock = 1\n[[argument]]\nvalue = 'x'\n",
            "launch.toml:4: invalid type",
        ),
        ("grid = 1\n", "launch.toml:1: missing field `block`"),
    ] {
        let error = LaunchFile::parse(Path::new("launch.toml"), text).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
}

#[test]
fn a_filling_is_a_number_or_a_word() {
    let text = BARRIER_LAUNCH.replace("output = true", "fill = 'full'");
    let file = LaunchFile::parse(Path::new("launch.toml"), &text).unwrap();
    let error = file.case(1).unwrap_err();
    assert!(
        format!("{error:#}").contains("`full` fills nothing"),
        "{error:#}"
    );
}

/// A kernel that copies the second number of its structure's buffer to the first.
const STRUCTURE: &str = "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry structure(.param .align 8 .b8 all[24])
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [all+8];
	ld.param.u32 %r1, [all+16];
	ld.global.u32 %r2, [%rd1];
	add.s32 %r3, %r1, %r2;
	st.global.u32 [%rd1+-4], %r3;
	ret;
}
";

const STRUCTURE_LAUNCH: &str = "
grid = 1
block = 1
[[buffer]]
name = 'to'
type = 'i32'
shape = [2]
fill = 'file:to.bin'
output = true
[[argument]]
bytes = 24
parts = [
  { at = 8, buffer = 'to', offset = 4 },
  { at = 16, hex = '0c000000' },
]
[[expect]]
buffer = 'to'
values = [42.0, 30.0]
";

#[test]
fn a_structure_and_the_content_of_a_buffer_are_taken_as_they_are() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("to.bin"), [0, 0, 0, 0, 30, 0, 0, 0]).unwrap();
    let answer = hazards(&arguments(&folder, STRUCTURE, STRUCTURE_LAUNCH)).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
}

#[test]
fn a_structure_or_content_that_is_none_is_refused() {
    for (from, to, reason) in [
        ("to.bin", "from.bin", "cannot read"),
        (
            "0c000000",
            "0c0",
            "`0c0` is not two hexadecimal digits a byte",
        ),
        (
            "at = 16, ",
            "at = 21, ",
            "a part of an argument reaches byte 25 of 24",
        ),
        (
            "bytes = 24",
            "bytes = 20",
            "takes 24 bytes, and the launch has 20",
        ),
        ("bytes = 24", "", "it is one of `buffer`"),
        (
            "hex = '0c000000'",
            "map = { buffer = 'to', extents = [2], strides = [], box = [2], swizzle = 128 }",
            "a part of an argument reaches byte 144 of 24",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("to.bin"), [0; 8]).unwrap();
        let launch = STRUCTURE_LAUNCH.replacen(from, to, 1);
        let error = hazards(&arguments(&folder, STRUCTURE, &launch)).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains(reason), "{message}");
    }
}

/// A kernel that stores a word that it is given.
const WIDE: &str = "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry wide(.param .u64 to, .param .u64 word)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [to];
	ld.param.u64 %rd2, [word];
	st.global.u64 [%rd1], %rd2;
	ret;
}
";

const WIDE_LAUNCH: &str = "
grid = 1
block = 1
[[buffer]]
name = 'to'
type = 'i64'
shape = [1]
output = true
[[argument]]
buffer = 'to'
[[argument]]
type = 'i64'
value = 9007199254740993
[[expect]]
buffer = 'to'
values = [9007199254740993]
";

#[test]
fn a_word_is_stored_and_compared_to_its_last_bit() {
    let folder = TempDir::new().unwrap();
    let answer = hazards(&arguments(&folder, WIDE, WIDE_LAUNCH)).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    for near in ["9007199254740992", "9007199254740992.0"] {
        let launch = WIDE_LAUNCH.replace("[9007199254740993]", &format!("[{near}]"));
        let wrong = hazards(&arguments(&folder, WIDE, &launch)).unwrap();
        assert_eq!(wrong.exit, Exit::Fail, "{near}: {}", wrong.text);
        let words = "element 0 of `to` is 9007199254740993, beyond 0 of 9007199254740992";
        assert!(wrong.text.contains(words), "{}", wrong.text);
    }
}

#[test]
fn a_word_without_a_sign_is_given_and_expected_by_its_bits() {
    let folder = TempDir::new().unwrap();
    let launch = WIDE_LAUNCH.replace("9007199254740993", "18446744073709551615");
    let answer = hazards(&arguments(&folder, WIDE, &launch)).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
}

#[test]
fn what_does_not_fit_the_kernel_is_said_once_and_names_the_file() {
    let folder = TempDir::new().unwrap();
    let launch = WIDE_LAUNCH.replace("[[argument]]\nbuffer = 'to'", "[[argument]]\nbuffer = 'x'");
    let args = arguments(&folder, WIDE, &launch);
    let message = format!("{:#}", hazards(&args).unwrap_err());
    let expected = format!("{}: there is no buffer `x`", args.launch.display());
    assert_eq!(message, expected);
}

#[test]
fn a_cluster_is_as_large_as_the_entry_asks() {
    let launch = "grid = 2\nblock = 128\n[[buffer]]\nname = 'to'\ntype = 'i32'\nshape = [128]\n\
                  output = true\n[[argument]]\nbuffer = 'to'\n[[expect]]\nbuffer = 'to'\n\
                  values = [7.0]\n";
    let folder = TempDir::new().unwrap();
    let answer = hazards(&arguments(&folder, &kernel("cluster.ptx"), launch)).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
}

const WINDOW_LAUNCH: &str = "
grid = 1
block = 64
[[buffer]]
name = 'gate'
type = 'i32'
shape = [1]
fill = 0.0
output = true
[[buffer]]
name = 'passed'
type = 'i32'
shape = [1]
output = true
[[argument]]
buffer = 'gate'
[[argument]]
buffer = 'passed'
";

#[test]
fn more_orders_find_what_three_schedules_do_not_and_say_how_many_they_were() {
    let folder = TempDir::new().unwrap();
    let mut args = arguments(&folder, &kernel("window.ptx"), WINDOW_LAUNCH);
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    args.schedules = 100;
    let explored = hazards(&args).unwrap();
    assert_eq!(explored.exit, Exit::Fail, "{}", explored.text);
    for words in [
        "schedule Delayed([",
        "`passed` differs",
        "100 orders of warps were run",
    ] {
        assert!(explored.text.contains(words), "{}", explored.text);
    }
}

#[test]
fn orders_that_find_nothing_leave_the_verdict_green() {
    let folder = TempDir::new().unwrap();
    let mut args = arguments(&folder, &kernel("barrier.ptx"), BARRIER_LAUNCH);
    args.schedules = 20;
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    assert!(answer.text.contains("20 orders"), "{}", answer.text);
}

#[test]
fn the_recipes_launch_file_works_as_written() {
    let file = fs::read_to_string(Path::new(KERNELS).join("ring.toml")).unwrap();
    let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/recipes.md");
    let page = fs::read_to_string(recipes).unwrap();
    assert!(page.contains(&format!("```toml\n{file}```\n")));
    let folder = TempDir::new().unwrap();
    let mut args = arguments(&folder, &kernel("ring.ptx"), &file);
    args.suppress = true;
    let answer = hazards(&args).unwrap();
    assert_eq!(answer.exit, Exit::Pass, "{}", answer.text);
    assert!(page.contains(&answer.text), "{}", answer.text);
}
