//! Columns of tables of messages, as Spark types them.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, Field, Fields};

use crate::arrow::properties_builder;
use forebay_base::error::Result;
use forebay_rows::arrow_error;

/// A column of bytes.
pub(super) fn binary<'a, M>(messages: &'a [M], of: impl Fn(&'a M) -> Option<&'a [u8]>) -> ArrayRef {
    let bytes = messages.iter().filter_map(&of).map(<[u8]>::len).sum();
    let mut builder = BinaryBuilder::with_capacity(messages.len(), bytes);
    messages.iter().for_each(|message| builder.append_option(of(message)));
    Arc::new(builder.finish())
}

/// A column of text.
pub(super) fn text<'a, M>(messages: &'a [M], of: impl Fn(&'a M) -> Option<&'a str>) -> ArrayRef {
    let mut builder = StringBuilder::new();
    messages.iter().for_each(|message| builder.append_option(of(message)));
    Arc::new(builder.finish())
}

/// A column of numbers of 32 bits.
pub(super) fn whole<M>(messages: &[M], of: impl Fn(&M) -> i32) -> ArrayRef {
    let mut builder = Int32Builder::with_capacity(messages.len());
    messages.iter().for_each(|message| builder.append_value(of(message)));
    Arc::new(builder.finish())
}

/// A column of numbers of 64 bits.
pub(super) fn long<M>(messages: &[M], of: impl Fn(&M) -> Option<i64>) -> ArrayRef {
    let mut builder = Int64Builder::with_capacity(messages.len());
    messages.iter().for_each(|message| builder.append_option(of(message)));
    Arc::new(builder.finish())
}

/// A column of times in milliseconds since 1970, which any producer may have set to anything.
pub(super) fn moment<M>(messages: &[M], of: impl Fn(&M) -> Option<u64>) -> ArrayRef {
    let mut builder = TimestampMicrosecondBuilder::with_capacity(messages.len()).with_timezone("UTC");
    for message in messages {
        let micros = |ms| i64::try_from(ms).ok().and_then(|ms: i64| ms.checked_mul(1000));
        builder.append_option(of(message).and_then(micros));
    }
    Arc::new(builder.finish())
}

/// A column of properties as Kafka's headers. As there, none are a null.
pub(super) fn headers<'a, M, P>(messages: &'a [M], of: impl Fn(&'a M) -> P) -> ArrayRef
where
    P: Iterator<Item = (&'a str, &'a str)>,
{
    let fields = Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ]);
    let header = StructBuilder::new(
        fields.clone(),
        vec![Box::new(StringBuilder::new()), Box::new(BinaryBuilder::new())],
    );
    let mut builder =
        ListBuilder::new(header).with_field(Field::new("element", DataType::Struct(fields), true));
    for message in messages {
        let mut is_any = false;
        for (name, text) in of(message) {
            let header = builder.values();
            if let Some(names) = header.field_builder::<StringBuilder>(0) {
                names.append_value(name);
            }
            if let Some(values) = header.field_builder::<BinaryBuilder>(1) {
                values.append_value(text.as_bytes());
            }
            header.append(true);
            is_any = true;
        }
        builder.append(is_any);
    }
    Arc::new(builder.finish())
}

/// A column of properties as maps.
pub(super) fn properties<'a, M, P>(messages: &'a [M], of: impl Fn(&'a M) -> P) -> Result<ArrayRef>
where
    P: Iterator<Item = (&'a str, &'a str)>,
{
    let mut builder = properties_builder();
    for message in messages {
        for (name, text) in of(message) {
            builder.keys().append_value(name);
            builder.values().append_value(text);
        }
        builder.append(true).map_err(arrow_error)?;
    }
    Ok(Arc::new(builder.finish()))
}
