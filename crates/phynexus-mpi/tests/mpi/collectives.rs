//! Every collective, on every dtype and odd lengths, against values computed directly.

use std::{thread, time::Duration};

use half::{bf16, f16};
use phynexus::{
    DType, DTypeKind, Result,
    distributed::{Group, Incoming, Outgoing, Transport},
    op::{CollectiveKind, Combine},
};

use crate::{Exchanges, passed};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A number that looks random.
fn noise(rank: usize, at: usize) -> u64 {
    let mixed = (at as u64 ^ ((rank as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

fn bytes(rank: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| noise(rank, at) as u8).collect()
}

/// An element of a rank: any bits of an integer; a float between -2 and 2, or sometimes NaN.
fn element(dtype: DType, rank: usize, at: usize) -> Vec<u8> {
    let noise = noise(rank, at);
    if dtype.kind() != DTypeKind::Float {
        return noise.to_le_bytes()[..dtype.size()].to_vec();
    }
    let value = if noise.is_multiple_of(61) { f64::NAN } else { (noise % 40_001) as f64 / 1e4 - 2.0 };
    encode(dtype, value)
}

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

/// The combination of one element of all ranks, in order.
fn combined(dtype: DType, by: Combine, elements: &[Vec<u8>]) -> Vec<u8> {
    if dtype.kind() == DTypeKind::Float {
        let values = elements.iter().map(|bytes| decode(dtype, bytes));
        let extreme = |values: Vec<f64>, of: fn(f64, f64) -> f64| match values.iter().any(|v| v.is_nan()) {
            true => f64::NAN,
            false => values.into_iter().reduce(of).unwrap(),
        };
        let narrow = |of: fn(f32, f32) -> f32, values: Vec<f64>| -> f64 {
            values.into_iter().map(|v| v as f32).reduce(of).unwrap().into()
        };
        let (is_wide, values) = (dtype == DType::F64, values.collect::<Vec<f64>>());
        return encode(
            dtype,
            match by {
                Combine::Sum if is_wide => values.into_iter().reduce(|a, b| a + b).unwrap(),
                Combine::Prod if is_wide => values.into_iter().reduce(|a, b| a * b).unwrap(),
                Combine::Sum => narrow(|a, b| a + b, values),
                Combine::Prod => narrow(|a, b| a * b, values),
                Combine::Max => extreme(values, f64::max),
                Combine::Min => extreme(values, f64::min),
            },
        );
    }
    let is_signed = dtype.kind() == DTypeKind::Signed;
    let integer = |bytes: &Vec<u8>| {
        let fill = if is_signed && bytes[bytes.len() - 1] >= 128 { 255 } else { 0 };
        let mut wide = [fill; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        i128::from_le_bytes(wide)
    };
    let combine = |a: i128, b: i128| match by {
        Combine::Sum => a.wrapping_add(b),
        Combine::Prod => a.wrapping_mul(b),
        Combine::Max => a.max(b),
        Combine::Min => a.min(b),
    };
    elements.iter().map(integer).reduce(combine).unwrap().to_le_bytes()[..dtype.size()].to_vec()
}

/// Whether the bits are the same, except those of NaN.
fn assert_same(dtype: DType, found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let is_float = dtype.kind() == DTypeKind::Float;
    let pairs = found.chunks_exact(dtype.size()).zip(expected.chunks_exact(dtype.size()));
    for (at, (found, expected)) in pairs.enumerate() {
        let both_nan = || decode(dtype, found).is_nan() && decode(dtype, expected).is_nan();
        assert!(
            found == expected || is_float && both_nan(),
            "{what}, element {at}: {found:?}, not {expected:?}"
        );
    }
}

/// All-reduces and reduce-scatters of one dtype and length. The length is that of each rank's part.
fn reductions(transport: &dyn Transport, dtype: DType, part: usize, beyond: usize) -> Result<()> {
    let (rank, size) = (transport.rank(), transport.size());
    let count = part * size + beyond;
    let own: Vec<u8> = (0..count).flat_map(|at| element(dtype, rank, at)).collect();
    for by in Combine::ALL {
        let expected: Vec<u8> = (0..count)
            .flat_map(|at| {
                let elements: Vec<Vec<u8>> = (0..size).map(|rank| element(dtype, rank, at)).collect();
                combined(dtype, by, &elements)
            })
            .collect();
        let what = format!("{} of {count} elements of {dtype}", by.name());
        let mut all = own.clone();
        transport.all_reduce(&mut all, dtype, by)?;
        assert_same(dtype, &all, &expected, &what);
        // Other transports have the same bits, those of NaN too.
        let mut by_messages = own.clone();
        Exchanges(transport).all_reduce(&mut by_messages, dtype, by)?;
        assert_eq!(by_messages, all, "{what} by messages");
        if beyond == 0 {
            let bytes = part * dtype.size();
            let mut scattered = vec![0; bytes];
            transport.reduce_scatter(&own, &mut scattered, dtype, by)?;
            assert_same(dtype, &scattered, &expected[rank * bytes..][..bytes], &what);
        }
    }
    Ok(())
}

/// What moves bytes: lengths below, at and above those of the pieces.
fn moves(transport: &dyn Transport, width: usize) -> Result<()> {
    let (rank, size) = (transport.rank(), transport.size());
    let every: Vec<Vec<u8>> = (0..size).map(|rank| bytes(rank, width * size)).collect();
    let own = &every[rank];
    let mut all = vec![0; width * size];
    transport.all_gather(&own[..width], &mut all)?;
    assert!(all == every.iter().flat_map(|bytes| &bytes[..width]).copied().collect::<Vec<u8>>(), "{width}");
    let mut transposed = vec![0; width * size];
    transport.all_to_all(own, &mut transposed)?;
    let part = rank * width..(rank + 1) * width;
    let expected: Vec<u8> = every.iter().flat_map(|bytes| &bytes[part.clone()]).copied().collect();
    assert!(transposed == expected, "{width}");
    for (root, sent) in every.iter().enumerate() {
        let mut bytes = own.clone();
        transport.broadcast(&mut bytes, root)?;
        assert!(bytes == *sent, "{width} from rank {root}");
    }
    Ok(())
}

pub(crate) fn collectives() -> Result<()> {
    let transport = phynexus_mpi::connect(LIMIT)?;
    assert_eq!(transport.name(), "mpi");
    let mut all = vec![0; transport.size()];
    transport.all_gather(&[transport.rank() as u8], &mut all)?;
    assert!(all.iter().copied().eq(0..transport.size() as u8));
    for width in [0, 1, 3, 4097, (1 << 18) - 1, 1 << 18, 700_001] {
        moves(&*transport, width)?;
    }
    let combined: Vec<DType> = DType::INTEGERS.into_iter().chain(DType::FLOATS).collect();
    for dtype in combined {
        for (part, beyond) in [(0, 0), (0, 1), (1, 0), (1, 1), (5, 0), (600, 1), (9_001, 0)] {
            reductions(&*transport, dtype, part, beyond)?;
        }
    }
    for dtype in [DType::F64, DType::I32, DType::BF16] {
        reductions(&*transport, dtype, 40_003, transport.size() - 1)?;
    }
    for dtype in [DType::Bool, DType::F8E4M3] {
        assert!(transport.all_reduce(&mut [0], dtype, Combine::Sum).is_err());
    }
    transport.barrier()?;
    passed(&*transport);
    // What was refused disturbed nothing.
    transport.barrier()
}

/// Messages between pairs.
pub(crate) fn messages() -> Result<()> {
    let transport = phynexus_mpi::connect(LIMIT)?;
    // A second connection has messages of its own.
    let other = phynexus_mpi::connect(LIMIT)?;
    let (rank, size) = (transport.rank(), transport.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let piece = 1 << 18;
    for count in [0, 1, 7, piece - 9, piece - 8, piece, piece + 1, 3 * piece, 5 * piece + 5] {
        let (sent, mut received) = (bytes(rank, count), vec![0; count]);
        transport.exchange(
            Some(Outgoing { bytes: &sent, to: next }),
            Some(Incoming { bytes: &mut received, from: previous }),
        )?;
        assert!(received == bytes(previous, count), "{count}");
        // Lengths of the two directions differ, and so do the connections.
        let (sent, mut received) = (bytes(rank, count + rank), vec![0; count + next]);
        other.exchange(
            Some(Outgoing { bytes: &sent, to: previous }),
            Some(Incoming { bytes: &mut received, from: next }),
        )?;
        assert!(received == bytes(next, count + next), "{count}");
        // One direction at a time: two short messages before they are received.
        match rank {
            0 => {
                for part in [1, 2] {
                    transport.exchange(Some(Outgoing { bytes: &bytes(part, count), to: 1 }), None)?;
                }
            }
            1 => {
                for part in [1, 2] {
                    let mut received = vec![0; count];
                    transport.exchange(None, Some(Incoming { bytes: &mut received, from: 0 }))?;
                    assert!(received == bytes(part, count), "{count}");
                }
            }
            _ => {}
        }
        let mut received = vec![0; count];
        transport.exchange(
            Some(Outgoing { bytes: &sent[..count], to: rank }),
            Some(Incoming { bytes: &mut received, from: rank }),
        )?;
        assert!(received == sent[..count], "{count} to itself");
    }
    let error = transport.exchange(Some(Outgoing { bytes: &[], to: size }), None).unwrap_err();
    assert!(error.to_string().contains(&format!("there is no rank {size}")), "{error}");
    transport.barrier()?;
    passed(&*transport);
    Ok(())
}

/// Two threads exchange with the same ranks. Their messages, of equal bytes each, do not mix.
fn threads(transport: &dyn Transport) {
    let (rank, size) = (transport.rank(), transport.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let exchange = |thread: u8| {
        for turn in 0..20 {
            let (sent, mut received) = (vec![2 * turn + thread; 600_000], vec![0; 600_000]);
            let send = Outgoing { bytes: &sent, to: next };
            let receive = Incoming { bytes: &mut received, from: previous };
            transport.exchange(Some(send), Some(receive)).unwrap();
            assert!(received.iter().all(|&byte| byte == received[0]));
        }
    };
    thread::scope(|scope| {
        [0, 1].map(|number| scope.spawn(move || exchange(number))).map(|t| t.join().unwrap())
    });
}

/// Collectives of some ranks, in an order of their own.
pub(crate) fn subgroups() -> Result<()> {
    let transport = phynexus_mpi::connect(LIMIT)?;
    threads(&*transport);
    let world = Group::open(transport.clone());
    let (rank, size) = (world.rank(), world.size());
    let reversed: Vec<usize> = (0..size).rev().collect();
    let even: Vec<usize> = (0..size).filter(|rank| rank % 2 == 0).collect();
    for members in [reversed, even, vec![size - 1, 0], vec![1]] {
        let Some(group) = world.subgroup(&members)? else {
            assert!(!members.contains(&rank));
            continue;
        };
        assert_eq!(members[group.rank()], rank);
        let count = 10_007 * members.len();
        let own = bytes(rank, count);
        let mut all = vec![0; count * members.len()];
        group.run(CollectiveKind::AllGather { again: false }, DType::U8, &own, &mut all)?;
        assert!(all == members.iter().flat_map(|&rank| bytes(rank, count)).collect::<Vec<u8>>());
        let mut sum = vec![0; count / members.len()];
        group.run(CollectiveKind::ReduceScatter(Combine::Sum), DType::U8, &own, &mut sum)?;
        let start = group.rank() * sum.len();
        let expected =
            |at: usize| members.iter().fold(0u8, |sum, &rank| sum.wrapping_add(noise(rank, at) as u8));
        assert!(sum.iter().enumerate().all(|(at, &sum)| sum == expected(start + at)));
        group.close();
    }
    transport.barrier()?;
    passed(&*transport);
    Ok(())
}
