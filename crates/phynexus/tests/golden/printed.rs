//! Printed kernels against expected sources, for the tests of device crates.

use phynexus::kernel::print::{Language, print};

#[path = "../phynexus/loop_trees/kernels.rs"]
mod kernels;

/// Compares the sources of kernels in a language with the files of a folder. `UPDATE_GOLDEN=1` writes the files
/// instead.
pub(crate) fn compare(language: &'static Language, folder: &str, extension: &str) {
    let mut all = vec![
        kernels::elementwise(1003),
        kernels::softmax(3, 1000),
        kernels::matmul(50, 70, 20),
        kernels::row_sum(5, 300),
        kernels::gather_rows(50, 7, 20),
    ];
    if language.matrices.is_some() {
        all.push(kernels::matrix_multiply(128, 64, 32));
    }
    for kernel in all {
        let source = print(&kernel, language).unwrap();
        let path = format!("{folder}/{}.{extension}", kernel.name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &source).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(source, expected, "{path} differs: if that is right, run the tests with UPDATE_GOLDEN=1");
    }
}
