//! Files of other versions in every format; what kind of error a call gives, and whether it may succeed later.

use std::fs;

use rnn::{Array2, LayerBuilder, Network, NetworkError, Optimizer, Result};

use super::{epochs, linear};

/// The bytes with the first place of a text changed to another of the same length.
fn changed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let place = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect(from);
    [&bytes[..place], to.as_bytes(), &bytes[place + from.len()..]].concat()
}

/// A binary file's bytes with the sum at their end that fits them: FNV-1a.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 8);
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for byte in &bytes {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    bytes.extend(sum.to_le_bytes());
    bytes
}

#[test]
fn files_of_another_version_are_refused() -> Result<()> {
    let network = linear(3, 2)?.build()?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network");
    let refused = |bytes: Vec<u8>, load: fn(&std::path::Path) -> Result<Network>| {
        fs::write(&path, bytes).unwrap();
        let error = load(&path).map(drop).expect_err("a file of another version");
        assert!(matches!(error, NetworkError::Serialization { .. }), "{error}");
        error.to_string()
    };
    let later = |message: String| {
        assert!(message.contains("version 9") && message.contains("this crate reads 1"), "{message}");
    };
    let (version, nine) = ("\"version\":1,", "\"version\":9,");
    let (format, other) = ("\"format\":\"rnn-network\"", "\"format\":\"rnn-netmesh\"");

    network.save(&path)?;
    let bytes = fs::read(&path).unwrap();
    later(refused(changed(&bytes, version, nine), |path| Network::load(path)));
    assert!(
        refused(changed(&bytes, format, other), |path| Network::load(path)).contains("not a network of this")
    );

    network.save_binary(&path)?;
    let bytes = fs::read(&path).unwrap();
    assert_eq!(summed(bytes.clone()), bytes);
    later(refused(summed(changed(&bytes, version, nine)), |path| Network::load_binary(path)));
    let message = refused(summed(changed(&bytes, format, other)), |path| Network::load_binary(path));
    assert!(message.contains("not a network of this"), "{message}");

    // As another program writes it: without our checksum. The description is JSON inside JSON.
    network.save_safetensors(&path)?;
    let bytes = changed(&fs::read(&path).unwrap(), "neurenix.crc32c", "neurenix.absent");
    let inside = |text: &str| text.replace('"', "\\\"");
    fs::write(&path, &bytes).unwrap();
    assert_eq!(Network::load_safetensors(&path)?.get_weights()?, network.get_weights()?);
    let nine = changed(&bytes, &inside(version), &inside(nine));
    later(refused(nine, |path| Network::load_safetensors(path)));
    let other = changed(&bytes, &inside(format), &inside(other));
    let message = refused(other, |path| Network::load_safetensors(path));
    assert!(message.contains("not a network of this"), "{message}");
    let message =
        refused(changed(&bytes, "rnn-network", "rnn-netmesh"), |path| Network::load_safetensors(path));
    assert!(message.contains("no network's description"), "{message}");
    Ok(())
}

#[test]
fn every_kind_of_error_has_a_category() {
    let text = || "what is wrong".to_owned();
    let cases = [
        (NetworkError::architecture(text()), "architecture", false),
        (NetworkError::training(text()), "training", false),
        (NetworkError::Io { message: text() }, "io", false),
        (NetworkError::serialization(text()), "serialization", false),
        (NetworkError::dimension_mismatch("a", "2", "3"), "dimensions", false),
        (NetworkError::invalid_parameter("a", 2, text()), "parameter", false),
        (NetworkError::numerical(text()), "numerical", true),
        (NetworkError::gpu(text()), "gpu", true),
        (
            NetworkError::KernelCompilation { kernel: text(), backend: text(), message: text() },
            "kernel",
            false,
        ),
        (NetworkError::CompilerMissing { backend: text(), install: text() }, "kernel", false),
        (NetworkError::memory(text()), "memory", true),
        (NetworkError::data(text()), "data", false),
        (NetworkError::computation(text()), "computation", false),
    ];
    for (error, category, is_recoverable) in cases {
        assert_eq!((error.category(), error.is_recoverable()), (category, is_recoverable), "{error}");
        // What `main` shows is the message.
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}

#[test]
fn calls_give_the_kind_of_what_is_wrong() -> Result<()> {
    fn kind<T>(result: Result<T>) -> (&'static str, bool) {
        let error = result.map(drop).expect_err("it must be refused");
        (error.category(), error.is_recoverable())
    }
    let mut network = linear(3, 2)?.build()?;
    let (x, y) = (Array2::<f64>::zeros((4, 3)), Array2::<f64>::zeros((4, 2)));
    assert_eq!(kind(Network::with_input_size(0)), ("architecture", false));
    assert_eq!(kind(Network::load("there/is/no/such/file")), ("io", false));
    assert_eq!(kind(Optimizer::adam(-1.0)), ("parameter", false));
    assert_eq!(kind(network.predict(&Array2::zeros((4, 2)))), ("dimensions", false));
    assert_eq!(kind(network.predict(&Array2::from_elem((4, 3), f64::NAN))), ("data", false));
    let elsewhere = Network::with_input_size(3)?.add_layer(LayerBuilder::dense(2)).device("cuda:99");
    assert_eq!(kind(elsewhere.build()), ("gpu", true));
    // The squares of these overflow.
    let far = Array2::from_elem((4, 3), 1e30);
    assert_eq!(kind(network.train(&far, &y, &epochs(1))), ("numerical", true));
    network.freeze_layers(&[0])?;
    assert_eq!(kind(network.train(&x, &y, &epochs(1))), ("training", false));
    Ok(())
}
