//! MQTT's options, from the dictionaries that the Python side has checked.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert::{Fields, name_of, py_result, raise, secret, tls, told};
use crate::exit::Call;
use crate::sender::pairs;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::options::Source;
use forebay_client::mqtt::options::{
    Authenticator, ClientOptions, ConsumerOptions, OfflinePolicy, ProducerOptions, SubscriptionOptions,
};
use forebay_client::mqtt::outbox::OutboxOptions;
use forebay_mqtt::packet::{Publish, SubscribeOptions, Will};
use forebay_mqtt::topic::{self, Filter};
use forebay_mqtt::{Properties, Property, QoS, Version};

fn invalid(py: Python<'_>, text: impl Into<String>) -> PyErr {
    raise(py, &Error::new(ErrorKind::InvalidArgument, text))
}

pub(super) fn qos(py: Python<'_>, value: u8) -> PyResult<QoS> {
    QoS::from_bits(value).ok_or_else(|| invalid(py, format!("qos is {value}: use 0, 1 or 2")))
}

/// Options of a client.
pub(super) fn client(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let py = options.py();
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    to.read(&fields)?;
    if let Some(expiry) = fields.raw("session_expiry")? {
        // Seconds beyond 32 bits mean that the session never expires.
        to.session_expiry = expiry.extract::<f64>()?.min(f64::from(u32::MAX)) as u32;
        to.keep_session = to.session_expiry > 0;
    } else if !to.clean_start {
        to.session_expiry = u32::MAX;
        to.keep_session = true;
    }
    if let Some(seconds) = fields.raw("keep_alive")? {
        to.keep_alive = seconds.extract::<f64>()?.ceil().min(f64::from(u16::MAX)) as u16;
    }
    to.password = secret(&fields, "password")?;
    to.ws_query = secret(&fields, "ws_query")?;
    to.will = match fields.raw("will")? {
        None => None,
        Some(will) => Some(will_of(py, will.cast::<PyDict>()?)?),
    };
    to.birth = match fields.raw("birth")? {
        None => None,
        Some(birth) => {
            let Will { qos, retain, properties, topic, payload } = will_of(py, birth.cast::<PyDict>()?)?;
            Some(Publish { qos, retain, properties, topic, payload, ..Publish::default() })
        }
    };
    if let Some(pairs) = fields.raw("connect_properties")? {
        for (name, value) in user_properties(&pairs)? {
            to.properties.push(Property::User(name.into(), value.into()));
        }
    }
    if fields.is_set("request_response_information")? {
        to.properties.push(Property::RequestResponseInformation(true));
    }
    to.authentication = authentication(py, &fields)?;
    read_outbox(py, &fields, &mut to)?;
    to.tls = tls(&fields)?;
    if to.client_id.is_empty() && !to.clean_start {
        return Err(invalid(py, "clean_start=False resumes the session of a client_id: give client_id too"));
    }
    check_version(py, &fields, &to)?;
    if to.client_id.is_empty() && to.version != Some(Version::V5) {
        // 3.x servers are not required to assign one.
        to.client_id = forebay_client::mqtt::random_client_id();
    }
    Ok(to)
}

/// The method of extended authentication, if there is one, with the callable for its steps.
fn authentication(py: Python<'_>, fields: &Fields<'_, '_>) -> PyResult<Option<(String, Authenticator)>> {
    let authenticator = fields.raw("authenticator")?.map(Bound::unbind);
    match (fields.text("authentication_method")?, authenticator) {
        (Some(method), Some(callable)) => Ok(Some((method, authenticator_of(callable)))),
        (None, None) => Ok(None),
        _ => Err(invalid(py, "authentication_method and authenticator must be given together")),
    }
}

/// Reads the options of the outbox, and checks those that depend on it.
fn read_outbox(py: Python<'_>, fields: &Fields<'_, '_>, to: &mut ClientOptions) -> PyResult<()> {
    if let Some(path) = fields.text("outbox")? {
        let mut outbox = OutboxOptions::new(path);
        if let Some(limit) = fields.raw("outbox_limit")? {
            outbox.max_bytes = limit.extract()?;
        }
        to.outbox = Some(outbox);
        if fields.raw("session_expiry")?.is_none() {
            // Messages in flight arrive exactly once only while the broker keeps the session.
            to.session_expiry = u32::MAX;
        }
    }
    if to.offline == OfflinePolicy::Spill && to.outbox.is_none() {
        return Err(invalid(
            py,
            "offline=\"spill\" keeps publications on disk: give the file with outbox=PATH",
        ));
    }
    if to.outbox.is_some() && to.birth.as_ref().is_some_and(|birth| birth.qos == QoS::ExactlyOnce) {
        return Err(invalid(py, "a birth message with QoS 2 would be in the outbox: give it QoS 0 or 1"));
    }
    Ok(())
}

/// Refuses options that the given version does not have, and a client id too long for it.
fn check_version(py: Python<'_>, fields: &Fields<'_, '_>, options: &ClientOptions) -> PyResult<()> {
    let old = matches!(options.version, Some(Version::V3_1 | Version::V3_1_1));
    if old {
        check_old(py, fields, options)?;
    }
    if options.version == Some(Version::V3_1) {
        let long = options.client_id.chars().count() > 23;
        if long {
            return Err(invalid(
                py,
                "client_id is longer than 23 characters, the limit of MQTT 3.1: shorten it, or use version=\"3.1.1\" or \"5\"",
            ));
        }
    }
    Ok(())
}

/// Refuses options that MQTT 3 does not have.
fn check_old(py: Python<'_>, fields: &Fields<'_, '_>, options: &ClientOptions) -> PyResult<()> {
    let names = ["session_expiry", "connect_properties", "authentication_method", "authenticator"];
    let mut of_5 = Vec::new();
    for name in names {
        if fields.raw(name)?.is_some() {
            of_5.push(name);
        }
    }
    if fields.is_set("request_response_information")? {
        of_5.push("request_response_information");
    }
    if options.topic_alias_maximum != ClientOptions::default().topic_alias_maximum {
        of_5.push("topic_alias_maximum");
    }
    if let Some(name) = of_5.first() {
        let instead = if *name == "session_expiry" {
            "; a broker of MQTT 3 keeps the session of a client with clean_start=False as long as it is configured to"
        } else {
            ""
        };
        return Err(invalid(
            py,
            format!("{name} has no effect with MQTT 3: it needs version=\"5\"{instead}"),
        ));
    }
    // A birth message is refused when it is published, which is counted.
    match options.will.as_ref().and_then(|will| will.properties.iter().next()) {
        None => Ok(()),
        Some(property) => {
            let text = format!("{} of the will needs version=\"5\"", field_of(property));
            Err(invalid(py, text))
        }
    }
}

/// The field of a will that becomes a property.
fn field_of(property: &Property) -> &'static str {
    match property {
        Property::PayloadFormatIndicator(_) => "is_text",
        Property::MessageExpiryInterval(_) => "message_expiry",
        Property::ContentType(_) => "content_type",
        Property::ResponseTopic(_) => "response_topic",
        Property::CorrelationData(_) => "correlation_data",
        Property::WillDelayInterval(_) => "delay",
        _ => "properties",
    }
}

fn will_of(py: Python<'_>, will: &Bound<'_, PyDict>) -> PyResult<Will> {
    let fields = Fields(will);
    let topic = fields
        .text("topic")?
        .ok_or_else(|| invalid(py, "the will has no topic: give will={\"topic\": ...}"))?;
    py_result(py, topic::check_name(&topic))?;
    let level = fields.get("qos")?.unwrap_or_default();
    let mut properties = message_properties(py, &fields)?;
    if let Some(delay) = fields.raw("delay")? {
        properties.push(Property::WillDelayInterval(delay.extract::<f64>()?.ceil() as u32));
    }
    Ok(Will {
        qos: qos(py, level)?,
        retain: fields.is_set("retain")?,
        properties,
        topic: topic.into(),
        payload: fields.bytes("payload")?.unwrap_or_default().into(),
    })
}

/// Calls `callable(data)` on a thread of its own.
fn authenticator_of(callable: Py<PyAny>) -> Authenticator {
    Authenticator::new(move |data: Option<Bytes>| {
        let ending = || Err(Error::new(ErrorKind::Authentication, "the interpreter is shutting down"));
        let Some(_call) = Call::begin() else { return ending() };
        let answer = Python::try_attach(|py| {
            let data = data.map(|data| PyBytes::new(py, &data));
            let failed = |why: String| Error::new(ErrorKind::Authentication, why);
            let answer = callable.call1(py, (data,)).map_err(|error| failed(told(py, &error)))?;
            answer.extract::<Option<Vec<u8>>>(py).map_err(|_| {
                failed(format!("it returned {}, not bytes or None", name_of(&answer.bind(py).get_type())))
            })
        });
        answer.unwrap_or_else(|| ending().map(Some)).map(Option::unwrap_or_default)
    })
}

/// Options of a producer.
pub(super) fn producer(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let mut to = ProducerOptions::default();
    to.read(&Fields(options))?;
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer(
    py: Python<'_>,
    filters: &[String],
    group: &str,
    options: &Bound<'_, PyDict>,
) -> PyResult<ConsumerOptions> {
    let mut given = SubscriptionOptions::default();
    given.read(&Fields(options))?;
    let mut to = SubscribeOptions::qos(given.qos);
    to.no_local = given.no_local;
    to.retain_as_published = given.retain_as_published;
    to.retain_handling = given.retain_handling;
    if to.no_local && !group.is_empty() {
        return Err(invalid(
            py,
            "no_local cannot be combined with a shared subscription (3.8.3.1): drop one of them",
        ));
    }
    let filter = |text: &String| {
        let text = if group.is_empty() { text.clone() } else { format!("$share/{group}/{text}") };
        Ok((py_result(py, Filter::parse(text))?, to))
    };
    Ok(ConsumerOptions {
        filters: filters.iter().map(filter).collect::<PyResult<_>>()?,
        auto_ack: given.auto_ack,
    })
}

/// The properties of a message or a will, in the order of their identifiers.
pub(super) fn message_properties(py: Python<'_>, fields: &Fields<'_, '_>) -> PyResult<Properties> {
    let mut properties = Properties::new();
    if fields.is_set("is_text")? {
        properties.push(Property::PayloadFormatIndicator(true));
    }
    if let Some(seconds) = fields.raw("message_expiry")? {
        properties.push(Property::MessageExpiryInterval(seconds.extract::<f64>()?.ceil() as u32));
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

/// A mapping, or pairs in which a name may be repeated.
fn user_properties(value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    if let Ok(mapping) = value.cast::<PyDict>() {
        return pairs(Some(mapping));
    }
    value.extract().map_err(|_| PyTypeError::new_err("properties must map str to str, or be pairs of str"))
}
