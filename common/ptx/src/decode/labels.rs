//! Labels and the branches to them. A label is known in the block in braces that it stands in and in
//! those within: inline assembly has the same ones again and again.

use std::collections::HashMap;

use super::outcome::Result;
use crate::parse::Refusal;

/// A branch whose target is not known yet.
pub(super) struct Jump {
    pub(super) step: usize,
    pub(super) line: u32,
    block: usize,
    label: String,
}

/// The labels of one body.
#[derive(Default)]
pub(super) struct Labels {
    /// The block that each block stands in; the first is the body.
    parents: Vec<usize>,
    open: usize,
    steps: HashMap<Label, u32>,
    jumps: Vec<Jump>,
}

#[derive(PartialEq, Eq, Hash)]
struct Label {
    block: usize,
    name: String,
}

impl Labels {
    pub(super) fn enter(&mut self) {
        self.parents.push(self.open);
        self.open = self.parents.len();
    }

    pub(super) fn leave(&mut self) {
        self.open = self.parent(self.open);
    }

    /// Returns the block around a block; the body's is the body.
    fn parent(&self, block: usize) -> usize {
        block.checked_sub(1).map_or(0, |index| self.parents[index])
    }

    /// Notes that a label stands before a step.
    pub(super) fn define(&mut self, line: u32, name: &str, step: usize) -> Result<()> {
        let label = Label {
            block: self.open,
            name: name.to_owned(),
        };
        if self.steps.insert(label, step as u32).is_some() {
            let reason = format!("the label `{name}` stands twice in one block");
            return Err(Refusal::invalid(line, reason));
        }
        Ok(())
    }

    pub(super) fn jump(&mut self, line: u32, label: &str, step: usize) {
        self.jumps.push(Jump {
            step,
            line,
            block: self.open,
            label: label.to_owned(),
        });
    }

    pub(super) fn jumps(&self) -> &[Jump] {
        &self.jumps
    }

    /// Finds the step that a branch goes to.
    pub(super) fn target(&self, jump: &Jump) -> Result<u32> {
        let mut block = jump.block;
        loop {
            let name = jump.label.clone();
            if let Some(&step) = self.steps.get(&Label { block, name }) {
                return Ok(step);
            }
            if block == 0 {
                let reason = format!("there is no label `{}`", jump.label);
                return Err(Refusal::invalid(jump.line, reason));
            }
            block = self.parent(block);
        }
    }
}
