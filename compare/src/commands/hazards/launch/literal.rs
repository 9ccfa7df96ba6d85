//! Numbers and words of a launch file, as they are written.

use anyhow::Context;
use ptx::number::{ElementType, Number};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

const NUMBER: &str = "a number, such as 3 or 0.5";

const FILLING: &str =
    "a number or one of 'unset', 'index', 'random', 'random:SEED' and 'file:NAME'";

/// A number, or a word in quotes.
enum Literal {
    Number(Number),
    Word(String),
}

/// A number. A whole one is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written(pub Number);

/// A number, or a word: `unset`, `index`, `random`, `random:SEED`, `file:NAME`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fill {
    #[default]
    Default,
    Number(Number),
    Word(String),
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(LiteralVisitor { expected: NUMBER })? {
            Literal::Number(number) => Ok(Self(number)),
            Literal::Word(word) => Err(D::Error::invalid_type(Unexpected::Str(&word), &NUMBER)),
        }
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let literal = from.deserialize_any(LiteralVisitor { expected: FILLING })?;
        Ok(match literal {
            Literal::Number(number) => Self::Number(number),
            Literal::Word(word) => Self::Word(word),
        })
    }
}

struct LiteralVisitor {
    expected: &'static str,
}

impl Visitor<'_> for LiteralVisitor {
    type Value = Literal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Literal, E> {
        Ok(Literal::Number(Number::Whole(number.into())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Literal, E> {
        Ok(Literal::Number(Number::Whole(number.into())))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Literal, E> {
        Ok(Literal::Number(Number::Whole(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Literal, E> {
        Ok(Literal::Number(Number::Real(number)))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Literal, E> {
        Ok(Literal::Word(word.to_owned()))
    }
}

/// Returns the element type of this name.
pub fn named_element(name: &str) -> anyhow::Result<ElementType> {
    let mut elements = ElementType::ALL.into_iter();
    let named = elements.find(|element| element.name() == name);
    named.with_context(|| {
        let names = ElementType::ALL.map(ElementType::name).join(", ");
        format!("`type`: `{name}` is no type; take one of {names}")
    })
}
