use super::*;
use crate::judge::held::Why;
use crate::warp::tests::whole_warp;

const WGMMA: u32 = 16;
const COMMIT: u32 = 18;
const WAIT: u32 = 19;

fn group(kind: u32) -> Group {
    whole_warp(kind, [0; 2], 7)
}

/// 64 x 8 x 16 of FP16, all alike, rows of 64 bytes: A in the first 4 KiB, B behind them.
struct Case {
    shared: Vec<u8>,
    d: Vec<[f32; 4]>,
    products: Products,
}

impl Case {
    fn new(schedule: Schedule) -> Self {
        let mut shared: Vec<u8> = [0, 0x3c].repeat(64 * 32 + 8 * 32);
        let range = shared.as_mut_ptr_range();
        let cluster = Cluster::of_one_block(128, range.start as usize..range.end as usize);
        let products = Products::new([0; 3], 0, cluster, schedule);
        Self {
            shared,
            d: vec![[0.0; 4]; 128],
            products,
        }
    }

    fn issue(&mut self, warp: u32) -> Result<Issued, Fault> {
        let descriptor = |start: u64| start >> 4 | 512 >> 4 << 32 | 2 << 62;
        let arrays = self.d.as_mut_ptr();
        let lanes: [Operands; 32] = std::array::from_fn(|lane| Operands {
            // SAFETY: `d` has an array for each of the 128 threads.
            d: unsafe { arrays.add(32 * warp as usize + lane) }.cast(),
            a: std::ptr::null(),
            a_descriptor: descriptor(0),
            b_descriptor: descriptor(4096),
            columns: 8,
            element: 0,
            transposed_b: 0,
            accumulate: 0,
        });
        let operands = lanes
            .each_ref()
            .map(|it| std::ptr::from_ref(it).cast_mut().cast());
        // SAFETY: the operands are alive, and their arrays as long as the case.
        unsafe { self.products.issue(warp, &group(WGMMA), &operands) }
    }

    fn wait(&mut self, warp: u32) -> Option<u64> {
        let lanes: [Named; 32] = std::array::from_fn(|lane| {
            let address = &raw const self.d[32 * warp as usize + lane];
            Named {
                address: [address as usize, 0, 0, 0],
                bytes: [16, 0, 0, 0],
            }
        });
        let named = lanes
            .each_ref()
            .map(|it| std::ptr::from_ref(it).cast_mut().cast());
        self.products
            .commit(warp, &group(COMMIT).collective)
            .unwrap();
        // SAFETY: as above.
        unsafe { self.products.wait(warp, &group(WAIT), &named) }.unwrap()
    }
}

#[test]
fn a_product_reads_its_operands_when_all_have_issued_it_or_when_the_first_waits() {
    for (schedule, expected) in [(Schedule::Reversed, 16.0), (Schedule::InOrder, 32.0)] {
        let mut case = Case::new(schedule);
        for warp in 0..4 {
            case.products.fence(warp, &group(WGMMA).collective).unwrap();
            assert_eq!(case.issue(warp).unwrap().woken, []);
        }
        assert!(case.d.iter().flatten().all(|d| d.is_nan()), "in flight");
        // B is overwritten too early.
        case.shared[4096..].copy_from_slice(&[0, 0x40].repeat(8 * 32));
        assert_eq!(case.wait(2), Some(1));
        assert_eq!(case.d[64..96], [[expected; 4]; 32], "{schedule:?}");
        assert!(
            case.d[..64].iter().flatten().all(|d| d.is_nan()),
            "each warp has its own wait"
        );
        assert_eq!([0, 1, 3].map(|warp| case.wait(warp)), [Some(1); 3]);
        assert_eq!(case.d, [[expected; 4]; 128]);
        assert_eq!(
            (0..128).try_for_each(|thread| case.products.exit(thread)),
            Ok(())
        );
    }
}

#[test]
fn who_waits_goes_on_when_the_last_warp_has_issued() {
    let mut case = Case::new(Schedule::InOrder);
    (0..4).for_each(|warp| case.products.fence(warp, &group(WGMMA).collective).unwrap());
    case.issue(0).unwrap();
    assert_eq!(case.wait(0), None);
    assert_eq!(
        (case.issue(3).unwrap().woken, case.issue(1).unwrap().woken),
        (vec![], vec![])
    );
    assert_eq!(
        case.issue(2).unwrap().woken,
        [Woken {
            warp: 0,
            covered: 1
        }]
    );
    assert_eq!(case.d[..32], [[16.0; 4]; 32]);
    assert_eq!(case.products.held(0), 0..0);
    let held = case
        .products
        .touched(33, case.products.held(33), false)
        .unwrap();
    assert!(matches!(held.why, Why::NotCommitted) && !held.is_fragment);
    assert!(case.products.exit(33).is_err());
    assert!(case.issue(0).is_err(), "without a fence");
}
