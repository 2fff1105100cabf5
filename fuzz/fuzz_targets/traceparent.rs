//! libFuzzer on `fuzz_targets::traceparent`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::traceparent(data));
