//! The contents that outputs should have.

use super::literal::Written;
use anyhow::{Context, bail};
use ptx::case::{Buffer, ElementType};
use ptx::number::Number;
use serde::Deserialize;

/// The content that an output should have.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub buffer: String,
    /// One for all elements, or one for each.
    values: Vec<Written>,
    #[serde(default)]
    pub tolerance: f64,
}

impl Expected {
    /// Returns the value that an element should have.
    pub fn value(&self, index: usize) -> Number {
        self.values[index % self.values.len()].0
    }

    /// Returns the first element that is not within the tolerance. A NaN never is.
    pub fn first_difference(&self, element: ElementType, bytes: &[u8]) -> Option<usize> {
        let mut elements = bytes.chunks_exact(element.bytes()).enumerate();
        elements.position(|(index, found)| {
            let wanted = element.stored(self.value(index));
            let is_close = element.number(found).distance(wanted) <= self.tolerance;
            !is_close
        })
    }

    /// Refuses what no output can be compared with.
    pub fn check(&self, buffers: &[Buffer]) -> anyhow::Result<()> {
        let Self {
            buffer: name,
            values,
            tolerance,
        } = self;
        let mut outputs = buffers.iter().filter(|buffer| buffer.is_output);
        let Some(output) = outputs.find(|buffer| buffer.name == *name) else {
            bail!("`expect` names `{name}`, which is no output");
        };
        let count = values.len();
        if count != 1 && count != output.elements {
            bail!(
                "`expect` has {count} values for `{name}`: give one for all elements, or one for \
                 each of its {}",
                output.elements
            );
        }
        if !tolerance.is_finite() || *tolerance < 0.0 {
            bail!("`expect` for `{name}`: `tolerance` is {tolerance}: give a number from 0 on");
        }
        for Written(number) in values {
            // A mean of integers may have a fraction; a whole number is one that they can be.
            if output.element.is_integer() && matches!(number, Number::Whole(_)) {
                let encoded = output.element.encode(*number, &mut Vec::new());
                encoded.with_context(|| format!("`expect` for `{name}`: `values`"))?;
            }
        }
        Ok(())
    }
}
