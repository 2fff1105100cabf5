//! libFuzzer on `fuzz_targets::polite_headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::polite_headers(data));
