//! The native module `forebay._engine`: conversion and wake-ups only.
//!
//! * `runtime`: the process's engine, and forks; `exit`: the end of the interpreter; `log`: log
//!   records
//! * `convert`: Python values to plain data, and errors to exceptions
//! * `value`: results on their way to Python; `journal`: connection events
//! * `bridge`: completions to an event loop; the only file that knows asyncio
//! * `promise`: the engine's end of a result for which a future or a blocked thread waits
//! * `ready`: the awaitable that already holds its message
//! * `sends` and `receives`: the waiters of a producer and of a consumer
//! * `sender`, `consumer`, `client`, `message`: the parts that all protocols share
//! * `pulsar`, `mqtt`, `tubemq`: the classes and options of each protocol
//! * `arrow`: the Arrow C data interface; `columns`: messages as columns; `frame`: the rows of a
//!   frame as messages
//! * `broker`: the embedded broker
//! * `options`: the declarations of all options
//!
//! A file imports only files above it in this list, except that `receives` needs `arrow` and
//! `message`, and `sender` needs `frame`; those import none of the classes. The protocols do not
//! import each other, and the shared parts know no class of a protocol: each protocol implements
//! their traits beside its classes.
//!
//! Threads of the engine never attach to the interpreter. The exceptions are functions that supply
//! secrets, which run on a thread that may block, and log records, which have a thread of their
//! own. Futures are touched on their loop's thread only.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use pyo3::prelude::*;

mod arrow;
mod bridge;
mod broker;
mod client;
mod columns;
mod consumer;
mod convert;
mod dataframe;
mod exit;
mod journal;
mod log;
mod message;
mod mqtt;
mod options;
mod promise;
mod pulsar;
mod ready;
mod receives;
mod runtime;
mod sender;
mod sends;
mod tubemq;
mod value;

#[pymodule(gil_used = false)]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    runtime::watch_forks(module)?;
    exit::register(module)?;
    log::register(module)?;
    module.add("OPT_LEVEL", env!("FOREBAY_OPT_LEVEL"))?;
    module.add("EngineError", module.py().get_type::<convert::EngineError>())?;
    module.add_class::<bridge::Loop>()?;
    module.add_class::<promise::Waiter>()?;
    pulsar::register(module)?;
    mqtt::register(module)?;
    tubemq::register(module)?;
    module.add_class::<arrow::ArrowBatch>()?;
    module.add_class::<dataframe::FrameRows>()?;
    module.add_class::<broker::Broker>()?;
    module.add_function(wrap_pyfunction!(broker::check_store, module)?)?;
    module.add_function(wrap_pyfunction!(broker::backup_store, module)?)?;
    module.add_function(wrap_pyfunction!(broker::restore_store, module)?)?;
    module.add_function(wrap_pyfunction!(broker::compact_store, module)?)?;
    module.add_function(wrap_pyfunction!(broker::is_secret, module)?)?;
    module.add_function(wrap_pyfunction!(broker::is_signed_with, module)?)?;
    module.add_function(wrap_pyfunction!(broker::hash_password, module)?)?;
    module.add_function(wrap_pyfunction!(dataframe::encode_frame, module)?)?;
    module.add_function(wrap_pyfunction!(dataframe::avro_definition, module)?)?;
    module.add_function(wrap_pyfunction!(dataframe::template_columns, module)?)?;
    module.add_function(wrap_pyfunction!(options::option_specs, module)?)?;
    module.add_function(wrap_pyfunction!(convert::set_error_factory, module)?)?;
    module.add_function(wrap_pyfunction!(convert::set_missing_factory, module)?)?;
    module.add_function(wrap_pyfunction!(convert::set_seconds_parser, module)?)?;
    Ok(())
}
