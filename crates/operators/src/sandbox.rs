//! The sandbox: what modules may be made of, and how much of anything they get.

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
    /// If this processor is none that modules can be compiled for.
    pub fn new() -> Sandbox {
        let mut config = Config::new();
        // The same module gives the same bits everywhere: one NaN, and no instruction whose result is the processor's choice.
        config.cranelift_nan_canonicalization(true).wasm_simd(true).wasm_relaxed_simd(false);
        // Every instruction costs about as much as another: none that works on as much memory as it likes.
        config.wasm_bulk_memory(false).wasm_memory64(false).wasm_multi_memory(false).wasm_tail_call(false);
        config.consume_fuel(true).max_wasm_stack(STACK_BYTES).cranelift_opt_level(OptLevel::Speed);
        config.memory_init_cow(false).wasm_backtrace_max_frames(None).generate_address_map(false);
        Sandbox { engine: Engine::new(&config).expect("the sandbox's settings go together") }
    }

    /// The operator that a module is, compiled and checked. `element` says what its elements are, where the module does not.
    pub fn load(&self, bytes: &[u8]) -> Result<UserOperator, OperatorError> {
        UserOperator::checked(Module::compile(&self.engine, bytes)?)
    }

    /// The same of a module whose name and elements its caller knows, and which says neither.
    pub fn load_as(&self, bytes: &[u8], name: &str, element: Option<&Element>) -> Result<UserOperator, OperatorError> {
        let outline = crate::sections::Outline::of(bytes)?;
        let name = outline.name.is_none().then_some(name);
        let element = element.filter(|_| outline.element.is_none()).map(Element::to_string);
        self.load(&crate::describe(bytes, name, element.as_deref()))
    }
}
