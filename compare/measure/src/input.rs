//! Real tensors: a safetensors file with `q`, `k`, `v`, and optionally `out` and scales.

use crate::plan::GivenTensors;
use anyhow::{Context, bail, ensure};
use common::format::Format;
use common::inputs::{InputError, Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::serving::Serving;
use results::table::files::name_of;
use safetensors::tensor::TensorView;
use safetensors::{Dtype as StoredDtype, SafeTensors};
use std::path::Path;

/// The tensors of a file, and the problem that they make.
#[derive(Clone, Debug, PartialEq)]
pub struct FileInput {
    pub problem: GivenTensors,
    q: Operand,
    k: Operand,
    v: Operand,
    /// `out`, rounded to the output's format, if the file has it.
    pub out: Option<Vec<f32>>,
}

impl FileInput {
    /// Reads and checks `path`: names, types, shapes, and that every value is finite. An error says
    /// what was expected.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let unread = || format!("{name}: cannot read it");
        // A device or a pipe may have no end.
        let is_regular = std::fs::metadata(path).with_context(unread)?.is_file();
        ensure!(
            is_regular,
            "{name}: it is no regular file; expected one in safetensors: write the tensors to one"
        );
        let bytes = std::fs::read(path).with_context(unread)?;
        let file = name_of(path);
        Self::parse(&file, &bytes).context(file)
    }

    fn parse(file: &str, bytes: &[u8]) -> anyhow::Result<Self> {
        let tensors = SafeTensors::deserialize(bytes).context(
            "not a whole safetensors file; write it again, for instance with \
             safetensors.numpy.save_file",
        )?;
        let q = operand(&tensors, "q")?;
        let k = operand(&tensors, "k")?;
        let v = operand(&tensors, "v")?;
        let dtype = q.dtype;
        for (name, operand) in [("k", &k), ("v", &v)] {
            ensure!(
                operand.dtype == dtype,
                "'{name}' is {:?}; expected the type of q",
                operand.dtype
            );
        }
        let [batch, heads_q, seq_q, head_dim] = q.extents;
        let [_, heads_kv, seq_kv, _] = k.extents;
        let of_k = [batch, heads_kv, seq_kv, head_dim];
        is_shaped("k", &k.extents, &of_k)?;
        is_shaped("v", &v.extents, &of_k)?;
        let shape = Shape {
            batch,
            heads_q,
            heads_kv,
            seq_q,
            seq_kv,
            head_dim,
            serving: Serving::DENSE,
        };
        let input = Self {
            out: output(&tensors, shape.q_extents(), dtype.output())?,
            problem: GivenTensors {
                name: file.to_string(),
                shape,
                dtype,
            },
            q,
            k,
            v,
        };
        input.inputs(&Problem::new(shape, dtype, Mask::Full)?)?;
        Ok(input)
    }

    /// Returns the tensors as inputs of `problem`, which has this file's extents and dtype.
    pub fn inputs(&self, problem: &Problem) -> Result<Inputs, InputError> {
        Inputs::from_parts(problem, self.q.clone(), self.k.clone(), self.v.clone())
    }
}

fn is_shaped(name: &str, found: &[usize], right: &[usize]) -> anyhow::Result<()> {
    ensure!(
        found == right,
        "'{name}' has shape {found:?}; expected {right:?}, by the shapes of q and k"
    );
    Ok(())
}

fn tensor<'a>(tensors: &SafeTensors<'a>, name: &str) -> anyhow::Result<TensorView<'a>> {
    tensors.tensor(name).with_context(|| {
        let mut names = tensors.names();
        names.sort_unstable();
        format!(
            "no tensor '{name}'; expected q, k and v, and for F8_E4M3 also q_scale, k_scale and \
             v_scale; the file has [{}]",
            names.join(", ")
        )
    })
}

fn operand(tensors: &SafeTensors<'_>, name: &str) -> anyhow::Result<Operand> {
    let tensor = tensor(tensors, name)?;
    let shape = tensor.shape();
    let Ok(extents) = <[usize; 4]>::try_from(shape) else {
        bail!(
            "'{name}' has shape {shape:?}; expected four extents, [batch, heads, rows, head_dim]"
        );
    };
    let (dtype, scales) = match tensor.dtype() {
        StoredDtype::F16 => (Dtype::F16, vec![]),
        StoredDtype::BF16 => (Dtype::Bf16, vec![]),
        StoredDtype::F8_E4M3 => (Dtype::E4m3, scales(tensors, name, extents)?),
        other => bail!("'{name}' is {other:?}; expected F16, BF16 or F8_E4M3"),
    };
    Ok(Operand::from_parts(
        extents,
        dtype,
        tensor.data().to_vec(),
        scales,
    )?)
}

/// Reads one scale for each batch and head of an operand.
fn scales(
    tensors: &SafeTensors<'_>,
    operand: &str,
    [batch, heads, ..]: [usize; 4],
) -> anyhow::Result<Vec<f32>> {
    let name = format!("{operand}_scale");
    let tensor = tensor(tensors, &name)?;
    let dtype = tensor.dtype();
    ensure!(
        dtype == StoredDtype::F32,
        "'{name}' is {dtype:?}; expected F32"
    );
    is_shaped(&name, tensor.shape(), &[batch, heads])?;
    Ok(floats(tensor.data()))
}

/// Reads `out`, if the file has it; it must be finite and have the shape of q.
fn output(
    tensors: &SafeTensors<'_>,
    expected: [usize; 4],
    format: Format,
) -> anyhow::Result<Option<Vec<f32>>> {
    let Ok(tensor) = tensors.tensor("out") else {
        return Ok(None);
    };
    let own = match format {
        Format::F16 => StoredDtype::F16,
        Format::Bf16 => StoredDtype::BF16,
    };
    let values = match tensor.dtype() {
        StoredDtype::F32 => {
            let mut values = floats(tensor.data());
            format.round_all(&mut values);
            values
        }
        dtype if dtype == own => format.decode_bytes(tensor.data()),
        dtype => bail!("'out' is {dtype:?}; expected {own:?} or F32"),
    };
    is_shaped("out", tensor.shape(), &expected)?;
    if let Some(element) = values.iter().position(|value| !value.is_finite()) {
        let [b, h, s, d] = common::inputs::index_of(expected, element);
        bail!(
            "out[{b}, {h}, {s}, {d}] is {}: an expected output must be finite",
            values[element]
        );
    }
    Ok(Some(values))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
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
        Tensor {
            dtype: StoredDtype::F16,
            shape: shape.to_vec(),
            bytes: fill.to_le_bytes().repeat(count),
        }
    }

    fn good() -> BTreeMap<&'static str, Tensor> {
        let (q, kv) = ([1, 4, 3, 64], [1, 2, 5, 64]);
        BTreeMap::from([
            ("q", halves(&q, 0x3c00)),
            ("k", halves(&kv, 0x3800)),
            ("v", halves(&kv, 0x3400)),
        ])
    }

    fn file(tensors: &BTreeMap<&'static str, Tensor>) -> Vec<u8> {
        let mut views = BTreeMap::new();
        for (name, tensor) in tensors {
            let shape = tensor.shape.clone();
            let view = TensorView::new(tensor.dtype, shape, &tensor.bytes).unwrap();
            views.insert(*name, view);
        }
        serialize(views, None).unwrap()
    }

    fn read(bytes: &[u8]) -> anyhow::Result<FileInput> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("real.safetensors");
        std::fs::write(&path, bytes).unwrap();
        FileInput::read(&path)
    }

    fn refusal(bytes: &[u8]) -> String {
        format!("{:#}", read(bytes).unwrap_err())
    }

    #[test]
    fn tensors_become_a_problem_with_grouped_heads() {
        let mut tensors = good();
        tensors.insert("out", halves(&[1, 4, 3, 64], 0x3400));
        let input = read(&file(&tensors)).unwrap();
        let shape = Shape {
            batch: 1,
            heads_q: 4,
            heads_kv: 2,
            seq_q: 3,
            seq_kv: 5,
            head_dim: 64,
            serving: Serving::DENSE,
        };
        assert_eq!(input.problem.shape, shape);
        assert_eq!(input.problem.dtype, Dtype::F16);
        assert_eq!(input.out.unwrap().len(), 4 * 3 * 64);
    }

    fn bytes(shape: [usize; 4]) -> Tensor {
        Tensor {
            dtype: StoredDtype::F8_E4M3,
            shape: shape.to_vec(),
            bytes: vec![0x38; shape.iter().product()],
        }
    }

    fn scale(heads: usize) -> Tensor {
        Tensor {
            dtype: StoredDtype::F32,
            shape: vec![1, heads],
            bytes: 0.5f32.to_le_bytes().repeat(heads),
        }
    }

    /// Returns tensors in E4M3, with their scales.
    fn good_e4m3() -> BTreeMap<&'static str, Tensor> {
        BTreeMap::from([
            ("q", bytes([1, 4, 3, 64])),
            ("k", bytes([1, 2, 5, 64])),
            ("v", bytes([1, 2, 5, 64])),
            ("q_scale", scale(4)),
            ("k_scale", scale(2)),
            ("v_scale", scale(2)),
        ])
    }

    #[test]
    fn e4m3_is_read_with_its_scales() {
        let input = read(&file(&good_e4m3())).unwrap();
        assert_eq!(input.problem.dtype, Dtype::E4m3);
    }

    #[test]
    fn scales_of_another_shape_are_refused() {
        let mut tensors = good_e4m3();
        tensors.insert("k_scale", scale(4));
        let reason = "'k_scale' has shape [1, 4]; expected [1, 2]";
        assert!(refusal(&file(&tensors)).contains(reason));
    }

    #[test]
    fn e4m3_without_a_scale_is_refused() {
        let mut tensors = good_e4m3();
        tensors.remove("k_scale");
        assert!(refusal(&file(&tensors)).contains("no tensor 'k_scale'"));
    }

    /// Asserts that a file with this tensor in place of a good one is refused for the reason.
    fn assert_refused(name: &'static str, tensor: Tensor, reason: &str) {
        let mut tensors = good();
        tensors.insert(name, tensor);
        let refusal = refusal(&file(&tensors));
        assert!(refusal.contains(reason), "{reason}: {refusal}");
    }

    #[test]
    fn a_file_without_v_is_refused() {
        let mut tensors = good();
        tensors.remove("v");
        let refusal = refusal(&file(&tensors));
        let reason = "no tensor 'v'; expected q, k and v";
        assert!(refusal.contains(reason), "{refusal}");
    }

    #[test]
    fn keys_of_another_head_dim_are_refused() {
        let wide = halves(&[1, 2, 5, 128], 0);
        assert_refused("k", wide, "'k' has shape [1, 2, 5, 128]");
    }

    #[test]
    fn values_of_another_length_than_keys_are_refused() {
        let long = halves(&[1, 2, 6, 64], 0);
        let reason = "'v' has shape [1, 2, 6, 64]; expected [1, 2, 5, 64]";
        assert_refused("v", long, reason);
    }

    #[test]
    fn a_tensor_of_three_extents_is_refused() {
        assert_refused("q", halves(&[4, 3, 64], 0), "four extents");
    }

    #[test]
    fn an_output_of_another_shape_than_q_is_refused() {
        let wide = halves(&[1, 4, 3, 65], 0);
        assert_refused("out", wide, "'out' has shape");
    }

    #[test]
    fn integers_are_refused() {
        let integers = Tensor {
            dtype: StoredDtype::I16,
            ..halves(&[1, 4, 3, 64], 0)
        };
        let reason = "'q' is I16; expected F16, BF16 or F8_E4M3";
        assert_refused("q", integers, reason);
    }

    #[test]
    fn inputs_that_are_not_numbers_are_refused() {
        let nan = halves(&[1, 2, 5, 64], NAN);
        assert_refused("k", nan, "k[0, 0, 0, 0] is NaN");
    }

    #[test]
    fn an_output_that_is_not_a_number_is_refused() {
        let nan = halves(&[1, 4, 3, 64], NAN);
        assert_refused("out", nan, "out[0, 0, 0, 0] is NaN");
    }

    #[test]
    fn heads_that_cannot_be_grouped_are_refused() {
        assert_refused("q", halves(&[1, 3, 3, 64], 0), "does not divide");
    }

    #[test]
    fn a_head_dim_that_no_stage_takes_is_refused() {
        let odd = ["q", "k", "v"].map(|name| (name, halves(&[1, 2, 3, 36], 0)));
        assert!(refusal(&file(&odd.into())).contains("head_dim = 36 is not supported"));
    }

    #[test]
    fn a_file_with_two_tensors_of_a_name_is_refused() {
        let mut tensors = good();
        tensors.insert("w", halves(&[1, 2, 5, 64], 0x3400));
        let mut twice = file(&tensors);
        assert!(read(&twice).is_ok());
        let quoted = twice.windows(3).position(|word| word == b"\"w\"");
        twice[quoted.unwrap() + 1] = b'v';
        assert!(refusal(&twice).contains("not a whole safetensors file"));
    }

    #[test]
    fn a_file_that_is_truncated_is_refused() {
        let whole = file(&good());
        for len in [0, 7, 40, whole.len() - 1] {
            let error = refusal(&whole[..len]);
            assert!(
                error.contains("not a whole safetensors file"),
                "{len}: {error}"
            );
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_before_it_is_read() {
        for endless in ["/dev/zero", "/dev"] {
            let refused = FileInput::read(Path::new(endless)).unwrap_err();
            let reason = format!("{endless}: it is no regular file; expected one in safetensors");
            assert!(refused.to_string().starts_with(&reason), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_absent_is_named() {
        let absent = FileInput::read(Path::new("no/such/file")).unwrap_err();
        assert!(format!("{absent:#}").starts_with("no/such/file: cannot read it: "));
    }
}
