//! Pictures of the ladder, drawn by plotters: what the tables and the emulator say, and how the
//! kernels lay out data.

mod bars;
mod blocks;
mod canvas;
mod fragments;
mod labels;
mod ladder;
mod lengths;
mod map;
mod ring;
mod roofline;
mod swizzle;
#[cfg(test)]
mod tests;
mod wavefronts;

use canvas::DrawError;
use results::judge::View;
use results::judge::verdict::Report;
use results::table::session::Gpu;

/// A picture, and the place where pages show it from.
pub struct Picture {
    /// The path in the workspace: `docs/pictures/swizzle.svg`.
    pub path: String,
    pub svg: String,
}

/// Returns the pictures about the table of a report.
pub fn pictures(report: &Report<'_>) -> Result<Vec<Picture>, DrawError> {
    let mut pictures = Vec::new();
    for (name, svg) in [
        ("ladder", ladder::draw(report)?),
        ("peers", ladder::draw_peers(report)?),
        ("pictures/wavefronts", wavefronts::draw(report)?),
        ("pictures/roofline", roofline::draw(report)?),
        ("pictures/map", map::draw(report)?),
        ("pictures/lengths", lengths::draw(report)?),
        ("pictures/blocks", blocks::draw(report)?),
        ("pictures/swizzle", swizzle::draw()?),
        ("pictures/mma", fragments::draw_mma()?),
        ("pictures/wgmma", fragments::draw_wgmma()?),
        ("pictures/ring", ring::draw()?),
    ] {
        pictures.push(Picture {
            path: format!("docs/{name}.svg"),
            svg,
        });
    }
    Ok(pictures)
}

/// Returns the number of SMs of the GPU that a table is about.
fn multiprocessors(view: &View<'_>) -> Option<u32> {
    match view.on_gpu()?.machine.gpu {
        Gpu::Present {
            multiprocessors, ..
        } => Some(multiprocessors),
        Gpu::Absent { .. } => None,
    }
}
