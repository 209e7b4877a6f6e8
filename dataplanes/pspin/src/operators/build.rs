//! From a module of WebAssembly to a program for PsPIN's cores: wasm2c turns it into C, and the handlers' compiler
//! compiles the C together with `handlers/operators`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const COMPILER: &str = "riscv64-unknown-elf-gcc";
const TRANSLATOR: &str = "wasm2c";

/// The flags of the handlers, without fusing products and sums, as WebAssembly demands. These cores load words at any
/// address. Of the compiler's models of cores, only the C906's does so without instructions that these cores lack.
const FLAGS: [&str; 17] = [
    "-march=rv32imf",
    "-mabi=ilp32f",
    "-mtune=thead-c906",
    "-mno-strict-align",
    "-O2",
    "-fweb",
    "-frename-registers",
    "-ffp-contract=off",
    "-ffreestanding",
    "-fno-strict-aliasing",
    "-fno-tree-loop-distribute-patterns",
    "-ffunction-sections",
    "-nostdlib",
    "-Wl,--no-relax,--build-id=none,--gc-sections,--strip-debug,-e,0",
    "-Wl,-u,prepare,-u,combine",
    "-Iinclude",
    "-DMODULE=\"module.c\"",
];

macro_rules! source {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/handlers/operators/", $name))
    };
}

/// The code around the module.
const SOURCES: [(&str, &str); 7] = [
    ("operator.c", source!("operator.c")),
    ("link.ld", source!("link.ld")),
    ("include/wasm-rt.h", source!("include/wasm-rt.h")),
    ("include/math.h", source!("include/math.h")),
    ("include/string.h", source!("include/string.h")),
    ("include/assert.h", source!("include/assert.h")),
    ("include/alloca.h", source!("include/alloca.h")),
];

/// Why no program was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBuilt {
    /// One of the tools is not installed.
    NoTool(&'static str),
    /// A tool refused the module, or its code.
    Refused(String),
}

impl std::fmt::Display for NotBuilt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotBuilt::NoTool(tool) => {
                write!(f, "{tool} is not here: install wasm2c and the cores' compiler (Debian: apt-get install wabt ")?;
                write!(f, "gcc-riscv64-unknown-elf)")
            }
            NotBuilt::Refused(why) => f.write_str(why),
        }
    }
}

/// The program of a module.
pub fn program(module: &[u8]) -> Result<Vec<u8>, NotBuilt> {
    let folder = Folder::new().map_err(|error| NotBuilt::Refused(format!("no folder can be made: {error}")))?;
    folder.build(module)
}

/// A temporary folder, removed when it is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed, its remains do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new() -> std::io::Result<Folder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tributary-cycles-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("include"))?;
        Ok(Folder(path))
    }

    fn build(&self, module: &[u8]) -> Result<Vec<u8>, NotBuilt> {
        let failed = |error: std::io::Error| NotBuilt::Refused(format!("a file cannot be written or read: {error}"));
        fs::write(self.0.join("module.wasm"), module).map_err(failed)?;
        for (name, text) in SOURCES {
            fs::write(self.0.join(name), text).map_err(failed)?;
        }
        run(&self.0, TRANSLATOR, &["--module-name=operator", "module.wasm", "-o", "module.c"])?;
        let own = ["-T", "link.ld", "operator.c", "-lgcc", "-o", "operator.elf"];
        run(&self.0, COMPILER, &[&FLAGS[..], &own].concat())?;
        fs::read(self.0.join("operator.elf")).map_err(failed)
    }
}

fn run(folder: &Path, tool: &'static str, arguments: &[&str]) -> Result<(), NotBuilt> {
    match Command::new(tool).args(arguments).current_dir(folder).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = said.lines().find(|line| line.contains("error") || line.contains("undefined"));
            let line = line.or(said.lines().next()).unwrap_or("it does not say why");
            Err(NotBuilt::Refused(format!("{tool} does not take it: {}", line.trim())))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(NotBuilt::NoTool(tool)),
        Err(error) => Err(NotBuilt::Refused(format!("{tool} cannot be started: {error}"))),
    }
}
