use super::*;
use crate::verdict::Verdict;

fn facts() -> KernelFacts {
    KernelFacts {
        symbol: "scalar_wmma_qk_32x64_f16_d64".into(),
        dtype: Dtype::F16,
        head_dim: 64,
        block_m: 32,
        block_n: 64,
        threads: 128,
        min_blocks: 2,
        dynamic_shared_bytes: 37_376,
        boxes: None,
        cluster: 1,
        caps: Some(Caps {
            register_cap: 128,
            shared_cap_bytes: 48 * 1024,
        }),
        lse: false,
        probability: Probability::F32,
    }
}

fn entry(arch: &str) -> PtxasEntry {
    PtxasEntry {
        arch: arch.into(),
        sass_sha256: "a1".into(),
        resources: Resources {
            registers: 107,
            ..Resources::default()
        },
        warnings: Vec::new(),
    }
}

#[test]
fn a_kernel_within_its_caps_passes_and_says_what_it_uses() {
    let result = judge(&facts(), &entry("sm_90a"));
    assert_eq!(result.verdict, Verdict::Pass);
    assert_eq!(
        result.reason,
        "sm_90a: 107 registers (cap 128), 37376 shared bytes (cap 49152), no spill, no stack"
    );
    assert_eq!(judge(&facts(), &entry("sm_89")).verdict, Verdict::Pass);
}

/// A change after which an instance is over a limit.
type Change = fn(&mut KernelFacts, &mut PtxasEntry);

#[test]
fn each_excess_fails_and_is_named() {
    let changes: [Change; 10] = [
        |_, entry| entry.resources.spill_store_bytes = 8,
        |_, entry| entry.resources.spill_load_bytes = 4,
        |_, entry| entry.warnings = vec!["(C7510) serialized".into()],
        |_, entry| entry.resources.stack_frame_bytes = 16,
        |_, entry| entry.resources.registers = 129,
        |_, entry| entry.resources.static_shared_bytes = 1040,
        |_, entry| entry.resources.static_shared_bytes = 16,
        |facts, _| facts.dynamic_shared_bytes = 49_168,
        |facts, entry| {
            entry.resources.registers = 200;
            facts.dynamic_shared_bytes = 49_153;
        },
        |facts, _| facts.caps = None,
    ];
    let reasons = changes.map(|change| {
        let (mut facts, mut entry) = (facts(), entry("sm_90a"));
        change(&mut facts, &mut entry);
        let result = judge(&facts, &entry);
        assert_eq!(result.verdict, Verdict::Fail, "{}", result.reason);
        result.reason
    });
    insta::assert_snapshot!(reasons.join("\n"), @r"
    sm_90a: spilled bytes 8 > 0
    sm_90a: spilled bytes 4 > 0
    sm_90a: ptxas: (C7510) serialized
    sm_90a: stack bytes 16 > 0
    sm_90a: registers 129 > 128
    sm_90a: declared static shared bytes 16 > 0
    sm_90a: declared static shared bytes 16 > 0
    sm_90a: shared bytes over the cap: 49168 > 49152
    sm_90a: registers 200 > 128; shared bytes over the cap: 49153 > 49152
    sm_90a: scalar_wmma_qk_32x64_f16_d64 has no line in the stage's caps.csv; add it: UPDATE_CAPS=1 cargo test -p STAGE resources
    ");
}

#[test]
fn growth_over_committed_caps_fails() {
    let mut ada = entry("sm_89");
    ada.resources.registers = 104;
    let hopper = entry("sm_90a");
    assert_eq!(hopper.resources.registers, 107);
    let mut kernel = facts();
    let caps = Caps::with_headroom(&kernel, &[ada, hopper.clone()]);
    assert_eq!(
        caps,
        Caps {
            register_cap: 120,
            shared_cap_bytes: 37 * 1024
        }
    );
    kernel.caps = Some(caps);
    let mut grown = hopper.clone();
    grown.resources.registers += 13;
    assert_eq!(judge(&kernel, &grown).verdict, Verdict::Pass);
    grown.resources.registers += 1;
    assert_eq!(judge(&kernel, &grown).verdict, Verdict::Fail, "registers");
    kernel.dynamic_shared_bytes += 512;
    assert_eq!(judge(&kernel, &hopper).verdict, Verdict::Pass);
    kernel.dynamic_shared_bytes += 16;
    assert_eq!(
        judge(&kernel, &hopper).verdict,
        Verdict::Fail,
        "shared memory"
    );
}

/// No committed figure says what is growth there; spills and shared memory are judged everywhere.
#[test]
fn registers_of_another_architecture_have_no_cap() {
    let mut blackwell = entry("sm_120");
    blackwell.resources.registers = 200;
    let result = judge(&facts(), &blackwell);
    assert_eq!(result.verdict, Verdict::Pass);
    assert!(
        result
            .reason
            .starts_with("sm_120: 200 registers (no cap there), 37376 shared"),
        "{}",
        result.reason
    );
    blackwell.resources.spill_load_bytes = 4;
    assert_eq!(judge(&facts(), &blackwell).verdict, Verdict::Fail);
    blackwell.resources.spill_load_bytes = 0;
    let grown = KernelFacts {
        dynamic_shared_bytes: 49_153,
        ..facts()
    };
    assert_eq!(judge(&grown, &blackwell).verdict, Verdict::Fail);
}

/// Registers that launch bounds hold do not grow: the fault shows as a spill.
#[test]
fn growth_at_the_limit_of_launch_bounds_fails_as_a_spill() {
    for (threads, min_blocks, limit) in [(128, 4, 128), (128, 3, 168), (512, 1, 128), (256, 1, 255)]
    {
        let mut facts = KernelFacts {
            threads,
            min_blocks,
            ..facts()
        };
        let mut full = entry("sm_90a");
        full.resources.registers = limit;
        facts.caps = Some(Caps::with_headroom(&facts, &[full.clone()]));
        assert_eq!(judge(&facts, &full).verdict, Verdict::Pass);
        full.resources.spill_store_bytes = 4;
        assert_eq!(judge(&facts, &full).reason, "sm_90a: spilled bytes 4 > 0");
    }
}

#[test]
fn caps_are_read_line_by_line() {
    let text = format!("{}\na_f16_d64,120,37888\nb_f16_d64,136,49152\n", Caps::HEAD);
    let caps = Caps::parse(&text).unwrap();
    assert_eq!(
        caps["a_f16_d64"],
        Caps {
            register_cap: 120,
            shared_cap_bytes: 37_888
        }
    );
    assert_eq!(caps.len(), 2);
    for line in [
        "",
        "a_f16_d64,120",
        "a_f16_d64,120,37888,1",
        "a_f16_d64,-8,37888",
    ] {
        assert_eq!(Caps::parse(&format!("{}\n{line}\n", Caps::HEAD)), Err(line));
    }
}

#[test]
fn what_an_architecture_cannot_hold_is_refused_there_and_no_failure() {
    let mut facts = facts();
    facts.dynamic_shared_bytes = 101_376;
    facts.caps = Some(Caps {
        register_cap: 128,
        shared_cap_bytes: 160 * 1024,
    });
    assert!(
        judge(&facts, &entry("sm_89"))
            .reason
            .ends_with("no spill, no stack")
    );
    facts.dynamic_shared_bytes += 16;
    assert!(
        judge(&facts, &entry("sm_90a"))
            .reason
            .ends_with("no spill, no stack")
    );
    let elsewhere = judge(&facts, &entry("sm_89"));
    assert_eq!(elsewhere.verdict, Verdict::Pass);
    assert!(
        elsewhere
            .reason
            .ends_with("; unsupported there: it has 101376"),
        "{}",
        elsewhere.reason
    );
}

#[test]
fn bytes_that_the_driver_reserves_are_not_the_kernels() {
    let mut entry = entry("sm_90a");
    entry.resources.static_shared_bytes = 1024;
    assert_eq!(judge(&facts(), &entry).verdict, Verdict::Pass);
    entry.arch = "sm_89".into();
    assert_eq!(judge(&facts(), &entry).verdict, Verdict::Fail);
}

/// Returns the warps that an SM holds of a kernel, and those that it could hold.
fn warps(arch: &str, threads: u32, registers: u32, shared_bytes: usize) -> (u32, u32) {
    let sm = multiprocessor(arch).unwrap();
    let Warps { resident, most } = occupancy(&sm, threads, registers, shared_bytes);
    (resident, most)
}

#[test]
fn occupancy_is_limited_by_shared_memory() {
    assert_eq!(warps("sm_89", 128, 107, 37376), (8, 48));
    assert_eq!(warps("sm_90a", 128, 64, 135_168), (4, 64));
}

#[test]
fn occupancy_is_limited_by_registers() {
    assert_eq!(warps("sm_90a", 128, 107, 37376), (16, 64));
    assert_eq!(warps("sm_90a", 128, 128, 0), (16, 64));
    assert_eq!(warps("sm_90a", 256, 255, 0), (8, 64));
    // 33 registers count as 40, of which a partition has 12 warps' and not a fifth of 64.
    assert_eq!(warps("sm_90a", 96, 33, 0), (48, 64));
}

#[test]
fn occupancy_is_limited_by_resident_blocks_and_by_threads() {
    assert_eq!(warps("sm_90a", 32, 32, 0), (32, 64));
    assert_eq!(warps("sm_89", 1024, 32, 0), (32, 48));
    // 65 threads are three warps.
    assert_eq!(warps("sm_89", 65, 32, 0), (48, 48));
}

#[test]
fn reserved_bytes_and_the_unit_of_shared_memory_count() {
    // Seven blocks of 33,353 bytes would fit, and not of 33,408.
    assert_eq!(warps("sm_90a", 128, 32, 32329), (24, 64));
}

#[test]
fn occupancy_of_an_instance_is_a_share() {
    // sm_90: six blocks of 37 KB would fit by shared memory; 107 registers round up to 3,584 per
    // warp: 16 warps.
    assert_eq!(occupancy_of(&facts(), &entry("sm_90a")), Some(0.25));
    assert_eq!(multiprocessor("sm_42"), None);
}
