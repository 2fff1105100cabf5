//! libFuzzer on `fuzz_targets::upstream_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::upstream_response(data));
