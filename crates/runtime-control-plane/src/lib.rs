//! runtime-control-plane
