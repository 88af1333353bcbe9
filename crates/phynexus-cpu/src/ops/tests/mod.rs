//! All operations against plain references.

mod moving;
mod ordering;
mod updating;
