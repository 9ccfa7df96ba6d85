use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::heap::{of_list, of_table};

/// Hasher for keys of a few integers that nobody chooses maliciously.
#[derive(Default)]
pub(crate) struct IntegerHasher(u64);

impl Hasher for IntegerHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

pub(crate) type IntegerMap<K, V> = HashMap<K, V, BuildHasherDefault<IntegerHasher>>;

/// Numbers values in order of first appearance, from 1: 0 is free to mean "none".
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    numbers: IntegerMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            numbers: IntegerMap::default(),
            values: Vec::new(),
        }
    }
}

impl<T: Copy + Eq + Hash> Interner<T> {
    #[inline]
    pub(crate) fn number(&mut self, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32
        })
    }

    #[inline]
    pub(crate) fn value(&self, number: u32) -> T {
        self.values[number as usize - 1]
    }

    /// Returns the bytes that it holds, used or not.
    pub(crate) fn bytes(&self) -> usize {
        of_table(&self.numbers) + of_list(&self.values)
    }

    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.values.clear();
    }
}
