//! No public call panics: every tensor method gets random shapes, axes, dtypes, indices and numbers, most of them
//! invalid, and must return a result or an error.

mod fuzz;
mod mathematics;
mod neural;
mod structure;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use neurenix::phynexus::{Device, Error, Result, Tensor, oracle::generate::Choice};

use fuzz::Fuzz;

/// The tensors that a call returned, which are then read, differentiated and printed.
type Call = fn(&mut Fuzz, &Tensor) -> Result<Vec<Tensor>>;

macro_rules! unary_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |_, x| Ok(vec![x.$name()?])),)+] };
}

macro_rules! binary_calls {
    ($($name:ident)+) => {
        &[$((stringify!($name), |f, x| { let y = f.partner(x); Ok(vec![x.$name(&y)?]) }),)+]
    };
}

macro_rules! scalar_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |f, x| Ok(vec![x.$name(f.scalar())?])),)+] };
}

macro_rules! axis_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |f, x| Ok(vec![x.$name(f.axis())?])),)+] };
}

macro_rules! reduction_calls {
    ($($name:ident)+) => { &[$((stringify!($name), |f, x| Ok(vec![x.$name(&f.axes(), f.flag())?])),)+] };
}

macro_rules! window_calls {
    ($($dims:literal $conv:ident $transposed:ident $max:ident $indices:ident $average:ident $amax:ident $aavg:ident;)+) => {
        &[$(
            (stringify!($conv), |f, x| {
                let (w, b) = (f.partner(x), f.option());
                let groups = f.size();
                Ok(vec![x.$conv(&w, b.as_ref(), f.window::<$dims>(), f.window(), f.window(), groups)?])
            }),
            (stringify!($transposed), |f, x| {
                let (w, b) = (f.partner(x), f.option());
                let (stride, padding, extra, groups) = (f.window::<$dims>(), f.window(), f.window(), f.size());
                Ok(vec![x.$transposed(&w, b.as_ref(), stride, padding, extra, groups, f.window())?])
            }),
            (stringify!($max), |f, x| {
                let stride = f.flag().then(|| f.window());
                Ok(vec![x.$max(f.window::<$dims>(), stride, f.window(), f.window(), f.flag())?])
            }),
            (stringify!($indices), |f, x| {
                let stride = f.flag().then(|| f.window());
                let (values, places) = x.$indices(f.window::<$dims>(), stride, f.window(), f.window(), f.flag())?;
                Ok(vec![values, places])
            }),
            (stringify!($average), |f, x| {
                let stride = f.flag().then(|| f.window());
                Ok(vec![x.$average(f.window::<$dims>(), stride, f.window(), f.flag(), f.flag())?])
            }),
            (stringify!($amax), |f, x| Ok(vec![x.$amax(f.window::<$dims>())?])),
            (stringify!($aavg), |f, x| Ok(vec![x.$aavg(f.window::<$dims>())?])),
        )+]
    };
}

/// The functions of the engine's tables.
macro_rules! unary_table {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $name:literal $class:ident($meaning:expr) $rest:tt)+) => {
        const UNARY: &[(&str, Call)] = unary_calls! { $($method)+ };
    };
}
phynexus::unary_functions!(unary_table);

macro_rules! binary_table {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $scalar:ident $name:literal $class:ident($($meaning:tt)+)
        $rest:tt)+) => {
        const BINARY: &[(&str, Call)] = binary_calls! { $($method)+ };
        const WITH_NUMBERS: &[(&str, Call)] = scalar_calls! { $($scalar)+ };
    };
}
phynexus::binary_functions!(binary_table);

const CALLS: &[&[(&str, Call)]] = &[
    UNARY,
    BINARY,
    WITH_NUMBERS,
    unary_calls! {
        square log10 logical_not isfinite relu sigmoid silu mish logsigmoid relu6 selu hardsigmoid hardswish softsign tanhshrink contiguous detach with_grad
        zeros_like ones_like squeeze_all t nonzero trace erfc erfinv frac signbit keep_two_of_four
    },
    binary_calls! {
        gt ge logical_and logical_or logical_xor matmul matmul_float8 dot outer kron masked_select prelu copysign fmod hypot
        inner isin logaddexp nextafter xlogy decompress_two_of_four
    },
    scalar_calls! { gt_scalar ge_scalar rsub_scalar rdiv_scalar rpow_scalar full_like fmod_scalar },
    axis_calls! { softmax log_softmax softmin cumsum cumprod squeeze unsqueeze glu tril triu diag },
    reduction_calls! { sum prod mean max min all any logsumexp count_nonzero nansum nanmean },
    window_calls! {
        1 conv1d conv_transpose1d max_pool1d max_pool1d_with_indices avg_pool1d adaptive_max_pool1d adaptive_avg_pool1d;
        2 conv2d conv_transpose2d max_pool2d max_pool2d_with_indices avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d;
        3 conv3d conv_transpose3d max_pool3d max_pool3d_with_indices avg_pool3d adaptive_max_pool3d adaptive_avg_pool3d;
    },
    structure::MOVEMENT,
    structure::INDEXING,
    structure::CREATION,
    mathematics::RANKS,
    mathematics::PRODUCTS,
    mathematics::PLACES,
    neural::NEURAL,
    neural::LOSSES,
    unary_calls! { det inv eigvalsh svdvals },
    binary_calls! { solve },
];

/// Larger results are not computed: the test is about returned values, not memory.
const READABLE: usize = 1 << 16;

thread_local! {
    /// Where this thread last panicked.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes the call, evaluates its results and differentiates them.
fn work(call: Call, fuzz: &mut Fuzz) -> Result<()> {
    let x = fuzz.tensor();
    for result in call(fuzz, &x)? {
        if result.len() > READABLE {
            continue;
        }
        result.to_bytes()?;
        let _ = format!("{result} {result:?}");
        if result.requires_grad() {
            result.sum(&[], false)?.backward()?;
        }
    }
    Ok(())
}

#[test]
fn every_call_answers() {
    neurenix::register_all();
    let device = Device::find("cpu").expect("the CPU is always registered");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        PLACE.replace(panic.location().map(|at| at.to_string()));
    }));
    let mut wrong: BTreeMap<String, (u64, usize)> = BTreeMap::new();
    let mut answers = [0usize; 2];
    for (place, (name, call)) in CALLS.iter().flat_map(|calls| calls.iter()).enumerate() {
        for round in 0..300u64 {
            let seed = place as u64 * 1000 + round;
            let mut fuzz = Fuzz { choice: Choice::new(seed), device };
            let complaint = match catch_unwind(AssertUnwindSafe(|| work(*call, &mut fuzz))) {
                Ok(Ok(())) => {
                    answers[0] += 1;
                    continue;
                }
                // An internal error was caught in time but is still a bug.
                Ok(Err(Error::Internal { place, message })) => {
                    format!("internal error in {place}: {message}")
                }
                Ok(Err(_)) => {
                    answers[1] += 1;
                    continue;
                }
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                    format!("panic at {}: {text}", PLACE.take().unwrap_or_default())
                }
            };
            let count = &mut wrong.entry(format!("{name}: {complaint}")).or_insert((seed, 0)).1;
            *count += 1;
        }
    }
    std::panic::set_hook(hook);
    let list: Vec<String> =
        wrong.iter().map(|(what, (seed, n))| format!("{what} (seed {seed}, {n} times)")).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    // Some calls must fail and some must succeed.
    assert!(answers[0] > 5000 && answers[1] > 5000, "{answers:?}");
}
