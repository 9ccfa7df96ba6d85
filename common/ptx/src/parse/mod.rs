//! A module's text to typed data: its variables and entries. Bodies are decoded entry by entry
//! ([`crate::decode`]), so that an entry that nobody asks for is not refused.

mod declaration;
pub(crate) mod error;
mod function;
mod head;
mod literal;
pub(crate) mod places;
pub(crate) mod scan;

use std::sync::Arc;

pub(crate) use declaration::{Declaration, Kind};
pub(crate) use error::Refusal;
pub(crate) use function::Function;
pub(crate) use literal::{float_literal, integer_literal, is_number};

use error::ParseError;
use head::Numbers;
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
    numbers: Numbers,
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
            numbers: Numbers::default(),
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
                Piece::Line { line, text: words } => self.read_line(line, words)?,
                Piece::Statement { line, text: words } => self.read_statement(line, words)?,
                Piece::Open { line, text: words } => {
                    if has_word(words, ".entry") {
                        let mut entry =
                            read_entry(line, words, self.numbers.most_parameter_bytes())?;
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

    fn read_line(&mut self, line: u32, text: &str) -> Result<(), Refusal> {
        if text.starts_with(".file") {
            self.places.file(text);
        } else if let Some(version) = text.strip_prefix(".version") {
            self.numbers.version = head::version(line, version)?;
            version.trim().clone_into(&mut self.version);
        } else if let Some(target) = text.strip_prefix(".target") {
            self.numbers.architecture = head::target(line, target)?;
            target.trim().clone_into(&mut self.target);
        } else if let Some(size) = text.strip_prefix(".address_size") {
            head::check_address_size(line, size)?;
        }
        Ok(())
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

/// Reads the head of an entry: `.visible .entry name(parameters) directives`. Its parameters have
/// `most` bytes at most.
fn read_entry(line: u32, text: &str, most: u32) -> Result<Entry, Refusal> {
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
    read_parameters(&mut entry, parameters, most)?;
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

fn read_parameters(entry: &mut Entry, text: &str, most: u32) -> Result<(), Refusal> {
    for part in scan::split_operands(text) {
        if part.is_empty() {
            continue;
        }
        let declaration = Declaration::read(entry.line, part)?;
        let bytes = declaration.bytes();
        let Some(offset) = declaration.take(&mut entry.parameter_bytes, most) else {
            let reason = format!(
                "with `{}` the parameters of `{}` take more than {most} bytes, the most of this \
                 `.version` and `.target`: pass the rest in a buffer",
                declaration.name, entry.name
            );
            return Err(Refusal::invalid(entry.line, reason));
        };
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
        let next = rest.char_indices().skip(1).find(|(_, it)| *it == '.');
        let end = next.map_or(rest.len(), |(at, _)| at);
        let (directive, behind) = rest.split_at(end);
        let name = directive.split_whitespace().next().unwrap_or_default();
        let numbers = directive[name.len()..].trim();
        match name {
            ".reqntid" => entry.threads = Some(extent(entry.line, numbers)?),
            ".maxntid" => entry.most_threads = Some(extent(entry.line, numbers)?),
            ".reqnctapercluster" => entry.cluster = Some(cluster(entry.line, numbers)?),
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(Refusal::unknown(entry.line, name)),
        }
        rest = behind.trim();
    }
    Ok(())
}

/// Reads up to three numbers; those that are left away are 1.
fn extent(line: u32, text: &str) -> Result<[u32; 3], Refusal> {
    let mut sizes = [1; 3];
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if words.len() > sizes.len() {
        let reason = format!("`{text}` has more than three extents: leave the others away");
        return Err(Refusal::invalid(line, reason));
    }
    for (size, word) in sizes.iter_mut().zip(words) {
        let number = word.parse().ok().filter(|&number| number > 0);
        let reason = || format!("`{word}` is no extent: give a number from 1 on");
        *size = number.ok_or_else(|| Refusal::invalid(line, reason()))?;
    }
    Ok(sizes)
}

/// The blocks of the largest cluster of sm_90, portable or not.
const MOST_BLOCKS: u64 = 16;

/// Reads the extent of a cluster.
fn cluster(line: u32, text: &str) -> Result<[u32; 3], Refusal> {
    let sizes = extent(line, text)?;
    let blocks = sizes
        .map(u64::from)
        .into_iter()
        .fold(1, u64::saturating_mul);
    if blocks > MOST_BLOCKS {
        let reason =
            format!("a cluster of {text} blocks has more than {MOST_BLOCKS}: ask for fewer");
        return Err(Refusal::invalid(line, reason));
    }
    Ok(sizes)
}
