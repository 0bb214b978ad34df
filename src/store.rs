//! What must survive a restart.
#[derive(Debug, Clone)]
pub struct Store;
