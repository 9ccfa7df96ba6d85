use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{LazyLock, Mutex};

use crate::fault::Place;
use crate::intern::{IntegerMap, Interner};
use crate::source;

/// `EmulatorSite` of abi.h. `file` is a string literal of the kernel's build.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    file: Literal,
    line: u32,
    /// Offset of the call in the program's image; 0 in the plain build.
    code: u32,
}

#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal(*const c_char);

// SAFETY: a Literal is made from a &'static CStr, or by the shim from a string literal of the kernel's
// build: it is never changed or freed.
unsafe impl Send for Literal {}
// SAFETY: likewise.
unsafe impl Sync for Literal {}

type Files = HashMap<String, &'static CStr>;

static FILES: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);

impl Literal {
    #[cfg(test)]
    pub(crate) fn new(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    pub(crate) fn from_text(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    /// Keeps a file's name, each once, for the rest of the program.
    pub(crate) fn interned(name: &str) -> Self {
        let mut files = FILES
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let kept = files.entry(name.to_owned()).or_insert_with(|| {
            let text = CString::new(name.replace('\0', "?")).unwrap_or_default();
            Box::leak(text.into_boxed_c_str())
        });
        Self(kept.as_ptr())
    }

    pub(crate) fn get(self) -> &'static CStr {
        // SAFETY: a Literal is made from a &'static CStr, or by the shim from a string literal of
        // the kernel's build.
        unsafe { CStr::from_ptr(self.0) }
    }

    pub(crate) fn text(self) -> String {
        self.get().to_string_lossy().into_owned()
    }

    fn same(self, other: Self) -> bool {
        // Translation units may have a copy each.
        self.0 == other.0 || self.get() == other.get()
    }
}

impl Site {
    #[cfg(test)]
    pub(crate) fn new(file: &'static CStr, line: u32) -> Self {
        Self {
            file: Literal::new(file),
            line,
            code: 0,
        }
    }

    pub(crate) fn foreign(file: Literal, line: u32, code: u32) -> Self {
        Self { file, line, code }
    }

    /// Returns whether both are the same call, in the traced build; in the plain one, calls in the
    /// same line.
    #[inline]
    pub(crate) fn same(self, other: Self) -> bool {
        self.line == other.line && self.code == other.code && self.file.same(other.file)
    }

    /// Compares the file name's address only: false is no answer.
    #[inline]
    pub(crate) fn identical(self, other: Self) -> bool {
        self.line == other.line && self.code == other.code && self.file.0 == other.file.0
    }

    pub(crate) fn is(self, place: &Place) -> bool {
        self.line == place.line && self.file.get().to_bytes() == place.file.as_bytes()
    }

    pub(crate) fn place(self) -> Place {
        Place {
            file: self.file.text(),
            line: self.line,
        }
    }

    /// Returns the number of the line, by which sites are suppressed.
    pub(crate) fn number(self) -> u32 {
        number(Key::Line(self.file.get(), self.line))
    }

    /// Returns the number of an access: that of its place in the program, which knows into what the
    /// line was inlined.
    pub(crate) fn access_number(self) -> u32 {
        match self.code {
            0 => self.number(),
            code => code_number(source::image().start + code as usize),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Code(usize),
    Line(&'static CStr, u32),
}

static SITES: LazyLock<Mutex<Interner<Key>>> = LazyLock::new(Mutex::default);

/// A line of a file, whose name has this address.
#[derive(PartialEq, Eq, Hash)]
struct KnownLine {
    file: usize,
    line: u32,
}

/// The numbers that this OS thread has asked for.
struct Known {
    code: Vec<(usize, u32)>,
    lines: IntegerMap<KnownLine, u32>,
}

const SLOTS: usize = 1 << 13;

impl Known {
    fn new() -> Self {
        Self {
            code: vec![(0, 0); SLOTS],
            lines: IntegerMap::default(),
        }
    }
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::new(Known::new());
}

fn shared_number(key: Key) -> u32 {
    SITES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .number(key)
}

#[inline]
pub(crate) fn code_number(address: usize) -> u32 {
    number(Key::Code(address))
}

#[inline]
fn number(key: Key) -> u32 {
    KNOWN.with_borrow_mut(|known| match key {
        Key::Code(address) => {
            let slot = &mut known.code[(address ^ address >> 13) % SLOTS];
            if slot.0 != address {
                *slot = (address, shared_number(key));
            }
            slot.1
        }
        Key::Line(file, line) => *known
            .lines
            .entry(KnownLine {
                file: file.as_ptr() as usize,
                line,
            })
            .or_insert_with(|| shared_number(key)),
    })
}

#[derive(Default)]
pub(crate) struct Places(HashMap<u32, Vec<Place>>);

impl Places {
    /// Returns the lines of a site, innermost first; never none.
    pub(crate) fn get(&mut self, number: u32) -> Vec<Place> {
        let places = self.0.entry(number).or_insert_with(|| resolve(number));
        places.clone()
    }

    /// Names the outermost line of a site.
    pub(crate) fn name(&mut self, number: u32) -> String {
        let places = self.get(number);
        places.last().map(ToString::to_string).unwrap_or_default()
    }
}

fn resolve(number: u32) -> Vec<Place> {
    let key = SITES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .value(number);
    match key {
        Key::Code(address) => source::frames(address),
        Key::Line(file, line) => vec![Place {
            file: file.to_string_lossy().into_owned(),
            line,
        }],
    }
}
