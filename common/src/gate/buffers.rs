//! C6: stays in its buffers.

use crate::image::{Image, Violation};
use crate::verdict::{GateId, GateResult};

/// The use that a kernel may make of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A buffer that is only read: no byte may change.
    Input,
    /// A buffer whose elements may change; guard bands and gaps may not.
    Output,
}

/// A buffer before and after a launch.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    pub name: &'a str,
    pub image: &'a Image,
    pub after: &'a [u8],
    pub role: Role,
}

/// Judges C6: inputs are unchanged, guard bands and gaps of outputs intact. A read outside of an
/// input meets NaN, so that C1 to C3 fail.
pub fn c6(buffers: &[Buffer<'_>]) -> GateResult {
    if buffers.is_empty() {
        return GateResult::no_data(GateId::C6, "no buffers");
    }
    for Buffer {
        name,
        image,
        after,
        role,
    } in buffers
    {
        if after.len() != image.bytes.len() {
            let reason = format!(
                "{name}: {} bytes read back of {}",
                after.len(),
                image.bytes.len()
            );
            return GateResult::fail(GateId::C6, reason);
        }
        let (violation, rule) = match role {
            Role::Input => (image.first_change(after), "input changed"),
            Role::Output => (image.first_violation(after), "written outside its elements"),
        };
        if let Some(Violation { offset, what }) = violation {
            let reason = format!(
                "{name}: {rule} at {what} (byte {offset} of the {} image)",
                image.layout
            );
            return GateResult::fail(GateId::C6, reason);
        }
    }
    let mut names = Vec::new();
    for Buffer { name, image, .. } in buffers {
        names.push(format!("{name} ({})", image.layout));
    }
    GateResult::judge(
        GateId::C6,
        true,
        format!("guard bands, gaps and inputs intact: {}", names.join(", ")),
    )
}
