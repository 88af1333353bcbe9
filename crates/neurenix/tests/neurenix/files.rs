//! Reads files written by NumPy, ml_dtypes and safetensors themselves (`golden/make.py`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use neurenix::data::{HostArray, read_npz};
use neurenix::io::safetensors;
use phynexus::DType;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// 0 to 5 as `[2, 3]` (as bools: false, then true).
fn check(name: &str, array: &HostArray) -> Outcome {
    assert_eq!(array.shape(), [2, 3], "{name}");
    let expected = if array.dtype() == DType::Bool { [0, 1, 1, 1, 1, 1] } else { [0, 1, 2, 3, 4, 5] };
    assert_eq!(array.cast(DType::I64).to_vec::<i64>()?, expected, "{name}");
    Ok(())
}

fn check_all(arrays: &BTreeMap<String, HostArray>) -> Outcome {
    assert_eq!(arrays.len(), DType::COMPUTED.len());
    for dtype in DType::COMPUTED {
        let array = &arrays[dtype.name()];
        assert_eq!(array.dtype(), dtype);
        check(dtype.name(), array)?;
    }
    Ok(())
}

#[test]
fn archives_of_numpy() -> Outcome {
    check_all(&read_npz(&golden("stored.npz"))?)?;
    let mut arrays = read_npz(&golden("compressed.npz"))?;
    let fortran = arrays.remove("fortran").ok_or("no array")?;
    assert_eq!(fortran, HostArray::from_values(&[2, 3, 4], &(0..24).collect::<Vec<i64>>())?);
    assert_eq!(arrays.remove("scalar"), Some(HostArray::from_values(&[], &[2.5f32])?));
    assert_eq!(arrays.remove("empty"), Some(HostArray::from_values::<f64>(&[0, 3], &[])?));
    assert_eq!(arrays.len(), DType::COMPUTED.len() - 1);
    arrays.iter().try_for_each(|(name, array)| check(name, array))
}

#[test]
fn safetensors_of_the_reference_library() -> Outcome {
    let contents = safetensors::load(&golden("numpy.safetensors"))?;
    assert_eq!(contents.metadata, BTreeMap::from([("format".to_owned(), "np".to_owned())]));
    check_all(&contents.arrays)
}
