//! libFuzzer on `fuzz_targets::rendered_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::rendered_response(data));
