//! Tier T0 on every preset of the stage.

use common::stage::LoadedStage;
use stage0_scalar::Scalar;

#[test]
fn every_variant_is_green_on_tier_0() {
    let stage = LoadedStage::load(&Scalar).unwrap();
    let failures: Vec<String> =
        stage.variants().into_iter().flat_map(|variant| common::tier0::failures(&Scalar, variant)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
