//! One module for each target. What each may do stands in its first lines.

/// Hands the names of all targets to a macro.
#[macro_export]
macro_rules! for_each_target {
    ($hand_to:ident) => {
        $hand_to! {
            avro
            compression
            credentials
            cursor
            frame
            http
            mqtt_broker
            mqtt_connection
            mqtt_outbox
            mqtt_packet
            names
            pulsar_batch
            pulsar_broker
            pulsar_command
            pulsar_connection
            pulsar_consumer
            pulsar_frame
            pulsar_message_id
            pulsar_metadata
            store
            tubemq_broker
            tubemq_consumer
            tubemq_frame
            tubemq_message
            websocket
        }
    };
}

macro_rules! modules {
    ($($name:ident)*) => {
        $(pub mod $name;)*
    };
}

for_each_target!(modules);
