//! A verdict as JSON.

use crate::judge::verdict::Overall;
use serde_json::{Value, json};

pub fn overall(of: &Overall) -> Value {
    json!({ "word": of.word, "line": of.line, "exit": of.exit.code(), "actions": of.actions })
}
