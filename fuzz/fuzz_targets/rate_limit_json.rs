//! libFuzzer on `fuzz_targets::rate_limit_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::rate_limit_json(data));
