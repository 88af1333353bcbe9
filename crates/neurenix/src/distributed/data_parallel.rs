//! Data parallelism: every rank computes the gradients of its rows, and all get the mean.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use phynexus::{
    DType, Error as EngineError, Tensor,
    distributed::Group,
    graph::GradientReducer,
    op::{CollectiveKind, Combine, Loss},
    schedule::capture::is_recording,
    text::show_shape,
};

use crate::{Result, nn::Parameter};

/// What errors name.
const OP: &str = "DataParallel";

/// How gradients are combined.
#[derive(Clone, Debug)]
pub struct DataParallelOptions {
    /// Gradients are reduced in buckets of about this many bytes, the last layers first.
    pub bucket_bytes: usize,
    /// The dtype in which gradients travel, if it is not their own: `float16` or `bfloat16`.
    pub compression: Option<DType>,
    /// Allows losses that do not depend on every parameter. Parameters that no rank used keep their gradients.
    pub find_unused: bool,
    /// How the user sets `find_unused`, for errors, if that is possible.
    pub find_unused_setting: Option<&'static str>,
}

impl Default for DataParallelOptions {
    fn default() -> DataParallelOptions {
        DataParallelOptions {
            bucket_bytes: 25 << 20,
            compression: None,
            find_unused: false,
            find_unused_setting: None,
        }
    }
}

/// Averages the gradients of a network's parameters over the ranks of a group, at the end of every backward pass.
///
/// A gradient that was collected before, such as while [paused](DataParallel::set_paused), is averaged with the new one:
/// accumulated gradients need one reduction.
pub struct DataParallel {
    group: Arc<Group>,
    names: Vec<String>,
    parameters: Vec<Parameter>,
    /// The numbers of the parameters of each bucket. All are of one dtype and device.
    buckets: Vec<Vec<usize>>,
    options: DataParallelOptions,
    paused: AtomicBool,
}

impl DataParallel {
    /// Begins to average the gradients of these parameters, of which those of rank 0 become those of all ranks. Frozen
    /// ones are only copied. The caller keeps the result: gradients are averaged as long as it lives.
    ///
    /// # Errors
    /// If the ranks' parameters differ in names, shapes or dtypes, or a rank cannot be reached.
    pub fn new(
        named: &[(String, Parameter)],
        group: &Arc<Group>,
        options: DataParallelOptions,
    ) -> Result<Arc<DataParallel>> {
        if let Some(dtype) = options.compression.filter(|dtype| !matches!(dtype, DType::F16 | DType::BF16)) {
            let hint = "gradients are compressed to float16 or bfloat16";
            return Err(EngineError::dtype(OP, &[dtype], hint).into());
        }
        check_equal(named, group)?;
        broadcast(named.iter().map(|(_, parameter)| parameter), group)?;
        let trainable = named.iter().filter(|(_, parameter)| parameter.is_trainable());
        let (names, parameters): (Vec<String>, Vec<Parameter>) = trainable.cloned().unzip();
        let buckets = buckets(&parameters, options.bucket_bytes);
        let paused = AtomicBool::new(false);
        let all =
            Arc::new(DataParallel { group: group.clone(), names, parameters, buckets, options, paused });
        let reducer: Arc<dyn GradientReducer> = Arc::new(Reducer(Arc::downgrade(&all)));
        for (number, parameter) in all.parameters.iter().enumerate() {
            parameter.leaf()?.set_reducer(Some((reducer.clone(), number)))?;
        }
        Ok(all)
    }

    /// Whether backward passes leave gradients as they are, to accumulate them: `no_sync` in PyTorch.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    /// Averages gradients in their buckets. Those that this rank lacks count as what it has collected, or as zeros.
    fn average(&self, gradients: &[Option<Tensor>]) -> phynexus::Result<Vec<(Tensor, Tensor)>> {
        let mut averaged = Vec::with_capacity(gradients.len());
        for bucket in &self.buckets {
            let mut leaves = Vec::with_capacity(bucket.len());
            let mut flat = Vec::with_capacity(bucket.len());
            for &number in bucket {
                let leaf = self.parameters[number].collector().map_err(callback)?;
                let own = match &gradients[number] {
                    Some(gradient) => gradient.clone(),
                    None => leaf.grad().map_or_else(|| leaf.detach()?.zeros_like(), Ok)?,
                };
                flat.push(own.reshape(&[own.len()])?);
                leaves.push(leaf);
            }
            let flat = Tensor::cat(&flat.iter().collect::<Vec<_>>(), 0)?;
            let dtype = flat.dtype();
            // Divided first, so that a sum of 16-bit numbers stays in their range.
            let share = flat.mul_scalar(1.0 / self.group.size() as f64)?;
            let share = share.to_dtype(self.options.compression.unwrap_or(dtype))?;
            let sum = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
            let mean = share.collective(sum, &self.group)?.to_dtype(dtype)?;
            let mut start = 0;
            for leaf in leaves {
                let part = mean.narrow(0, start, leaf.len())?;
                start += leaf.len();
                averaged.push((leaf.clone(), part.reshape(leaf.shape())?));
            }
        }
        Ok(averaged)
    }

    /// Whether any rank has a gradient of each parameter.
    fn used_anywhere(&self, gradients: &[Option<Tensor>]) -> phynexus::Result<Vec<bool>> {
        let is_used = |(parameter, gradient): (&Parameter, &Option<Tensor>)| -> phynexus::Result<u8> {
            // A gradient may have been collected while reductions were paused.
            let collected = parameter.collector().map_err(callback)?.grad();
            Ok(u8::from(gradient.is_some() || collected.is_some()))
        };
        let mut used: Vec<u8> =
            self.parameters.iter().zip(gradients).map(is_used).collect::<phynexus::Result<_>>()?;
        self.group.transport().all_reduce(&mut used, DType::U8, Combine::Max)?;
        Ok(used.into_iter().map(|used| used == 1).collect())
    }

    fn refuse_unused(&self, gradients: &[Option<Tensor>]) -> phynexus::Result<()> {
        let names = self.names.iter().zip(gradients);
        let unused: Vec<&str> =
            names.filter(|(_, gradient)| gradient.is_none()).map(|(name, _)| name.as_str()).collect();
        if unused.is_empty() {
            return Ok(());
        }
        let others = match unused.len() {
            count @ 6.. => format!(" and {} more", count - 5),
            _ => String::new(),
        };
        let setting = self.options.find_unused_setting.map(|name| format!("pass {name}, or "));
        Err(EngineError::Argument {
            op: OP,
            message: format!(
                "the loss of rank {} does not depend on {}{others}: {}freeze parameters that no loss uses",
                self.group.rank(),
                unused[..unused.len().min(5)].join(", "),
                setting.unwrap_or_default()
            ),
        })
    }

    fn reduce(&self, given: Vec<(usize, Tensor, Tensor)>) -> phynexus::Result<Vec<(Tensor, Tensor)>> {
        let mut gradients: Vec<Option<Tensor>> = vec![None; self.parameters.len()];
        for (number, _, gradient) in given {
            gradients[number] = Some(gradient);
        }
        if !self.options.find_unused {
            self.refuse_unused(&gradients)?;
        } else if is_recording() {
            let message = "which parameters are used is found anew in each step, which a recording cannot do: record a \
                           loss that depends on every parameter, and do not allow unused ones";
            return Err(EngineError::argument(OP, message));
        }
        let used = match self.options.find_unused {
            true => self.used_anywhere(&gradients)?,
            false => vec![true; gradients.len()],
        };
        let averaged = self.average(&gradients)?;
        let order = self.buckets.iter().flatten();
        let averaged: Vec<_> = averaged
            .into_iter()
            .zip(order)
            .filter(|(_, number)| used[**number])
            .map(|(pair, _)| pair)
            .collect();
        if !is_recording() {
            // Now, because every rank must run the reductions in this order, whatever it reads next.
            Tensor::evaluate_all(&averaged.iter().map(|(_, gradient)| gradient).collect::<Vec<_>>())?;
        }
        Ok(averaged)
    }
}

/// What the leaves hold: it does not keep the parameters alive.
struct Reducer(Weak<DataParallel>);

impl GradientReducer for Reducer {
    fn is_active(&self) -> bool {
        self.0.upgrade().is_some_and(|all| all.group.size() > 1 && !all.paused.load(Ordering::Acquire))
    }

    fn reduce(&self, gradients: Vec<(usize, Tensor, Tensor)>) -> phynexus::Result<Vec<(Tensor, Tensor)>> {
        match self.0.upgrade() {
            Some(all) => all.reduce(gradients),
            None => Ok(gradients.into_iter().map(|(_, leaf, gradient)| (leaf, gradient)).collect()),
        }
    }
}

fn callback(error: crate::Error) -> EngineError {
    match error {
        crate::Error::Engine(error) => error,
        other => EngineError::Callback(Arc::new(other)),
    }
}

/// Gives every rank rank 0's values. Those of rank 0 stay as they are, also if another rank ends meanwhile, unless this
/// is recorded.
///
/// # Errors
/// If a rank cannot be reached.
pub fn broadcast<'a>(parameters: impl Iterator<Item = &'a Parameter>, group: &Group) -> Result<()> {
    let parameters: Vec<&Parameter> = parameters.collect();
    let values = parameters.iter().map(|parameter| {
        parameter.tensor().detach()?.collective(CollectiveKind::Broadcast { root: 0 }, group)
    });
    let values: Vec<Tensor> = values.collect::<phynexus::Result<_>>()?;
    if !is_recording() {
        Tensor::evaluate_all(&values.iter().collect::<Vec<_>>())?;
        if group.rank() == 0 {
            // On a GPU the results are only submitted, and undefined if a rank does not come.
            return Ok(());
        }
    }
    for (parameter, value) in parameters.into_iter().zip(values) {
        let value = if parameter.is_trainable() { value.with_grad()? } else { value };
        parameter.set(value)?;
    }
    Ok(())
}

/// Divides parameters into buckets, the last ones first, because their gradients are ready first. The first bucket is
/// small, so that its reduction begins early.
fn buckets(parameters: &[Parameter], bytes: usize) -> Vec<Vec<usize>> {
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    let mut room = bytes.min(1 << 20);
    let mut kind = None;
    for (number, parameter) in parameters.iter().enumerate().rev() {
        let tensor = parameter.tensor();
        let own = Some((tensor.dtype(), tensor.device().name()));
        let size = tensor.len() * tensor.dtype().size();
        match buckets.last_mut() {
            Some(bucket) if own == kind && size <= room => {
                bucket.push(number);
                room -= size;
            }
            last => {
                room = if last.is_some() { bytes } else { room };
                buckets.push(vec![number]);
                room = room.saturating_sub(size);
            }
        }
        kind = own;
    }
    buckets
}

/// Checks that every rank has the same parameters.
fn check_equal(named: &[(String, Parameter)], group: &Group) -> Result<()> {
    let text = |(name, parameter): &(String, Parameter)| {
        let tensor = parameter.tensor();
        format!("{name} {} {}", tensor.dtype(), show_shape(tensor.shape()))
    };
    let own: Vec<String> = named.iter().map(text).collect();
    let mut first = own.join("\n").into_bytes();
    let mut length = (first.len() as u64).to_le_bytes();
    group.transport().broadcast(&mut length, 0)?;
    first.resize(u64::from_le_bytes(length) as usize, 0);
    group.transport().broadcast(&mut first, 0)?;
    let first = String::from_utf8_lossy(&first).into_owned();
    let others: Vec<&str> = first.lines().collect();
    if own.iter().map(String::as_str).eq(others.iter().copied()) {
        return Ok(());
    }
    let at = own.iter().zip(&others).take_while(|(own, other)| own == *other).count();
    let show = |list: Option<&str>| list.map_or("nothing more".to_owned(), |text| format!("`{text}`"));
    Err(EngineError::Collective {
        op: OP,
        rank: group.rank(),
        size: group.size(),
        message: format!(
            "rank 0 has other parameters: parameter {at} is {} there and {} here: build the same network on every rank",
            show(others.get(at).copied()),
            show(own.get(at).map(String::as_str)),
        ),
    }
    .into())
}
