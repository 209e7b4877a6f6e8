//! Modules that are not operators, or would do harm: each is refused with a sentence, or fails alone.

use tributary_operators::{Allowed, Library, OperatorError, Sandbox, source};
use tributary_proto::contract::custom_op::{Capacity, CustomOp};

/// A module around a body of `combine`, with what else it has.
fn around(more: &str, body: &str) -> Vec<u8> {
    source::from_wat(&format!(
        "(module {more} (memory (export \"memory\") 1)
         (global (export \"tributary_abi\") i32 (i32.const 1)) (global (export \"element_size\") i32 (i32.const 4))
         (func (export \"combine\") (param $acc i32) (param $with i32) (param $n i32) {body}))"
    ))
    .unwrap()
}

fn sentence(module: &[u8]) -> String {
    match Sandbox::new().load(module) {
        Ok(operator) => panic!("it was taken: {operator:?}"),
        Err(error) => error.to_string(),
    }
}

/// For each element: what `body` makes of `$a` and `$b`.
fn each(body: &str) -> String {
    format!(
        "(local $a i32) (local $b i32)
         (block $end (loop $each (br_if $end (i32.eqz (local.get $n)))
           (local.set $a (i32.load (local.get $acc))) (local.set $b (i32.load (local.get $with)))
           {body}
           (local.set $acc (i32.add (local.get $acc) (i32.const 4))) (local.set $with (i32.add (local.get $with) (i32.const 4)))
           (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $each)))"
    )
}

#[test]
fn what_is_not_an_operator_is_refused_with_a_sentence() {
    assert_eq!(sentence(b"hello, world"), "this is not a module of WebAssembly (its first bytes differ)");
    let whole = around("", &each("(i32.store (local.get $acc) (i32.add (local.get $a) (local.get $b)))"));
    assert!(Sandbox::new().load(&whole).is_ok());
    assert!(sentence(&whole[..whole.len() - 1]).contains("ends in the middle"));
    assert!(sentence(&vec![0; 100 << 20]).contains("is too long: 65536 are the most"));
    assert!(sentence(&around("(import \"env\" \"f\" (func))", "")).contains("has imports"));
    assert!(sentence(&around("(func $s) (start $s)", "")).contains("has a start function"));
    assert!(sentence(&around("(memory 1)", "")).contains("not valid"), "two memories");
    let no_size = "(module (memory (export \"memory\") 1) (global (export \"tributary_abi\") i32 (i32.const 1))
        (func (export \"combine\") (param i32 i32 i32)))";
    assert!(sentence(&source::from_wat(no_size).unwrap()).contains("does not export a global element_size"));
    for size in ["0", "65", "-1"] {
        let text =
            no_size.replace("(func", &format!("(global (export \"element_size\") i32 (i32.const {size})) (func"));
        assert!(sentence(&source::from_wat(&text).unwrap()).contains("it may be 1 to 64"), "{size}");
    }
    let large = no_size.replace("\"memory\") 1", "\"memory\") 1000");
    assert!(sentence(&source::from_wat(&large).unwrap()).contains("bytes of memory"));
    let capped = no_size.replace("\"memory\") 1", "\"memory\") 1 1");
    assert!(sentence(&source::from_wat(&capped).unwrap()).contains("the host's vectors do not fit"));
    let crowded = "(func)".repeat(300);
    assert!(sentence(&around(&crowded, "")).contains("256 are the most"));
}

#[test]
fn what_the_self_test_finds_is_said_with_a_counterexample() {
    let unfit = |body: &str, what: &str| {
        let said = sentence(&around("(global $state (mut i32) (i32.const 0))", body));
        assert!(said.contains(what), "{said}");
    };
    unfit("(loop $endless (br $endless))", "did not end within");
    unfit("unreachable", "has trapped: wasm `unreachable`");
    unfit(
        &each("(i32.store (local.get $acc) (i32.div_s (local.get $a) (local.get $b)))"),
        "has trapped: integer divide by zero",
    );
    unfit(&each("(i32.store (i32.const -4) (local.get $a))"), "has trapped: out of bounds memory access");
    unfit(&each("(i32.store (local.get $with) (local.get $a))"), "writes to its right operand");
    unfit(&format!("{} (i32.store (local.get $acc) (i32.const 7))", each("")), "writes beyond the");
    let counts = each(
        "(global.set $state (i32.add (global.get $state) (i32.const 1)))
         (i32.store (local.get $acc) (i32.add (local.get $a) (global.get $state)))",
    );
    unfit(&counts, "keeps something from one element to the next");
    let long = "(local.set $a (i32.mul (local.get $a) (i32.const 3)))".repeat(300);
    unfit(&each(&long), "512 are the most");
    let lies = around(
        "(global (export \"commutative\") i32 (i32.const 1))",
        &each("(i32.store (local.get $acc) (i32.sub (local.get $a) (local.get $b)))"),
    );
    let said = sentence(&lies);
    assert!(said.starts_with("the operator claims to commute, and does not: combine("), "{said}");
}

#[test]
fn what_fails_only_with_some_data_fails_its_own_call() {
    let trap = each("(if (i32.eq (local.get $a) (i32.const 123456789)) (then unreachable))");
    let endless = each("(loop $again (br_if $again (i32.eq (local.get $a) (i32.const 123456789))))");
    let grows = each("(if (i32.ne (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))");
    assert!(Sandbox::new().load(&around("", &grows)).is_ok(), "it gets no more memory, and says no more");
    for (body, what) in [(trap, "has trapped"), (endless, "did not end within")] {
        let operator = Sandbox::new().load(&around("", &body)).unwrap();
        let capacity = Capacity { vector_bytes: 64, accumulators: 2 };
        let mut instance = operator.instance(capacity);
        let (mut lanes, other) = ([1u8; 64], [2u8; 64]);
        instance.store(1, &lanes).unwrap();
        assert_eq!(instance.add(1, &other), Ok(()));
        lanes[8..12].copy_from_slice(&123_456_789i32.to_le_bytes());
        instance.store(1, &lanes).unwrap();
        let fault = instance.add(1, &other).unwrap_err().to_string();
        assert!(fault.starts_with("the operator operator (SHA-256 ") && fault.contains(what), "{fault}");
        // Another instance of the same operator knows nothing of it.
        assert_eq!(operator.instance(capacity).add(1, &other), Ok(()));
    }
}

#[test]
fn an_instance_takes_the_memory_that_was_said() {
    let operator = source::operator(&Sandbox::new(), "maxloc", None).unwrap();
    for (vector_bytes, accumulators) in [(8, 1), (1_432, 512), (64_512, 3)] {
        let capacity = Capacity { vector_bytes, accumulators };
        let instance = operator.instance(capacity);
        assert_eq!(instance.memory_bytes(), operator.memory_bytes(capacity));
        assert_eq!(instance.fork().memory_bytes(), operator.memory_bytes(capacity));
    }
}

#[test]
fn a_switch_serves_what_it_allows_and_compiles_it_once() {
    let module = source::module("xor", None).unwrap();
    let refused = Library::new(Allowed::None).operator(&module).err().unwrap();
    assert!(matches!(refused, OperatorError::NotAllowed(_)), "{refused}");
    assert!(Library::new(Allowed::Listed(Vec::new())).operator(&module).is_err());
    let library = Library::new(Allowed::Any);
    let one = library.operator(&module).unwrap();
    let hash = one.hash();
    assert!(std::sync::Arc::ptr_eq(&one, &library.operator(&module).unwrap()));
    drop(one);
    assert_eq!(library.in_use(), 0);
    assert!(Library::new(Allowed::Listed(vec![hash])).operator(&module).is_ok());
}
