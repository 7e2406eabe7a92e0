//! What only MQTT has: its producer, its options, its reason codes.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use crate::client::mqtt::options::{
    Authenticator, ClientOptions, ConsumerOptions, OfflinePolicy, ProducerOptions,
};
use crate::client::mqtt::outbox::OutboxOptions;
use crate::client::mqtt::{Client, Outgoing, Producer};
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::packet::{RetainHandling, SubscribeOptions, Will};
use crate::mqtt::topic::{self, Filter};
use crate::mqtt::{Properties, Property, QoS, Reason, Version};
use crate::python::convert::{Fields, Payload, py_result, raise, secret, tls};
use crate::python::frame::FrameRows;
use crate::python::outbox::{Outbox, Waiting};
use crate::python::promise::Door;
use crate::python::sender::{RowRef, Sender, Sink, pairs};

/// The members of the Python side's enumeration, by code.
static REASON_CODES: PyOnceLock<Vec<Option<Py<PyAny>>>> = PyOnceLock::new();

/// Registers the enumeration of reason codes.
#[pyfunction]
pub(super) fn set_reason_codes(py: Python<'_>, codes: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut table: Vec<Option<Py<PyAny>>> = Vec::new();
    table.resize_with(256, || None);
    for &reason in Reason::ALL {
        table[usize::from(reason.code())] = Some(codes.call1((reason.code(),))?.unbind());
    }
    let _ = REASON_CODES.set(py, table);
    Ok(())
}

/// A reason as the Python side knows it.
pub(super) fn reason_code(py: Python<'_>, reason: Reason) -> PyResult<Py<PyAny>> {
    let known = REASON_CODES.get(py).and_then(|table| table[usize::from(reason.code())].as_ref());
    match known {
        Some(code) => Ok(code.clone_ref(py)),
        None => Ok(reason.code().into_pyobject(py)?.into_any().unbind()),
    }
}

/// Whether a message of `topic` is for `filter`, a filter of MQTT, shared or not (4.7).
#[pyfunction]
pub(super) fn topic_matches(py: Python<'_>, filter: &str, topic: &str) -> PyResult<bool> {
    let filter = py_result(py, Filter::parse(filter))?;
    py_result(py, topic::check_name(topic))?;
    Ok(filter.matches(topic))
}

fn invalid(py: Python<'_>, text: impl Into<String>) -> PyErr {
    raise(py, &Error::new(ErrorKind::InvalidArgument, text))
}

fn qos(py: Python<'_>, value: u8) -> PyResult<QoS> {
    QoS::from_bits(value).ok_or_else(|| invalid(py, format!("qos is {value}; it may be 0, 1 or 2")))
}

/// Options of a client.
pub(super) fn client_options(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let py = options.py();
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    let versions = [
        ("auto", None),
        ("5", Some(Version::V5)),
        ("3.1.1", Some(Version::V3_1_1)),
        ("3.1", Some(Version::V3_1)),
    ];
    fields.word("version", &versions, &mut to.version)?;
    to.client_id = fields.text("client_id")?.unwrap_or_default();
    fields.flag("clean_start", &mut to.clean_start)?;
    if let Some(expiry) = fields.raw("session_expiry")? {
        // More than fits is for ever.
        to.session_expiry = expiry.extract::<f64>()?.min(f64::from(u32::MAX)) as u32;
        to.keep_session = to.session_expiry > 0;
    } else if !to.clean_start {
        to.session_expiry = u32::MAX;
        to.keep_session = true;
    }
    if let Some(seconds) = fields.raw("keep_alive")? {
        to.keep_alive = seconds.extract::<f64>()?.ceil().min(f64::from(u16::MAX)) as u16;
    }
    to.username = fields.text("username")?;
    to.password = secret(&fields, "password")?;
    to.will = match fields.raw("will")? {
        None => None,
        Some(will) => Some(will_of(py, will.cast::<PyDict>()?)?),
    };
    for (name, value) in fields.pairs("connect_properties")? {
        to.properties.push(Property::User(name.into(), value.into()));
    }
    let mut response_information = false;
    fields.flag("request_response_information", &mut response_information)?;
    if response_information {
        to.properties.push(Property::RequestResponseInformation(true));
    }
    let authenticator = fields.raw("authenticator")?.map(Bound::unbind);
    to.authentication = match (fields.text("authentication_method")?, authenticator) {
        (Some(method), Some(callable)) => Some((method, authenticator_of(callable))),
        (None, None) => None,
        _ => return Err(invalid(py, "authentication_method and authenticator belong together")),
    };
    fields.seconds("connect_timeout", &mut to.connect_timeout)?;
    fields.seconds("operation_timeout", &mut to.operation_timeout)?;
    fields.seconds("max_backoff", &mut to.max_backoff)?;
    for (name, into) in [
        ("max_inflight", &mut to.max_inflight),
        ("receive_maximum", &mut to.receive_maximum),
        ("topic_alias_maximum", &mut to.topic_alias_maximum),
    ] {
        if let Some(value) = fields.raw(name)? {
            *into = value.extract()?;
        }
    }
    fields.size("max_packet_size", &mut to.max_packet_size)?;
    fields.size("memory_limit", &mut to.memory_limit)?;
    fields.size("receive_buffer", &mut to.receive_buffer)?;
    let policies = [
        ("reject", OfflinePolicy::Reject),
        ("drop_oldest", OfflinePolicy::DropOldest),
        ("spill", OfflinePolicy::Spill),
    ];
    fields.word("offline", &policies, &mut to.offline)?;
    if let Some(path) = fields.text("outbox")? {
        let mut outbox = OutboxOptions::new(path);
        if let Some(limit) = fields.raw("outbox_limit")? {
            outbox.max_bytes = limit.extract()?;
        }
        to.outbox = Some(outbox);
        if fields.raw("session_expiry")?.is_none() {
            // What is in flight comes once only while the broker has the session.
            to.session_expiry = u32::MAX;
        }
    }
    if to.offline == OfflinePolicy::Spill && to.outbox.is_none() {
        return Err(invalid(py, "offline=\"spill\" keeps publications on disk: say where by outbox=PATH"));
    }
    to.tls = tls(&fields)?;
    if let Some(alpn) = fields.text("tls_alpn")? {
        to.tls_alpn = Some(alpn).filter(|alpn| !alpn.is_empty());
    }
    to.ws_headers = fields.pairs("ws_headers")?;
    if to.client_id.is_empty() && !to.clean_start {
        return Err(invalid(py, "clean_start=False takes up a session by its client_id: give one"));
    }
    let old = matches!(to.version, Some(Version::V3_1 | Version::V3_1_1));
    if old && (to.authentication.is_some() || !to.properties.is_empty()) {
        return Err(invalid(py, "connect_properties and authentication need version=\"5\""));
    }
    if to.version == Some(Version::V3_1) {
        let long = to.client_id.chars().count() > 23;
        if long {
            return Err(invalid(py, "MQTT 3.1 has client ids of 1 to 23 characters"));
        }
    }
    if to.client_id.is_empty() && to.version != Some(Version::V5) {
        // 3.x servers need not make one up.
        to.client_id = crate::client::mqtt::random_client_id();
    }
    Ok(to)
}

fn will_of(py: Python<'_>, will: &Bound<'_, PyDict>) -> PyResult<Will> {
    let fields = Fields(will);
    let topic = fields.text("topic")?.ok_or_else(|| invalid(py, "a will needs a topic"))?;
    py_result(py, topic::check_name(&topic))?;
    let mut retain = false;
    fields.flag("retain", &mut retain)?;
    let level = fields.raw("qos")?.map_or(Ok(0), |level| level.extract())?;
    let mut properties = message_properties(py, &fields)?;
    if let Some(delay) = fields.raw("delay")? {
        properties.push(Property::WillDelayInterval(delay.extract::<f64>()? as u32));
    }
    Ok(Will {
        qos: qos(py, level)?,
        retain,
        properties,
        topic: topic.into(),
        payload: fields.bytes("payload")?.unwrap_or_default().into(),
    })
}

/// Calls `callable(data)` on whatever thread asks; that thread may wait.
fn authenticator_of(callable: Py<PyAny>) -> Authenticator {
    Arc::new(move |data| {
        let answer = Python::try_attach(|py| {
            let data = data.map(|data| PyBytes::new(py, data));
            callable.call1(py, (data,)).and_then(|answer| answer.extract::<Option<Vec<u8>>>(py)).map_err(
                |e| {
                    // The exception's type says enough; its text may hold the secret.
                    Error::new(
                        ErrorKind::Authentication,
                        format!("the authenticator failed: {}", e.get_type(py)),
                    )
                },
            )
        });
        let ending = || Err(Error::new(ErrorKind::Authentication, "the interpreter is ending"));
        answer.unwrap_or_else(ending).map(Option::unwrap_or_default)
    })
}

/// Options of a producer.
pub(super) fn producer_options(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let fields = Fields(options);
    let mut to = ProducerOptions::default();
    if let Some(level) = fields.raw("qos")? {
        to.qos = qos(options.py(), level.extract()?)?;
    }
    fields.flag("retain", &mut to.retain)?;
    fields.size("max_pending", &mut to.max_pending)?;
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer_options(
    py: Python<'_>,
    filters: &[String],
    group: &str,
    options: &Bound<'_, PyDict>,
) -> PyResult<ConsumerOptions> {
    let fields = Fields(options);
    let mut to = SubscribeOptions::qos(QoS::AtLeastOnce);
    if let Some(level) = fields.raw("qos")? {
        to.qos = qos(py, level.extract()?)?;
    }
    fields.flag("no_local", &mut to.no_local)?;
    fields.flag("retain_as_published", &mut to.retain_as_published)?;
    let handlings = [
        ("always", RetainHandling::Always),
        ("if_new", RetainHandling::IfNew),
        ("never", RetainHandling::Never),
    ];
    fields.word("retain_handling", &handlings, &mut to.retain_handling)?;
    let mut auto_ack = false;
    fields.flag("auto_ack", &mut auto_ack)?;
    if to.no_local && !group.is_empty() {
        return Err(invalid(py, "no_local does not go together with a shared subscription"));
    }
    let filter = |text: &String| {
        let text = if group.is_empty() { text.clone() } else { format!("$share/{group}/{text}") };
        Ok((py_result(py, Filter::parse(text))?, to))
    };
    Ok(ConsumerOptions { filters: filters.iter().map(filter).collect::<PyResult<_>>()?, auto_ack })
}

/// What a client of MQTT counts.
pub(super) fn stats(client: &Client, into: &Bound<'_, PyDict>) -> PyResult<()> {
    into.set_item("connected", client.is_connected())?;
    if let Some(outbox) = client.outbox() {
        into.set_item("outbox_messages", outbox.messages)?;
        into.set_item("outbox_bytes", outbox.bytes)?;
        into.set_item("outbox_refused", outbox.refused)?;
        into.set_item("outbox_expired", outbox.expired)?;
        into.set_item("outbox_last_refusal", outbox.last_refusal.map(|error| error.to_string()))?;
    }
    if let Some(server) = client.server() {
        into.set_item("client_id", server.client_id)?;
        into.set_item("session_present", server.session_present)?;
        into.set_item("response_information", server.response_information)?;
        into.set_item("receive_maximum", server.limits.receive_maximum)?;
        into.set_item("maximum_qos", server.limits.maximum_qos as u8)?;
        into.set_item("maximum_packet_size", server.limits.maximum_packet_size)?;
        into.set_item("topic_alias_maximum", server.limits.topic_alias_maximum)?;
        into.set_item("retain_available", server.limits.retain_available)?;
        into.set_item("shared_subscription_available", server.limits.shared_subscription)?;
    }
    Ok(())
}

/// Properties of a message or a will, in the order of their identifiers.
fn message_properties(py: Python<'_>, fields: &Fields<'_, '_>) -> PyResult<Properties> {
    let mut properties = Properties::new();
    let mut text = false;
    fields.flag("is_text", &mut text)?;
    if text {
        properties.push(Property::PayloadFormatIndicator(true));
    }
    if let Some(seconds) = fields.raw("message_expiry")? {
        properties.push(Property::MessageExpiryInterval(seconds.extract::<f64>()? as u32));
    }
    if let Some(text) = fields.text("content_type")? {
        properties.push(Property::ContentType(text.into()));
    }
    if let Some(text) = fields.text("response_topic")? {
        py_result(py, topic::check_name(&text))?;
        properties.push(Property::ResponseTopic(text.into()));
    }
    if let Some(data) = fields.bytes("correlation_data")? {
        properties.push(Property::CorrelationData(Bytes::from(data)));
    }
    if let Some(pairs) = fields.raw("properties")? {
        for (name, value) in user_properties(&pairs)? {
            properties.push(Property::User(name.into(), value.into()));
        }
    }
    Ok(properties)
}

/// A mapping, or pairs of text in which a name may be repeated.
fn user_properties(value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    if let Ok(mapping) = value.cast::<PyDict>() {
        return pairs(Some(mapping));
    }
    value.extract().map_err(|_| PyTypeError::new_err("properties map text to text, or are pairs of text"))
}

/// A publisher of one topic.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct MqttProducer(Sender<Producer>);

impl MqttProducer {
    pub(super) fn new(producer: Producer, outbox: Arc<Outbox>, door: Door) -> Self {
        Self(Sender::new(producer, outbox, door))
    }

    fn push(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        extras: Option<&Bound<'_, PyDict>>,
        waiting: Waiting,
    ) -> PyResult<()> {
        let payload = Payload::of(payload)?;
        let mut message = Outgoing { payload: payload.bytes(), ..Outgoing::default() };
        let topic;
        if let Some(extras) = extras {
            let fields = Fields(extras);
            topic = fields.text("topic")?;
            message.topic = topic.as_deref();
            if let Some(level) = fields.raw("qos")? {
                message.qos = Some(qos(py, level.extract()?)?);
            }
            message.retain = fields.raw("retain")?.map(|retain| retain.extract()).transpose()?;
            message.properties = message_properties(py, &fields)?;
        }
        self.0.push(py, waiting, |native, park| native.push(&message, park))
    }
}

/// The key of a message is its topic.
impl Sink for Producer {
    fn slots(&self) -> usize {
        self.slots()
    }

    fn push_keyed<'a>(
        &self,
        messages: impl Iterator<Item = (&'a [u8], Option<&'a str>)>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let message = |(payload, topic)| Outgoing { payload, topic, ..Outgoing::default() };
        self.push_many(&mut messages.map(message), false, each)
    }

    fn push_row(&self, row: &RowRef<'_>) -> Result<usize> {
        let properties = row.properties.iter();
        let message = Outgoing {
            payload: row.payload,
            topic: row.key,
            properties: properties
                .map(|(n, v)| Property::User(n.as_str().into(), v.as_str().into()))
                .collect(),
            ..Outgoing::default()
        };
        self.push(&message, false)
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[pymethods]
impl MqttProducer {
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.sink(py)?.topic().to_owned())
    }

    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.sink(py)?.pending())
    }

    #[pyo3(signature = (payload, extras=None))]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        extras: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let (waiting, pending) = self.0.waiting(py)?;
        self.push(py, payload, extras, waiting)?;
        Ok(pending)
    }

    #[pyo3(signature = (payload, extras=None))]
    fn send_nowait(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        extras: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.push(py, payload, extras, Waiting::Nobody(1))
    }

    #[pyo3(signature = (payloads, topics=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        topics: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.0.send_many(py, payloads, topics, "topics")
    }

    fn send_rows(&self, py: Python<'_>, rows: &FrameRows) -> PyResult<Py<PyAny>> {
        self.0.send_rows(py, rows)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.flush(py)
    }

    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.close(py)
    }
}
