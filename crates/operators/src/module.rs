//! A compiled module that follows the interface.

use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tributary_proto::contract::custom_op::{CustomOpHash, CustomOps};
use wasmtime::{
    Engine, ExternType, Instance, Memory, Mutability, Store, StoreLimits, StoreLimitsBuilder, TypedFunc, ValType,
};

use crate::element::Element;
use crate::error::OperatorError;
use crate::limits::{MOST_FUNCTIONS, MOST_MODULE_BYTES, MOST_OWN_BYTES};
use crate::sections::Outline;

/// The version of the interface.
const ABI: i32 = 1;
const PAGE: usize = 64 * 1024;
/// How many instructions making an instance may take: there is no start function, only data to be copied.
const FUEL_TO_BEGIN: u64 = 1_000_000;

/// The signature of `combine(acc, with, n)`.
pub(crate) type Combine = TypedFunc<(i32, i32, i32), ()>;

/// A compiled module, which its instances share.
#[derive(Clone)]
pub(crate) struct Module {
    code: wasmtime::Module,
    pub bytes: Vec<u8>,
    pub hash: CustomOpHash,
    pub name: String,
    pub element: Element,
    /// Whether it claims that `a o b = b o a`.
    pub commutative: Option<bool>,
    own_bytes: usize,
}

/// A module in memory of its own.
pub(crate) struct Guest {
    pub store: Store<StoreLimits>,
    pub memory: Memory,
    pub combine: Combine,
    /// Where the host's share of the memory begins.
    pub free: usize,
}

impl Module {
    pub fn compile(engine: &Engine, bytes: &[u8]) -> Result<Module, OperatorError> {
        if bytes.len() > MOST_MODULE_BYTES {
            let len = bytes.len();
            return Err(OperatorError::Module(format!(
                "a module of {len} bytes is too long: {MOST_MODULE_BYTES} are the most"
            )));
        }
        let outline = Outline::of(bytes)?;
        let refused = |what: &str| Err(OperatorError::Interface(what.to_owned()));
        if outline.has_imports {
            return refused("has imports: an operator gets nothing from outside");
        }
        if outline.has_start {
            return refused("has a start function: an operator has nothing to begin");
        }
        if outline.functions > MOST_FUNCTIONS {
            return Err(OperatorError::Interface(format!(
                "has {} functions: {MOST_FUNCTIONS} are the most",
                outline.functions
            )));
        }
        let code = wasmtime::Module::new(engine, bytes).map_err(|error| match error.downcast_ref() {
            // A filter of system calls says the first, and the kernel itself the second.
            Some(&Errno::PERM | &Errno::ACCESS) => OperatorError::Source(
                "this process may not make memory executable: a switch under systemd needs deploy/operators.conf beside its \
                 unit (MemoryDenyWriteExecute=no)"
                    .to_owned(),
            ),
            _ => OperatorError::Module(format!("this module is not valid: {}", one_line(&error))),
        })?;
        let own_bytes = check_exports(&code)?;
        let hash = CustomOpHash(Sha256::digest(bytes).into());
        let (bytes, element) = (bytes.to_vec(), Element::opaque(1));
        let name = outline.name.unwrap_or_else(|| "operator".to_owned());
        let mut module = Module { code, bytes, hash, name, element, commutative: None, own_bytes };
        module.read_globals(outline.element.as_deref())?;
        Ok(module)
    }

    /// Reads the constants that the module exports.
    fn read_globals(&mut self, element: Option<&str>) -> Result<(), OperatorError> {
        let (mut store, instance) = self.instance(0)?;
        let mut constant = |name: &str| instance.get_global(&mut store, name)?.get(&mut store).i32();
        // Modules compiled from C export no constants; a section declares the element instead.
        let said = element.map(Element::parse).transpose()?;
        match constant("tributary_abi") {
            Some(ABI) => {}
            Some(other) => return Err(OperatorError::Interface(format!("is of interface {other}, and this is {ABI}"))),
            None if said.is_some() => {}
            None => return Err(OperatorError::Interface(missing("a global tributary_abi of type i32"))),
        }
        let known = said.as_ref().and_then(|element| i32::try_from(element.size()).ok());
        let Some(size) = constant("element_size").or(known) else {
            return Err(OperatorError::Interface(missing("a global element_size of type i32")));
        };
        let most = CustomOps::MOST_ELEMENT_BYTES;
        let Some(size) = usize::try_from(size).ok().filter(|size| (1..=most).contains(size)) else {
            return Err(OperatorError::Interface(format!("has an element_size of {size}: it may be 1 to {most}")));
        };
        self.commutative = constant("commutative").map(|claim| claim != 0);
        self.element = said.unwrap_or_else(|| Element::opaque(size));
        if self.element.size() != size {
            let (element, has) = (&self.element, self.element.size());
            return Err(OperatorError::Interface(format!(
                "has an element_size of {size} bytes, and its elements, {element}, have {has}"
            )));
        }
        Ok(())
    }

    /// Bytes of memory of an instance with this many bytes for the host.
    pub fn memory_bytes(&self, host_bytes: usize) -> usize {
        self.own_bytes + host_bytes.next_multiple_of(PAGE)
    }

    fn instance(&self, host_bytes: usize) -> Result<(Store<StoreLimits>, Instance), OperatorError> {
        let limits = StoreLimitsBuilder::new().memory_size(self.memory_bytes(host_bytes)).instances(1).memories(1);
        let mut store = Store::new(self.code.engine(), limits.tables(1).table_elements(1_000).build());
        store.limiter(|limits| limits);
        store.set_fuel(FUEL_TO_BEGIN).expect("the sandbox counts fuel");
        let instance = Instance::new(&mut store, &self.code, &[])
            .map_err(|error| OperatorError::Module(format!("no instance can be made: {}", one_line(&error))))?;
        Ok((store, instance))
    }

    /// An instance with this many bytes for the host beyond the guest's own.
    pub fn guest(&self, host_bytes: usize) -> Result<Guest, OperatorError> {
        let (mut store, instance) = self.instance(host_bytes)?;
        let missing = |what| OperatorError::Interface(missing(what));
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| missing(MEMORY))?;
        let combine = instance.get_typed_func(&mut store, "combine").map_err(|_| missing(COMBINE))?;
        let free = memory.data_size(&store);
        memory.grow(&mut store, host_bytes.div_ceil(PAGE) as u64).map_err(|_| {
            OperatorError::Interface(
                "limits its memory so that the host's vectors do not fit: leave the maximum out".into(),
            )
        })?;
        Ok(Guest { store, memory, combine, free })
    }
}

const MEMORY: &str = "a memory named memory";
const COMBINE: &str = "a function combine with three parameters of type i32 and no result";

fn missing(what: &str) -> String {
    format!("does not export {what}")
}

impl Guest {
    /// Writes to the memory.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.memory.data_mut(&mut self.store)[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The memory.
    pub fn data(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    /// The memory, mutable.
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.memory.data_mut(&mut self.store)
    }

    /// Moves bytes within the memory.
    pub fn copy(&mut self, from: usize, to: usize, bytes: usize) {
        self.memory.data_mut(&mut self.store).copy_within(from..from + bytes, to);
    }

    /// Combines this many elements at two addresses, with this much fuel.
    pub fn call(&mut self, left: usize, right: usize, elements: usize, fuel: u64) -> Result<(), wasmtime::Error> {
        self.store.set_fuel(fuel)?;
        self.combine.call(&mut self.store, (left as i32, right as i32, elements as i32))
    }

    /// What is left of the fuel.
    pub fn fuel_left(&self) -> u64 {
        self.store.get_fuel().unwrap_or(0)
    }
}

/// The first line of the sandbox's message, without the sandbox's name.
pub(crate) fn one_line(error: &wasmtime::Error) -> String {
    let text = error.root_cause().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("wasm trap: ").unwrap_or(line).to_owned()
}

/// Checks the exports; returns the bytes of the guest's own memory.
fn check_exports(code: &wasmtime::Module) -> Result<usize, OperatorError> {
    let refused = |what: String| Err(OperatorError::Interface(what));
    let Some(ExternType::Memory(memory)) = code.get_export("memory") else { return refused(missing(MEMORY)) };
    let own_bytes = (memory.minimum() as usize).saturating_mul(PAGE);
    if own_bytes > MOST_OWN_BYTES {
        return refused(format!("has {own_bytes} bytes of memory: {MOST_OWN_BYTES} are the most"));
    }
    if memory.maximum().is_some() {
        return refused("limits its memory so that the host's vectors do not fit: leave the maximum out".to_owned());
    }
    let Some(ExternType::Func(combine)) = code.get_export("combine") else { return refused(missing(COMBINE)) };
    let is_combine = combine.params().len() == 3
        && combine.params().all(|param| matches!(param, ValType::I32))
        && combine.results().len() == 0;
    if !is_combine {
        return refused(missing(COMBINE));
    }
    for export in code.exports() {
        if let ExternType::Global(global) = export.ty()
            && global.mutability() == Mutability::Var
            && ["tributary_abi", "element_size", "commutative"].contains(&export.name())
        {
            return refused(format!("has a global {} that may change: make it a constant", export.name()));
        }
    }
    Ok(own_bytes)
}
