use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{LazyLock, Mutex};

use crate::calls::{Calls, Frame};
use crate::fault::Place;
use crate::intern::{IntegerMap, Interner};
use crate::source;

/// `EmulatorSite` of abi.h. `file` is a string literal of the kernel's build.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    file: Literal,
    line: u32,
    /// The number of the calls that lead to the operation; 0 in the plain build.
    calls: u32,
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
            calls: 0,
        }
    }

    /// Returns a place of a program that is not compiled into this one. `frames` are its lines,
    /// innermost first.
    pub(crate) fn foreign(file: Literal, line: u32, frames: Vec<Place>) -> Self {
        let calls = shared_number(Key::Foreign(source::add_foreign(frames)));
        Self { file, line, calls }
    }

    /// Returns whether both are the same call, in the traced build; in the plain one, calls in the
    /// same line.
    #[inline]
    pub(crate) fn same(self, other: Self) -> bool {
        self.line == other.line && self.calls == other.calls && self.file.same(other.file)
    }

    /// Compares the file name's address only: false is no answer.
    #[inline]
    pub(crate) fn identical(self, other: Self) -> bool {
        self.line == other.line && self.calls == other.calls && self.file.0 == other.file.0
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
        line_number(self.file.get(), self.line)
    }

    /// Returns the number of an access: that of the calls that lead to it.
    pub(crate) fn access_number(self) -> u32 {
        match self.calls {
            0 => self.number(),
            calls => calls,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Calls(Calls),
    Line(&'static CStr, u32),
    /// The index of a place of a foreign program.
    Foreign(usize),
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
    calls: Vec<(Calls, u32)>,
    lines: IntegerMap<KnownLine, u32>,
}

const SLOTS: usize = 1 << 13;

impl Known {
    fn new() -> Self {
        Self {
            calls: vec![(Calls::default(), 0); SLOTS],
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

/// Returns the number of the calls that lead to the caller of the owner of `frame`.
///
/// # Safety
/// As [`Calls::of`].
#[inline]
pub(crate) unsafe fn number_of_caller(frame: *const Frame) -> u32 {
    // SAFETY: passed on.
    calls_number(unsafe { Calls::of(frame) })
}

#[inline]
pub(crate) fn calls_number(calls: Calls) -> u32 {
    KNOWN.with_borrow_mut(|known| {
        let slot = &mut known.calls[calls.spread() % SLOTS];
        if slot.0 != calls {
            *slot = (calls, shared_number(Key::Calls(calls)));
        }
        slot.1
    })
}

fn line_number(file: &'static CStr, line: u32) -> u32 {
    KNOWN.with_borrow_mut(|known| {
        let known_line = KnownLine {
            file: file.as_ptr() as usize,
            line,
        };
        *known
            .lines
            .entry(known_line)
            .or_insert_with(|| shared_number(Key::Line(file, line)))
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
        Key::Calls(calls) => source::frames(&calls.addresses()),
        Key::Foreign(index) => source::foreign_frames(index),
        Key::Line(file, line) => vec![Place {
            file: file.to_string_lossy().into_owned(),
            line,
        }],
    }
}
