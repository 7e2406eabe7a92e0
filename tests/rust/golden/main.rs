//! Traffic recorded between clients and brokers of other authors, read and written by the codecs of each protocol.

mod mqtt;
mod pulsar;
mod tubemq;
