//! What the tests of this crate share.

use crate::plan::Request;
use clap::Parser;

/// The flags of `compare run` that say what is asked for.
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    request: Request,
    /// The place where kernels run, which a plan is told apart from the flags.
    #[arg(long)]
    backend: Option<String>,
}

/// Returns the request of these flags, which stand apart.
pub fn request<'a>(flags: impl IntoIterator<Item = &'a str>) -> Request {
    Flags::parse_from(["compare"].into_iter().chain(flags)).request
}
