//! Places of the program, as small numbers that are the same on all OS threads.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{LazyLock, Mutex};

use crate::fault::Place;

use super::intern::{IntegerMap, Interner};
use super::source;

/// A place as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Return address of a call from the kernel.
    Code(usize),
    /// File and line that the shim passes on.
    Line(&'static CStr, u32),
}

static SITES: LazyLock<Mutex<Interner<Key>>> = LazyLock::new(|| Mutex::new(Interner::default()));

/// What an OS thread has looked up before.
struct Known {
    code: Vec<(usize, u32)>,
    lines: IntegerMap<(usize, u32), u32>,
}

const SLOTS: usize = 1 << 13;

thread_local! {
    static KNOWN: RefCell<Known> =
        RefCell::new(Known { code: vec![(0, 0); SLOTS], lines: IntegerMap::default() });
}

fn shared_number(key: Key) -> u32 {
    SITES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).number(key)
}

/// The number of a place.
#[inline]
pub(crate) fn number(key: Key) -> u32 {
    KNOWN.with_borrow_mut(|known| match key {
        Key::Code(address) => {
            let slot = &mut known.code[(address ^ address >> 13) % SLOTS];
            if slot.0 != address {
                *slot = (address, shared_number(key));
            }
            slot.1
        }
        Key::Line(file, line) => {
            *known.lines.entry((file.as_ptr() as usize, line)).or_insert_with(|| shared_number(key))
        }
    })
}

/// Where a place is in the source, and from where it was inlined, innermost first.
#[derive(Default)]
pub(crate) struct Places(HashMap<u32, Vec<Place>>);

impl Places {
    /// Never empty.
    pub(crate) fn get(&mut self, number: u32) -> Vec<Place> {
        let resolve = || {
            let key = SITES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).value(number);
            match key {
                Key::Code(address) => source::frames(address),
                Key::Line(file, line) => vec![Place { file: file.to_string_lossy().into_owned(), line }],
            }
        };
        self.0.entry(number).or_insert_with(resolve).clone()
    }
}
