//! Lookups by requests to the web service of the brokers.
//!
//! Credentials are sent as headers. A redirect leads to another broker of the cluster, which needs
//! them as well; from `https` none is followed to `http`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{BufMut, Bytes, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::pulsar::connection::{Connection, Pool, credentials, refused as refuse};
use crate::pulsar::lookup::common::{MAX_REDIRECTS, Preferred, broker_address, partition_count};
use crate::pulsar::options::ClientOptions;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_net::http::HttpClient;
use forebay_net::url::ServiceUrl;
use forebay_pulsar::pattern::{Pattern, hash_of};
use forebay_pulsar::pb::command_get_topics_of_namespace::Mode;
use forebay_pulsar::schema::{SchemaInfo, Type};

/// Limits on answers, in bytes: a list of the topics of a namespace, a schema, and others.
const MAX_LIST: usize = 16 << 20;
const MAX_SCHEMA: usize = 2 << 20;
const MAX_ANSWER: usize = 64 << 10;

/// Requests at the same time, each of which may need a connection of its own.
const MAX_REQUESTS: usize = 16;

/// Characters that stay as they are in a part of a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Debug)]
pub(super) struct HttpLookup {
    options: ClientOptions,
    url: ServiceUrl,
    pool: Arc<Pool>,
    client: HttpClient,
    preferred: Preferred,
    turns: Semaphore,
}

impl HttpLookup {
    pub(super) fn new(options: ClientOptions, url: ServiceUrl, pool: Arc<Pool>) -> Self {
        let client = HttpClient::new(pool.tls(), options.connect_timeout, options.operation_timeout);
        let turns = Semaphore::new(MAX_REQUESTS);
        Self { options, url, pool, client, preferred: Preferred::default(), turns }
    }

    /// Asks for something that needs credentials, if anything does, and no permission.
    pub(super) async fn check(&self) -> Result<()> {
        // One that swallows everything leaves the others their time.
        match self.get_within::<Value>(self.options.connect_timeout, "admin/v2/clusters", MAX_ANSWER).await {
            Err(error) if matches!(error.kind(), ErrorKind::Authorization | ErrorKind::TopicNotFound) => {
                Ok(())
            }
            result => result.map(drop),
        }
    }

    pub(super) async fn broker(&self, topic: &str, spread: u64) -> Result<Arc<Connection>> {
        let listener = match &self.options.listener_name {
            Some(name) => format!("?listenerName={}", utf8_percent_encode(name, PLAIN)),
            None => String::new(),
        };
        let path = format!("lookup/v2/topic/{}{listener}", path_of(topic));
        let answer: Value = self.get(&path, MAX_ANSWER).await?;
        let names: &[&str] =
            if self.url.tls { &["brokerUrlTls", "brokerUrlSsl"] } else { &["brokerUrl", "nativeUrl"] };
        let named = names.iter().find_map(|name| answer[*name].as_str().filter(|url| !url.is_empty()));
        let address = broker_address(named, self.url.tls)?;
        self.pool.get(&address, None, spread).await
    }

    pub(super) async fn partitions(&self, topic: &str, create: bool) -> Result<u32> {
        let path = format!("admin/v2/{}/partitions?checkAllowAutoCreation={create}", path_of(topic));
        let count = self.get::<Value>(&path, MAX_ANSWER).await?["partitions"].as_u64();
        let count =
            count.ok_or_else(|| Error::protocol("the answer over HTTP has no number of partitions"))?;
        partition_count(u32::try_from(count).unwrap_or(u32::MAX))
    }

    pub(super) async fn schema(&self, topic: &str, version: Option<&[u8]>) -> Result<SchemaInfo> {
        let name = path_of(topic);
        let name = name.split_once('/').map_or("", |(_, rest)| rest);
        let mut path = format!("admin/v2/schemas/{name}/schema");
        if let Some(version) = version {
            let number = version.try_into().map(i64::from_be_bytes).map_err(|_| {
                Error::protocol("the version of the message's schema is not a number of 8 bytes")
            })?;
            path.push_str(&format!("/{number}"));
        }
        schema_of(topic, &self.get(&path, MAX_SCHEMA).await?)
    }

    pub(super) async fn topics(&self, namespace: &str) -> Result<Vec<String>> {
        self.names(namespace, Mode::All).await
    }

    pub(super) async fn matching(
        &self,
        pattern: &Pattern,
        hash: Option<&str>,
    ) -> Result<Option<Vec<String>>> {
        let mut names = self.names(pattern.namespace(), pattern.domain()).await?;
        names.sort_unstable();
        let is_known = hash.is_some_and(|hash| hash_of(names.iter().map(String::as_str)) == hash);
        Ok((!is_known).then_some(names))
    }

    async fn names(&self, namespace: &str, mode: Mode) -> Result<Vec<String>> {
        let mode = mode.as_str_name().to_ascii_uppercase();
        self.get(&format!("admin/v2/namespaces/{namespace}/topics?mode={mode}"), MAX_LIST).await
    }

    /// The answer of the first address that gives one, from JSON, within the operation timeout.
    async fn get<T: DeserializeOwned + Send>(&self, path: &str, limit: usize) -> Result<T> {
        self.get_within(Duration::MAX, path, limit).await
    }

    /// The same, with a limit for each address.
    async fn get_within<T: DeserializeOwned + Send>(
        &self,
        each: Duration,
        path: &str,
        limit: usize,
    ) -> Result<T> {
        let scheme = if self.url.tls { "https" } else { "http" };
        let asked = async {
            let _turn = self.turns.acquire().await;
            let headers = &self.headers().await?;
            let asked = self.preferred.first(&self.url, |address| async move {
                let uri = format!("{scheme}://{address}/{path}");
                let followed = tokio::time::timeout(each, self.followed(uri, headers, limit));
                let body = followed.await.unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Timeout, format!("no answer of {address} within {each:?}")))
                });
                match body.and_then(|body| parsed(&body)) {
                    // The other addresses would answer the same.
                    Err(error) if !error.retriable() && error.kind() != ErrorKind::Tls => Ok(Err(error)),
                    other => other.map(Ok),
                }
            });
            let answer = asked.await?;
            if answer.as_ref().is_err_and(|error: &Error| error.kind() == ErrorKind::Authentication)
                && let Some((_, shown)) = headers.iter().find(|(name, _)| *name == "authorization")
                && let Some(token) = shown.strip_prefix("Bearer ")
            {
                refuse(&self.options, token.as_bytes()).await;
            }
            answer
        };
        let time = self.options.operation_timeout;
        tokio::time::timeout(time, asked).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no answer over HTTP within {time:?}")))
        })
    }

    /// The answer of the broker to which redirects lead.
    async fn followed(
        &self,
        mut uri: String,
        headers: &[(&'static str, String)],
        limit: usize,
    ) -> Result<Bytes> {
        for hop in 0..=MAX_REDIRECTS {
            let response = match self.client.get(&uri, headers, limit).await {
                Err(error) if hop > 0 && error.kind() == ErrorKind::InvalidArgument => {
                    return Err(Error::protocol(
                        "a redirect over HTTP leads to an address that cannot be used",
                    ));
                }
                response => response?,
            };
            match response.status {
                200..=299 => return Ok(response.body),
                301 | 302 | 307 | 308 => uri = redirected(&uri, response.location.as_deref())?,
                status => return Err(refused(status, &response.body)),
            }
        }
        Err(Error::protocol(format!("the lookup was redirected {MAX_REDIRECTS} times")))
    }

    async fn headers(&self) -> Result<Vec<(&'static str, String)>> {
        let mut headers = vec![("accept", "application/json".to_owned())];
        let Some(credentials) = credentials(&self.options).await? else { return Ok(headers) };
        let secret = match credentials.method.as_str() {
            "token" => Some(format!("Bearer {}", String::from_utf8_lossy(&credentials.data))),
            // The certificate of the connection says all.
            "tls" => None,
            _ => Some(format!("Basic {}", BASE64.encode(&credentials.data))),
        };
        headers.extend(secret.map(|secret| ("authorization", secret)));
        headers.push(("x-pulsar-auth-method-name", credentials.method));
        Ok(headers)
    }
}

/// `domain/tenant/namespace/topic`.
fn path_of(topic: &str) -> String {
    let (domain, rest) = topic.split_once("://").unwrap_or(("persistent", topic));
    match rest.rsplit_once('/') {
        Some((namespace, local)) => format!("{domain}/{namespace}/{}", utf8_percent_encode(local, PLAIN)),
        None => format!("{domain}/{}", utf8_percent_encode(rest, PLAIN)),
    }
}

fn redirected(from: &str, location: Option<&str>) -> Result<String> {
    let location =
        location.ok_or_else(|| Error::protocol("a redirect over HTTP does not say where it leads"))?;
    let is_plain = location.starts_with("http://");
    if is_plain && from.starts_with("https://") {
        return Err(Error::protocol(
            "the lookup was redirected from https to http, where others could read the credentials",
        ));
    }
    if is_plain || location.starts_with("https://") {
        return Ok(location.to_owned());
    }
    let host = from.match_indices('/').nth(2).map_or(from.len(), |(at, _)| at);
    Ok(format!("{}/{}", &from[..host], location.trim_start_matches('/')))
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|_| {
        Error::protocol("the answer over HTTP is not as expected: is this the web service of Pulsar?")
    })
}

/// The error of a status. A refusal is final if it is Pulsar's, which gives a reason: others may be
/// of a gateway that has no broker for a moment.
fn refused(status: u16, body: &[u8]) -> Error {
    let body = serde_json::from_slice::<Value>(body).ok();
    let reason = body.as_ref().and_then(|body| body["reason"].as_str());
    let (kind, text) = match (status, reason) {
        (401, _) => (ErrorKind::Authentication, "the credentials are missing or were refused"),
        (403, Some(_)) => (ErrorKind::Authorization, "the role may not do this"),
        (404, Some(_)) => (ErrorKind::TopicNotFound, "there is no such topic, namespace or schema"),
        (405 | 409 | 412, Some(_)) => (ErrorKind::NotAllowed, "the broker does not allow this"),
        (403 | 404 | 405 | 408 | 409 | 412 | 500 | 502..=504, _) => {
            (ErrorKind::ServiceNotReady, "the broker is not ready")
        }
        (429, _) => (ErrorKind::TooManyRequests, "the broker has too many requests"),
        _ => (ErrorKind::Protocol, "an answer over HTTP has an unexpected status"),
    };
    let error = Error::new(kind, format!("{text} (HTTP status {status})"));
    match reason {
        Some(reason) => error.with_peer_text(reason),
        None => error,
    }
}

/// The schema in an answer.
fn schema_of(topic: &str, answer: &Value) -> Result<SchemaInfo> {
    let wrong = |what: &str| Error::protocol(format!("the schema over HTTP {what}"));
    let name = answer["type"].as_str().ok_or_else(|| wrong("has no type"))?;
    let kind = kind_of(name).ok_or_else(|| wrong("has an unknown type").with_peer_text(name))?;
    let text = answer["data"].as_str().unwrap_or_default();
    let data = match kind {
        Type::KeyValue => pair_of(text).ok_or_else(|| wrong("is not one of keys and values"))?,
        _ => Bytes::copy_from_slice(text.as_bytes()),
    };
    let properties = answer["properties"].as_object().into_iter().flatten();
    let properties = properties.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let name = topic.split_once("://").map_or(topic, |(_, name)| name).to_owned();
    Ok(SchemaInfo { name, kind, data, properties: properties.collect() })
}

/// The type with the name of Java's enumeration, in capitals with underscores.
fn kind_of(name: &str) -> Option<Type> {
    if name == "BOOLEAN" {
        return Some(Type::Bool);
    }
    let name = name.replace('_', "");
    (0..64)
        .filter_map(|number| Type::try_from(number).ok())
        .find(|kind| kind.as_str_name().eq_ignore_ascii_case(&name))
}

/// Definitions of key and value as the binary protocol has them: each behind its length. Those of
/// primitive types are empty.
fn pair_of(text: &str) -> Option<Bytes> {
    let both: Value = serde_json::from_str(text).ok()?;
    let mut out = BytesMut::new();
    for part in ["key", "value"] {
        let text = match both.get(part)? {
            Value::String(text) if text.is_empty() => String::new(),
            part => part.to_string(),
        };
        out.put_i32(i32::try_from(text.len()).ok()?);
        out.put_slice(text.as_bytes());
    }
    Some(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_topics_are_encoded_for_a_path() {
        assert_eq!(path_of("persistent://t/n/a b+c%ü"), "persistent/t/n/a%20b%2Bc%25%C3%BC");
    }

    #[test]
    fn redirects_are_followed_but_not_out_of_tls() {
        let from = "https://a:8443/lookup/x";
        assert_eq!(redirected(from, Some("https://b/y")).unwrap(), "https://b/y");
        assert_eq!(redirected(from, Some("/y?z")).unwrap(), "https://a:8443/y?z");
        assert_eq!(redirected("http://a/x", Some("https://b/y")).unwrap(), "https://b/y");
        for location in [None, Some("http://b/y")] {
            assert_eq!(redirected(from, location).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn schemas_are_those_of_the_binary_protocol() {
        let answer = serde_json::json!({"version": 3, "type": "LOCAL_DATE_TIME", "data": "", "properties": {"a": "b"}});
        let schema = schema_of("t", &answer).unwrap();
        assert_eq!((schema.kind, schema.properties), (Type::LocalDateTime, vec![("a".into(), "b".into())]));
        for (name, kind) in
            [("AVRO", Type::Avro), ("BOOLEAN", Type::Bool), ("PROTOBUF_NATIVE", Type::ProtobufNative)]
        {
            assert_eq!(kind_of(name), Some(kind));
        }
        let pair =
            serde_json::json!({"type": "KEY_VALUE", "data": r#"{"key": "", "value": {"type": "int"}}"#});
        assert_eq!(&schema_of("t", &pair).unwrap().data[..], b"\0\0\0\0\0\0\0\x0e{\"type\":\"int\"}");
        for (kind, data) in [("KEY_VALUE", "{}"), ("KEY_VALUE", "["), ("NEVER_HEARD_OF", "")] {
            let error = schema_of("t", &serde_json::json!({"type": kind, "data": data})).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn a_refusal_has_a_kind_and_the_reason() {
        for (status, kind) in [
            (401, ErrorKind::Authentication),
            (403, ErrorKind::Authorization),
            (404, ErrorKind::TopicNotFound),
            (412, ErrorKind::NotAllowed),
            (429, ErrorKind::TooManyRequests),
            (503, ErrorKind::ServiceNotReady),
            (418, ErrorKind::Protocol),
        ] {
            let error = refused(status, br#"{"reason": "why"}"#);
            assert_eq!((error.kind(), error.peer_text()), (kind, Some("why")));
        }
        for status in [403, 404, 405, 500] {
            let error = refused(status, b"<html>");
            assert_eq!((error.kind(), error.peer_text()), (ErrorKind::ServiceNotReady, None), "{status}");
        }
    }
}
