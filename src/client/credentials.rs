//! Tokens and passwords: the text itself, or a function that returns the current one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

/// Returns a token or password when one is needed: at each connect, and whenever the broker asks for a fresh one.
pub type SecretSupplier = Callback<(), String>;

/// A token or password. `Debug` never shows it.
#[derive(Clone)]
pub enum Secret {
    /// The text itself.
    Text(String),
    /// A function that is called each time.
    Supplier(SecretSupplier),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// A function that is called each time.
    pub fn supplier(supply: impl Fn() -> Result<String> + Send + Sync + 'static) -> Self {
        Self::Supplier(Callback::new(move |()| supply()))
    }

    /// The current text. A supplier gets `limit` to return it.
    pub(super) async fn get(&self, limit: Duration) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Supplier(supplier) => supplier.call((), limit).await,
        }
    }
}

/// A function of the application that may block. One that hangs holds up neither the engine, nor name resolution, nor
/// the functions of other clients: each call has a thread of its own, and while one has not returned there is no other.
pub struct Callback<A, R> {
    function: Arc<dyn Fn(A) -> Result<R> + Send + Sync>,
    busy: Arc<AtomicBool>,
}

impl<A, R> std::fmt::Debug for Callback<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}

impl<A, R> Clone for Callback<A, R> {
    fn clone(&self) -> Self {
        Self { function: Arc::clone(&self.function), busy: Arc::clone(&self.busy) }
    }
}

impl<A: Send + 'static, R: Send + 'static> Callback<A, R> {
    /// A callback that calls `function`.
    pub fn new(function: impl Fn(A) -> Result<R> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), busy: Arc::default() }
    }

    /// Calls it and waits at most `limit` for the result.
    pub(super) async fn call(&self, argument: A, limit: Duration) -> Result<R> {
        let late = |what: &str| {
            let text = format!(
                "the function that supplies the token, password or authentication data {what} {limit:?}: give it a \
                 time limit of its own"
            );
            Error::new(ErrorKind::Timeout, text)
        };
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(late("was called before and has not returned for more than"));
        }
        let (done, result) = oneshot::channel();
        let function = Arc::clone(&self.function);
        let free = Free(Arc::clone(&self.busy));
        let call = move || {
            let result = function(argument);
            drop(free);
            let _ = done.send(result);
        };
        std::thread::Builder::new().name("penstock-callback".into()).spawn(call)?;
        match tokio::time::timeout(limit, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Error::new(
                ErrorKind::Authentication,
                "the function that supplies the token, password or authentication data panicked: fix it so that it \
                 returns a value or an error",
            )),
            Err(_) => Err(late("has not returned within")),
        }
    }
}

/// Allows the next call when this one ends, with a panic too.
struct Free(Arc<AtomicBool>);

impl Drop for Free {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_supplier_that_hangs_ends_in_time_and_is_not_called_again_meanwhile() {
        let (release, held) = mpsc::channel::<()>();
        let (called, calls) = mpsc::channel();
        let (called, held) = (std::sync::Mutex::new(called), std::sync::Mutex::new(held));
        let secret = Secret::supplier(move || {
            called.lock().unwrap().send(()).unwrap();
            let _ = held.lock().unwrap().recv();
            Ok("fresh".into())
        });
        for _ in 0..3 {
            let error = run(secret.get(Duration::from_millis(20))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        assert_eq!(calls.try_iter().count(), 1, "a hanging function is called once");
        drop(release);
        let text = loop {
            // The first call is about to return.
            match run(secret.get(Duration::from_secs(10))) {
                Ok(text) => break text,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert_eq!(text, "fresh");
    }

    #[test]
    fn a_supplier_that_panics_is_an_error_and_may_be_called_again() {
        let secret = Secret::supplier(|| panic!("as the test wants"));
        for _ in 0..2 {
            let error = run(secret.get(Duration::from_secs(10))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Authentication);
        }
    }
}
