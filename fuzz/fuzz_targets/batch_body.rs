//! libFuzzer on `fuzz_targets::batch_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::batch_body(data));
