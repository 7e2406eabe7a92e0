#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::targets::mqtt_packet::play(data));
