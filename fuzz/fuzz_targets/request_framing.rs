//! libFuzzer on `fuzz_targets::request_framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::request_framing(data));
