//! Tensors on the GPU, beside copies that no kernel gets: what a kernel has changed is found there.

use super::{CudaDevice, CudaError, DeviceInputs, LaunchName, bits};
use crate::device::{ChangedInputs, Staged};
use cudarc::driver::{CudaSlice, LaunchConfig, PushKernelArg};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// The images of one set of tensors as they are before a launch.
pub(super) struct Untouched {
    pub inputs: [CudaSlice<u8>; 3],
    /// O, filled with NaN.
    pub output: CudaSlice<u8>,
}

/// The tensors of launches that are judged.
pub(super) struct Loaded {
    pub untouched: Untouched,
    pub inputs: DeviceInputs,
    pub output: CudaSlice<u8>,
    pub lse: CudaSlice<u8>,
    untouched_lse: CudaSlice<u8>,
}

/// The tensors that are kept: those of a case's two layouts.
const KEPT: usize = 2;

/// The most bytes of an input that is kept: larger ones would take memory that a launch needs.
const MOST_KEPT_BYTES: usize = 128 << 20;

/// Tensors that the next launch may use, too.
pub(super) type SharedTensors = Rc<RefCell<Loaded>>;

/// What was loaded for the last launches, the latest last.
pub(super) struct Recent<T>(Vec<Kept<T>>);

/// What was loaded from a source, which may be gone.
struct Kept<T> {
    source: Weak<Staged>,
    loaded: Rc<T>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Recent<T> {
    /// Forgets all: a kernel has written over its inputs.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    fn get(&self, staged: &Arc<Staged>) -> Option<Rc<T>> {
        let mut all = self.0.iter();
        let known = all.find(|kept| kept.source.as_ptr() == Arc::as_ptr(staged))?;
        Some(Rc::clone(&known.loaded))
    }

    /// Makes room for one more. Tensors whose source is gone go first.
    fn make_room(&mut self) {
        self.0.retain(|kept| kept.source.strong_count() > 0);
        while self.0.len() >= KEPT {
            self.0.remove(0);
        }
    }

    /// Keeps what was loaded from dense tensors. Lengths and pages are not compared after a launch, so
    /// that each one has new ones.
    fn keep(&mut self, staged: &Arc<Staged>, loaded: &Rc<T>) {
        let longest = staged.inputs.iter().map(|input| input.image.bytes.len());
        if staged.tables.is_none() && longest.max().unwrap_or(0) <= MOST_KEPT_BYTES {
            self.0.push(Kept {
                source: Arc::downgrade(staged),
                loaded: Rc::clone(loaded),
            });
        }
    }
}

/// The threads of a block, and the blocks on each SM, of the kernel that compares.
const THREADS: u32 = 256;
const BLOCKS_PER_SM: u32 = 8;

/// The length of the arrays that check it: each thread has several words, and some are behind them.
const CHECKED_BYTES: usize = (8 << 20) + 3;

type Pair<'a> = (&'a CudaSlice<u8>, &'a CudaSlice<u8>);

impl CudaDevice {
    /// Returns tensors on the GPU: those of an earlier launch, or new ones.
    pub(super) fn load(&self, staged: &Arc<Staged>) -> Result<SharedTensors, CudaError> {
        let mut recent = self.recent.borrow_mut();
        if let Some(known) = recent.get(staged) {
            return Ok(known);
        }
        recent.make_room();
        let untouched = self.upload_untouched(staged)?;
        let inputs = self.copy_inputs(staged, &untouched)?;
        let output = self.copy_of(&untouched.output)?;
        let untouched_lse = self.upload(&staged.lse.bytes)?;
        let lse = self.copy_of(&untouched_lse)?;
        let loaded = Rc::new(RefCell::new(Loaded {
            untouched,
            inputs,
            output,
            lse,
            untouched_lse,
        }));
        recent.keep(staged, &loaded);
        Ok(loaded)
    }

    /// Fills the outputs with NaN again.
    pub(super) fn poison(&self, tensors: &mut Loaded) -> Result<(), CudaError> {
        self.copy_into(&tensors.untouched.output, &mut tensors.output)?;
        self.copy_into(&tensors.untouched_lse, &mut tensors.lse)
    }

    pub(super) fn upload_untouched(&self, staged: &Staged) -> Result<Untouched, CudaError> {
        let [q, k, v] = &staged.inputs;
        Ok(Untouched {
            inputs: [
                self.upload(&q.image.bytes)?,
                self.upload(&k.image.bytes)?,
                self.upload(&v.image.bytes)?,
            ],
            output: self.upload(&staged.output.bytes)?,
        })
    }

    pub(super) fn copy_of(&self, source: &CudaSlice<u8>) -> Result<CudaSlice<u8>, CudaError> {
        self.stream
            .clone_dtod(source)
            .map_err(|error| self.driver_error("copying on the GPU", error))
    }

    pub(super) fn copy_into(
        &self,
        source: &CudaSlice<u8>,
        target: &mut CudaSlice<u8>,
    ) -> Result<(), CudaError> {
        self.stream
            .memcpy_dtod(source, target)
            .map_err(|error| self.driver_error("copying on the GPU", error))
    }

    /// Downloads those inputs that are not as they were, after a launch that has been waited for.
    pub(super) fn changed_inputs(
        &self,
        name: &LaunchName,
        staged: &Staged,
        inputs: &DeviceInputs,
        untouched: &Untouched,
    ) -> Result<ChangedInputs, CudaError> {
        for (operand, device_scales) in staged.inputs.iter().zip(&inputs.scales) {
            let Some(slice) = device_scales else {
                continue;
            };
            if bits(&self.download(slice)?) != bits(&operand.scales) {
                return Err(CudaError::ScalesChanged {
                    launch: Box::new(name.clone()),
                    tensor: operand.name,
                });
            }
        }
        let pairs: Vec<_> = inputs.images.iter().zip(&untouched.inputs).collect();
        let mut changed = [const { None }; 3];
        for (index, differs) in self.differ(&pairs)?.into_iter().enumerate() {
            if !differs {
                continue;
            }
            let after = self.download(&inputs.images[index])?;
            let operand = &staged.inputs[index];
            if after == operand.image.bytes {
                return Err(CudaError::StrayWrite {
                    launch: Box::new(name.clone()),
                    tensor: operand.name,
                });
            }
            changed[index] = Some(after);
        }
        Ok(changed)
    }

    /// Returns for each pair of arrays, which are equally long, whether they differ.
    pub(super) fn differ(&self, pairs: &[Pair<'_>]) -> Result<Vec<bool>, CudaError> {
        if !self.compares.get() {
            self.check_comparison()?;
            self.compares.set(true);
        }
        self.compare(pairs)
    }

    /// Compares arrays of which it is known whether they differ: in the first byte, one in the
    /// middle, and one behind the last word.
    fn check_comparison(&self) -> Result<(), CudaError> {
        let bytes = vec![0x5a; CHECKED_BYTES];
        let array = self.upload(&bytes)?;
        let equal = self.upload(&bytes)?;
        let mut others = Vec::new();
        for at in [0, CHECKED_BYTES / 2, CHECKED_BYTES - 1] {
            let mut other_bytes = bytes.clone();
            other_bytes[at] ^= 1;
            others.push(self.upload(&other_bytes)?);
        }
        let mut pairs = vec![(&array, &equal)];
        pairs.extend(others.iter().map(|other| (&array, other)));
        if self.compare(&pairs)? == [false, true, true, true] {
            Ok(())
        } else {
            Err(CudaError::Compares)
        }
    }

    fn compare(&self, pairs: &[Pair<'_>]) -> Result<Vec<bool>, CudaError> {
        let comparing = |error| self.driver_error("comparing arrays on the GPU", error);
        let kernel = self.helpers()?.differ;
        let flags = self
            .stream
            .alloc_zeros::<u32>(pairs.len())
            .map_err(comparing)?;
        for (index, (first, second)) in pairs.iter().enumerate() {
            assert_eq!(first.len(), second.len(), "arrays that are compared");
            let words = (first.len() as u64).div_ceil(8).max(1);
            let most_blocks = u64::from(BLOCKS_PER_SM) * self.info.sms as u64;
            let blocks = words.div_ceil(u64::from(THREADS)).min(most_blocks) as u32;
            let config = LaunchConfig {
                grid_dim: (blocks, 1, 1),
                block_dim: (THREADS, 1, 1),
                shared_mem_bytes: 0,
            };
            let bytes = first.len() as u64;
            let (first_address, second_address) = (self.place(first), self.place(second));
            let flag = self.place(&flags) + 4 * index as u64;
            let mut launch = self.stream.launch_builder(&kernel);
            launch
                .arg(&first_address)
                .arg(&second_address)
                .arg(&bytes)
                .arg(&flag);
            // SAFETY: the entry takes four u64: two arrays of `bytes` bytes, which it reads, and
            // a u32 that it writes. They live until the download below has waited for the stream.
            unsafe { launch.launch(config) }.map_err(comparing)?;
        }
        let found = self.download(&flags)?;
        Ok(found.iter().map(|&flag| flag != 0).collect())
    }

    /// Returns the address of an array as a kernel takes it.
    fn place<T>(&self, slice: &CudaSlice<T>) -> u64 {
        self.address(slice) as usize as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::HELPERS_PTX;
    use super::*;
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Dtype, Mask, Problem, parse_shape};
    use emulator::{Launch, Schedule};
    use std::ffi::c_void;

    /// What the kernel that compares takes.
    #[repr(C)]
    struct Arguments {
        first: *const u64,
        second: *const u64,
        bytes: u64,
        differ: *mut u32,
    }

    unsafe extern "C-unwind" fn no_body(_: *const c_void) {
        unreachable!("a program stands in its place");
    }

    /// Compares the first bytes of two arrays in the interpreter, by two blocks of 64 threads.
    fn differ(first: &[u64], second: &[u64], bytes: usize) -> bool {
        let module = ptx::Module::parse("helpers.ptx", HELPERS_PTX).unwrap();
        let program = module.entry("attention_differ").unwrap();
        let mut flag = 0u32;
        let arguments = Arguments {
            first: first.as_ptr(),
            second: second.as_ptr(),
            bytes: bytes as u64,
            differ: &raw mut flag,
        };
        let parameters: *const c_void = (&raw const arguments).cast();
        // SAFETY: the entry takes what `Arguments` has.
        let invocation = unsafe { ptx::Invocation::new(&program, parameters, 0) };
        let launch = invocation.launch(&Launch {
            entry: no_body,
            params: parameters,
            grid: [2, 1, 1],
            block: [64, 1, 1],
            cluster: 1,
            dynamic_shared_bytes: 0,
            schedule: Schedule::InOrder,
            patience: Launch::PATIENCE,
        });
        // SAFETY: both arrays have as many bytes, and the flag lives as long as the launch.
        unsafe { emulator::launch(&launch, None) }.unwrap();
        flag != 0
    }

    /// Of as many bytes as the threads take in one round, in three, and in between.
    #[test]
    fn a_byte_that_differs_is_found_wherever_it_is() {
        let array: Vec<u64> = (0u64..400)
            .map(|word| word.wrapping_mul(0x0101_0307_1113_1719))
            .collect();
        for bytes in [1, 7, 8, 9, 1023, 1024, 1027, 3072, 3077] {
            assert!(!differ(&array, &array, bytes), "{bytes}");
            for at in [0, bytes / 2, bytes - 1] {
                let mut other = array.clone();
                other[at / 8] ^= 1 << (at % 8 * 8);
                assert!(differ(&array, &other, bytes), "{at} of {bytes}");
            }
        }
    }

    #[test]
    fn a_byte_behind_the_end_is_not_compared() {
        let array = vec![7; 400];
        for bytes in [1, 7, 8, 1027, 3077] {
            let mut other = array.clone();
            other[bytes / 8] ^= 1 << (bytes % 8 * 8);
            assert!(!differ(&array, &other, bytes), "{bytes}");
        }
    }

    fn staged() -> Arc<Staged> {
        staged_of("1x1x3x64")
    }

    fn staged_of(shape: &str) -> Arc<Staged> {
        let problem = Problem::new(parse_shape(shape).unwrap(), Dtype::F16, Mask::Full).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 0);
        Arc::new(Staged::new(&inputs, Layout::Packed))
    }

    #[test]
    fn what_was_loaded_is_found_by_its_source_alone() {
        let (first, second) = (staged(), staged());
        let mut recent = Recent::default();
        recent.keep(&first, &Rc::new(1));
        assert_eq!(recent.get(&first).as_deref(), Some(&1));
        assert_eq!(recent.get(&second), None);
        recent.forget();
        assert_eq!(recent.get(&first), None);
    }

    /// A kernel could have written over its lengths.
    #[test]
    fn what_was_loaded_of_sequences_is_not_kept() {
        let packed = staged_of("4x2:1x150x64+packed=even:0:1");
        let mut recent = Recent::default();
        recent.keep(&packed, &Rc::new(1));
        assert_eq!(recent.get(&packed), None);
    }

    #[test]
    fn sources_that_are_gone_make_room_first_and_then_the_oldest() {
        let (oldest, gone, newest) = (staged(), staged(), staged());
        let mut recent = Recent::default();
        recent.keep(&oldest, &Rc::new(1));
        recent.keep(&gone, &Rc::new(2));
        drop(gone);
        recent.make_room();
        recent.keep(&newest, &Rc::new(3));
        assert_eq!(recent.get(&oldest).as_deref(), Some(&1));
        recent.make_room();
        assert_eq!(recent.get(&oldest), None);
        assert_eq!(recent.get(&newest).as_deref(), Some(&3));
    }
}
