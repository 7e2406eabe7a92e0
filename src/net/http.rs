//! GET over HTTP/1.1, on the sockets and the TLS of this layer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::{Request, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower_service::Service;

use crate::tcp::Pacing;
use crate::tls::{self, FollowingConnector};
use crate::{Stream, connect};
use forebay_base::error::{Error, ErrorKind, Result};

/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(20);
/// Connections to one host that are kept.
const MAX_IDLE: usize = 4;

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Address to which a redirect leads.
    pub location: Option<String>,
    /// Body.
    pub body: Bytes,
}

/// A client, which keeps its connections for a while.
pub struct HttpClient {
    client: legacy::Client<Connector, Empty<Bytes>>,
    timeout: Duration,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpClient")
    }
}

impl HttpClient {
    /// A client that has `connect_timeout` for a connection and `timeout` for a whole request.
    /// Without `tls` it refuses `https`.
    pub fn new(tls: Option<Arc<FollowingConnector>>, connect_timeout: Duration, timeout: Duration) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(Connector { tls, timeout: connect_timeout });
        Self { client, timeout }
    }

    /// Gets `uri`. Redirects are left to the caller. A body of more than `limit` bytes is an error.
    pub async fn get(&self, uri: &str, headers: &[(&str, String)], limit: usize) -> Result<Response> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::InvalidArgument, format!("{what} of a request over HTTP cannot be sent"))
        };
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.parse().map_err(|_| wrong("the address"))?;
        for (name, value) in headers {
            let name: HeaderName = name.parse().map_err(|_| wrong("a header"))?;
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong("a header"))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| failed(uri, &error))?;
            let status = response.status().as_u16();
            let location =
                response.headers().get(LOCATION).and_then(|text| text.to_str().ok()).map(str::to_owned);
            let too_long = || Error::protocol(format!("the answer over HTTP has more than {limit} bytes"));
            if response.body().size_hint().lower() > limit as u64 {
                return Err(too_long());
            }
            let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return too_long();
                }
                Error::new(ErrorKind::Disconnected, format!("the answer over HTTP broke off: {error}"))
            })?;
            Ok(Response { status, location, body: body.to_bytes() })
        };
        tokio::time::timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no answer over HTTP within {:?}", self.timeout)))
        })
    }
}

/// The error of a request for `uri`: that of the connector, if it was the cause.
fn failed(uri: &str, error: &legacy::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let (mut last, mut hint) = (error.to_string(), "");
    while let Some(error) = cause {
        if let Some(own) = error.downcast_ref::<Error>() {
            return own.clone();
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>().map(tls::broken)
            && error.kind() == ErrorKind::Tls
        {
            return error;
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            hint = match (error.is_incomplete_message(), error.is_parse()) {
                (true, _) => ". Does it speak HTTP?",
                (_, true) => ". The answer is not HTTP: a port of TLS needs https://",
                _ => "",
            };
        }
        last = error.to_string();
        cause = error.source();
    }
    let server = uri.split('/').nth(2).unwrap_or_default();
    Error::new(ErrorKind::Disconnected, format!("the request over HTTP to {server} failed: {last}{hint}"))
}

/// Connects for [`legacy::Client`].
#[derive(Clone)]
struct Connector {
    tls: Option<Arc<FollowingConnector>>,
    timeout: Duration,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tls, timeout } = self.clone();
        Box::pin(async move {
            let secure = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let tls = match (secure, &tls) {
                (false, _) => None,
                // The connections to brokers report errors in the files.
                (true, Some(tls)) => Some(tls.get().await.0),
                (true, None) => return Err(Error::protocol("https is not part of this connection")),
            };
            connect(host, port, tls.as_ref(), Pacing::Kernel, timeout).await.map(TokioIo::new)
        })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: usize = 1000;

    /// Gets a page from a server that writes `answer` once it has a request, which is returned,
    /// too.
    async fn exchange(answer: &str) -> (Result<Response>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/a?b=c", listener.local_addr().unwrap());
        let answer = answer.to_owned();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(socket.read_u8().await.unwrap());
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let minute = Duration::from_secs(60);
        let client = HttpClient::new(None, minute, minute);
        let headers = [("authorization", "Bearer t".to_owned())];
        (client.get(&uri, &headers, LIMIT).await, server.await.unwrap())
    }

    #[tokio::test]
    async fn an_answer_has_status_location_and_body() {
        let (response, request) =
            exchange("HTTP/1.1 307 Moved\r\nLocation: http://b/x\r\nContent-Length: 2\r\n\r\n{}").await;
        let response = response.unwrap();
        assert_eq!((response.status, &response.body[..]), (307, &b"{}"[..]));
        assert_eq!(response.location.as_deref(), Some("http://b/x"));
        assert!(request.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nauthorization: Bearer t\r\n"), "{request}");
    }

    #[tokio::test]
    async fn what_a_peer_claims_or_leaves_out_is_an_error() {
        for (answer, kind) in [
            (format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40), ErrorKind::Protocol),
            (
                format!("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n{}", "x".repeat(1001)),
                ErrorKind::Protocol,
            ),
            (
                format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n",
                    "x".repeat(1001)
                ),
                ErrorKind::Protocol,
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort".to_owned(), ErrorKind::Disconnected),
            ("not HTTP at all\r\n\r\n".to_owned(), ErrorKind::Disconnected),
            (String::new(), ErrorKind::Disconnected),
        ] {
            let (response, _) = exchange(&answer).await;
            assert_eq!(response.unwrap_err().kind(), kind, "{answer:.60}");
        }
    }

    #[tokio::test]
    async fn silence_and_a_closed_port_are_errors_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let soon = Duration::from_millis(100);
        let client = HttpClient::new(None, soon, soon);
        assert_eq!(client.get(&uri, &[], LIMIT).await.unwrap_err().kind(), ErrorKind::Timeout);
        drop(listener);
        let refused = HttpClient::new(None, Duration::from_secs(60), Duration::from_secs(60));
        assert_eq!(refused.get(&uri, &[], LIMIT).await.unwrap_err().kind(), ErrorKind::ConnectFailed);
        let error = refused.get("https://127.0.0.1:1/", &[], LIMIT).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
