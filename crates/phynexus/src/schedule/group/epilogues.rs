//! Decides which elementwise kernels become the epilogue of a library operation. An epilogue reads each element of the
//! operation's result once, at its own position, while the operation still holds it.

use std::rc::Rc;

use smallvec::SmallVec;

use super::{Epilogue, FusionGroup, FusionGroupId, Grouper, Home, stores_once};
use crate::{
    Result,
    hash::FastSet,
    kernel::{
        index::{Index, Ranges},
        view::{self, Coordinates},
    },
    op::{Op, ir::Id},
    shape::contiguous_strides,
};

/// The maximum number of nodes searched for a library operation.
const FARTHEST: usize = 64;

impl Grouper<'_> {
    /// Returns whether the device can run an epilogue with this node's operation.
    fn takes_epilogue(&self, id: Id) -> bool {
        let node = self.ir.node(id);
        // An epilogue may store in place. An operation that can fail on its data must run before anything is stored in
        // place.
        let fails = matches!(node.op, Op::Gather(_) | Op::Scatter(_));
        self.limits.answers.is_routine(self.ir, id)
            && !fails
            && !node.is_empty()
            && (self.limits.epilogue)(node)
    }

    /// Finds the library operation whose epilogue could store this node. The node must follow from the operation
    /// element by element, and no other input of the node may depend on it.
    pub(super) fn epilogue_of(&self, id: Id) -> Result<Option<Id>> {
        let node = self.ir.node(id);
        if node.is_empty() {
            return Ok(None);
        }
        let kernel = FusionGroup { ranges: Ranges::of(&node.shape), ..FusionGroup::default() };
        // Nodes to visit. Those before `next` are done.
        let mut nodes: SmallVec<[(Id, Rc<Coordinates>); 16]> = SmallVec::new();
        nodes.push((id, kernel.ranges.coordinates().into()));
        let mut next = 0;
        let mut sources: SmallVec<[Id; 8]> = SmallVec::new();
        let mut found: Option<Id> = None;
        while let Some((at, coordinates)) = nodes.get(next).cloned() {
            let node = self.ir.node(at);
            next += 1;
            if next > FARTHEST {
                return Ok(None);
            }
            let mut look = |input: Id, coordinates: Rc<Coordinates>| {
                let read = (input, coordinates);
                if !nodes.contains(&read) {
                    nodes.push(read);
                }
            };
            let stored = at != id && (self.stored[at as usize] || !self.readers[at as usize].is_empty());
            match &node.op {
                Op::Reduce(_) => return Ok(None),
                // The result is read at two different places.
                _ if found == Some(at) => return Ok(None),
                _ if self.takes_epilogue(at) && stores_once(&kernel, &node.shape, &coordinates) => {
                    // The later of two library operations waits for the earlier one.
                    sources.extend(found.map(|other| other.min(at)));
                    found = found.max(Some(at));
                }
                op if op.is_view() => {
                    let input = node.inputs[0];
                    let shape = &self.ir.node(input).shape;
                    look(
                        input,
                        view::through(op, shape, &node.shape, &coordinates, &kernel.ranges)?.0.into(),
                    );
                }
                op if (op.is_elementwise() || *op == Op::Contiguous && at == id) && !stored => {
                    node.inputs.iter().for_each(|&input| look(input, coordinates.clone()));
                }
                _ => sources.push(at),
            }
        }
        let legal = |&library: &Id| !sources.iter().any(|&s| self.depends(s, library));
        Ok(found.filter(legal))
    }

    /// Returns whether node `id` is `on` or depends on it.
    fn depends(&self, id: Id, on: Id) -> bool {
        // Operands have smaller ids than their users.
        let mut seen: FastSet<Id> = FastSet::default();
        let mut stack: SmallVec<[Id; 16]> = SmallVec::from_slice(&[id]);
        while let Some(id) = stack.pop() {
            if id == on {
                return true;
            }
            if id > on && seen.insert(id) {
                stack.extend(self.ir.node(id).inputs.iter().copied());
            }
        }
        false
    }

    /// Merges library operations with the kernels that can be their epilogues.
    pub(super) fn form_epilogues(&mut self) {
        self.leaves_of = vec![SmallVec::new(); self.groups.len()];
        for &leaf in &self.ir.leaves {
            for u in &self.uses[leaf as usize] {
                let leaves = &mut self.leaves_of[u.group as usize];
                if leaves.last() != Some(&leaf) {
                    leaves.push(leaf);
                }
            }
        }
        let mut absorbed = vec![false; self.groups.len()];
        for id in (0..self.ir.nodes.len() as Id).rev() {
            if let Home::Stored(library) = self.homes[id as usize]
                && self.takes_epilogue(id)
                && let Some((kernel, coordinates)) = self.find_epilogue(id, library)
            {
                self.join_epilogue(id, library, kernel, coordinates);
                absorbed[library as usize] = true;
            }
        }
        self.drop_groups(&absorbed);
    }

    /// Finds a kernel that can run as the epilogue of this operation, and the coordinates at which it reads the result.
    fn find_epilogue(&self, id: Id, library: FusionGroupId) -> Option<(FusionGroupId, Rc<Coordinates>)> {
        let node = self.ir.node(id);
        let uses = &self.uses[id as usize];
        let readers = &self.groups[library as usize].readers;
        // The operation also stores its bare result then.
        let stores_both = |kernel| self.stored[id as usize] || others_than(kernel, readers).next().is_some();
        let fits = |kernel: FusionGroupId, coordinates: &Coordinates| {
            let group = &self.groups[kernel as usize];
            uses.iter().filter(|u| u.group == kernel).count() == 1
                && group.library.is_none()
                && group.columns.is_none()
                && !self.updates(kernel, node.len())
                && (!stores_both(kernel) || group.roots.iter().all(|(root, _)| self.are_of_one_stage(*root, id)))
                && stores_once(group, &node.shape, coordinates)
                && self.bindings(kernel) + node.inputs.len() <= self.limits.binding_limit
                // A path from the operation through another kernel back to this one would be a cycle once they are
                // merged.
                && !self.reaches(others_than(kernel, readers), kernel)
        };
        let found = uses.iter().find(|u| !u.masked && fits(u.group, &u.coordinates))?;
        Some((found.group, found.coordinates.clone()))
    }

    /// Returns whether no other step reads what the kernel stores, and it can store in place over a leaf of `elements`
    /// elements. Parameter updates are of this kind. They run together, after every reader of the parameter.
    fn updates(&self, kernel: FusionGroupId, elements: usize) -> bool {
        self.groups[kernel as usize].readers.is_empty()
            && self.leaves_of[kernel as usize].iter().any(|leaf| {
                let slot = self.ir.leaves.binary_search(leaf);
                self.ir.node(*leaf).len() == elements && slot.is_ok_and(self.limits.donatable)
            })
    }

    /// An upper bound on the buffers that a kernel reads and stores. The result of its library operation counts once.
    fn bindings(&self, kernel: FusionGroupId) -> usize {
        let group = &self.groups[kernel as usize];
        let writers = group.writers.iter().map(|&writer| &self.groups[writer as usize]);
        let sources = writers.filter(|g| g.readers.contains(&kernel));
        let stored: usize = sources.map(|g| g.roots.len() + usize::from(g.library.is_some())).sum();
        self.leaves_of[kernel as usize].len() + stored + group.roots.len()
    }

    /// Makes the kernel the operation's epilogue. It iterates over the result's axes. It also stores the bare result if
    /// another step reads that.
    fn join_epilogue(
        &mut self,
        id: Id,
        library: FusionGroupId,
        kernel: FusionGroupId,
        coordinates: Rc<Coordinates>,
    ) {
        let node = self.ir.node(id);
        let strides = contiguous_strides(&node.shape);
        let ranges = Ranges::of(&node.shape);
        let element = view::flat(&ranges.coordinates(), &strides, 0);
        let readers = std::mem::take(&mut self.groups[library as usize].readers);
        let group = &mut self.groups[kernel as usize];
        // Each range of the kernel is a digit of the element's flat index.
        let digits = view::flat(&coordinates, &strides, 0).strides(group.ranges.len());
        let digits = digits.map(|(_, strides)| strides).unwrap_or_default();
        let replacements: Coordinates = (group.ranges.0.iter().zip(&digits))
            .map(|(&extent, &stride)| match extent {
                1 => Index::default(),
                _ => element.quotient(stride, &ranges).remainder(extent as i64, &ranges),
            })
            .collect();
        group.library = Some(id);
        let others = readers.iter().any(|&reader| reader != kernel);
        if others || self.stored[id as usize] {
            group.roots.push((id, coordinates.clone()));
        }
        group.epilogue = Some(Epilogue { ranges, replacements, coordinates });
        self.homes[id as usize] = Home::Stored(kernel);
        for reader in readers {
            self.add_edge(kernel, reader);
        }
        for writer in std::mem::take(&mut self.groups[library as usize].writers) {
            let readers = &mut self.groups[writer as usize].readers;
            if readers.contains(&library) {
                readers.retain(|reader| *reader != library && *reader != kernel);
                self.add_edge(writer, kernel);
            }
        }
    }

    /// Removes the marked groups and renumbers the rest.
    fn drop_groups(&mut self, dropped: &[bool]) {
        let mut next = 0;
        let renamed: Vec<FusionGroupId> = (dropped.iter())
            .map(|&dropped| {
                next += FusionGroupId::from(!dropped);
                next.wrapping_sub(1)
            })
            .collect();
        let mut dropped = dropped.iter();
        self.groups.retain(|_| dropped.next() != Some(&true));
        for group in &mut self.groups {
            group.readers.iter_mut().for_each(|reader| *reader = renamed[*reader as usize]);
        }
        for home in &mut self.homes {
            if let Home::Stored(group) = home {
                *group = renamed[*group as usize];
            }
        }
    }
}

fn others_than(group: FusionGroupId, groups: &[FusionGroupId]) -> impl Iterator<Item = FusionGroupId> {
    groups.iter().copied().filter(move |&other| other != group)
}
