use super::canvas::{Anchor, Look, WIDTH};
use super::labels::Frame;
use super::*;
use crate::counted::{CONFLICTS, WAVEFRONTS};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use fragments::{LANES, mma_accumulator, mma_operand, packed_in, wgmma_accumulator};
use ptx::Module;
use ptx::case::{Argument, Buffer, Case, ElementType, Filling, Verdict};
use results::judge::{View, verdict};
use results::table::{Kind, ProblemPlace, Row, Run, Table};
use results::testing::{CPASYNC, PeerArm, SCALAR, US, WMMA, counters, latency, timed};
use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::LazyLock;
use swizzle::Layout;

/// A text of an SVG, and the place that it takes in DejaVu Sans.
#[derive(Debug)]
pub struct Text {
    pub words: String,
    pub frame: Frame,
}

/// Returns the texts of an SVG as plotters writes it.
pub fn texts(svg: &str) -> Vec<Text> {
    let document = Document::parse(svg).unwrap();
    let nodes = document.descendants();
    let mut texts: Vec<Text> = nodes
        .filter(|node| node.has_tag_name("text"))
        .map(text)
        .collect();
    texts.retain(|text| !text.words.is_empty());
    texts
}

fn text(node: Node<'_, '_>) -> Text {
    let words = node.text().unwrap_or_default().trim().to_string();
    let size: f64 = attribute(node, "font-size").parse().unwrap();
    let look = Look {
        size,
        anchor: match attribute(node, "text-anchor") {
            "start" => Anchor::Start,
            "middle" => Anchor::Middle,
            "end" => Anchor::End,
            other => panic!("{other}"),
        },
        is_bold: node.attribute("font-weight") == Some("bold"),
        ..Look::BODY
    };
    let x: i32 = attribute(node, "x").parse().unwrap();
    let y: i32 = attribute(node, "y").parse().unwrap();
    let middle = match attribute(node, "dy") {
        "0.76em" => y + (0.4 * size) as i32,
        "0.5ex" => y,
        "-0.5ex" => y - (0.6 * size) as i32,
        other => panic!("{other}"),
    };
    let mut frame = Frame::of_text(look, &words, (x, middle));
    if node.has_attribute("transform") {
        // An axis on the left: turned about the point that it is anchored at, at its top.
        frame = Frame {
            left: x,
            top: y - look.width(&words) / 2,
            right: x + size as i32,
            bottom: y + look.width(&words) / 2,
        };
    }
    Text { words, frame }
}

fn attribute<'a>(node: Node<'a, '_>, name: &str) -> &'a str {
    node.attribute(name)
        .unwrap_or_else(|| panic!("{name}: {node:?}"))
}

/// Runs `check` on the report of every committed table.
fn each_report(mut check: impl FnMut(&Report<'_>)) {
    let results = results::testing::results();
    let stages = stages::builds().unwrap();
    for gpu in results.gpus.keys() {
        let table = results.of_gpu(gpu);
        check(&verdict::report(View::committed(&stages, &table)));
    }
}

/// The pictures of every committed table.
static COMMITTED: LazyLock<Vec<Picture>> = LazyLock::new(|| {
    let mut committed = Vec::new();
    each_report(|report| committed.extend(pictures(report).unwrap()));
    committed
});

/// Returns the frame of a picture.
fn whole(document: &Document<'_>) -> Frame {
    let view_box = attribute(document.root_element(), "viewBox");
    let height = view_box.rsplit(' ').next().unwrap();
    Frame {
        left: 0,
        top: 0,
        right: WIDTH as i32,
        bottom: height.parse().unwrap(),
    }
}

#[test]
fn no_bar_reaches_out_of_its_picture() {
    for Picture { path, svg } in &*COMMITTED {
        let document = Document::parse(svg).unwrap();
        for node in document
            .descendants()
            .filter(|node| node.has_tag_name("rect"))
        {
            let [left, top, width, height] = ["x", "y", "width", "height"]
                .map(|name| attribute(node, name).parse::<i32>().unwrap());
            let frame = Frame {
                left,
                top,
                right: left + width,
                bottom: top + height,
            };
            assert!(frame.is_within(whole(&document)), "{path}: {frame:?}");
        }
    }
}

#[test]
fn no_text_reaches_into_another_or_out_of_its_picture() {
    for Picture { path, svg } in &*COMMITTED {
        let document = Document::parse(svg).unwrap();
        let texts = texts(svg);
        for (place, text) in texts.iter().enumerate() {
            assert!(text.frame.is_within(whole(&document)), "{path}: {text:?}");
            for other in &texts[..place] {
                assert!(
                    !text.frame.overlaps(other.frame),
                    "{path}: {text:?} and {other:?}"
                );
            }
        }
    }
}

#[test]
fn every_colour_of_a_picture_has_another_one_in_the_dark() {
    for Picture { path, svg } in &*COMMITTED {
        let document = Document::parse(svg).unwrap();
        for node in document.descendants() {
            for name in ["fill", "stroke"] {
                let colour = node.attribute(name).unwrap_or("none");
                let rule = format!("[{name}=\"{colour}\"]");
                assert!(colour == "none" || svg.contains(&rule), "{path}: {rule}");
            }
        }
    }
}

#[test]
fn a_table_without_figures_has_its_pictures_too() {
    let run = timed(US);
    let bare = Table::default();
    let report = verdict::report(View::committed(&run.session.stages, &bare));
    for Picture { path, svg } in pictures(&report).unwrap() {
        assert!(Document::parse(&svg).is_ok(), "{path}");
    }
}

#[test]
fn a_figure_that_is_absent_is_absent_and_not_zero() {
    let run = timed(US).without_subject(CPASYNC);
    let report = verdict::report(View::alone(&run));
    let kernels = wavefronts::kernels(&report);
    let cpasync = kernels
        .iter()
        .find(|kernel| kernel.name == "1 cpasync")
        .unwrap();
    assert_eq!(
        (cpasync.us, cpasync.wavefronts, cpasync.least_us),
        (None, None, None)
    );
    let svg = wavefronts::draw(&report).unwrap();
    let words: Vec<String> = texts(&svg).into_iter().map(|text| text.words).collect();
    assert!(words.contains(&"not measured".to_string()), "{words:?}");
    assert!(roofline::points(&report).is_empty());
    let rates = lengths::rates(&report, 128);
    assert!(rates.lengths.is_empty() && rates.series.is_empty());
}

#[test]
fn wavefronts_and_times_are_those_of_the_fastest_variant() {
    let mut run = timed(US).with_figure(WMMA, latency(), Metric::SmMhz, 1000.0);
    for (metric, count) in [
        (Metric::SharedReadWavefronts, 3e6),
        (Metric::SharedWriteWavefronts, 1e6),
        (Metric::AsyncWriteWavefronts, 0.0),
        (Metric::SharedReadConflicts, 5e5),
        (Metric::SharedWriteConflicts, 0.0),
        (Metric::AsyncWriteConflicts, 0.0),
    ] {
        run = run.with_figure(WMMA, counters(), metric, count);
    }
    let report = verdict::report(View::alone(&run));
    let kernels = wavefronts::kernels(&report);
    let names: Vec<&str> = kernels.iter().map(|kernel| &*kernel.name).collect();
    assert_eq!(names, ["0 scalar", "0 wmma-qk", "1 cpasync"]);
    let wmma = &kernels[1];
    assert!((wmma.us.unwrap() - US[1]).abs() < 0.1, "{:?}", wmma.us);
    assert_eq!((wmma.wavefronts, wmma.conflicts), (Some(4e6), Some(5e5)));
    // 132 SMs, 1 GHz.
    assert!((wmma.least_us.unwrap() - 4e6 / 132.0 / 1000.0).abs() < 1e-9);
}

/// A function that draws a picture.
type Draw = fn(&Report<'_>) -> Result<String, DrawError>;

/// Returns the words of a picture about a run.
fn words_of(draw: Draw, run: &Run) -> Vec<String> {
    let svg = draw(&verdict::report(View::alone(run))).unwrap();
    texts(&svg).into_iter().map(|text| text.words).collect()
}

#[track_caller]
fn assert_says(words: &[String], expected: &[&str]) {
    for text in expected {
        assert!(words.iter().any(|word| word == text), "{text}: {words:?}");
    }
}

#[test]
fn the_ladder_says_how_long_a_stage_takes_and_what_was_claimed() {
    let run = timed(US);
    assert_says(&words_of(ladder::draw, &run), &["15.0", "1.33x (1.10)"]);
    let alone = run.without(|row| row.base().is_some());
    assert_says(&words_of(ladder::draw, &alone), &["15.0", "(1.10)"]);
}

#[test]
fn peers_are_drawn_by_kind_and_type() {
    let mut run = timed(US);
    for (shape, us) in [("mission", 40.0), ("wide", 10.0), ("big", 5.0)] {
        run = run.peers(shape, 10.0, &[PeerArm::right("torch-default", us)]);
    }
    let small = ["Small grids f16", "2.00x", "1.00x to 4.00x, 2 problems"];
    assert_says(&words_of(ladder::draw_peers, &run), &small);
    let large = ["Large grids f16", "0.50x", "0.50x to 0.50x, 1 problem"];
    assert_says(&words_of(ladder::draw_peers, &run), &large);
}

#[test]
fn every_stage_is_on_the_map_below_or_beside_the_one_before() {
    each_report(|report| {
        let stations = map::stations(report);
        let ids: BTreeSet<&str> = stations.iter().map(|station| &*station.id).collect();
        let all: BTreeSet<&str> = report.view.stages.iter().map(|stage| &*stage.id).collect();
        assert_eq!(ids, all);
        let places: BTreeSet<(bool, usize)> = stations
            .iter()
            .map(|station| (station.is_rung, station.row))
            .collect();
        assert_eq!(places.len(), stations.len(), "two stages in one place");
        for station in &stations {
            let mut others = stations.iter();
            if let Some(before) =
                others.find(|other| Some(&other.id) == station.predecessor.as_ref())
            {
                assert!(
                    before.row + usize::from(station.is_rung) <= station.row,
                    "{station:?}"
                );
            }
        }
    });
}

/// ncu counts 8,623,489,024 bytes read by stage 0 at big, and 17,301,504 at mission.
#[test]
fn bytes_at_another_problem_are_those_that_ncu_counts_there() {
    let places = ["mission", "big"].map(|shape| ProblemPlace::new(shape, Dtype::F16, Mask::Full));
    let [small, large] = places.clone().map(|place| place.problem().unwrap());
    let counters = Row::new(SCALAR, Kind::Counters(places[0].clone()))
        .figure(Metric::GlobalReadBytes, 17_301_504_u32)
        .figure(Metric::GlobalWriteBytes, 524_288_u32);
    let bytes = roofline::bytes_at(&counters, &small, &large);
    assert_eq!(bytes, Some(8_623_489_024.0 + 33_554_432.0));
    assert_eq!(
        roofline::bytes_at(&counters, &small, &small),
        Some(17_825_792.0)
    );
}

/// Returns the header of a PTX kernel of one warp, whose lane is `%r0`, and the words after it.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\
         .visible .entry kernel(.param .u64 to)\n.reqntid 32, 1, 1\n{{\n\
         .reg .pred %p<2>;\n.reg .b32 %r<16>;\n.reg .f32 %f<8>;\n.reg .b64 %rd<4>;\n\
         .shared .align 1024 .b8 tile[2048];\nmov.u32 %r0, %tid.x;\n{body}ret;\n}}\n"
    )
}

/// Runs a kernel of one warp, with a buffer of 128 floats, in the emulator.
fn run(body: &str) -> Verdict {
    let text = kernel(body);
    let module = Module::parse("kernel.ptx", &text).unwrap();
    let program = module.entry("kernel").unwrap();
    let case = Case {
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 0,
        buffers: vec![Buffer {
            name: "to".into(),
            element: ElementType::F32,
            elements: 128,
            filling: Filling::Unset,
            is_output: true,
        }],
        arguments: vec![Argument::Address {
            buffer: "to".into(),
            offset: 0,
        }],
        history: None,
    };
    case.judge(&program, None).unwrap()
}

/// Writes instructions that give a register each lane's own value.
fn set(body: &mut String, register: &str, value: impl Fn(usize) -> u32) {
    for lane in 0..LANES {
        writeln!(body, "setp.eq.u32 %p0, %r0, {lane};").unwrap();
        writeln!(body, "@%p0 mov.b32 {register}, {};", value(lane)).unwrap();
    }
}

#[test]
fn wavefronts_of_a_layout_are_those_that_the_emulator_counts() {
    for layout in Layout::ALL {
        for chunk in 0..swizzle::ROW_BYTES / 16 {
            let mut body = String::new();
            set(&mut body, "%r1", |lane| {
                layout.offset(swizzle::ROW_BYTES, lane % swizzle::ROWS, chunk) as u32
            });
            body += "mov.u32 %r2, tile;\nadd.u32 %r3, %r2, %r1;\n\
                     ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\n";
            let counted = run(&body).counted.sum.shared_read;
            assert_eq!(
                counted.wavefronts,
                layout.wavefronts(chunk) as u64,
                "{layout:?}"
            );
        }
    }
}

/// Seven of eight wavefronts of `mma-linear` are conflicts, and none of the other families.
#[test]
fn conflicts_of_a_layout_are_those_of_its_family() {
    each_report(|report| {
        let stage = report.view.stage("stage5-swizzle").unwrap();
        for layout in Layout::ALL {
            let variant = stage.default_of(layout.family()).unwrap();
            let kind = Kind::Counters(ProblemPlace::claims(Dtype::F16));
            let Some(row) = report.view.table.row(&stage.subject(&variant.name), kind) else {
                continue;
            };
            let conflicts = CONFLICTS.value(row).unwrap();
            assert_eq!(
                conflicts > 0.0,
                layout.wavefronts(swizzle::READ) > 1,
                "{layout:?}"
            );
            assert!(conflicts < WAVEFRONTS.value(row).unwrap());
        }
    });
}

#[test]
fn offsets_are_those_of_the_header() {
    let root = results::workspace::find().unwrap();
    let header = std::fs::read_to_string(root.join("common/cuda/attn/layout.cuh")).unwrap();
    for line in [
        "PITCH_BYTES = ROW_BYTES;",
        "PITCH_BYTES = ROW_BYTES + 16;",
        "return row * PITCH_BYTES + chunk * 16;",
        "CHUNKS = ROW_BYTES / 16 < 8 ? ROW_BYTES / 16 : 8;",
        "ROWS = 8 / CHUNKS;",
        "return row * PITCH_BYTES + (chunk ^ (row / ROWS % CHUNKS)) * 16;",
    ] {
        assert!(
            header.contains(line),
            "common/cuda/attn/layout.cuh has no '{line}' any more"
        );
    }
}

#[test]
fn chunks_of_a_layout_lie_apart() {
    for layout in Layout::ALL {
        for row_bytes in [64, 128, 256] {
            let mut places = BTreeSet::new();
            for row in 0..16 {
                for chunk in 0..row_bytes / 16 {
                    places.insert(layout.offset(row_bytes, row, chunk));
                }
            }
            assert_eq!(
                places.len(),
                row_bytes,
                "{layout:?}, rows of {row_bytes} bytes"
            );
        }
    }
}

#[test]
fn fragments_have_each_element_once() {
    let mut of_accumulator = BTreeSet::new();
    let mut of_operand = BTreeSet::new();
    for lane in 0..LANES {
        for index in 0..4 {
            of_accumulator.insert(mma_accumulator(lane, index));
            of_operand.extend([0, 1].map(|half| mma_operand(lane, index, half)));
        }
    }
    assert_eq!((of_accumulator.len(), of_operand.len()), (16 * 8, 16 * 16));
    let threads = 0..4 * LANES;
    let of_wgmma: BTreeSet<_> = threads
        .flat_map(|thread| (0..32).map(move |index| wgmma_accumulator(thread, index)))
        .collect();
    assert_eq!(of_wgmma.len(), 64 * 64);
    let last = of_wgmma.last().unwrap();
    assert_eq!((last.row, last.column), (63, 63));
}

#[test]
fn a_lane_has_the_operand_in_its_accumulators() {
    for lane in 0..LANES {
        for accumulator in 0..2 {
            for index in 0..4 {
                let mut place = mma_accumulator(lane, index);
                place.column += 8 * accumulator;
                let register = packed_in(accumulator, index);
                assert_eq!(mma_operand(lane, register, index % 2), place);
            }
        }
    }
}

/// A[16, 16] times B[16, 8] is made to be 8 * row + column.
#[test]
fn fragments_are_those_of_the_emulators_mma() {
    let mut body = String::new();
    for register in 0..4 {
        set(&mut body, &format!("%r{}", 1 + register), |lane| {
            let halves = [0, 1].map(|half| {
                let place = mma_operand(lane, register, half);
                half_bits(match place.column {
                    0 => place.row as f32,
                    1 => 1.0,
                    _ => 0.0,
                })
            });
            halves[0] | halves[1] << 16
        });
    }
    // B has 8 in its first row and the column in its second one; both are in lanes 0, 4, 8, ….
    set(&mut body, "%r5", |lane| match lane % 4 {
        0 => half_bits(8.0) | half_bits((lane / 4) as f32) << 16,
        _ => 0,
    });
    set(&mut body, "%r6", |_| 0);
    for index in 0..4 {
        writeln!(body, "mov.f32 %f{index}, 0f00000000;").unwrap();
    }
    body += "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, \
             {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f0, %f1, %f2, %f3};\n\
             ld.param.u64 %rd0, [to];\nmul.wide.u32 %rd1, %r0, 16;\nadd.s64 %rd2, %rd0, %rd1;\n\
             st.global.v4.f32 [%rd2], {%f0, %f1, %f2, %f3};\n";
    let outputs = run(&body).outputs;
    for (place, bytes) in outputs[0].chunks_exact(4).enumerate() {
        let value = f32::from_ne_bytes(bytes.try_into().unwrap());
        let element = mma_accumulator(place / 4, place % 4);
        assert_eq!(value, (8 * element.row + element.column) as f32, "{place}");
    }
}

/// Returns the bits in FP16 of a whole number up to 2048.
fn half_bits(value: f32) -> u32 {
    if value == 0.0 {
        return 0;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 23) - 127 + 15;
    exponent << 10 | (bits >> 13 & 0x3ff)
}

#[test]
fn a_ring_fills_no_slot_before_it_is_read_and_reads_none_before_it_is_full() {
    for slots in 1..5 {
        let tiles = ring::tiles(slots, 4 * slots);
        for (number, tile) in tiles.iter().enumerate() {
            assert_eq!(
                (tile.slot, tile.parity),
                (number % slots, number / slots % 2)
            );
            assert!(tile.landed <= tile.used_from);
            if let Some(before) = number.checked_sub(slots) {
                assert!(
                    tiles[before].used_until <= tile.requested,
                    "{slots} slots, tile {number}"
                );
                // The parity flips where the ring wraps.
                assert_ne!(tiles[before].parity, tile.parity);
            }
        }
    }
}

#[test]
fn phases_alternate_and_a_wait_for_a_parity_sees_its_own_phase_end() {
    let tiles = ring::tiles(ring::SLOTS, ring::TILES);
    for slot in 0..ring::SLOTS {
        let own: Vec<_> = tiles.iter().filter(|tile| tile.slot == slot).collect();
        let full = ring::phases(own.iter().map(|tile| tile.landed), 100);
        assert_eq!(full.len(), own.len() + 1);
        for (phase, tile) in full.iter().zip(&own) {
            assert_eq!((phase.parity, phase.until), (tile.parity, tile.landed));
        }
        for two in full.windows(2) {
            assert_eq!(
                (two[0].parity + two[1].parity, two[0].until),
                (1, two[1].from)
            );
        }
    }
}

#[test]
fn blocks_of_the_last_round_are_on_the_emptiest_sms() {
    let mut grid = blocks::Grid {
        blocks: 128,
        per_sm: 2,
        sms: 132,
        stays: false,
    };
    let round = grid.last_round();
    assert_eq!((round.len(), round.iter().sum::<u64>()), (132, 128));
    assert_eq!((round[0], round[131]), (1, 0));
    grid.blocks = 2 * 132 * 3;
    assert!(grid.last_round().iter().all(|blocks| *blocks == 2));
    assert_eq!(grid.rounds(), 3.0);
    grid.blocks += 133;
    assert_eq!(grid.last_round()[..2], [2, 1]);
}

#[test]
fn rates_over_length_are_ascending_and_each_was_measured() {
    each_report(|report| {
        for head_dim in common::problem::HEAD_DIMS {
            let rates = lengths::rates(report, head_dim);
            assert!(
                rates
                    .lengths
                    .is_sorted_by(|a, b| a.shape.seq_q < b.shape.seq_q)
            );
            for series in &rates.series {
                assert_eq!(series.rates.len(), rates.lengths.len());
                let measured = series.rates.iter().flatten();
                assert!(measured.clone().count() > 0 && measured.clone().all(|rate| *rate > 0.0));
            }
        }
    });
}
