//! Hands the optimisation level to the code: figures of engines that were optimised differently do
//! not compare.

fn main() {
    println!("cargo:rustc-env=FOREBAY_OPT_LEVEL={}", std::env::var("OPT_LEVEL").expect("cargo sets it"));
}
