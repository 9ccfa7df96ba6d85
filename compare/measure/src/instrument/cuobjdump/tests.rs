use super::*;
use common::metric::Metric;
use stages::Ladder;

/// With nvcc, the real ladder. A warp of a warpgroup has 16 rows: both products of a tile take 2 *
/// 16 * BLOCK_N * HEAD_DIM, and a loop takes one tile or several.
#[test]
fn a_loop_by_warpgroup_multiplies_what_its_tile_holds() {
    let ladder = Ladder::without_gpu("test").unwrap();
    let mut builds = ladder.builds().unwrap();
    let has_code = ladder
        .stages
        .iter()
        .all(|stage| stage.attention.artifacts().fatbin.is_some());
    if !has_code || CUOBJDUMP.find().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI reads machine code");
        return;
    }
    count_instructions(&ladder.stages, &mut builds).unwrap();
    let kernels = builds
        .iter()
        .flat_map(|build| &build.variants)
        .flat_map(|variant| &variant.kernels);
    let mut instances = 0;
    for (kernel, built) in
        kernels.flat_map(|kernel| kernel.built.iter().map(move |built| (kernel, built)))
    {
        let value = |metric| {
            built
                .code
                .iter()
                .find(|(view, _)| *view == metric)
                .map_or(0.0, |(_, value)| *value)
        };
        assert!(value(Metric::CodeBytes) > 0.0, "{}", kernel.facts.symbol);
        if value(Metric::LoopHgmma) + value(Metric::LoopQgmma) > 0.0 {
            let tile = 2 * 16 * kernel.facts.block_n * kernel.facts.head_dim;
            let macs = value(Metric::LoopMacs);
            assert!(
                macs > 0.0 && macs % tile as f64 == 0.0,
                "{}: {macs} of {tile}",
                kernel.facts.symbol
            );
            instances += 1;
        }
    }
    assert!(instances > 0, "no instance has a loop by warpgroup");
}
