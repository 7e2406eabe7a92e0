//! The native module `penstock._engine`: conversion and wake-ups, nothing else.
//!
//! * [`runtime`]: the engine of this process, and what a fork does to it
//! * [`bridge`]: completions to an event loop; the only file that knows asyncio
//! * [`promise`]: an outcome on its way to a future or to a blocked thread
//! * [`ready`]: the awaitable that already holds its message
//! * [`outbox`] and [`inbox`]: who waits for which message
//! * [`client`], [`producer`], [`consumer`], [`message`], [`broker`]: the classes
//! * [`mqtt`], [`tubemq`]: what only these have
//! * [`sender`]: what producers of all protocols have in common
//! * [`arrow`]: the Arrow C data interface; [`frame`] and [`topics`]: the rows of a frame as messages
//! * [`convert`]: Python values to options and back
//!
//! Threads of the engine never attach to the interpreter, but for token callables, and those on a thread
//! that may wait. Futures are touched on their loop's thread only.

use pyo3::prelude::*;

mod arrow;
mod bridge;
mod broker;
mod client;
mod consumer;
mod convert;
mod frame;
mod inbox;
mod message;
mod mqtt;
mod outbox;
mod producer;
mod promise;
mod ready;
mod runtime;
mod sender;
mod topics;
mod tubemq;

#[pymodule(gil_used = false)]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    runtime::watch_forks(module)?;
    module.add("EngineError", module.py().get_type::<convert::EngineError>())?;
    module.add_class::<bridge::Loop>()?;
    module.add_class::<promise::Waiter>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<producer::Producer>()?;
    module.add_class::<mqtt::MqttProducer>()?;
    module.add_class::<tubemq::TubeProducer>()?;
    module.add_class::<tubemq::Position>()?;
    module.add_class::<consumer::Consumer>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<message::MessageId>()?;
    module.add_class::<message::MessageIds>()?;
    module.add_class::<arrow::ArrowBatch>()?;
    module.add_class::<frame::FrameRows>()?;
    module.add_class::<broker::Broker>()?;
    module.add_function(wrap_pyfunction!(client::connect, module)?)?;
    module.add_function(wrap_pyfunction!(frame::encode_frame, module)?)?;
    module.add_function(wrap_pyfunction!(frame::template_columns, module)?)?;
    module.add_function(wrap_pyfunction!(convert::set_error_factory, module)?)?;
    module.add_function(wrap_pyfunction!(mqtt::set_reason_codes, module)?)?;
    module.add_function(wrap_pyfunction!(mqtt::topic_matches, module)?)?;
    Ok(())
}
