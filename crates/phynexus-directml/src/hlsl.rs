//! Kernels in HLSL.

use naga::{
    back::hlsl::{BindTarget, BindingMap, Options, PipelineOptions, ShaderModel, Writer},
    front::wgsl,
    valid::{Capabilities, ValidationFlags, Validator},
};

/// A translated kernel.
pub(crate) struct Translated {
    pub(crate) source: String,
    /// The name of its entry point.
    pub(crate) entry: String,
}

/// Translates a printed kernel. Its buffers are the registers `u0`, `u1`, ..., and the first elements are `b0`.
///
/// There are no run-time checks: kernels are checked before, and each of their loops ends.
pub(crate) fn translate(source: &str, shader_model: ShaderModel) -> Result<Translated, String> {
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(source))?;
    let bindings = module.global_variables.iter().filter_map(|(_, variable)| variable.binding);
    let binding_map: BindingMap = bindings
        .map(|binding| (binding, BindTarget { register: binding.binding, ..BindTarget::default() }))
        .collect();
    let options = Options {
        shader_model,
        binding_map,
        fake_missing_bindings: false,
        immediates_target: Some(BindTarget::default()),
        zero_initialize_workgroup_memory: false,
        restrict_indexing: false,
        force_loop_bounding: false,
        ..Options::default()
    };
    let mut text = String::new();
    let mut writer = Writer::new(&mut text, &options, &PipelineOptions { entry_point: None });
    let written = writer.write(&module, &info, None).map_err(|error| error.to_string())?;
    let entry = written.entry_point_names.into_iter().next().ok_or("the source has no kernel")?;
    let entry = entry.map_err(|error| error.to_string())?;
    Ok(Translated { source: with_wide_literals(&text), entry })
}

/// naga ends literals of 64 bits with `L`, with which DXC takes the low 32 bits. `LL` keeps all.
fn with_wide_literals(source: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = source.as_bytes();
    let mut text = String::with_capacity(source.len());
    let mut rest = 0;
    for (at, _) in source.match_indices('L') {
        let ends = bytes.get(at + 1).is_none_or(|&next| !is_word(next));
        let start = bytes[..at].iter().rposition(|&byte| !is_word(byte)).map_or(0, |before| before + 1);
        let number = source[start..at].trim_end_matches(['U', 'u']);
        if ends && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            text += &source[rest..=at];
            text.push('L');
            rest = at + 1;
        }
    }
    text + &source[rest..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        struct Starts { b0: i32, b1: i32, zero: u32 }
        var<immediate> starts: Starts;
        var<workgroup> shared0: array<u32, 2>;
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) {
            shared0[i & 1u] = x[u32(starts.b0) + i];
            workgroupBarrier();
            for (var k = 0u; k < 2u; k++) { y[u32(starts.b1) + i] = shared0[k]; }
        }";

    #[test]
    fn buffers_and_starts_have_their_registers_and_nothing_is_checked_at_run_time() {
        let Translated { source, entry } = translate(SOURCE, ShaderModel::V6_0).unwrap();
        assert_eq!(entry, "main");
        for expected in
            [": register(u0)", ": register(u1)", "ConstantBuffer<Starts> starts: register(b0)", "(8, 1, 1)"]
        {
            assert!(source.contains(expected), "{expected}:\n{source}");
        }
        for check in ["min(", "loop_bound", "GetDimensions", "(uint[2])0"] {
            assert!(!source.contains(check), "{check}:\n{source}");
        }
    }

    #[test]
    fn literals_of_64_bits_have_all_of_them() {
        let source = "x = (-9223372036854775807L - 1L) + 5UL; L = aL + 1L2 + 3;";
        let expected = "x = (-9223372036854775807LL - 1LL) + 5ULL; L = aL + 1L2 + 3;";
        assert_eq!(with_wide_literals(source), expected);
    }

    #[test]
    fn a_source_that_is_wrong_or_has_no_kernel_is_refused() {
        let error = |source| translate(source, ShaderModel::V5_1).err().unwrap();
        assert!(error("fn main( {").contains("expected"));
        assert_eq!(error("fn f() {}"), "the source has no kernel");
    }
}
