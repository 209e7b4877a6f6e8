//! The sandbox: what modules may contain, and which limits they have.

use std::fmt;

use wasmtime::{Config, Engine, OptLevel};

use crate::element::Element;
use crate::error::OperatorError;
use crate::module::Module;
use crate::operator::UserOperator;

/// Bytes of stack that a call may use.
const STACK_BYTES: usize = 64 * 1024;

/// Compiles modules. Cheap to copy.
#[derive(Clone)]
pub struct Sandbox {
    engine: Engine,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sandbox")
    }
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox::new()
    }
}

impl Sandbox {
    /// A sandbox.
    ///
    /// # Panics
    /// If modules cannot be compiled for this processor.
    pub fn new() -> Sandbox {
        let mut config = Config::new();
        // The same module gives the same bits everywhere: one NaN, and no instruction whose result depends on the
        // processor.
        config.cranelift_nan_canonicalization(true).wasm_simd(true).wasm_relaxed_simd(false);
        // Every instruction costs about the same: no instruction works on an unlimited amount of memory.
        config.wasm_bulk_memory(false).wasm_memory64(false).wasm_multi_memory(false).wasm_tail_call(false);
        config.consume_fuel(true).max_wasm_stack(STACK_BYTES).cranelift_opt_level(OptLevel::Speed);
        config.memory_init_cow(false).wasm_backtrace_max_frames(None).generate_address_map(false);
        Sandbox { engine: Engine::new(&config).expect("the sandbox's settings go together") }
    }

    /// The operator of a module, compiled and checked.
    pub fn load(&self, bytes: &[u8]) -> Result<UserOperator, OperatorError> {
        UserOperator::checked(Module::compile(&self.engine, bytes)?)
    }

    /// The operator of a module that declares neither its name nor its elements, from a caller that knows them.
    pub fn load_as(&self, bytes: &[u8], name: &str, element: Option<&Element>) -> Result<UserOperator, OperatorError> {
        let outline = crate::sections::Outline::of(bytes)?;
        let name = outline.name.is_none().then_some(name);
        let element = element.filter(|_| outline.element.is_none()).map(Element::to_string);
        self.load(&crate::describe(bytes, name, element.as_deref()))
    }
}
