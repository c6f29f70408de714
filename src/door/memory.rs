//! Memory that all bodies share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes, to be handed out.
#[derive(Debug, Clone)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    free: AtomicUsize,
    returns: AtomicUsize,
}

/// A part of a [`Pool`]; it goes back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    pool: Pool,
    size: usize,
}

impl Pool {
    pub(super) fn of(bytes: usize) -> Self {
        Self(Arc::new(Inner {
            total: bytes,
            free: AtomicUsize::new(bytes),
            returns: AtomicUsize::new(0),
        }))
    }

    /// Bytes that nobody has.
    fn free(&self) -> usize {
        self.0.free.load(Ordering::Relaxed)
    }

    /// How often something came back: when this has changed, whoever waits may ask again.
    pub(super) fn returns(&self) -> usize {
        self.0.returns.load(Ordering::Relaxed)
    }

    /// A share of nothing yet.
    pub(super) fn share(&self) -> Share {
        Share {
            pool: self.clone(),
            size: 0,
        }
    }
}

impl Share {
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether something as large as this would fit into what nobody has, or into all there is.
    pub(super) fn could_hold(&self, all: usize) -> bool {
        self.pool.free() >= all.min(self.pool.0.total)
    }

    /// Grows by so much, or not at all.
    pub(super) fn grow(&mut self, by: usize) -> bool {
        let rest = self.pool.free().checked_sub(by);
        if let Some(rest) = rest {
            // One thread takes; nobody comes between.
            self.pool.0.free.store(rest, Ordering::Relaxed);
            self.size += by;
        }
        rest.is_some()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.size > 0 {
            self.pool.0.free.fetch_add(self.size, Ordering::Relaxed);
            self.pool.0.returns.fetch_add(1, Ordering::Relaxed);
        }
    }
}
