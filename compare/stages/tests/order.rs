//! The order of what warps do, by the emulator: what `compare timeline` draws without a GPU.

use common::device::Staged;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::{Attention, LoadedStage};
use common::tier0::SCHEDULES;
use common::timeline::emulated::order;
use common::timeline::{Kind, Overlap, Role, Span, Timeline, What, overlaps};
use emulator::Schedule;

/// The loading warpgroup's first warp, behind one warpgroup that computes.
const LOADER: usize = 4;

/// Four tiles of 128 keys.
fn problem() -> Problem {
    let shape = Shape {
        batch: 1,
        heads_q: 1,
        heads_kv: 1,
        seq_q: 64,
        seq_kv: 512,
        head_dim: 64,
        serving: Default::default(),
    };
    Problem::new(shape, Dtype::F16, Mask::Full).unwrap()
}

/// Returns what block 0 does.
fn traced(stage: &'static dyn Attention, variant: &str, schedule: Schedule) -> Timeline {
    let loaded = LoadedStage::load(stage).unwrap();
    let problem = problem();
    let prepared = loaded.prepare(variant, &problem).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let staged = Staged::new(&inputs, Layout::Packed);
    order(stage, &prepared, &staged, 0, schedule).unwrap()
}

fn stage7() -> Timeline {
    traced(&stage7_wgmma::Wgmma, "wgmma-64x128", Schedule::InOrder)
}

fn stage8() -> Timeline {
    traced(
        &stage8_overlap::Overlap,
        "overlap-lazy-64x128",
        Schedule::InOrder,
    )
}

/// Returns the wait of a warp that a copy of the tile ended before `product` began.
fn wait_for<'a>(timeline: &'a Timeline, product: &Span) -> Option<&'a Span> {
    let links = timeline.links();
    let mut waits = links.iter().filter_map(|link| {
        let (cause, wait) = (&timeline.spans[link.cause], &timeline.spans[link.wait]);
        let is_its_wait = wait.warp == product.warp && cause.tile == product.tile;
        (is_its_wait && cause.begin < wait.end && wait.end <= product.begin).then_some(wait)
    });
    waits.next()
}

/// Asserts that each product of each computing warp follows the wait for the tile that it reads,
/// and that each warp multiplies by every tile of K and of V.
fn assert_products_follow_copies(timeline: &Timeline) {
    for warp in 0..timeline.warps {
        let of_warp = timeline.of_warp(warp);
        let products: Vec<&Span> = of_warp.filter(|it| it.kind() == Kind::Product).collect();
        let mut tiles: Vec<&str> = products
            .iter()
            .filter_map(|it| it.tile.as_deref())
            .collect();
        for product in &products {
            assert!(wait_for(timeline, product).is_some(), "{product:?}");
        }
        tiles.sort_unstable();
        if timeline.role(warp) != Role::Loads && !products.is_empty() {
            assert_eq!(tiles, ["K0", "K1", "K2", "K3", "V0", "V1", "V2", "V3"]);
        }
    }
    assert!(timeline.spans.iter().any(|it| it.kind() == Kind::Product));
}

/// Returns the counts of the warps that compute.
fn computing(timeline: &Timeline) -> Overlap {
    let mut counts = overlaps(timeline);
    counts.retain(|it| it.products > 0);
    counts.remove(0)
}

/// Returns the first spans that differ, but for stores, which a lane makes that is elected.
fn differing<'a>(expected: &'a Timeline, found: &'a Timeline) -> Option<(&'a Span, &'a Span)> {
    let stores = [What::TmaStore, What::StoreWait];
    let [before, after] = [expected, found].map(|timeline| {
        let spans = timeline.spans.iter();
        let ordered: Vec<&Span> = spans.filter(|it| !stores.contains(&it.what)).collect();
        ordered
    });
    assert_eq!(before.len(), after.len());
    before.into_iter().zip(after).find(|(a, b)| a != b)
}

#[test]
fn products_of_stage_7_come_after_the_waits_for_their_copies() {
    assert_products_follow_copies(&stage7());
}

#[test]
fn products_of_stage_8_come_after_the_waits_for_their_copies() {
    assert_products_follow_copies(&stage8());
}

#[test]
fn a_product_before_its_wait_is_noticed() {
    let mut timeline = stage8();
    let is_product = |span: &&mut Span| span.kind() == Kind::Product;
    let product = timeline.spans.iter_mut().find(is_product).unwrap();
    (product.begin, product.end) = (0, 1);
    let moved = product.clone();
    assert!(wait_for(&timeline, &moved).is_none());
}

#[test]
fn the_loading_warpgroup_of_stage_8_only_copies() {
    let timeline = stage8();
    assert_eq!(timeline.role(LOADER), Role::Loads);
    let copies = timeline
        .of_warp(LOADER)
        .filter(|it| it.kind() == Kind::Copy);
    let tiles: Vec<&str> = copies.filter_map(|it| it.tile.as_deref()).collect();
    // From the last tile to the first.
    assert_eq!(
        tiles,
        ["Q0", "K3", "V3", "K2", "V2", "K1", "V1", "K0", "V0"]
    );
    for span in timeline.spans.iter().filter(|it| it.warp >= LOADER) {
        let kind = span.kind();
        assert!(
            matches!(kind, Kind::Copy | Kind::Wait | Kind::Arrival),
            "{span:?}"
        );
    }
    for warp in LOADER + 1..timeline.warps {
        assert_eq!(timeline.role(warp), Role::Idle);
    }
}

#[test]
fn exponentials_of_stage_8_run_under_products_and_those_of_stage_7_do_not() {
    assert_eq!(computing(&stage7()).covered, 0);
    let overlap = computing(&stage8());
    // Of four warps: all tiles but the first.
    assert_eq!((overlap.exponentials, overlap.covered), (16, 12));
}

/// Asserts that the order is the judge's, whatever the emulator ran first.
fn assert_same_in_every_schedule(stage: &'static dyn Attention, variant: &str) {
    let expected = traced(stage, variant, Schedule::InOrder);
    for schedule in SCHEDULES {
        let found = traced(stage, variant, schedule);
        assert_eq!(differing(&expected, &found), None, "{schedule:?}");
    }
}

#[test]
fn the_order_of_stage_4_is_the_same_in_every_schedule() {
    assert_same_in_every_schedule(&stage4_warpspec::WarpSpec, "warpspec-64x64");
}

#[test]
fn the_order_of_stage_7_is_the_same_in_every_schedule() {
    assert_same_in_every_schedule(&stage7_wgmma::Wgmma, "wgmma-128x128");
}

#[test]
fn the_order_of_stage_8_is_the_same_in_every_schedule() {
    assert_same_in_every_schedule(&stage8_overlap::Overlap, "overlap-lazy-128x128");
}
