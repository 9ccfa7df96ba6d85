//! The notes of a kernel that was compiled with the timeline's headers, as they lie in memory.

use super::{Axis, Sources, Span, Timeline, What};

/// The most notes of a warp: `ATTN_TIMELINE_NOTES` of common/timeline/include/attn/timeline.cuh.
pub const NOTES: usize = 4096;

/// The most warps of a block: `ATTN_TIMELINE_WARPS`.
pub const WARPS: usize = 32;

/// The size of a note: begin, end, line and code, argument.
pub const NOTE_BYTES: usize = 16;

/// How far a note may begin before the one before it ends: what ptxas has moved across a look at
/// the clock, in clocks. It then begins at that end.
const SLACK: u64 = 64;

/// The name of the notes in the kernel's module.
pub const NOTES_SYMBOL: &str = "attn_timeline_notes";

/// The name of the number of the block that takes them.
pub const BLOCK_SYMBOL: &str = "attn_timeline_block";

/// Notes that a kernel cannot have taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotesError {
    #[error("the notes take {found} bytes, not {expected}: compile the kernel again")]
    Size { found: usize, expected: usize },
    #[error(
        "the block took no notes: --block names one that the grid does not have, or the kernel was \
         compiled without the timeline's headers"
    )]
    None,
    #[error("note {index} of warp {warp} has the code {code}, which the headers do not have")]
    Code { warp: usize, index: usize, code: u8 },
    #[error("note {index} of warp {warp} ({what}) ends {clocks} clocks before it begins")]
    Backwards {
        warp: usize,
        index: usize,
        what: &'static str,
        clocks: u32,
    },
    #[error("note {index} of warp {warp} ({what}) begins long before the one before it ends")]
    Overlap {
        warp: usize,
        index: usize,
        what: &'static str,
    },
}

/// A note as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    begin: u32,
    end: u32,
    code: u32,
    argument: u32,
}

impl Note {
    fn what(self, warp: usize, index: usize) -> Result<What, NotesError> {
        let code = self.code as u8;
        What::of_code(code).ok_or(NotesError::Code { warp, index, code })
    }

    fn is_taken(self) -> bool {
        self.code != 0
    }
}

/// All notes of a launch.
struct Notes<'a>(&'a [u8]);

impl Notes<'_> {
    fn get(&self, warp: usize, index: usize) -> Note {
        let start = (index * WARPS + warp) * NOTE_BYTES;
        let word = |at: usize| {
            let bytes = &self.0[start + 4 * at..start + 4 * at + 4];
            u32::from_le_bytes(bytes.try_into().expect("four bytes"))
        };
        Note {
            begin: word(0),
            end: word(1),
            code: word(2),
            argument: word(3),
        }
    }

    /// Returns the notes that a warp took.
    fn of_warp(&self, warp: usize) -> Vec<Note> {
        (0..NOTES)
            .map(|index| self.get(warp, index))
            .take_while(|note| note.is_taken())
            .collect()
    }
}

/// Reads the notes of a block of so many warps. `mhz`: the clock of the multiprocessor, if it is
/// known otherwise than by the notes.
///
/// # Errors
///
/// Notes that contradict themselves.
pub fn read(
    bytes: &[u8],
    warps: usize,
    sources: Sources<'_>,
    mhz: Option<f64>,
) -> Result<Timeline, NotesError> {
    let expected = NOTES * WARPS * NOTE_BYTES;
    if bytes.len() != expected {
        return Err(NotesError::Size {
            found: bytes.len(),
            expected,
        });
    }
    let notes = Notes(bytes);
    let of_warps: Vec<Vec<Note>> = (0..warps).map(|warp| notes.of_warp(warp)).collect();
    // Clocks are low halves: what counts is the distance from one of them.
    let Some(zero) = first_clock(&of_warps) else {
        return Err(NotesError::None);
    };
    let mut timeline = Timeline {
        axis: Axis::Clocks {
            mhz: mhz.or_else(|| measured_mhz(&of_warps)),
        },
        warps,
        spans: Vec::new(),
        cut: Vec::new(),
        hazards: 0,
    };
    for (warp, of_warp) in of_warps.iter().enumerate() {
        timeline.spans.extend(spans(warp, of_warp, zero, sources)?);
        if of_warp.len() == NOTES {
            timeline.cut.push(warp);
        }
    }
    Ok(timeline)
}

/// Returns the clock at which the first warp entered.
fn first_clock(of_warps: &[Vec<Note>]) -> Option<u32> {
    let mut firsts = of_warps.iter().filter_map(|notes| notes.first());
    let mut first = firsts.next()?.begin;
    for note in firsts {
        if is_before(note.begin, first) {
            first = note.begin;
        }
    }
    Some(first)
}

/// Returns whether one clock comes before another: they turn over after two seconds, and no block
/// takes one.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Returns the spans of a warp, in time since the clock `zero`.
fn spans(
    warp: usize,
    notes: &[Note],
    zero: u32,
    sources: Sources<'_>,
) -> Result<Vec<Span>, NotesError> {
    let mut spans: Vec<Span> = Vec::new();
    for (index, &note) in notes.iter().enumerate() {
        let what = note.what(warp, index)?;
        let name = what.name();
        if note.end == 0 && index + 1 == notes.len() {
            break; // the kernel ended within it
        }
        if is_before(note.end, note.begin) {
            return Err(NotesError::Backwards {
                warp,
                index,
                what: name,
                clocks: note.begin.wrapping_sub(note.end),
            });
        }
        let noted = u64::from(note.begin.wrapping_sub(zero));
        let begin = noted.max(spans.last().map_or(0, |before| before.end));
        if begin > noted + SLACK {
            return Err(NotesError::Overlap {
                warp,
                index,
                what: name,
            });
        }
        spans.push(Span {
            warp,
            what,
            begin,
            end: u64::from(note.end.wrapping_sub(zero)).max(begin),
            argument: note.argument,
            site: sources.find(what, note.code >> 8),
            tile: None,
        });
    }
    Ok(spans)
}

/// Returns the clock in MHz by the nanoseconds that entry and end have noted, of the warp that was
/// there longest.
fn measured_mhz(of_warps: &[Vec<Note>]) -> Option<f64> {
    let mut longest = None;
    for notes in of_warps {
        let (Some(first), Some(last)) = (notes.first(), notes.last()) else {
            continue;
        };
        let is_whole =
            first.code as u8 == What::Entered as u8 && last.code as u8 == What::Left as u8;
        let nanoseconds = last.argument.wrapping_sub(first.argument);
        if !is_whole || nanoseconds == 0 {
            continue;
        }
        let clocks = last.begin.wrapping_sub(first.begin);
        if longest.is_none_or(|(most, _)| clocks > most) {
            longest = Some((clocks, 1e3 * f64::from(clocks) / f64::from(nanoseconds)));
        }
    }
    longest.map(|(_, mhz)| mhz)
}
