#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tributary_fuzz::operator_changed(bytes));
