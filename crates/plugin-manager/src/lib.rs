//! plugin-manager
