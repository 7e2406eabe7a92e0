//! Compiles `proto/pulsar.proto` with protox, a protobuf compiler written in Rust, so that `protoc`
//! is not needed.

fn main() {
    println!("cargo:rerun-if-changed=../../proto/pulsar.proto");
    let files = protox::compile(["pulsar.proto"], ["../../proto"]).expect("proto/pulsar.proto compiles");
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(files)
        .expect("prost generates from the compiled files");
}
