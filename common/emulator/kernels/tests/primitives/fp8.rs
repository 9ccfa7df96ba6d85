use common::e4m3::E4m3;
use half::f16;

use crate::launch::launch;

#[test]
fn every_code_converts_exactly() {
    let output: Vec<u16> = launch("e4m3_to_half<<<1, 256, 0>>>()").output(512).unwrap();
    for (thread, row) in (0..=255u8).zip(output.chunks(2)) {
        for (&bits, code) in row.iter().zip([thread, 255 - thread]) {
            let value = E4m3::from_bits(code).to_f32();
            if value.is_nan() {
                assert_eq!(bits, 0x7fff);
            } else {
                assert_eq!(bits, f16::from_f32(value).to_bits(), "code {code:#x}");
                assert_eq!(f16::from_bits(bits).to_f32(), value);
            }
        }
    }
}
