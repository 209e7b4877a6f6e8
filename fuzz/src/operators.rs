//! Modules and expressions of people's own operators: whatever the bytes are, what comes out is an operator or a sentence.

use std::cell::LazyCell;

use tributary_operators::element::Element;
use tributary_operators::{Sandbox, UserOperator, expression, shipped};
use tributary_proto::contract::custom_op::{Capacity, CustomOp};

thread_local! {
    static SANDBOX: LazyCell<Sandbox> = LazyCell::new(Sandbox::new);
}

/// A module as it is.
pub fn operator_module(bytes: &[u8]) {
    if let Ok(operator) = SANDBOX.with(|sandbox| sandbox.load(bytes)) {
        combine(&operator, bytes);
    }
}

/// One of those that come along with some of its bytes changed: each change is a place (two bytes) and a byte.
pub fn operator_changed(bytes: &[u8]) {
    let Some((&first, changes)) = bytes.split_first() else { return };
    let shipped = shipped::ALL[usize::from(first) % shipped::ALL.len()];
    let mut module = shipped.module().expect("what comes along is a module");
    for &[high, low, byte] in changes.as_chunks::<3>().0 {
        let index = usize::from(u16::from_be_bytes([high, low])) % module.len();
        module[index] = byte;
    }
    operator_module(&module);
}

/// An expression; the first byte chooses what its elements are.
pub fn operator_expression(bytes: &[u8]) {
    const ELEMENTS: [&str; 6] = ["f32", "i64", "u8", "u64", "v:f32,i:i32", "re:f64,im:f64"];
    let Some((&first, source)) = bytes.split_first() else { return };
    let element = Element::parse(ELEMENTS[usize::from(first) % ELEMENTS.len()]).expect("these are elements");
    let Ok(module) = expression::compile(&String::from_utf8_lossy(source), &element) else { return };
    // What the compiler makes keeps to the interface: only the self-test may find that it takes too long.
    match SANDBOX.with(|sandbox| sandbox.load_as(&module, "fuzzed", Some(&element))) {
        Ok(operator) => combine(&operator, bytes),
        Err(error) => assert!(error.to_string().contains("instructions for an element"), "{error}"),
    }
}

/// Elements of any bytes: a fault is a sentence, and memory is what was said.
fn combine(operator: &UserOperator, bytes: &[u8]) {
    let size = operator.element_size();
    let lanes: Vec<u8> = bytes.iter().copied().chain(0..=255).cycle().take(size * 100).collect();
    let other: Vec<u8> = lanes.iter().rev().copied().collect();
    let capacity = Capacity { vector_bytes: lanes.len(), accumulators: 2 };
    let mut instance = operator.instance(capacity);
    assert_eq!(instance.memory_bytes(), operator.memory_bytes(capacity));
    let done = instance.store(0, &lanes).and_then(|()| instance.store(1, &other));
    let done = done.and_then(|()| instance.add(0, &other)).and_then(|()| instance.add_left(1, &lanes));
    if let Err(fault) = done.and_then(|()| instance.merge(0, 1, lanes.len())) {
        assert!(fault.to_string().starts_with("the operator "), "{fault}");
    }
}
