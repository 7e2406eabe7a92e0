//! Traffic recorded between clients and brokers of other authors, read and written by the codecs of
//! each protocol.

// With the other tests that need no feature, so that one binary less is linked.
mod generated;
mod mqtt;
mod pulsar;
mod tubemq;
