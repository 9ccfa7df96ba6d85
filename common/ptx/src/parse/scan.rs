//! The text of a module as pieces: statements that end in `;`, blocks in braces, lines of
//! directives that end with their line.

use super::error::Refusal;

/// A piece of the text and the line on which it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Text up to a `;`.
    Statement {
        line: u32,
        text: &'a str,
    },
    /// Text that a `{` follows.
    Open {
        line: u32,
        text: &'a str,
    },
    Close,
    /// A directive that ends with its line: `.loc`, `.file`, `.version` and the like.
    Line {
        line: u32,
        text: &'a str,
    },
    Label {
        line: u32,
        name: &'a str,
    },
    /// A comment by which nvcc marks inline assembly.
    Inline {
        begins: bool,
    },
}

/// The directives that no `;` ends.
const LINES: [&str; 5] = [".loc", ".file", ".version", ".target", ".address_size"];

pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.text.as_bytes()[self.at..self.at + bytes];
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count() as u32;
        self.at += bytes;
    }

    /// Skips white space and comments. Returns a comment that marks inline assembly.
    fn skip(&mut self) -> Result<Option<Piece<'a>>, Refusal> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            self.advance(blank);
            let comment = self.rest();
            if comment.starts_with("//") {
                let end = comment.find('\n').unwrap_or(comment.len());
                let text = comment[2..end].trim();
                self.advance(end);
                match text {
                    "begin inline asm" => return Ok(Some(Piece::Inline { begins: true })),
                    "end inline asm" => return Ok(Some(Piece::Inline { begins: false })),
                    _ => {}
                }
            } else if comment.starts_with("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(Refusal::invalid(self.line, "the comment has no end"));
                };
                self.advance(end + 2);
            } else {
                return Ok(None);
            }
        }
    }

    /// Returns the next piece; none at the end of the text.
    pub(crate) fn next(&mut self) -> Result<Option<Piece<'a>>, Refusal> {
        if let Some(mark) = self.skip()? {
            return Ok(Some(mark));
        }
        let (rest, line) = (self.rest(), self.line);
        if rest.is_empty() {
            return Ok(None);
        }
        if rest.starts_with('}') {
            self.advance(1);
            return Ok(Some(Piece::Close));
        }
        if is_line_directive(rest) {
            let end = rest.find('\n').unwrap_or(rest.len());
            let text = without_comment(&rest[..end])
                .trim_end()
                .trim_end_matches(';');
            self.advance(end);
            return Ok(Some(Piece::Line { line, text }));
        }
        if let Some(name) = label(rest) {
            self.advance(rest.find(':').map_or(0, |colon| colon + 1));
            return Ok(Some(Piece::Label { line, name }));
        }
        self.statement(line).map(Some)
    }

    /// Reads up to the `;` or `{` that ends a statement. A `{` behind `=`, `,`, `(` or within an
    /// instruction's operands is part of it.
    fn statement(&mut self, line: u32) -> Result<Piece<'a>, Refusal> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let (mut at, mut depth, mut quoted) = (0, 0u32, false);
        while at < bytes.len() {
            let byte = bytes[at];
            match byte {
                b'"' => quoted = !quoted,
                _ if quoted => {}
                b';' if depth == 0 => {
                    let text = rest[..at].trim_end();
                    self.advance(at + 1);
                    return Ok(Piece::Statement { line, text });
                }
                b'{' if depth == 0 && opens_block(&rest[..at]) => {
                    let text = rest[..at].trim_end();
                    self.advance(at + 1);
                    return Ok(Piece::Open { line, text });
                }
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        let first = rest.lines().next().unwrap_or_default();
        Err(Refusal::invalid(
            line,
            format!("the statement `{first}` has no `;`"),
        ))
    }

    /// Skips to behind the `}` that closes a block just opened.
    pub(crate) fn skip_block(&mut self) -> Result<(), Refusal> {
        let start = self.line;
        let mut depth = 1;
        for (at, byte) in self.rest().bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.advance(at + 1);
                return Ok(());
            }
        }
        Err(Refusal::invalid(start, "the block has no `}`"))
    }

    /// Returns the place in the text and its line.
    pub(crate) fn position(&self) -> (usize, u32) {
        (self.at, self.line)
    }

    pub(crate) fn at(text: &'a str, (at, line): (usize, u32)) -> Self {
        Self { text, at, line }
    }
}

fn is_line_directive(text: &str) -> bool {
    let word = text.split([' ', '\t', '\n']).next().unwrap_or_default();
    LINES.contains(&word)
}

/// A block is opened by a `{` at the start, or behind a directive that is no initialiser.
fn opens_block(before: &str) -> bool {
    let head = before.trim();
    head.is_empty() || head.starts_with('.') && !head.contains('=') && !head.starts_with(".reg")
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Returns the name of a label that the text begins with.
fn label(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')))?;
    let is_label = end > 0 && text[end..].starts_with(':') && !text[end..].starts_with("::");
    is_label.then(|| &text[..end])
}

/// Splits operands at the commas that stand in no brackets.
pub(crate) fn split_operands(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0u32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() || !parts.is_empty() {
        parts.push(last);
    }
    parts
}
