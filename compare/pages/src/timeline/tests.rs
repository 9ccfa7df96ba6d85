use super::*;
use common::timeline::{Site, Span, What};
use serde_json::Value;

fn span(warp: usize, what: What, begin: u64, end: u64, argument: u32) -> Span {
    Span {
        warp,
        what,
        begin,
        end,
        argument,
        site: Some(Site {
            file: "stage/kernel.cu".to_string(),
            line: 7,
            text: "wait<1>(a);".to_string(),
        }),
        tile: None,
    }
}

/// As many warps that multiply by a tile as are asked for, and one that copies it, in steps.
fn in_steps(computing: usize) -> Drawn {
    let named = |span: Span| Span {
        tile: Some("K3".to_string()),
        ..span
    };
    let mut spans = Vec::new();
    for warp in 0..computing {
        spans.extend([
            span(warp, What::MbarrierWait, 0, 2, 8),
            named(span(warp, What::WarpgroupProduct, 2, 3, 0)),
            span(warp, What::ProductCommit, 3, 3, 0),
            span(warp, What::Exponential, 3, 4, 0),
            span(warp, What::ProductWait, 4, 5, 0),
            span(warp, What::Exponential, 5, 6, 0),
        ]);
    }
    spans.push(named(span(computing, What::TmaLoad, 0, 1, 8)));
    let whole = drawn("stage8-overlap", Axis::Steps);
    Drawn {
        timeline: Timeline {
            warps: computing + 1,
            spans,
            ..whole.timeline
        },
        ..whole
    }
}

/// A warp that loads a tile, one that multiplies by it, and one that left.
fn drawn(stage: &str, axis: Axis) -> Drawn {
    let spans = vec![
        span(0, What::TmaLoad, 10, 20, 8),
        span(0, What::Left, 50, 50, 0),
        span(1, What::MbarrierWait, 10, 610, 8),
        span(1, What::WarpgroupProduct, 620, 640, 0),
        span(1, What::ProductCommit, 640, 640, 0),
        span(1, What::ProductWait, 650, 900, 0),
        span(1, What::Exponential, 920, 1000, 0),
        span(2, What::Left, 30, 30, 0),
    ];
    Drawn {
        stage: stage.to_string(),
        variant: "loading-and-computing-256x128".to_string(),
        problem: "1x8x512x64 f16 full".to_string(),
        block: 3,
        timeline: Timeline {
            axis,
            warps: 3,
            spans,
            cut: vec![],
            hazards: 0,
        },
        times: None,
    }
}

const CLOCKS: Axis = Axis::Clocks { mhz: Some(2000.0) };

fn clocks(stage: &str) -> Drawn {
    Drawn {
        times: Some(Times {
            plain_us: 10.0,
            noting_us: 11.5,
        }),
        ..drawn(stage, CLOCKS)
    }
}

/// Returns the attribute of an element.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// The line of a text in a picture, and the ends of it.
#[derive(Debug)]
struct Place {
    y: f64,
    left: f64,
    right: f64,
}

/// Returns where the texts of a picture are, at most.
fn places(svg: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for element in svg.split("<text").skip(1) {
        let (attributes, rest) = element.split_once('>').unwrap();
        let (content, _) = rest.split_once('<').unwrap();
        let number = |name| attribute(attributes, name).unwrap().parse::<f64>().unwrap();
        let size = attribute(attributes, "font-size").map_or(12.0, |it| it.parse().unwrap());
        let width = 0.64 * size * content.chars().count() as f64;
        let x = number("x");
        let left = match attribute(attributes, "text-anchor") {
            Some("middle") => x - width / 2.0,
            _ => x,
        };
        places.push(Place {
            y: number("y"),
            left,
            right: left + width,
        });
    }
    places
}

#[test]
fn no_text_reaches_into_another_or_out_of_the_picture() {
    for axis in [CLOCKS, Axis::Steps] {
        let svg = picture(&[
            drawn("stage7-wgmma", axis),
            drawn("stage13-persistent", axis),
            Drawn {
                timeline: Timeline {
                    axis,
                    ..in_steps(12).timeline
                },
                ..in_steps(12)
            },
        ]);
        let texts = places(&svg);
        assert!(texts.len() > 20, "{svg}");
        for (index, text) in texts.iter().enumerate() {
            assert!(text.left >= 0.0 && text.right <= 1240.0, "{text:?}");
            for other in &texts[..index] {
                let is_apart = text.right <= other.left || other.right <= text.left;
                let is_on_another_line = (text.y - other.y).abs() >= 13.0;
                assert!(is_apart || is_on_another_line, "{text:?} {other:?}");
            }
        }
    }
}

#[test]
fn the_picture_says_what_it_shows() {
    let svg = picture(&[clocks("stage7-wgmma"), clocks("stage8-overlap")]);
    for part in [
        "stage7-wgmma/loading-and-computing-256x128 1x8x512x64 f16 full, block 3",
        ">stage8-overlap/",
        ">10.0 µs a launch, 11.5 µs with notes (+15 %)<",
        ">warp 0 loads<",
        ">warp 1 computes<",
        ">warp 2<",
        ">clocks<",
        ">µs<",
        ">exponentials<",
        ">wgmma in flight, at most<",
        "class=\"flight\"",
        "class=\"link\"",
        "@media(prefers-color-scheme:dark)",
    ] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
}

#[test]
fn warps_that_do_the_same_in_steps_share_a_row_that_names_tiles() {
    let svg = picture(&[in_steps(4)]);
    assert!(svg.contains(">warps 0 to 3 compute<") && svg.contains(">warp 4 loads<"));
    // Copy, wait, product, and the product in flight.
    assert_eq!(svg.matches(">K3<").count(), 4, "{svg}");
    let [line] = svg.split("class=\"link\"").skip(2).collect::<Vec<_>>()[..] else {
        panic!("one path of lines below the legend's: {svg}");
    };
    let (path, _) = line.split_once("/>").unwrap();
    assert_eq!(path.matches('M').count(), 1, "{path}");
}

#[test]
fn a_warp_of_its_own_order_has_a_row_of_its_own() {
    let mut one = in_steps(4);
    let last = one.timeline.spans.iter_mut().rfind(|span| span.warp == 2);
    last.unwrap().end += 1;
    let svg = picture(&[one]);
    for part in [
        ">warps 0 to 1 compute<",
        ">warp 2 computes<",
        ">warp 3 computes<",
    ] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
}

#[test]
fn each_warp_has_a_row_of_its_own_over_time() {
    let mut one = in_steps(4);
    one.timeline.axis = CLOCKS;
    let svg = picture(&[one]);
    assert_eq!(svg.matches(" computes<").count(), 4, "{svg}");
}

#[test]
fn the_page_of_steps_counts_what_runs_under_products() {
    let text = document::terminal::render(&page(&[in_steps(4)]), 200);
    let line = text
        .lines()
        .find(|line| line.contains("4 computes"))
        .unwrap();
    let cells = line.split('|').map(str::trim);
    let figures: Vec<&str> = cells.filter(|cell| !cell.is_empty()).skip(2).collect();
    assert_eq!(figures, ["4", "8", "4"], "{text}");
}

#[test]
fn hazards_are_said_where_the_order_is_shown() {
    let mut one = in_steps(1);
    one.timeline.hazards = 2;
    let part = "of a kernel with hazards (2): see H1";
    assert!(picture(&[one]).contains(part));
}

#[test]
fn steps_are_said_to_be_no_time() {
    let svg = picture(&[drawn("stage7-wgmma", Axis::Steps)]);
    assert!(svg.contains(">order alone, by the emulator: steps are not time<"));
    assert!(svg.contains(">steps<") && !svg.contains("µs"), "{svg}");
}

/// Returns the events of a phase.
fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn a_trace_has_each_span_and_what_ended_each_wait() {
    let one = clocks("stage7-wgmma");
    let text = trace(&one).to_string();
    let read: Value = serde_json::from_str(&text).unwrap();
    let spans = events(&read, "X");
    assert_eq!(spans.len(), one.timeline.spans.len());
    let wait = spans[2];
    assert_eq!((&wait["pid"], &wait["tid"]), (&3.into(), &1.into()));
    assert_eq!((&wait["ts"], &wait["dur"]), (&0.005.into(), &0.3.into()));
    assert_eq!(wait["args"]["site"], "stage/kernel.cu:7");
    assert_eq!(wait["args"]["barrier"], "mbarrier at 0x8");
    let (starts, ends) = (events(&read, "s"), events(&read, "f"));
    assert_eq!((starts.len(), ends.len()), (1, 1));
    assert_eq!((&starts[0]["tid"], &ends[0]["tid"]), (&0.into(), &1.into()));
    assert_eq!(events(&read, "M").len(), 1 + one.timeline.warps);
}

#[test]
fn the_page_has_a_line_for_each_kind_of_warps() {
    let blocks = page(&[clocks("stage7-wgmma")]);
    let text = document::terminal::render(&blocks, 200);
    for part in [
        "10.0 µs a launch, 11.5 µs with notes (+15 %)",
        "1 loads",
        "1 computes",
        "wait: copies",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn notes_that_are_full_are_said_to_be() {
    let mut one = clocks("stage7-wgmma");
    one.timeline.cut = vec![1, 2];
    let text = document::terminal::render(&page(&[one]), 200);
    assert!(text.contains("The notes of warps 1, 2 are full"), "{text}");
}
