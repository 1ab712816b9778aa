//! plugin-sdk
