//! Names of topics, hashing of keys, choice of partitions.

/// How a key becomes a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashingScheme {
    /// As `java.lang.String.hashCode`: the reference client's default.
    #[default]
    JavaStringHash,
    /// Murmur3, 32 bits.
    Murmur3,
    /// As the C++ and the official Python client.
    Boost,
}

/// Where messages without a key go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// From partition to partition.
    #[default]
    RoundRobin,
    /// All to one.
    Single,
}
