//! Lists: joined, without duplicates, grouped by key, counted.

use std::fmt::Display;

/// The values of one key.
pub struct Grouped<K, V> {
    pub key: K,
    pub values: Vec<V>,
}

/// Returns `a, b, c`.
pub fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let words: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    words.join(separator)
}

/// Returns `1 gate` or `2 gates`.
pub fn count(n: usize, singular: &str, plural: &str) -> String {
    format!("{n} {}", if n == 1 { singular } else { plural })
}

/// Returns each item once, in the order of first occurrence.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// Returns the values of each key, in the order of first occurrence.
pub fn grouped<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<Grouped<K, V>> {
    let mut groups = Vec::<Grouped<K, V>>::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.values.push(value),
            None => groups.push(Grouped {
                key,
                values: vec![value],
            }),
        }
    }
    groups
}

/// Returns how often each of `words` occurs, in their order and without those that do not:
/// `6 worse, 84 better`.
pub fn tallied(items: impl IntoIterator<Item = &'static str>, words: &[&str]) -> String {
    let mut counts = vec![0; words.len()];
    for item in items {
        if let Some(index) = words.iter().position(|word| *word == item) {
            counts[index] += 1;
        }
    }
    let mut parts = Vec::new();
    for (word, n) in words.iter().zip(counts) {
        if n > 0 {
            parts.push(format!("{n} {word}"));
        }
    }
    parts.join(", ")
}
