//! The status of the upstream's answer, of an error that it caused.

use super::CallError;

impl CallError {
    #[must_use]
    pub fn answered_with(mut self, status: u16) -> Self {
        self.0.http_status = Some(status);
        self
    }

    pub fn http_status(&self) -> Option<u16> {
        self.0.http_status
    }
}
