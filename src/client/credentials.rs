//! Tokens and passwords: the text itself, or a function that returns the current one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::logger;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_net::spawn_thread;
use forebay_net::url::{Protocol, ServiceUrl};
use tracing::warn;

/// Returns a token or password when one is needed: at each connect, and whenever the broker asks
/// for a fresh one. With an argument it is told that a server has refused that one, and what it
/// returns is not used.
pub type SecretSupplier = Callback<Option<Vec<u8>>, Vec<u8>>;

/// A token or password. `Debug` never shows it.
#[derive(Clone)]
pub enum Secret {
    /// The text itself.
    Text(String),
    /// The bytes themselves.
    Bytes(Vec<u8>),
    /// A function that is called each time, and whether it wants to know what was refused.
    Supplier(SecretSupplier, bool),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// A function that is called each time.
    pub fn supplier(supply: impl Fn() -> Result<String> + Send + Sync + 'static) -> Self {
        Self::Supplier(Callback::new(move |_| supply().map(String::into_bytes)), false)
    }

    /// Tells a supplier that a server has refused `secret`, or wants another one: it must not come
    /// from a cache again. A supplier gets `limit`.
    pub(super) async fn refused(&self, option: &str, secret: &[u8], limit: Duration) {
        if let Self::Supplier(supplier, true) = self {
            // The next call of it has the error.
            let _ = supplier.call(option, Some(secret.to_vec()), limit).await;
        }
    }

    /// The current text of an option. A supplier gets `limit` to return it.
    pub(super) async fn get(&self, option: &str, limit: Duration) -> Result<String> {
        let bytes = self.get_bytes(option, limit).await?;
        String::from_utf8(bytes).map_err(|_| {
            let text = format!("{option} is not UTF-8: only passwords of MQTT may be other bytes");
            Error::new(ErrorKind::Authentication, text)
        })
    }

    /// The current bytes of an option. A supplier gets `limit` to return them.
    pub(super) async fn get_bytes(&self, option: &str, limit: Duration) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Supplier(supplier, _) => {
                let secret = supplier.call(option, None, limit).await?;
                if secret.trim_ascii().is_empty() {
                    let text = format!("the function for {option} returned an empty secret");
                    return Err(Error::new(ErrorKind::Authentication, text));
                }
                Ok(secret)
            }
        }
    }
}

/// A function of the application that may block. One that hangs holds up neither the engine, nor
/// name resolution, nor the functions of other clients: each call has a thread of its own. While
/// one has not returned, others wait for their turn.
pub struct Callback<A, R> {
    function: Arc<dyn Fn(A) -> Result<R> + Send + Sync>,
    /// Held by the thread of a call.
    turn: Arc<Mutex<()>>,
}

impl<A, R> std::fmt::Debug for Callback<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}

impl<A, R> Clone for Callback<A, R> {
    fn clone(&self) -> Self {
        Self { function: Arc::clone(&self.function), turn: Arc::clone(&self.turn) }
    }
}

impl<A: Send + 'static, R: Send + 'static> Callback<A, R> {
    /// A callback that calls `function`.
    pub fn new(function: impl Fn(A) -> Result<R> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), turn: Arc::default() }
    }

    /// Calls it and waits at most `limit` for the result. Errors name the option that it is for.
    pub(super) async fn call(&self, option: &str, argument: A, limit: Duration) -> Result<R> {
        let late = |what: &str| {
            let text = format!("the function for {option} {what} {limit:?}: give it a time limit of its own");
            Error::new(ErrorKind::Timeout, text)
        };
        let deadline = Instant::now() + limit;
        let Ok(turn) = timeout_at(deadline, Arc::clone(&self.turn).lock_owned()).await else {
            return Err(late("was called before and has not returned within"));
        };
        let (done, result) = oneshot::channel();
        let function = Arc::clone(&self.function);
        let call = move || {
            let result = function(argument);
            // With a panic it is dropped too.
            drop(turn);
            let _ = done.send(result);
        };
        spawn_thread("forebay-callback", call)?;
        match timeout_at(deadline, result).await {
            Ok(Ok(result)) => result.map_err(|error| {
                Error::new(error.kind(), format!("the function for {option} failed: {}", error.message()))
            }),
            Ok(Err(_)) => Err(Error::new(
                ErrorKind::Authentication,
                format!("the function for {option} panicked: fix it so that it returns a value or an error"),
            )),
            Err(_) => Err(late("has not returned within")),
        }
    }
}

/// Parses the URL of a client of `protocol`; `wanted` tells what it should have been. Every client
/// begins here, so that each warns if its secret, described by `secret`, is about to be sent in
/// plain text to another machine.
pub(super) fn service_url(
    url: &str,
    protocol: Protocol,
    wanted: &str,
    secret: Option<&str>,
) -> Result<ServiceUrl> {
    let parsed = ServiceUrl::parse(url)?;
    if parsed.protocol != protocol {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{url:?} is not {wanted}")));
    }
    if let Some(secret) = secret {
        warn_if_plain(&parsed, secret);
    }
    Ok(parsed)
}

fn warn_if_plain(url: &ServiceUrl, what: &str) {
    let is_local = |host: &str| {
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    if let Some(address) = url.addresses.iter().find(|address| !is_local(&address.host))
        && !url.tls
    {
        warn!(
            target: logger::CREDENTIALS,
            "the {what} is sent to {} in plain text, for all on the way to read: use TLS",
            address.host,
        );
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
            let error = run(secret.get("token", Duration::from_millis(20))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        calls.recv_timeout(Duration::from_secs(60)).expect("it is called");
        assert_eq!(calls.try_iter().count(), 0, "a hanging function is called once");
        drop(release);
        assert_eq!(run(secret.get("token", Duration::from_secs(60))).unwrap(), "fresh");
    }

    #[test]
    fn connections_that_need_the_token_at_once_all_get_it() {
        let (release, held) = mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let secret = Secret::supplier(move || {
            let _ = held.lock().unwrap().recv();
            Ok("fresh".into())
        });
        run(async {
            let limit = Duration::from_secs(60);
            let (first, second) = (secret.get("token", limit), secret.get("token", limit));
            let answer = async {
                tokio::task::yield_now().await;
                drop(release);
            };
            let (first, second, ()) = tokio::join!(first, second, answer);
            assert_eq!((first.unwrap().as_str(), second.unwrap().as_str()), ("fresh", "fresh"));
        });
    }

    #[test]
    fn a_secret_of_bytes_is_no_text() {
        let limit = Duration::from_secs(60);
        for secret in [
            Secret::Bytes(b"\xff\0".to_vec()),
            Secret::Supplier(Callback::new(|_| Ok(b"\xff\0".to_vec())), false),
        ] {
            assert_eq!(run(secret.get_bytes("password", limit)).unwrap(), b"\xff\0");
            let error = run(secret.get("token", limit)).unwrap_err();
            assert!(error.kind() == ErrorKind::Authentication && !error.message().contains("255"), "{error}");
        }
        assert_eq!(run(Secret::Bytes(b"text".to_vec()).get("token", limit)).unwrap(), "text");
    }

    #[test]
    fn a_supplier_is_told_what_was_refused() {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let supply = move |refused: Option<Vec<u8>>| {
            seen.lock().unwrap().extend(refused);
            Ok(b"new".to_vec())
        };
        let (secret, limit) = (Secret::Supplier(Callback::new(supply), true), Duration::from_secs(60));
        assert_eq!(run(secret.get("token", limit)).unwrap(), "new");
        run(secret.refused("token", b"old", limit));
        assert_eq!(*told.lock().unwrap(), [b"old"]);
    }

    #[test]
    fn a_supplier_that_panics_is_an_error_and_may_be_called_again() {
        // The first panic of a process reads its code from the disk, which may be busy.
        let secret = Secret::supplier(|| panic!("as the test wants"));
        for _ in 0..2 {
            let error = run(secret.get("token", Duration::from_secs(60))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Authentication);
            assert!(error.message().starts_with("the function for token panicked"), "{error}");
        }
    }

    #[test]
    fn an_error_of_a_supplier_names_the_option() {
        let limit = Duration::from_secs(60);
        let failing = Secret::supplier(|| Err(Error::new(ErrorKind::Io, "no disk")));
        let error = run(failing.get("ws_query", limit)).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Io, "the function for ws_query failed: no disk")
        );
        for empty in ["", " \n"] {
            let error = run(Secret::supplier(|| Ok(empty.into())).get_bytes("password", limit)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Authentication);
            assert_eq!(error.message(), "the function for password returned an empty secret");
        }
    }
}
