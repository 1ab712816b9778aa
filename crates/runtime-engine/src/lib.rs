//! runtime-engine
