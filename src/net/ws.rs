//! MQTT over WebSocket, for both sides, as a byte stream for the driver.
//!
//! MQTT's bytes are sent in binary messages whose boundaries have no meaning; a text message ends
//! the connection (MQTT 5.0 section 6). The peers agree on the subprotocol `mqtt`, or on `mqttv3.1`
//! from the time before MQTT 3.1.1.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, StatusCode, Uri};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::socket::is_end;
use crate::tls;
use crate::url::Address;
use forebay_base::error::{Error, ErrorKind, Result};

/// Path of the broker's listener. `/` is also accepted, because many clients send no other path,
/// and so is a slash at the end.
pub const PATH: &str = "/mqtt";
/// Subprotocols, the preferred one first.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];
/// Limit on the bytes of one message.
const MESSAGE: usize = 64 << 10;
/// Read buffer of a connection. The library allocates it at once, and idle connections should be
/// cheap.
const READ_BUFFER: usize = 4 << 10;

/// Headers that the handshake sets itself, and those of a body, which a handshake lacks.
const OWN_HEADERS: [&str; 7] = [
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "content-length",
    "transfer-encoding",
];

/// A WebSocket as a stream of bytes.
#[derive(Debug)]
pub struct WebSocket<S> {
    inner: WebSocketStream<S>,
    /// Rest of the last message.
    rest: Bytes,
}

/// The URL of a handshake. Characters that no path has are percent-encoded, and a default port is
/// left out, as servers and signatures of URLs expect it. `query` is used as it is.
pub fn url(tls: bool, address: &Address, path: &str, query: Option<&str>) -> Result<String> {
    let (scheme, default) = if tls { ("wss", 443) } else { ("ws", 80) };
    let authority = address.to_string();
    let authority = match authority.strip_suffix(&format!(":{default}")) {
        Some(host) if address.port == default => host,
        _ => &authority,
    };
    let mut url = format!("{scheme}://{authority}");
    let path = if path.is_empty() { PATH } else { path };
    let is_escape = |at: usize| {
        let digits = path.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    for (at, byte) in path.bytes().enumerate() {
        let is_of_paths = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte);
        if is_of_paths || byte == b'%' && is_escape(at) {
            url.push(byte.into());
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    if let Some(query) = query {
        let query = query.strip_prefix('?').unwrap_or(query);
        if !query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            let text = "ws_query has a space, a #, or a character that is not ASCII: percent-encode it";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        url.push('?');
        url.push_str(query);
    }
    Ok(url)
}

/// Checks the additional headers of a handshake. Errors name the header and never show its value.
pub fn check_headers(headers: &[(String, String)]) -> Result<()> {
    headers.iter().try_for_each(|(name, value)| header(name, value).map(drop))
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue)> {
    let bad = |why: &str| Error::new(ErrorKind::InvalidArgument, format!("ws_headers: {name:?} {why}"));
    let parsed: HeaderName = name.parse().map_err(|_| bad("is not the name of a header"))?;
    if OWN_HEADERS.contains(&parsed.as_str()) {
        return Err(bad("is set by the handshake: leave it out"));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| bad("has a value that no header can have"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

/// Client side of the handshake. `url` is that of [`url`]; TLS, if any, is in `stream`. A message
/// of more than `max_message` bytes ends the connection. `headers` replace those of the same name;
/// they are for proxies that authenticate.
pub async fn connect<S>(
    stream: S,
    url: &str,
    headers: &[(String, String)],
    max_message: usize,
) -> Result<WebSocket<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // A query may hold a secret.
    let shown = url.split('?').next().unwrap_or_default();
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidArgument, format!("{shown:?} is not a WebSocket URL: {error}"))
    };
    let uri: Uri = url.parse().map_err(|error| wrong(&error))?;
    let mut request = uri.into_client_request().map_err(|error| wrong(&error))?;
    let subprotocol = HeaderValue::from_static(SUBPROTOCOLS[0]);
    request.headers_mut().insert("Sec-WebSocket-Protocol", subprotocol);
    for (name, value) in headers {
        let (name, value) = header(name, value)?;
        request.headers_mut().insert(name, value);
    }
    let (inner, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config(max_message)))
        .await
        .map_err(|error| match &error {
            tungstenite::Error::Io(io) if tls::broken(io).kind() == ErrorKind::Tls => tls::broken(io),
            _ => {
                let hint = match &error {
                    tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete) => {
                        ". Does it speak WebSocket at this port?"
                    }
                    tungstenite::Error::Protocol(ProtocolError::HttparseError(_)) => {
                        ". The answer is not HTTP: a port of TLS needs wss://, and one of bare MQTT mqtt://"
                    }
                    tungstenite::Error::Http(answer) if answer.status() == StatusCode::NOT_FOUND => {
                        ". Brokers have MQTT over WebSocket at a path, often /mqtt"
                    }
                    _ => "",
                };
                Error::new(
                    ErrorKind::ConnectFailed,
                    format!("the WebSocket handshake with {shown} failed: {error}{hint}"),
                )
            }
        })?;
    Ok(WebSocket { inner, rest: Bytes::new() })
}

/// Broker side of the handshake. With `local_pages_only`, a browser is accepted only from pages of
/// this machine or of the address that it connects to. Otherwise any page on the web could use a
/// visitor's browser to reach a broker that listens on loopback without authentication.
pub async fn accept<S>(stream: S, local_pages_only: bool, max_message: usize) -> Result<WebSocket<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    #[expect(clippy::result_large_err, reason = "the library's signature")]
    let check = |request: &Request, response: Response| answer(request, response, local_pages_only);
    let inner = tokio_tungstenite::accept_hdr_async_with_config(stream, check, Some(config(max_message)))
        .await
        .map_err(|error| match error {
            tungstenite::Error::ConnectionClosed
            | tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete) => {
                Error::new(ErrorKind::Disconnected, "the peer closed the connection")
            }
            tungstenite::Error::Io(error) if is_end(error.kind()) => {
                Error::new(ErrorKind::Disconnected, format!("the connection broke: {error}"))
            }
            error => Error::protocol(format!("the WebSocket handshake failed: {error}")),
        })?;
    Ok(WebSocket { inner, rest: Bytes::new() })
}

fn config(max_message: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message))
}

#[expect(clippy::result_large_err, reason = "the library's signature")]
fn answer(
    request: &Request,
    mut response: Response,
    local_pages_only: bool,
) -> std::result::Result<Response, ErrorResponse> {
    let refuse = |status: StatusCode, why: &str| {
        let mut refusal = ErrorResponse::new(Some(format!("{why}\n")));
        *refusal.status_mut() = status;
        Err(refusal)
    };
    if ![PATH, ""].contains(&request.uri().path().trim_end_matches('/')) {
        return refuse(StatusCode::NOT_FOUND, "MQTT is at /mqtt");
    }
    let twice = |name: &str| request.headers().get_all(name).iter().nth(1).is_some();
    if twice("Origin") || twice("Host") {
        // A proxy may have checked the other of the two.
        return refuse(StatusCode::BAD_REQUEST, "a request may have one Host and one Origin header");
    }
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if local_pages_only && request.headers().contains_key("Origin") {
        let host = |uri: &str| uri.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let page = text("Origin").and_then(host).unwrap_or_default();
        let address = page.trim_matches(['[', ']']).parse::<IpAddr>();
        // Other names prove nothing: their owner may let them resolve to this machine.
        let here = page == "localhost"
            || address.is_ok_and(|ip| ip.is_loopback() || text("Host").and_then(host) == Some(page));
        if !here {
            return refuse(
                StatusCode::FORBIDDEN,
                "pages of other hosts may not use a broker without authentication",
            );
        }
    }
    let offered: Vec<&str> = request
        .headers()
        .get_all("Sec-WebSocket-Protocol")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let Some(chosen) = SUBPROTOCOLS.into_iter().find(|name| offered.contains(name)) else {
        return refuse(StatusCode::BAD_REQUEST, "the subprotocol is mqtt");
    };
    response.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(chosen));
    Ok(response)
}

fn failure(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
            io::ErrorKind::BrokenPipe.into()
        }
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => this.rest = bytes,
                Some(Ok(Message::Text(_))) => {
                    let why = "the peer sent a text message: MQTT requires binary messages";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                // Pings are answered by the library.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) => {
                    // The library has queued the answer (RFC 6455 section 5.5.1). A peer that takes
                    // no bytes gets none: this does not wait.
                    let _ = Pin::new(&mut this.inner).poll_flush(cx);
                    return Poll::Ready(Ok(()));
                }
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(failure(error))),
            }
        }
        let n = this.rest.len().min(buf.remaining());
        buf.put_slice(&this.rest[..n]);
        this.rest.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    /// Accepted bytes are sent only after a flush.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_ready(cx)).map_err(failure)?;
        let n = buf.len().min(MESSAGE);
        let message = Message::Binary(Bytes::copy_from_slice(&buf[..n]));
        Poll::Ready(Pin::new(&mut this.inner).start_send(message).map(|()| n).map_err(failure))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx).map_err(failure)
    }

    /// Sends a close frame and does not wait for the answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_close(cx)).map_err(failure)?;
        Pin::new(this.inner.get_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;

    use super::*;

    const URL: &str = "ws://broker.example:9001/mqtt";

    async fn pair() -> (WebSocket<DuplexStream>, WebSocket<DuplexStream>) {
        let (near, far) = duplex(1000);
        let (client, server) = tokio::join!(connect(near, URL, &[], 1 << 20), accept(far, true, 1 << 20));
        (client.unwrap(), server.unwrap())
    }

    async fn refusal(request: impl FnOnce(ClientRequestBuilder) -> ClientRequestBuilder, url: &str) -> u16 {
        let (near, far) = duplex(1000);
        let request = request(ClientRequestBuilder::new(url.parse().unwrap()));
        let (client, server) =
            tokio::join!(tokio_tungstenite::client_async(request, near), accept(far, true, 1 << 20));
        match client {
            Err(tungstenite::Error::Http(response)) => {
                assert!(server.is_err());
                response.status().as_u16()
            }
            Ok(_) => 101,
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn bytes_arrive_whatever_the_messages_that_carry_them() {
        let (mut client, mut server) = pair().await;
        let sent: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        let write = async {
            client.write_all(&sent).await.unwrap();
            client.flush().await.unwrap();
            client
        };
        let read = async {
            let mut got = vec![0; 300_000];
            server.read_exact(&mut got).await.unwrap();
            (server, got)
        };
        let (mut client, (mut server, got)) = tokio::join!(write, read);
        assert_eq!(got, sent);
        server.write_all(b"back").await.unwrap();
        server.shutdown().await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"back");
    }

    #[tokio::test]
    async fn a_text_message_ends_the_connection() {
        let (mut client, mut server) = pair().await;
        Pin::new(&mut client.inner).start_send(Message::text("hello")).unwrap();
        client.flush().await.unwrap();
        assert_eq!(server.read_u8().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_message_above_the_limit_ends_the_connection() {
        let (near, far) = duplex(100_000);
        let (client, server) = tokio::join!(connect(near, URL, &[], 1 << 20), accept(far, true, 1000));
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        client.write_all(&[0; 1001]).await.unwrap();
        client.flush().await.unwrap();
        assert_eq!(server.read_u8().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn the_handshake_needs_the_path_and_the_subprotocol() {
        let with = |name: &'static str| move |request: ClientRequestBuilder| request.with_sub_protocol(name);
        assert_eq!(refusal(with("mqtt"), URL).await, 101);
        assert_eq!(refusal(with("mqttv3.1"), "ws://broker.example/").await, 101);
        assert_eq!(refusal(with("mqtt"), "ws://broker.example/mqtt/").await, 101);
        assert_eq!(refusal(with("mqtt"), "ws://broker.example/mqtt/more").await, 404);
        assert_eq!(refusal(with("mqtt"), "ws://broker.example/other").await, 404);
        assert_eq!(refusal(with("amqp"), URL).await, 400);
        assert_eq!(refusal(|request| request, URL).await, 400);
    }

    #[tokio::test]
    async fn a_page_of_another_host_cannot_use_a_visitors_browser() {
        let from = |origin: &'static str| {
            move |request: ClientRequestBuilder| {
                request.with_sub_protocol("mqtt").with_header("Origin", origin)
            }
        };
        assert_eq!(refusal(from("http://localhost:3000"), URL).await, 101);
        assert_eq!(refusal(from("http://[::1]:3000"), URL).await, 101);
        assert_eq!(refusal(from("http://192.168.0.7"), "ws://192.168.0.7:9001/mqtt").await, 101);
        assert_eq!(refusal(from("http://192.168.0.8"), "ws://192.168.0.7:9001/mqtt").await, 403);
        assert_eq!(refusal(from("http://broker.example:9001"), URL).await, 403, "DNS rebinding");
        assert_eq!(refusal(from("https://evil.example"), URL).await, 403);
        assert_eq!(refusal(from("null"), URL).await, 403);
        // The first of two is not the one that counts: neither does.
        let two = |name: &'static str, value: &'static str| {
            move |request| from("http://localhost:3000")(request).with_header(name, value)
        };
        assert_eq!(refusal(two("Origin", "https://evil.example"), URL).await, 400);
        let hosts = |hosts: &[&str]| {
            let builder = Request::builder().uri("/mqtt").header("Sec-WebSocket-Protocol", "mqtt");
            let builder = hosts.iter().fold(builder, |builder, host| builder.header("Host", *host));
            let answered = answer(&builder.body(()).unwrap(), Response::new(()), false);
            answered.map_or_else(|refusal| refusal.status(), |response| response.status())
        };
        assert_eq!(hosts(&["localhost"]), StatusCode::OK);
        assert_eq!(hosts(&["localhost", "evil.example"]), StatusCode::BAD_REQUEST);
    }

    /// The request line and the headers of a handshake.
    async fn requested(url: &str, headers: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        let (near, far) = duplex(10_000);
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut seen = None;
        #[expect(clippy::result_large_err, reason = "the library's signature")]
        let check = |request: &Request, mut response: Response| {
            let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
            let all = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
            seen = Some((request.uri().to_string(), all.collect()));
            let chosen = request.headers()["sec-websocket-protocol"].clone();
            response.headers_mut().insert("sec-websocket-protocol", chosen);
            Ok(response)
        };
        let (client, server) = tokio::join!(
            connect(near, url, &headers, 1 << 20),
            tokio_tungstenite::accept_hdr_async_with_config(far, check, None)
        );
        client.unwrap();
        server.unwrap();
        seen.unwrap()
    }

    #[tokio::test]
    async fn headers_replace_those_of_the_handshake() {
        let values = |all: &[(String, String)], wanted: &str| -> Vec<String> {
            let of = all.iter().filter(|(name, _)| name == wanted);
            of.map(|(_, value)| value.clone()).collect()
        };
        let (line, all) = requested(URL, &[]).await;
        assert_eq!(line, "/mqtt");
        assert_eq!(values(&all, "host"), ["broker.example:9001"]);
        assert_eq!(values(&all, "sec-websocket-protocol"), ["mqtt"]);
        let own = [
            ("Host", "front.example"),
            ("sec-websocket-protocol", "mqttv3.1"),
            ("Authorization", "Bearer x"),
            ("Origin", "https://front.example"),
        ];
        let (_, all) = requested(URL, &own).await;
        for (name, value) in own {
            assert_eq!(values(&all, &name.to_lowercase()), [value], "{name}");
        }
    }

    #[test]
    fn headers_of_the_handshake_itself_are_refused_by_name() {
        let refusal = |name: &str, value: &str| {
            check_headers(&[(name.to_owned(), value.to_owned())]).unwrap_err().message().to_owned()
        };
        for name in ["Connection", "UPGRADE", "Sec-WebSocket-Key", "sec-websocket-version", "Content-Length"]
        {
            let text = refusal(name, "x");
            assert!(text.contains(&format!("{name:?} is set by the handshake")), "{text}");
        }
        assert!(refusal("two words", "x").contains("not the name"));
        let text = refusal("Authorization", "secret\r\nX: 1");
        assert!(text.contains("Authorization") && !text.contains("secret"), "{text}");
        assert!(check_headers(&[("X-Any".into(), "value".into())]).is_ok());
    }

    #[tokio::test]
    async fn the_url_of_a_handshake_has_no_default_port_and_its_path_is_encoded() {
        let at = |host: &str, port| Address { host: host.into(), port };
        let of = |tls, address: &Address, path: &str, query| url(tls, address, path, query).unwrap();
        assert_eq!(of(false, &at("h", 80), "", None), "ws://h/mqtt");
        assert_eq!(of(true, &at("h", 443), "/x", None), "wss://h/x");
        assert_eq!(of(true, &at("h", 80), "/x", None), "wss://h:80/x");
        assert_eq!(of(false, &at("::1", 80), "/", None), "ws://[::1]/");
        assert_eq!(of(false, &at("::80", 8080), "/", None), "ws://[::80]:8080/");
        let path = of(false, &at("h", 8080), "/a b/ü%2F%zz/\u{1}\"{#", Some("?a=b%20c&d=e/f?"));
        assert_eq!(path, "ws://h:8080/a%20b/%C3%BC%2F%25zz/%01%22%7B%23?a=b%20c&d=e/f?");
        let (line, _) = requested(&path, &[]).await;
        assert_eq!(line, "/a%20b/%C3%BC%2F%25zz/%01%22%7B%23?a=b%20c&d=e/f?");
        for bad in ["a b", "a#b", "ü", "a\r\nb"] {
            let error = url(false, &at("h", 80), "", Some(bad)).unwrap_err();
            assert!(error.message().contains("percent-encode") && !error.message().contains(bad), "{error}");
        }
        let (near, far) = duplex(1000);
        drop(far);
        let error = connect(near, "ws://h/mqtt?sig=secret", &[], 1000).await.unwrap_err();
        assert!(error.message().contains("ws://h/mqtt") && !error.message().contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn a_close_is_answered() {
        let (mut client, mut server) = pair().await;
        Pin::new(&mut client.inner).start_send(Message::Close(None)).unwrap();
        client.flush().await.unwrap();
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0, "the end of the stream");
        drop(server);
        let answer = std::future::poll_fn(|cx| Pin::new(&mut client.inner).poll_next(cx)).await;
        assert!(matches!(answer, Some(Ok(Message::Close(None)))), "{answer:?}");
    }
}
