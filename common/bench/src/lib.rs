//! The criterion benchmark that every stage runs.
