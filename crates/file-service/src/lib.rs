//! file-service
