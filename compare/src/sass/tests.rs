use super::*;

fn function(names: &[&str]) -> Function {
    let instruction = |(at, text): (usize, &&str)| Instruction {
        address: 16 * at as u64,
        name: text
            .split_whitespace()
            .find(|word| !word.starts_with('@'))
            .unwrap()
            .to_string(),
        text: text.to_string(),
    };
    Function {
        symbol: "tile".into(),
        instructions: names.iter().enumerate().map(instruction).collect(),
    }
}

#[test]
fn what_moved_is_named_and_what_did_not_occur_is_not() {
    let then = function(&["HMMA.16816.F32 R1", "LDS R2", "@P0 BRA 0x0", "EXIT"]);
    let now = function(&[
        "HMMA.16816.F32 R9",
        "LDS R2",
        "LDS R3",
        "@P0 BRA 0x0",
        "EXIT",
    ]);
    assert_eq!(
        moved(&then, &now),
        "bytes of machine code 64 → 80; instructions in the main loop 3 → 4; tensor multiply-adds of a warp in the main loop as before \
         (2,048); HMMA in the main loop as before (1); LDS in the main loop 1 → 2"
    );
    assert_eq!(
        differ(&then, &now).unwrap(),
        "  HMMA.16816.F32 R9\n  LDS R2\n+ LDS R3\n  @P0 BRA 0x0\n"
    );
    assert_eq!(
        words(&now),
        "80 bytes of machine code; in the main loop 4 instructions, 2,048 tensor multiply-adds of a warp, 1 HMMA, 2 LDS"
    );
    let renamed = function(&["HMMA.16816.F32 R5", "LDS R7", "@P1 BRA 0x0", "EXIT"]);
    assert_eq!(
        differ(&then, &renamed),
        None,
        "registers are the compiler's"
    );
}

/// With nvcc, the real ladder. A warp of a warpgroup has 16 rows: both products of a tile take 2 * 16 * BLOCK_N * HEAD_DIM, and
/// a loop takes one tile or several.
#[test]
fn a_loop_by_warpgroup_multiplies_what_its_tile_holds() {
    let ladder = Ladder::without_gpu("test").unwrap();
    let mut builds = ladder.builds();
    let has_code = ladder
        .stages
        .iter()
        .all(|stage| stage.attention.artifacts().fatbin.is_some());
    if !has_code || CUOBJDUMP.find().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI reads machine code");
        return;
    }
    read(&ladder.stages, &mut builds).unwrap();
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
                .find(|(known, _)| *known == metric)
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
