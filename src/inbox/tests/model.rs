//! The inbox against a list.
