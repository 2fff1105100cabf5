//! libFuzzer on `fuzz_targets::node_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::node_message(data));
