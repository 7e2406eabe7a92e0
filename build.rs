//! Compiles `proto/` with protox, a protobuf compiler written in Rust, so that `protoc` is not needed.

fn main() {
    println!("cargo:rerun-if-changed=proto");
    // Figures of engines that were optimised differently do not compare.
    println!("cargo:rustc-env=FOREBAY_OPT_LEVEL={}", std::env::var("OPT_LEVEL").expect("cargo sets it"));
    let files =
        protox::compile(["proto/pulsar.proto", "proto/tubemq.proto"], ["proto"]).expect("proto/ compiles");
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(files)
        .expect("prost generates from the compiled files");
}
