//! Real tensors: a safetensors file with `q`, `k`, `v`, and optionally `out` and scales.

use crate::measure::plan::FileProblem;
use common::inputs::{InputError, Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, ProblemError, Shape};
use half::f16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype as StoredDtype, SafeTensorError, SafeTensors};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a file cannot be used. Each says what was expected.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read at all.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not safetensors, or is cut off.
    #[error("{} is not a whole safetensors file: {reason}; write it again, for instance with safetensors.numpy.save_file", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the reader found.
        reason: SafeTensorError,
    },
    /// A name stands for two tensors.
    #[error("{file}: there are two tensors '{name}'; write the file again with one of each name")]
    Twice {
        /// The file's name.
        file: String,
        /// The tensor.
        name: String,
    },
    /// A tensor is not there.
    #[error(
        "{file}: no tensor '{name}'; expected q, k and v, and for F8_E4M3 also {name_of_scales}; the file has {found}"
    )]
    Missing {
        /// The file's name.
        file: String,
        /// The tensor.
        name: String,
        /// The scales that go with E4M3.
        name_of_scales: &'static str,
        /// The tensors it has.
        found: String,
    },
    /// A tensor has another type.
    #[error("{file}: '{name}' is {found}; expected {expected}")]
    Dtype {
        /// The file's name.
        file: String,
        /// The tensor.
        name: String,
        /// What is accepted.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A tensor has another shape.
    #[error("{file}: '{name}' has shape {found:?}; expected {expected}")]
    Shape {
        /// The file's name.
        file: String,
        /// The tensor.
        name: String,
        /// What is accepted.
        expected: String,
        /// What it is.
        found: Vec<usize>,
    },
    /// The extents are not a problem that the stages take.
    #[error("{file}: {reason}")]
    Problem {
        /// The file's name.
        file: String,
        /// Why not.
        reason: ProblemError,
    },
    /// A value cannot be used.
    #[error("{file}: {reason}")]
    Value {
        /// The file's name.
        file: String,
        /// Which, and why.
        reason: InputError,
    },
    /// The expected output holds a NaN or an infinity.
    #[error("{file}: out[{}, {}, {}, {}] is {value}: an expected output must be finite", index[0], index[1], index[2], index[3])]
    Output {
        /// The file's name.
        file: String,
        /// Where, `[b, h, s, d]`.
        index: [usize; 4],
        /// What it is.
        value: f32,
    },
}

/// The tensors of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileInput {
    /// Its name and what its extents say.
    pub problem: FileProblem,
    q: Operand,
    k: Operand,
    v: Operand,
    /// `out` as f16, where the file has it.
    pub out: Option<Vec<f16>>,
}

const SCALES: &str = "q_scale, k_scale and v_scale";

impl FileInput {
    /// Reads and checks `path`: names, types, shapes, and that every value is finite.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = std::fs::read(path).map_err(|source| FileError::Read { path: path.to_path_buf(), source })?;
        let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        if let Some(name) = named_twice(&bytes) {
            return Err(FileError::Twice { file, name });
        }
        let tensors = SafeTensors::deserialize(&bytes)
            .map_err(|reason| FileError::Format { path: path.to_path_buf(), reason })?;
        let reader = Reader { file, tensors };
        let (q, k, v) =
            (reader.operand("q", "q_scale")?, reader.operand("k", "k_scale")?, reader.operand("v", "v_scale")?);
        reader.same_dtype("k", &k, &q)?;
        reader.same_dtype("v", &v, &q)?;
        let [batch, heads_q, seq_q, head_dim] = q.extents;
        let [_, heads_kv, seq_kv, _] = k.extents;
        reader.same_extents(
            "k",
            &k,
            [batch, heads_kv, seq_kv, head_dim],
            "[batch of q, heads, keys, head_dim of q]",
        )?;
        reader.same_extents("v", &v, k.extents, "that of k")?;
        let shape = Shape { batch, heads_q, heads_kv, seq_q, seq_kv, head_dim };
        let out = reader.output(shape.q_extents())?;
        let Reader { file, .. } = reader;
        let dtype = q.dtype;
        let problem = FileProblem { name: file.clone(), shape, dtype };
        let input = Self { problem, q, k, v, out };
        let full = Problem::new(shape, dtype, Mask::Full)
            .map_err(|reason| FileError::Problem { file: file.clone(), reason })?;
        input.inputs(&full).map_err(|reason| FileError::Value { file, reason })?;
        Ok(input)
    }

    /// The tensors as inputs of `problem`, which has this file's extents and dtype.
    pub fn inputs(&self, problem: &Problem) -> Result<Inputs, InputError> {
        Inputs::from_parts(problem, self.q.clone(), self.k.clone(), self.v.clone())
    }
}

/// A tensor's name that the header has twice: the reader would take the last. Headers that are none are left to it.
fn named_twice(bytes: &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let Names(mut names) = serde_json::from_slice(header).ok()?;
    names.sort();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
}

/// The names of a JSON object, as often as they stand there.
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((name, IgnoredAny)) = map.next_entry()? {
            self.0.push(name);
        }
        Ok(self)
    }
}

struct Reader<'a> {
    file: String,
    tensors: SafeTensors<'a>,
}

impl Reader<'_> {
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, FileError> {
        self.tensors.tensor(name).map_err(|_| {
            let mut found = self.tensors.names();
            found.sort_unstable();
            let found = if found.is_empty() { "none".to_string() } else { found.join(", ") };
            FileError::Missing { file: self.file.clone(), name: name.to_string(), name_of_scales: SCALES, found }
        })
    }

    fn shape_error(&self, name: &str, expected: impl Into<String>, found: &[usize]) -> FileError {
        let (file, name) = (self.file.clone(), name.to_string());
        FileError::Shape { file, name, expected: expected.into(), found: found.to_vec() }
    }

    fn dtype_error(&self, name: &str, expected: &'static str, found: impl std::fmt::Debug) -> FileError {
        FileError::Dtype { file: self.file.clone(), name: name.to_string(), expected, found: format!("{found:?}") }
    }

    fn extents(&self, name: &str, tensor: &TensorView<'_>) -> Result<[usize; 4], FileError> {
        let shape = tensor.shape();
        shape.try_into().map_err(|_| self.shape_error(name, "four extents, [batch, heads, rows, head_dim]", shape))
    }

    fn operand(&self, name: &str, scales: &str) -> Result<Operand, FileError> {
        let tensor = self.tensor(name)?;
        let extents = self.extents(name, &tensor)?;
        let (dtype, scales) = match tensor.dtype() {
            StoredDtype::F16 => (Dtype::F16, Vec::new()),
            StoredDtype::F8_E4M3 => (Dtype::E4m3, self.scales(scales, extents)?),
            other => return Err(self.dtype_error(name, "F16 or F8_E4M3", other)),
        };
        Operand::from_parts(extents, dtype, tensor.data().to_vec(), scales)
            .map_err(|reason| FileError::Value { file: self.file.clone(), reason })
    }

    /// `[batch, heads]` in F32.
    fn scales(&self, name: &str, [batch, heads, ..]: [usize; 4]) -> Result<Vec<f32>, FileError> {
        let tensor = self.tensor(name)?;
        if tensor.dtype() != StoredDtype::F32 {
            return Err(self.dtype_error(name, "F32", tensor.dtype()));
        }
        if tensor.shape() != [batch, heads] {
            return Err(self.shape_error(
                name,
                format!("[{batch}, {heads}], one scale per batch and head"),
                tensor.shape(),
            ));
        }
        Ok(floats(tensor.data()))
    }

    fn same_dtype(&self, name: &str, operand: &Operand, q: &Operand) -> Result<(), FileError> {
        if operand.dtype == q.dtype {
            return Ok(());
        }
        Err(self.dtype_error(name, "the type of q", operand.dtype))
    }

    fn same_extents(&self, name: &str, operand: &Operand, expected: [usize; 4], rule: &str) -> Result<(), FileError> {
        if operand.extents == expected {
            return Ok(());
        }
        Err(self.shape_error(name, format!("{expected:?}, {rule}"), &operand.extents))
    }

    fn output(&self, expected: [usize; 4]) -> Result<Option<Vec<f16>>, FileError> {
        if !self.tensors.names().contains(&"out") {
            return Ok(None);
        }
        let tensor = self.tensor("out")?;
        let values: Vec<f16> = match tensor.dtype() {
            StoredDtype::F16 => {
                tensor.data().chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]])).collect()
            }
            StoredDtype::F32 => floats(tensor.data()).into_iter().map(f16::from_f32).collect(),
            other => return Err(self.dtype_error("out", "F16 or F32", other)),
        };
        if tensor.shape() != expected {
            let rule = format!("{expected:?}, that of q");
            return Err(self.shape_error("out", rule, tensor.shape()));
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(Some(values)),
            Some(element) => Err(FileError::Output {
                file: self.file.clone(),
                index: common::inputs::index_of(expected, element),
                value: values[element].to_f32(),
            }),
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::serialize;
    use std::collections::BTreeMap;

    const NAN: u16 = 0x7e00;

    struct Tensor {
        dtype: StoredDtype,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    }

    fn halves(shape: &[usize], fill: u16) -> Tensor {
        let count: usize = shape.iter().product();
        Tensor { dtype: StoredDtype::F16, shape: shape.to_vec(), bytes: fill.to_le_bytes().repeat(count) }
    }

    fn good() -> BTreeMap<&'static str, Tensor> {
        let (q, kv) = ([1, 4, 3, 64], [1, 2, 5, 64]);
        BTreeMap::from([("q", halves(&q, 0x3c00)), ("k", halves(&kv, 0x3800)), ("v", halves(&kv, 0x3400))])
    }

    fn file(tensors: &BTreeMap<&'static str, Tensor>) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(name, tensor)| (*name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap()));
        serialize(views, None).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<FileInput, FileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("real.safetensors");
        std::fs::write(&path, bytes).unwrap();
        FileInput::read(&path)
    }

    fn message(change: impl FnOnce(&mut BTreeMap<&'static str, Tensor>)) -> String {
        let mut tensors = good();
        change(&mut tensors);
        read(&file(&tensors)).unwrap_err().to_string()
    }

    #[test]
    fn tensors_become_a_problem_with_grouped_heads() {
        let mut tensors = good();
        tensors.insert("out", halves(&[1, 4, 3, 64], 0x3400));
        let input = read(&file(&tensors)).unwrap();
        let shape = Shape { batch: 1, heads_q: 4, heads_kv: 2, seq_q: 3, seq_kv: 5, head_dim: 64 };
        assert_eq!((input.problem.shape, input.problem.dtype), (shape, Dtype::F16));
        assert_eq!(input.out.unwrap().len(), 4 * 3 * 64);
    }

    #[test]
    fn e4m3_needs_its_scales() {
        let bytes = |shape: [usize; 4]| Tensor {
            dtype: StoredDtype::F8_E4M3,
            shape: shape.to_vec(),
            bytes: vec![0x38; shape.iter().product()],
        };
        let scale = |heads: usize| Tensor {
            dtype: StoredDtype::F32,
            shape: vec![1, heads],
            bytes: 0.5f32.to_le_bytes().repeat(heads),
        };
        let mut tensors = BTreeMap::from([
            ("q", bytes([1, 4, 3, 64])),
            ("k", bytes([1, 2, 5, 64])),
            ("v", bytes([1, 2, 5, 64])),
            ("q_scale", scale(4)),
            ("k_scale", scale(2)),
            ("v_scale", scale(2)),
        ]);
        assert_eq!(read(&file(&tensors)).unwrap().problem.dtype, Dtype::E4m3);
        tensors.insert("k_scale", scale(4));
        assert!(read(&file(&tensors)).unwrap_err().to_string().contains("'k_scale' has shape [1, 4]; expected [1, 2]"));
        tensors.remove("k_scale");
        assert!(read(&file(&tensors)).unwrap_err().to_string().contains("no tensor 'k_scale'"));
    }

    #[test]
    fn bad_files_say_what_was_expected() {
        assert!(message(|t| drop(t.remove("v"))).contains("no tensor 'v'; expected q, k and v"));
        assert!(message(|t| drop(t.insert("k", halves(&[1, 2, 5, 128], 0)))).contains("'k' has shape [1, 2, 5, 128]"));
        assert!(message(|t| drop(t.insert("v", halves(&[1, 2, 6, 64], 0)))).contains("that of k"));
        assert!(message(|t| drop(t.insert("q", halves(&[4, 3, 64], 0)))).contains("four extents"));
        assert!(message(|t| drop(t.insert("out", halves(&[1, 4, 3, 65], 0)))).contains("'out' has shape"));
        assert!(message(|t| t.get_mut("q").unwrap().dtype = StoredDtype::BF16).contains("'q' is BF16; expected F16"));
        assert!(message(|t| drop(t.insert("k", halves(&[1, 2, 5, 64], NAN)))).contains("k[0, 0, 0, 0] is NaN"));
        assert!(message(|t| drop(t.insert("out", halves(&[1, 4, 3, 64], NAN)))).contains("out[0, 0, 0, 0] is NaN"));
        let odd = |t: &mut BTreeMap<_, _>| {
            for name in ["q", "k", "v"] {
                t.insert(name, halves(&[1, 2, 3, 96], 0));
            }
        };
        assert!(message(odd).contains("head_dim = 96 is not supported"));
        let groups = |t: &mut BTreeMap<_, _>| drop(t.insert("q", halves(&[1, 3, 3, 64], 0)));
        assert!(message(groups).contains("does not divide"));
    }

    #[test]
    fn a_name_that_stands_for_two_tensors_is_refused() {
        let mut tensors = good();
        tensors.insert("w", halves(&[1, 2, 5, 64], 0x3400));
        let mut bytes = file(&tensors);
        assert!(read(&bytes).is_ok());
        let at = bytes.windows(3).position(|word| word == b"\"w\"").unwrap();
        bytes[at + 1] = b'v';
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("there are two tensors 'v'"), "{error}");
    }

    #[test]
    fn a_truncated_file_is_refused() {
        let whole = file(&good());
        for len in [0, 7, 40, whole.len() - 1] {
            let error = read(&whole[..len]).unwrap_err().to_string();
            assert!(error.contains("not a whole safetensors file"), "{len}: {error}");
        }
        let absent = FileInput::read(Path::new("no/such/file")).unwrap_err();
        assert!(matches!(absent, FileError::Read { .. }));
    }
}
