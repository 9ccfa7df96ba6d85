//! A timeline in the trace event format of Chrome, which Perfetto opens.

use super::Drawn;
use common::timeline::{Axis, Barrier, Kind, Span};
use serde_json::{Value, json};

/// Returns the events: the block is the process, its warps are the threads. Times are microseconds,
/// or clocks and steps in their place where no clock is known.
pub fn trace(drawn: &Drawn) -> Value {
    let timeline = &drawn.timeline;
    let unit = match timeline.axis {
        Axis::Clocks { mhz: Some(mhz) } => mhz,
        Axis::Clocks { mhz: None } | Axis::Steps => 1.0,
    };
    let writer = Writer {
        block: drawn.block,
        unit,
    };
    let mut events = vec![writer.name(
        "process_name",
        0,
        &format!("{} ({})", drawn.name(), drawn.note()),
    )];
    for warp in 0..timeline.warps {
        let name = format!("warp {warp} {}", timeline.role(warp).name());
        events.push(writer.name("thread_name", warp, &name));
    }
    events.extend(timeline.spans.iter().map(|span| writer.span(span)));
    for (number, link) in timeline.links().iter().enumerate() {
        let (cause, wait) = (&timeline.spans[link.cause], &timeline.spans[link.wait]);
        if cause.warp != wait.warp {
            events.push(writer.flow("s", number, cause, cause.begin));
            events.push(writer.flow("f", number, wait, wait.end));
        }
    }
    json!({
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "stage": drawn.stage,
            "variant": drawn.variant,
            "problem": drawn.problem,
            "unit": unit_name(timeline.axis),
            "cut": timeline.cut,
        },
    })
}

fn unit_name(axis: Axis) -> String {
    match axis {
        Axis::Clocks { mhz: Some(mhz) } => format!("microseconds, at {mhz:.0} MHz"),
        Axis::Clocks { mhz: None } => "clocks, of which each counts as a microsecond".to_string(),
        Axis::Steps => "steps, of which each counts as a microsecond: order, not time".to_string(),
    }
}

/// Writes events of one block.
struct Writer {
    block: u32,
    /// Clocks per microsecond.
    unit: f64,
}

impl Writer {
    fn name(&self, what: &str, warp: usize, name: &str) -> Value {
        json!({
            "name": what, "ph": "M", "pid": self.block, "tid": warp, "args": { "name": name },
        })
    }

    fn span(&self, span: &Span) -> Value {
        let mut arguments = json!({ "begin": span.begin, "end": span.end });
        if let Some(site) = &span.site {
            arguments["site"] = json!(format!("{}:{}", site.file, site.line));
            arguments["line"] = json!(site.text);
        }
        if let Some(tile) = &span.tile {
            arguments["tile"] = json!(tile);
        }
        match span.barrier() {
            Some(Barrier::Shared(address)) => {
                arguments["barrier"] = json!(format!("mbarrier at {address:#x}"));
            }
            Some(Barrier::Named(number)) => {
                arguments["barrier"] = json!(format!("barrier {number}"));
            }
            None => {}
        }
        json!({
            "name": span.what.name(),
            "cat": span.kind().name(),
            "ph": "X",
            "ts": self.time(span.begin),
            "dur": self.time(span.length()),
            "pid": self.block,
            "tid": span.warp,
            "args": arguments,
            "cname": colour(span.kind()),
        })
    }

    fn flow(&self, phase: &str, number: usize, span: &Span, at: u64) -> Value {
        json!({
            "name": "ends the wait", "cat": "cause", "ph": phase, "id": number, "bp": "e",
            "ts": self.time(at), "pid": self.block, "tid": span.warp,
        })
    }

    fn time(&self, clocks: u64) -> f64 {
        clocks as f64 / self.unit
    }
}

/// Returns one of the names that the format has for colours.
fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Copy => "thread_state_running",
        Kind::Product => "thread_state_runnable",
        Kind::Exponential => "thread_state_iowait",
        Kind::Store => "rail_animation",
        Kind::Wait | Kind::Arrival | Kind::Bound => "grey",
    }
}
