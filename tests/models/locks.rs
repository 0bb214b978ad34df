//! Locks by whose use shuttle chooses which thread goes on, with the methods of parking_lot.

use std::sync::PoisonError;

use shuttle::sync;

#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
