//! From an address in this program to its source line, by the program's own debug information.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use addr2line::gimli::{Dwarf, EndianSlice, RunTimeEndian, SectionId};
use object::{Object, ObjectSection, ObjectSegment};

use crate::fault::Place;

unsafe extern "C" {
    safe fn emulator_image_start() -> *const u8;
    safe fn emulator_image_end() -> *const u8;
}

pub(crate) fn image() -> Range<usize> {
    emulator_image_start() as usize..emulator_image_end() as usize
}

type Reader = EndianSlice<'static, RunTimeEndian>;

/// Debug information, and the image's offset to it.
struct Lines {
    context: addr2line::Context<Reader>,
    shift: u64,
}

static LINES: LazyLock<Mutex<Option<Lines>>> = LazyLock::new(|| Mutex::new(load()));

fn load() -> Option<Lines> {
    // Kept for the rest of the program, as is the context that borrows from it.
    let bytes: &'static [u8] = std::fs::read("/proc/self/exe").ok()?.leak();
    let file = object::File::parse(bytes).ok()?;
    let dwarf = Dwarf::load(|id| section(&file, id)).ok()?;
    let context = addr2line::Context::from_dwarf(dwarf).ok()?;
    // The lowest segment is where the image starts.
    let linked = file.segments().map(|segment| segment.address()).min()? & !0xfff;
    Some(Lines {
        context,
        shift: (image().start as u64 & !0xfff) - linked,
    })
}

/// Reads a section of the program; an empty one where it has none.
fn section(file: &object::File<'static>, id: SectionId) -> Result<Reader, ()> {
    let content = file
        .section_by_name(id.name())
        .and_then(|section| section.uncompressed_data().ok());
    let data: &'static [u8] = match content {
        Some(Cow::Borrowed(data)) => data,
        Some(Cow::Owned(data)) => data.leak(),
        None => &[],
    };
    Ok(EndianSlice::new(data, RunTimeEndian::Little))
}

static FOREIGN_PLACES: Mutex<Vec<Vec<Place>>> = Mutex::new(Vec::new());

/// Adds a place of a program that is not compiled into this one. Returns its index.
pub(crate) fn add_foreign(frames: Vec<Place>) -> usize {
    let mut places = FOREIGN_PLACES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    places.push(frames);
    places.len() - 1
}

pub(crate) fn foreign_frames(index: usize) -> Vec<Place> {
    let places = FOREIGN_PLACES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    places[index].clone()
}

/// The shim's own files: a kernel's author has no use for their lines.
const SHIM: &str = "common/emulator/include/";

/// Returns the source lines of calls, which return to these addresses, innermost first; a placeholder
/// where unknown.
pub(crate) fn frames(addresses: &[usize]) -> Vec<Place> {
    let lines = LINES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut places = Vec::new();
    if let Some(known) = &*lines {
        for &address in addresses {
            known.add_frames(address, &mut places);
        }
    }
    if places.iter().any(|place| !is_of_shim(place)) {
        places.retain(|place| !is_of_shim(place));
    }
    if places.is_empty() {
        let offset = addresses[0].wrapping_sub(image().start);
        places.push(Place {
            file: format!("(no debug information) code+{offset:#x}"),
            line: 0,
        });
    }
    places
}

impl Lines {
    /// Adds the lines of the call that returns to `address`: its own and those that it was inlined
    /// into.
    fn add_frames(&self, address: usize, places: &mut Vec<Place>) {
        let code = address as u64 - 1 - self.shift;
        let Ok(mut frames) = self.context.find_frames(code).skip_all_loads() else {
            return;
        };
        while let Ok(Some(frame)) = frames.next() {
            if let Some(location) = frame.location
                && let (Some(file), Some(line)) = (location.file, location.line)
            {
                places.push(Place {
                    file: file.to_owned(),
                    line,
                });
            }
        }
    }
}

fn is_of_shim(place: &Place) -> bool {
    place.file.contains(SHIM) || place.file.contains("../include/")
}
