//! secret-manager
