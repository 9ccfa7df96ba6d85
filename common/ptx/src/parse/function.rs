//! Functions of the device, which entries call.

use super::error::Refusal;
use super::{Declaration, scan, uncommented};

/// A function with a body. Its head is read when it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: u32,
    head: String,
    pub(super) body: (usize, u32),
}

/// The variables of `.param` space in which a function takes and returns values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) results: Vec<Declaration>,
    pub(crate) parameters: Vec<Declaration>,
}

impl Function {
    /// Reads `.visible .func (.param .b32 result) name(parameters)`, as far as the name.
    pub(super) fn read(line: u32, text: &str, body: (usize, u32)) -> Self {
        let plain = uncommented(text);
        let head = plain
            .split_once(".func")
            .map(|(_, rest)| rest.trim())
            .unwrap_or_default();
        let (_, named) = split_list(head);
        let end = named.find(|c: char| c == '(' || c.is_whitespace());
        Self {
            name: named[..end.unwrap_or(named.len())].to_owned(),
            line,
            head: head.to_owned(),
            body,
        }
    }

    pub(crate) fn signature(&self) -> Result<Signature, Refusal> {
        let (results, named) = split_list(&self.head);
        let (parameters, _) = split_list(named[self.name.len()..].trim_start());
        Ok(Signature {
            results: self.declarations(results)?,
            parameters: self.declarations(parameters)?,
        })
    }

    fn declarations(&self, text: &str) -> Result<Vec<Declaration>, Refusal> {
        scan::split_operands(text)
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| Declaration::read(self.line, part))
            .collect()
    }
}

/// Splits `(list) rest`; the list is empty where there is none.
fn split_list(text: &str) -> (&str, &str) {
    let Some(inside) = text.strip_prefix('(') else {
        return ("", text);
    };
    let (list, rest) = inside.split_once(')').unwrap_or((inside, ""));
    (list, rest.trim_start())
}
