//! As much of TOML as a launch file needs: keys, tables, arrays of tables, and values of one line.
//! Dates, dotted keys and strings over several lines are refused by their line.

use serde_json::{Map, Number, Value};
use thiserror::Error;

/// A line that is no TOML, or no TOML that is read here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct TomlError {
    pub line: usize,
    pub reason: String,
}

/// What is wrong within a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
struct Wrong(String);

type Object = Map<String, Value>;

/// A key and its value.
struct Pair {
    key: String,
    value: Value,
}

/// Reads a file.
pub fn parse(text: &str) -> Result<Value, TomlError> {
    let mut root = Object::new();
    let mut table = Vec::new();
    let mut rest = Lines { text, line: 0 };
    while let Some(content) = rest.next_statement() {
        let line = rest.line;
        let fail = |Wrong(reason): Wrong| TomlError { line, reason };
        if let Some(header) = content.strip_prefix("[[") {
            let name = header.strip_suffix("]]").map(str::trim);
            let key = plain_key(name.unwrap_or_default()).map_err(fail)?;
            let entries = root.entry(key.clone()).or_insert(Value::Array(Vec::new()));
            let Value::Array(list) = entries else {
                return Err(fail(Wrong(format!("`{key}` is no array of tables"))));
            };
            list.push(Value::Object(Object::new()));
            table = vec![key];
        } else if let Some(header) = content.strip_prefix('[') {
            let name = header.strip_suffix(']').map(str::trim);
            let key = plain_key(name.unwrap_or_default()).map_err(fail)?;
            if root
                .insert(key.clone(), Value::Object(Object::new()))
                .is_some()
            {
                return Err(fail(Wrong(format!("`{key}` is there twice"))));
            }
            table = vec![key];
        } else {
            let mut cursor = Cursor { rest: &content };
            let Pair { key, value } = cursor.pair().map_err(fail)?;
            cursor.end().map_err(fail)?;
            let target = open(&mut root, &table);
            if target.insert(key.clone(), value).is_some() {
                return Err(fail(Wrong(format!("`{key}` is there twice"))));
            }
        }
    }
    Ok(Value::Object(root))
}

/// Returns the table that a header has opened last.
fn open<'a>(root: &'a mut Object, table: &[String]) -> &'a mut Object {
    let Some(name) = table.first() else {
        return root;
    };
    let entry = match root.get_mut(name) {
        Some(Value::Array(list)) => list.last_mut(),
        other => other,
    };
    match entry {
        Some(Value::Object(object)) => object,
        _ => unreachable!("a header makes its table"),
    }
}

/// The statements of a text, without comments. A value in brackets may go on over lines.
struct Lines<'a> {
    text: &'a str,
    line: usize,
}

impl Lines<'_> {
    fn next_statement(&mut self) -> Option<String> {
        let mut statement = String::new();
        let mut depth = 0i32;
        loop {
            if self.text.is_empty() {
                return (!statement.is_empty()).then_some(statement);
            }
            let (line, rest) = self.text.split_once('\n').unwrap_or((self.text, ""));
            self.text = rest;
            self.line += 1;
            let content = without_comment(line).trim();
            let is_header = statement.is_empty() && content.starts_with('[');
            statement.push_str(content);
            depth += nesting(content);
            if !statement.is_empty() && (depth <= 0 || is_header) {
                return Some(statement);
            }
            if !statement.is_empty() {
                statement.push(' ');
            }
        }
    }
}

/// Returns the part of a line in front of a `#` that stands in no string.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (None, '#') => return &line[..at],
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    line
}

/// Counts brackets that are opened and not closed.
fn nesting(content: &str) -> i32 {
    let (mut depth, mut quote) = (0, None);
    for character in content.chars() {
        match (quote, character) {
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    depth
}

fn plain_key(name: &str) -> Result<String, Wrong> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_plain) {
        return Ok(name.to_owned());
    }
    Err(Wrong(format!("`{name}` is no plain key")))
}

/// A value that is read from the left.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self, expected: char) -> bool {
        let trimmed = self.rest.trim_start();
        let behind = trimmed.strip_prefix(expected);
        self.rest = behind.unwrap_or(trimmed);
        behind.is_some()
    }

    fn end(&self) -> Result<(), Wrong> {
        let left = self.rest.trim();
        if left.is_empty() {
            return Ok(());
        }
        Err(Wrong(format!("`{left}` follows the value")))
    }

    /// Takes what stands before the next of these characters.
    fn until(&mut self, ends: &[char]) -> &'a str {
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, behind) = self.rest.split_at(end);
        self.rest = behind;
        word.trim()
    }

    fn pair(&mut self) -> Result<Pair, Wrong> {
        let key = plain_key(self.until(&['=']))?;
        if !self.skip('=') {
            return Err(Wrong(format!("`{key}` has no `=`")));
        }
        Ok(Pair {
            value: self.value()?,
            key,
        })
    }

    fn value(&mut self) -> Result<Value, Wrong> {
        for quote in ['"', '\''] {
            if self.skip(quote) {
                let word = self.rest.split(quote).next().unwrap_or_default();
                self.rest = &self.rest[word.len()..];
                if !self.skip(quote) || quote == '"' && word.contains('\\') {
                    return Err(Wrong(format!(
                        "`{word}` is no string of one line without escapes"
                    )));
                }
                return Ok(Value::String(word.to_owned()));
            }
        }
        if self.skip('[') {
            return self.array();
        }
        if self.skip('{') {
            return self.table();
        }
        let word = self.until(&[',', ']', '}']);
        match word {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => number(word).ok_or_else(|| Wrong(format!("`{word}` is no value"))),
        }
    }

    fn array(&mut self) -> Result<Value, Wrong> {
        let mut list = Vec::new();
        while !self.skip(']') {
            list.push(self.value()?);
            if !self.skip(',') && !self.rest.trim_start().starts_with(']') {
                return Err(Wrong("an array has no `]`".to_owned()));
            }
        }
        Ok(Value::Array(list))
    }

    fn table(&mut self) -> Result<Value, Wrong> {
        let mut object = Object::new();
        while !self.skip('}') {
            let Pair { key, value } = self.pair()?;
            if object.insert(key.clone(), value).is_some() {
                return Err(Wrong(format!("`{key}` is there twice")));
            }
            if !self.skip(',') && !self.rest.trim_start().starts_with('}') {
                return Err(Wrong("a table has no `}`".to_owned()));
            }
        }
        Ok(Value::Object(object))
    }
}

fn number(word: &str) -> Option<Value> {
    let plain = word.replace('_', "");
    if let Ok(integer) = plain.parse::<i64>() {
        return Some(integer.into());
    }
    if let Some(hex) = plain.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Value::from);
    }
    plain
        .parse()
        .ok()
        .and_then(Number::from_f64)
        .map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_arrays_and_values_are_read() {
        let text = "a = 1 # one\n[[t]]\nb = [1, 2,\n 3]\nc = { d = 'x#', e = true }\n[[t]]\nb = []\n[u]\nf = -1.5\n";
        let expected = json!({
            "a": 1,
            "t": [{"b": [1, 2, 3], "c": {"d": "x#", "e": true}}, {"b": []}],
            "u": {"f": -1.5},
        });
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn what_is_not_read_is_refused_by_its_line() {
        for (text, message) in [
            ("a = 1\na = 2", "line 2: `a` is there twice"),
            ("a.b = 1", "line 1: `a.b` is no plain key"),
            ("\na = 1979-05-27", "line 2: `1979-05-27` is no value"),
            ("a = 1 2", "line 1: `1 2` is no value"),
            ("a", "line 1: `a` has no `=`"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
