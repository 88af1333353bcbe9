//! Faults of a device: typed errors, and nothing else is harmed.
