//! Steps with the same kernel share its machine code.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use super::{
    Driver, NotCompiled,
    family::{Choice, Families, Relation, arguments},
    heap::{GpuBlock, Heap},
};
use crate::{Result, hash::FastMap, kernel::loops::Kernel};

/// So many sizes of a product of panels get machine code of their own before its sizes become arguments.
const OWN_PRODUCTS: usize = 8;

/// Kernels compiled, or loaded from the disk, by all devices of this process.
static COMPILED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of kernels that GPUs have compiled, or loaded from the disk, since the start of the process.
pub fn compiled_kernels() -> u64 {
    COMPILED.load(Ordering::Relaxed)
}

/// The compiled kernels that steps hold, and the families of their plans.
pub(super) struct Modules<D: Driver> {
    known: Mutex<Known<D>>,
    pub(super) families: Families<D::Module>,
}

/// A compiled kernel.
pub(super) struct Compiled<D: Driver> {
    /// The kernel as it is launched.
    pub(super) kernel: Arc<Kernel>,
    pub(super) module: Arc<D::Module>,
    /// The memory of its last buffer, if some of its numbers are arguments.
    pub(super) sizes: Option<GpuBlock<D>>,
}

impl<D: Driver> Compiled<D> {
    /// Returns whether its numbers are lost.
    pub(super) fn is_lost(&self) -> bool {
        self.sizes.as_ref().is_some_and(GpuBlock::is_lost)
    }
}

struct Known<D: Driver> {
    /// Kernels with all numbers built in.
    constant: Shared<D>,
    /// Kernels some of whose numbers are arguments.
    variable: Shared<D>,
}

/// Compiled kernels that steps hold.
struct Shared<D: Driver> {
    compiled: FastMap<Arc<Kernel>, Weak<Compiled<D>>>,
    /// Above this many entries, those that are gone are removed.
    sweep_at: usize,
}

impl<D: Driver> Shared<D> {
    fn new() -> Shared<D> {
        Shared { compiled: FastMap::default(), sweep_at: 1024 }
    }

    fn find(&self, kernel: &Kernel) -> Option<Arc<Compiled<D>>> {
        self.compiled.get(kernel).and_then(Weak::upgrade).filter(|compiled| !compiled.is_lost())
    }

    fn insert(&mut self, kernel: Arc<Kernel>, compiled: &Arc<Compiled<D>>) {
        if self.compiled.len() >= self.sweep_at {
            self.compiled.retain(|_, compiled| compiled.strong_count() > 0);
            self.sweep_at = 2 * self.compiled.len() + 1024;
        }
        self.compiled.insert(kernel, Arc::downgrade(compiled));
    }
}

impl<D: Driver> Modules<D> {
    pub(super) fn new() -> Modules<D> {
        let known = Known { constant: Shared::new(), variable: Shared::new() };
        Modules { known: Mutex::new(known), families: Families::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Known<D>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernel, compiled if necessary. If two threads compile the same kernel at once, one result is
    /// discarded. `relation` is the plan that it belongs to.
    pub(super) fn get(
        &self,
        heap: &Arc<Heap<D>>,
        kernel: Kernel,
        relation: Option<Relation>,
    ) -> Result<Arc<Compiled<D>>> {
        heap.driver.accept(&kernel).map_err(|e| heap.not_compiled(e))?;
        let kernel = Arc::new(kernel);
        let varies =
            |relation: &Relation| self.families.is_repeated(*relation, &kernel) || relation.has_former();
        let varying = relation.filter(varies);
        // Later plans compare their kernels with those of the first one, wherever it has them from.
        if let Some(relation) = relation.filter(|_| varying.is_none()) {
            self.families.note(relation, &kernel);
        }
        let known = self.lock();
        let found = known.constant.find(&kernel);
        let found = found.or_else(|| varying.and_then(|_| known.variable.find(&kernel)));
        drop(known);
        if let Some(compiled) = found {
            return Ok(compiled);
        }
        if let Some(relation) = varying {
            if let Some(compiled) = self.variable(heap, &kernel, relation)? {
                let compiled = Arc::new(compiled);
                self.lock().variable.insert(kernel, &compiled);
                return Ok(compiled);
            }
            self.families.note(relation, &kernel);
        }
        let source = heap.driver.print(&kernel).map_err(|e| heap.not_compiled(e))?;
        let module = Arc::new(compile(heap, &kernel, &source).map_err(|e| heap.not_compiled(e))?);
        let compiled = Arc::new(Compiled { kernel: kernel.clone(), module, sizes: None });
        self.lock().constant.insert(kernel, &compiled);
        Ok(compiled)
    }

    /// Returns the kernel with numbers as arguments, if an earlier plan of its family has one like it.
    fn variable(
        &self,
        heap: &Arc<Heap<D>>,
        kernel: &Kernel,
        relation: Relation,
    ) -> Result<Option<Compiled<D>>> {
        if kernel.buffers.len() >= heap.driver.target().limits.bindings {
            return Ok(None);
        }
        let print = |kernel: &Kernel| {
            let mut variable = heap.driver.print_variable(&kernel.with_sizes(1))?;
            // Some languages do not write these in the source.
            variable.skeleton += &format!("{:?} {:?}", kernel.block(), kernel.shared);
            Some(variable)
        };
        let Some(variable) = print(kernel) else { return Ok(None) };
        // Products of panels compute addresses in each step, which takes divisions if sizes are arguments. Where groups
        // wait for each other, that takes longer.
        let own = if kernel.has_panels() && !kernel.has_grid_barriers() { OWN_PRODUCTS } else { 0 };
        let (module, numbers) = match self.families.choose(relation, &variable, own, print) {
            Choice::Alone => return Ok(None),
            Choice::Known(module, numbers) => (module, numbers),
            Choice::New(places) => {
                let Some(numbers) = arguments(&places, &variable.values) else { return Ok(None) };
                let source = variable.source(&places);
                let sized = kernel.with_sizes(numbers.len());
                let module = match compile(heap, &sized, &source) {
                    Ok(module) => Arc::new(module),
                    // With its numbers built in, the compiler may accept it.
                    Err(NotCompiled::Refused(_)) => {
                        self.families.refuse(relation, variable.skeleton);
                        return Ok(None);
                    }
                    Err(NotCompiled::Failed(error)) => return Err(error),
                };
                self.families.add(relation, variable, places, &module);
                (module, numbers)
            }
        };
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let sizes = GpuBlock::new(heap, bytes.len())?;
        heap.write(sizes.slice(0, bytes.len())?.0, 0, &bytes)?;
        let kernel = Arc::new(kernel.with_sizes(numbers.len()));
        Ok(Some(Compiled { kernel, module, sizes: Some(sizes) }))
    }
}

fn compile<D: Driver>(
    heap: &Heap<D>,
    kernel: &Kernel,
    source: &str,
) -> std::result::Result<D::Module, NotCompiled> {
    COMPILED.fetch_add(1, Ordering::Relaxed);
    heap.compiled(|| heap.driver.compile(kernel, source))
}
