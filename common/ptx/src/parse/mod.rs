//! A module's text to typed data: its variables and entries. Bodies are decoded entry by entry
//! ([`crate::decode`]), so that an entry that nobody asks for is not refused.

mod declaration;
pub(crate) mod error;
mod function;
mod literal;
pub(crate) mod places;
pub(crate) mod scan;

use std::sync::Arc;

pub(crate) use declaration::{Declaration, Kind};
pub(crate) use error::Refusal;
pub(crate) use function::Function;
pub(crate) use literal::{float_literal, integer_literal};

use error::ParseError;
use places::Places;
use scan::{Piece, Scanner};

/// A parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
}

/// The demands of an entry on its launch, and where its body stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub line: u32,
    pub parameters: Vec<Parameter>,
    pub parameter_bytes: u32,
    /// `.reqntid`, or `None`.
    pub threads: Option<[u32; 3]>,
    /// `.maxntid`, or `None`.
    pub most_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`, or `None`.
    pub cluster: Option<[u32; 3]>,
    body: (usize, u32),
}

/// A parsed module.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) file: String,
    text: Arc<str>,
    pub version: String,
    pub target: String,
    pub(crate) variables: Vec<Declaration>,
    pub(crate) places: Places,
    entries: Vec<Entry>,
    functions: Vec<Function>,
}

impl Module {
    /// Parses a module; `file` is its name in messages.
    ///
    /// # Errors
    ///
    /// What is no PTX, or is refused, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ParseError> {
        let mut module = Self {
            file: file.to_owned(),
            text: text.into(),
            version: String::new(),
            target: String::new(),
            variables: Vec::new(),
            places: Places::default(),
            entries: Vec::new(),
            functions: Vec::new(),
        };
        module.read(text).map_err(|refusal| refusal.of_file(file))?;
        Ok(module)
    }

    fn read(&mut self, text: &str) -> Result<(), Refusal> {
        let mut scanner = Scanner::new(text);
        while let Some(piece) = scanner.next()? {
            match piece {
                Piece::Line { text: words, .. } => self.read_line(words),
                Piece::Statement { line, text: words } => self.read_statement(line, words)?,
                Piece::Open { line, text: words } => {
                    if has_word(words, ".entry") {
                        let mut entry = read_entry(line, words)?;
                        entry.body = scanner.position();
                        self.entries.push(entry);
                    } else if has_word(words, ".func") {
                        let function = Function::read(line, words, scanner.position());
                        self.functions.push(function);
                    }
                    scanner.skip_block()?;
                }
                Piece::Label { .. } | Piece::Inline { .. } => {}
                Piece::Close => {
                    let line = scanner.position().1;
                    return Err(Refusal::invalid(line, "a `}` that closes nothing"));
                }
            }
        }
        if self.version.is_empty() {
            return Err(Refusal::invalid(
                1,
                "a module begins with `.version`; this text is no PTX",
            ));
        }
        Ok(())
    }

    fn read_line(&mut self, text: &str) {
        if text.starts_with(".file") {
            self.places.file(text);
        } else if let Some(version) = text.strip_prefix(".version") {
            version.trim().clone_into(&mut self.version);
        } else if let Some(target) = text.strip_prefix(".target") {
            target.trim().clone_into(&mut self.target);
        }
    }

    fn read_statement(&mut self, line: u32, text: &str) -> Result<(), Refusal> {
        let is_prototype = has_word(text, ".func") || has_word(text, ".entry");
        let is_plain = text.starts_with(".pragma") || text.starts_with(".alias");
        if is_prototype || is_plain {
            return Ok(());
        }
        self.variables.push(Declaration::read(line, text)?);
        Ok(())
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Finds an entry.
    ///
    /// # Errors
    ///
    /// An entry that is not there.
    pub(crate) fn find(&self, name: &str) -> Result<&Entry, ParseError> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name) else {
            let names: Vec<&str> = self.entries.iter().map(|it| it.name.as_str()).collect();
            return Err(ParseError::NoEntry {
                file: self.file.clone(),
                name: name.to_owned(),
                known: names.join(", "),
            });
        };
        Ok(entry)
    }

    /// Finds a function that has a body.
    pub(crate) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|it| it.name == name)
    }

    /// Returns the text of an entry's body.
    pub(crate) fn body(&self, entry: &Entry) -> Scanner<'_> {
        Scanner::at(&self.text, entry.body)
    }

    pub(crate) fn function_body(&self, function: &Function) -> Scanner<'_> {
        Scanner::at(&self.text, function.body)
    }
}

#[cfg(test)]
mod tests;

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|it| it == word)
}

/// Reads the head of an entry: `.visible .entry name(parameters) directives`.
fn read_entry(line: u32, text: &str) -> Result<Entry, Refusal> {
    let head = uncommented(text);
    let after = head
        .split_once(".entry")
        .map(|(_, rest)| rest.trim())
        .unwrap_or_default();
    let (name, parameters, directives) = match after.split_once('(') {
        Some((name, rest)) => {
            let Some((inside, behind)) = rest.rsplit_once(')') else {
                return Err(Refusal::invalid(line, "the parameters have no `)`"));
            };
            (name.trim(), inside, behind)
        }
        None => {
            let end = after.find(char::is_whitespace).unwrap_or(after.len());
            (&after[..end], "", &after[end..])
        }
    };
    let mut entry = Entry {
        name: name.to_owned(),
        line,
        parameters: Vec::new(),
        parameter_bytes: 0,
        threads: None,
        most_threads: None,
        cluster: None,
        body: (0, 0),
    };
    read_parameters(&mut entry, parameters)?;
    read_directives(&mut entry, directives)?;
    Ok(entry)
}

fn uncommented(text: &str) -> String {
    let mut head = String::new();
    for line in text.lines() {
        head.push_str(line.split("//").next().unwrap_or_default());
        head.push(' ');
    }
    head
}

fn read_parameters(entry: &mut Entry, text: &str) -> Result<(), Refusal> {
    for part in scan::split_operands(text) {
        if part.is_empty() {
            continue;
        }
        let declaration = Declaration::read(entry.line, part)?;
        let offset = entry
            .parameter_bytes
            .next_multiple_of(declaration.alignment.max(1));
        let bytes = declaration.bytes();
        entry.parameter_bytes = offset + bytes;
        entry.parameters.push(Parameter {
            name: declaration.name,
            offset,
            bytes,
        });
    }
    Ok(())
}

/// The directives of an entry that change nothing that is judged here.
const WITHOUT_EFFECT: [&str; 5] = [
    ".minnctapersm",
    ".maxnreg",
    ".explicitcluster",
    ".maxclusterrank",
    ".pragma",
];

fn read_directives(entry: &mut Entry, text: &str) -> Result<(), Refusal> {
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest[1..].find('.').map_or(rest.len(), |at| at + 1);
        let (directive, behind) = rest.split_at(end);
        let name = directive.split_whitespace().next().unwrap_or_default();
        let numbers = directive[name.len()..].trim();
        match name {
            ".reqntid" => entry.threads = Some(extent(entry.line, numbers)?),
            ".maxntid" => entry.most_threads = Some(extent(entry.line, numbers)?),
            ".reqnctapercluster" => entry.cluster = Some(extent(entry.line, numbers)?),
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(Refusal::unknown(entry.line, name)),
        }
        rest = behind.trim();
    }
    Ok(())
}

fn extent(line: u32, text: &str) -> Result<[u32; 3], Refusal> {
    let mut sizes = [1; 3];
    for (size, word) in sizes.iter_mut().zip(text.split(',')) {
        *size = word
            .trim()
            .parse()
            .map_err(|_| Refusal::invalid(line, format!("`{word}` is no extent")))?;
    }
    Ok(sizes)
}
