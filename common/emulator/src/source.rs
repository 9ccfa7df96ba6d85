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
    let section = |id: SectionId| -> Result<Reader, ()> {
        let data = file
            .section_by_name(id.name())
            .and_then(|section| section.uncompressed_data().ok());
        let data = match data {
            Some(Cow::Borrowed(data)) => data,
            Some(Cow::Owned(data)) => data.leak(),
            None => &[],
        };
        Ok(EndianSlice::new(data, RunTimeEndian::Little))
    };
    let context = addr2line::Context::from_dwarf(Dwarf::load(section).ok()?).ok()?;
    // The lowest segment is where the image starts.
    let linked = file.segments().map(|segment| segment.address()).min()? & !0xfff;
    Some(Lines {
        context,
        shift: (image().start as u64 & !0xfff) - linked,
    })
}

/// The shim's own files: a kernel's author has no use for their lines.
const SHIM: &str = "common/emulator/include/";

/// The source lines of the call that returns to `address`, innermost first; a placeholder where unknown.
pub(crate) fn frames(address: usize) -> Vec<Place> {
    let mut places = Vec::new();
    let lines = LINES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(lines) = &*lines
        && let Ok(mut frames) = lines
            .context
            .find_frames(address as u64 - 1 - lines.shift)
            .skip_all_loads()
    {
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
    if places.iter().any(|place| !is_of_shim(place)) {
        places.retain(|place| !is_of_shim(place));
    }
    if places.is_empty() {
        let offset = address.wrapping_sub(image().start);
        places.push(Place {
            file: format!("(no debug information) code+{offset:#x}"),
            line: 0,
        });
    }
    places
}

fn is_of_shim(place: &Place) -> bool {
    place.file.contains(SHIM) || place.file.contains("../include/")
}
