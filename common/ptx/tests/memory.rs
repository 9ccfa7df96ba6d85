//! What a judgement says that it takes of the host's memory, for launches that are written out, and
//! what it does where that is too little.

use emulator::trace::HazardKind;
use ptx::case::{Argument, Buffer, Case, CaseError, ElementType, Filling};
use ptx::memory::{Bound, Bytes, Largest, Means};
use ptx::number::Number;
use ptx::{Module, Program};

const BARRIER: &str = include_str!("kernels/barrier.ptx");
const MIB: u64 = 1 << 20;

const MEANS: Means = Means {
    workers: 2,
    orders: 0,
};

fn program(text: &str) -> Program {
    let module = Module::parse("tests/kernel.ptx", text).unwrap();
    let name = module.entries()[0].name.clone();
    module.entry(&name).unwrap()
}

fn buffer(name: &str, elements: usize, is_output: bool) -> Buffer {
    Buffer {
        name: name.to_owned(),
        element: ElementType::F32,
        elements,
        filling: Filling::Value(Number::Real(0.0)),
        is_output,
    }
}

fn case(blocks: u32, buffers: Vec<Buffer>) -> Case {
    let to = Argument::Address {
        buffer: "to".to_owned(),
        offset: 0,
    };
    Case {
        grid: [blocks, 1, 1],
        block: [128, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 0,
        buffers,
        arguments: vec![to],
        history: None,
    }
}

fn bound(launch: &Case) -> Bound {
    launch.bound(&program(BARRIER), &MEANS)
}

#[test]
fn a_small_launch_says_so() {
    let small = bound(&case(1, vec![buffer("to", 128, true)]));
    assert_eq!((small.blocks, small.at_once), (1, 1));
    assert!(small.bytes() < 32 * MIB, "{small:?}");
}

#[test]
fn an_input_is_there_once_and_once_more_while_it_is_filled() {
    let small = bound(&case(1, vec![buffer("to", 128, true)]));
    let inputs = vec![buffer("to", 128, true), buffer("from", 1 << 20, false)];
    let large = bound(&case(1, inputs));
    assert_eq!(large.buffers - small.buffers, 8 * MIB + 1024 - 512);
    assert_eq!(large.largest(), Largest::Buffers);
}

/// The buffer of a launch and another one while it is filled, two copies to compare, its values.
#[test]
fn an_output_is_compared_too() {
    let small = bound(&case(1, vec![buffer("to", 128, true)]));
    let large = bound(&case(1, vec![buffer("to", 128 + (1 << 20), true)]));
    let each = 4 * MIB;
    assert_eq!(large.buffers - small.buffers, 4 * each + 8 * MIB);
    assert_eq!(large.largest(), Largest::Outputs);
}

#[test]
fn blocks_that_do_not_run_at_once_take_little() {
    let output = || vec![buffer("to", 128, true)];
    let (few, many) = (bound(&case(2, output())), bound(&case(1000, output())));
    assert_eq!((many.blocks, many.at_once), (1000, 2));
    assert!(many.bytes() - few.bytes() < 4 * MIB, "{many:?}");
}

#[test]
fn orders_are_counted() {
    let launch = case(1, vec![buffer("to", 128, true)]);
    let orders = 1_000_000;
    let many = launch.bound(&program(BARRIER), &Means { orders, ..MEANS });
    assert_eq!(many.bytes() - bound(&launch).bytes(), 64_000_000);
}

#[test]
fn a_launch_beyond_all_numbers_is_no_panic() {
    let buffers = vec![
        buffer("to", usize::MAX, true),
        buffer("from", usize::MAX, false),
    ];
    let huge = Case {
        grid: [u32::MAX; 3],
        block: [u32::MAX; 3],
        cluster: u32::MAX,
        dynamic_shared_bytes: usize::MAX,
        ..case(1, buffers)
    };
    assert_eq!(bound(&huge).bytes(), u64::MAX);
}

#[test]
fn means_beyond_all_numbers_are_no_panic() {
    let means = Means {
        workers: 1 << 40,
        orders: usize::MAX,
    };
    let huge = Case {
        grid: [u32::MAX; 3],
        cluster: u32::MAX,
        ..case(1, vec![buffer("to", 128, true)])
    };
    let all = huge.bound(&program(BARRIER), &means);
    assert_eq!((all.at_once, all.rest), (u64::MAX, u64::MAX));
}

#[test]
fn buffers_beyond_the_judges_places_are_refused() {
    let launch = case(
        1,
        vec![buffer("to", 128, true), buffer("from", 1 << 30, false)],
    );
    let error = launch.judge(&program(BARRIER), None).unwrap_err();
    assert!(matches!(error, CaseError::TooLarge { .. }), "{error}");
}

const ROUNDS: &str = include_str!("kernels/rounds.ptx");

fn rounds(history: Option<usize>) -> Case {
    Case {
        block: [32, 1, 1],
        history,
        ..case(1, vec![buffer("to", 32, true)])
    }
}

#[test]
fn a_kernel_that_is_remembered_at_too_great_length_is_refused() {
    let error = rounds(Some(1 << 20))
        .judge(&program(ROUNDS), None)
        .unwrap_err();
    let CaseError::Outgrown(reason) = &error else {
        panic!("{error}")
    };
    assert!(reason.contains("more than 1048576 bytes"), "{reason}");
}

#[test]
fn a_race_that_was_found_before_the_limit_is_reported() {
    let racing = ROUNDS.replace("[%r2], %r3", "[words], %r1");
    let verdict = rounds(Some(1 << 20))
        .judge(&program(&racing), None)
        .unwrap();
    assert!(verdict.is_cut_short);
    assert_eq!(verdict.hazards[0].kind, HazardKind::Race, "{verdict:?}");
}

#[test]
fn more_to_remember_by_lets_it_end() {
    let verdict = rounds(Some(1 << 28)).judge(&program(ROUNDS), None).unwrap();
    assert!(verdict.is_green(), "{verdict:?}");
}

#[test]
fn sizes_are_read_and_shown_as_people_write_them() {
    for (text, bytes, shown) in [
        ("1KiB", 1024, "1.0 KiB"),
        ("1.5 GiB", 3 << 29, "1.5 GiB"),
        ("0MiB", 0, "0 bytes"),
        ("1e9TiB", u64::MAX, "16777216.0 TiB"),
    ] {
        let size: Bytes = text.parse().unwrap();
        assert_eq!((size, size.to_string().as_str()), (Bytes(bytes), shown));
    }
    for text in ["", "1", "GiB", "-1GiB", "nanGiB", "infGiB", "1GB"] {
        let error = text.parse::<Bytes>().unwrap_err().to_string();
        assert!(error.contains("is no size"), "{error}");
    }
}
