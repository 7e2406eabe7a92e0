//! Compiles `proto/tubemq.proto` with protox, a protobuf compiler written in Rust, so that `protoc`
//! is not needed.

fn main() {
    println!("cargo:rerun-if-changed=../../proto/tubemq.proto");
    let files = protox::compile(["tubemq.proto"], ["../../proto"]).expect("proto/tubemq.proto compiles");
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(files)
        .expect("prost generates from the compiled files");
}
