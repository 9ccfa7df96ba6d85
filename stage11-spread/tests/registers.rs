//! setmaxnreg shares out the registers that a block was launched with. Where ptxas gives a thread fewer than the shares add up to, a
//! warpgroup waits for registers that nobody gives back.

use stage11_spread::Spread;

/// Registers of a multiprocessor; a thread gets them by 8.
const REGISTERS: u32 = 65_536;

/// The shares of kernel.cu add up to all that a block can have: 128 * (4 * 112 + 32), 128 * (3 * 160 + 32), 128 * (2 * 240 + 24) and
/// 128 * (2 * 232 + 40).
#[test]
fn blocks_that_share_registers_are_launched_with_all_that_they_share() {
    let stage = stage_tests::load(&Spread);
    let sharing = stage.kernels.iter().filter(|kernel| kernel.threads > 256);
    let mut seen = 0;
    for kernel in sharing {
        let entries = stage.ptxas_entries(kernel);
        for entry in entries.iter().filter(|entry| entry.arch == "sm_90a") {
            let all = REGISTERS / kernel.threads / 8 * 8;
            assert_eq!(entry.resources.registers, all, "{}", kernel.symbol);
            seen += 1;
        }
    }
    if seen == 0 {
        stage_tests::not_checked("built without nvcc");
    }
}
