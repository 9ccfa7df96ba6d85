//! A site that only rising maxima need: lazy warps read K on their own where a score leaves the
//! range of earlier maxima.

use common::problem::Dtype;
use common::suppression::{Finding, Presets, suppress_each};
use stage8_overlap::Overlap;

#[test]
fn a_site_that_rising_maxima_alone_need_is_killed() {
    let mut stage = stage_tests::load(&Overlap);
    stage.kernels.retain(|kernel| {
        kernel.variant == "overlap-lazy-64x128"
            && kernel.dtype == Dtype::F16
            && kernel.head_dim == 64
    });
    let suppressed = suppress_each(&stage, Presets::OnePerFamily);
    let words = "named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer);";
    let needed = "Preset::LAZY) attn::named_barrier_sync";
    let source = include_str!("../../kernel.cu");
    let line = source
        .lines()
        .position(|line| line.contains(needed) && line.contains(words))
        .expect("the barrier before a slot of K is released");
    let place = format!("stage8-overlap/kernel.cu:{}", line + 1);
    let site = suppressed
        .sites
        .iter()
        .find(|site| site.place.ends_with(&place))
        .unwrap_or_else(|| panic!("{place} is no site of {:#?}", suppressed.sites));
    let Finding::Killed { at, .. } = &site.finding else {
        panic!("{site:#?}");
    };
    assert!(at.ends_with(" large"), "{at}");
}
