//! Decides which views get a buffer and which are strided views of another node's buffer.

use smallvec::SmallVec;

use super::{FusionGroupId, Grouper, Home, LARGEST_COORDINATES, LARGEST_KERNEL};
use crate::{
    Result,
    kernel::index::Index,
    op::view::view_layout,
    op::{
        Op,
        ir::{Id, IrNode},
    },
    shape::Layout,
};

impl Grouper<'_> {
    /// Gives the operand a buffer, or makes it a view of one.
    pub(super) fn need_buffer(&mut self, operand: Id, reader: FusionGroupId) {
        let (base, layout) = self.view_of(operand);
        if base != operand {
            self.homes[operand as usize] = Home::View(base, layout);
        }
        self.readers[base as usize].push(reader);
    }

    fn can_be_stored(&self, id: Id) -> bool {
        !matches!(self.ir.node(id).op, Op::Constant(_) | Op::Iota(_))
    }

    /// Follows a chain of views back to the nearest node whose buffer can express the view with strides. Returns that
    /// node and the layout. The node is the end of the chain, or a view on the way that strides cannot express.
    fn view_of(&self, id: Id) -> (Id, Layout) {
        let mut chain: SmallVec<[Id; 8]> = SmallVec::new();
        let mut base = id;
        while self.ir.node(base).op.is_view() {
            chain.push(base);
            base = self.ir.node(base).inputs[0];
        }
        let mut layout = match self.leaf_layouts.get(&base) {
            Some(&layout) => layout.clone(),
            None => Layout::contiguous(&self.ir.node(base).shape),
        };
        if !self.can_be_stored(base) {
            return (id, Layout::contiguous(&self.ir.node(id).shape));
        }
        for &view in chain.iter().rev() {
            let node = self.ir.node(view);
            layout = view_layout(&node.op, &node.shape, &layout).unwrap_or_else(|| {
                base = view;
                Layout::contiguous(&node.shape)
            });
        }
        // If only part of such a view is needed, only that part is stored.
        match self.ir.node(base).op.is_view() && self.ir.node(base).len() > self.ir.node(id).len() {
            true => (id, Layout::contiguous(&self.ir.node(id).shape)),
            false => (base, layout),
        }
    }

    /// Places a view. It is computed where it is needed, unless it needs a buffer or is a strided view of another
    /// node's buffer.
    pub(super) fn assign_view(&mut self, id: Id) -> Result<()> {
        let i = id as usize;
        let node = self.ir.node(id);
        let uses = std::mem::take(&mut self.uses[i]);
        let mut stored_itself = !self.readers[i].is_empty();
        if self.stored[i] && !stored_itself {
            // If a library operation already reads the view from its base's buffer, that buffer exists anyway.
            let aliased = matches!(self.homes[i], Home::View(..));
            let (base, layout) = self.view_of(id);
            if base != id && (aliased || self.worth_aliasing(base, node)) {
                self.homes[i] = Home::View(base, layout);
                self.stored[base as usize] = true;
            } else {
                stored_itself = true;
            }
        }
        // Each view that strides cannot express doubles the size of an index. A number, repeated, has none.
        let is_number = || self.view_of(id).1.strides.iter().all(|&stride| stride == 0);
        stored_itself |= !is_number()
            && uses.iter().any(|u| {
                let size: usize = u.coordinates.iter().map(Index::size).sum();
                size > LARGEST_COORDINATES || self.groups[u.group as usize].size >= LARGEST_KERNEL
            });
        if !stored_itself {
            for u in uses {
                self.need_inputs(id, &u)?;
            }
            return Ok(());
        }
        let host = self.host(id, &uses)?;
        self.store_in(host, id, &uses)
    }

    /// Returns whether an output should be a view of its base's buffer rather than a copy. A view keeps that buffer
    /// alive.
    fn worth_aliasing(&self, base: Id, view: &IrNode) -> bool {
        let node = self.ir.node(base);
        !node.op.is_view() && (node.op == Op::Buffer || view.len() * 2 > node.len())
    }
}
