//! C6: stays in its buffers.

use crate::image::{Image, Violation};
use crate::verdict::{GateId, GateResult};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read only: no byte may change.
    Input,
    /// Elements may change, guard bands and gaps not.
    Output,
}

#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    pub name: &'a str,
    pub image: &'a Image,
    pub after: &'a [u8],
    pub role: Role,
}

/// C6: inputs unchanged, guard bands and gaps of outputs intact. A read outside of an input meets NaN, so that C1 to C3 fail.
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
        let (changed, rule) = match role {
            Role::Input => (image.first_change(after), "input changed"),
            Role::Output => (image.first_violation(after), "written outside its elements"),
        };
        if let Some(Violation { offset, what }) = changed {
            let layout = image.layout;
            let reason = format!("{name}: {rule} at {what} (byte {offset} of the {layout} image)");
            return GateResult::fail(GateId::C6, reason);
        }
    }
    let shown: Vec<String> = buffers
        .iter()
        .map(|b| format!("{} ({})", b.name, b.image.layout))
        .collect();
    GateResult::judge(
        GateId::C6,
        true,
        format!("guard bands, gaps and inputs intact: {}", shown.join(", ")),
    )
}
