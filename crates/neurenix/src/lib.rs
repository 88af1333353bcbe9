//! Neurenix.
