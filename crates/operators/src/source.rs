//! From a person's file to a module: WAT, WebAssembly, C, and expressions; or the name of a ready-made operator.
//!
//! A source declares the kind of its elements in a comment, as in `# element: v:f32,i:i32`, unless its caller does.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::element::Element;
use crate::error::OperatorError;
use crate::operator::UserOperator;
use crate::sandbox::Sandbox;
use crate::{expression, sections, shipped};

/// A language that operators are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `.expr`: an expression as in Python.
    Expression,
    /// `.wat`: WebAssembly as text.
    Wat,
    /// `.c`, where clang and wasm-ld are installed.
    C,
    /// `.wasm`: a module.
    Wasm,
}

impl Language {
    /// The language of a file, by its extension.
    pub fn of(path: &Path) -> Result<Language, OperatorError> {
        let end = path.extension().and_then(|end| end.to_str());
        match end {
            Some("expr") => Ok(Language::Expression),
            Some("wat") => Ok(Language::Wat),
            Some("c") => Ok(Language::C),
            Some("wasm") => Ok(Language::Wasm),
            _ => Err(failed(format!(
                "{} is not an operator: its name ends with .expr, .wat, .c or .wasm, or it is one of {}",
                path.display(),
                shipped::ALL.map(|shipped| shipped.name).join(", ")
            ))),
        }
    }

    /// The text of a new operator: the greater of two elements, by their first number.
    pub fn template(self, element: &Element) -> Result<String, OperatorError> {
        let fields: Vec<&str> = element.fields().iter().map(|field| field.name.as_str()).collect();
        let source = match fields[..] {
            [""] => "max(a, b)\n".to_owned(),
            _ => {
                let key = fields[0];
                let line = |field: &&str| format!("{field} = a.{field} if first else b.{field}\n");
                format!("first = a.{key} >= b.{key}\n{}", fields.iter().map(line).collect::<String>())
            }
        };
        match self {
            Language::Expression => {
                Ok(format!("# element: {element}\n# a is the left operand, b the right one.\n{source}"))
            }
            Language::Wat => Ok(format!(
                ";; element: {element}\n;; combine(acc, with, n): acc[i] = acc[i] o with[i]\n{}",
                expression::to_wat(&source, element)?
            )),
            Language::C => Ok(c_template(element)),
            Language::Wasm => Err(failed("a module is built, not written: take .expr, .wat or .c".to_owned())),
        }
    }
}

fn c_template(element: &Element) -> String {
    let c_type = |scalar: crate::element::Scalar| match scalar.to_string().as_str() {
        "i8" => "signed char".to_owned(),
        "u8" => "unsigned char".to_owned(),
        "i16" => "short".to_owned(),
        "u16" | "f16" | "bf16" => "unsigned short".to_owned(),
        "i32" => "int".to_owned(),
        "u32" => "unsigned".to_owned(),
        "i64" => "long long".to_owned(),
        "u64" => "unsigned long long".to_owned(),
        "f32" => "float".to_owned(),
        "f64" => "double".to_owned(),
        _ => "unsigned char".to_owned(),
    };
    let named = |name: &str| if name.is_empty() { "value".to_owned() } else { name.to_owned() };
    let field = |field: &crate::element::Field| {
        let array = match field.scalar {
            crate::element::Scalar::Opaque(bytes) => format!("[{bytes}]"),
            _ => String::new(),
        };
        format!("    {} {}{array};\n", c_type(field.scalar), named(&field.name))
    };
    let fields: String = element.fields().iter().map(field).collect();
    let key = named(&element.fields()[0].name);
    let is_array = matches!(element.fields()[0].scalar, crate::element::Scalar::Opaque(_));
    let at = if is_array { "[0]" } else { "" };
    format!(
        "// element: {element}
typedef struct __attribute__((packed)) {{
{fields}}} element;

// acc[i] = acc[i] o with[i]: acc is the left operand, and the result is left there.
void combine(element *acc, const element *with, int n) {{
    for (int i = 0; i < n; i++)
        if (with[i].{key}{at} > acc[i].{key}{at})
            acc[i] = with[i];
}}
"
    )
}

/// The kind of elements that a source declares.
fn element_of(text: &str) -> Result<Option<Element>, OperatorError> {
    let declared =
        text.lines().take(5).find_map(|line| line.trim_start_matches(['#', '/', ';', ' ']).strip_prefix("element:"));
    declared.map(|declared| Element::parse(declared.trim())).transpose()
}

fn failed(sentence: String) -> OperatorError {
    OperatorError::Source(sentence)
}

/// The module of a file or of a ready-made operator, with its name and elements if they are known.
pub fn module(source: &str, element: Option<&Element>) -> Result<Vec<u8>, OperatorError> {
    if let Some(shipped) = shipped::named(source) {
        return shipped.module();
    }
    let path = Path::new(source);
    let language = Language::of(path)?;
    let bytes = std::fs::read(path).map_err(|error| failed(format!("cannot read {source}: {error}")))?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("operator");
    if language == Language::Wasm {
        return named(bytes, name, element);
    }
    let text = String::from_utf8(bytes).map_err(|_| failed(format!("{source} is not text")))?;
    let declared = element_of(&text)?;
    let element = element.or(declared.as_ref());
    let unknown = || {
        failed(format!("{source} does not say what its elements are: begin it with a comment, as in \"element: f32\""))
    };
    let bytes = match language {
        Language::Expression => expression::compile(&text, element.ok_or_else(unknown)?)?,
        Language::Wat => from_wat(&text)?,
        _ => {
            element.ok_or_else(unknown)?;
            from_c(path)?
        }
    };
    named(bytes, name, element)
}

/// The same operator for machines without vector registers: an expression without vector instructions, any other source
/// unchanged.
pub fn module_without_vectors(source: &str, element: Option<&Element>) -> Result<Vec<u8>, OperatorError> {
    if let Some(shipped) = shipped::named(source) {
        return expression::compile_without_vectors(shipped.source, &Element::parse(shipped.element)?);
    }
    if Language::of(Path::new(source))? != Language::Expression {
        return module(source, element);
    }
    let (text, declared) = expression(source)?;
    expression::compile_without_vectors(&text, element.unwrap_or(&declared))
}

/// The text and elements of an expression's file.
pub fn expression(source: &str) -> Result<(String, Element), OperatorError> {
    if Language::of(Path::new(source))? != Language::Expression {
        return Err(failed(format!("{source} is not an expression: its name does not end with .expr")));
    }
    let text = std::fs::read_to_string(source).map_err(|error| failed(format!("cannot read {source}: {error}")))?;
    let element = element_of(&text)?;
    element.map(|element| (text, element)).ok_or_else(|| failed(format!("{source} does not say what its elements are")))
}

/// The module of a text.
pub fn from_wat(text: &str) -> Result<Vec<u8>, OperatorError> {
    wat::parse_str(text)
        .map_err(|error| failed(format!("this is not WAT: {}", error.to_string().lines().next().unwrap_or_default())))
}

/// Adds the name and elements that a module lacks.
fn named(module: Vec<u8>, name: &str, element: Option<&Element>) -> Result<Vec<u8>, OperatorError> {
    let outline = sections::Outline::of(&module)?;
    let name = Some(name).filter(|_| outline.name.is_none());
    let element = element.filter(|_| outline.element.is_none()).map(Element::to_string);
    Ok(sections::describe(&module, name, element.as_deref()))
}

/// The checked operator of a file, or a ready-made one.
pub fn operator(sandbox: &Sandbox, source: &str, element: Option<&Element>) -> Result<UserOperator, OperatorError> {
    sandbox.load(&module(source, element)?)
}

/// Builds a file with clang, which needs wasm-ld beside it.
fn from_c(path: &Path) -> Result<Vec<u8>, OperatorError> {
    const FLAGS: [&str; 14] = [
        "--target=wasm32",
        "-O3",
        "-mcpu=mvp",
        "-msimd128",
        "-msign-ext",
        "-mnontrapping-fptoint",
        "-nostdlib",
        "-ffreestanding",
        "-fno-builtin",
        "-Wl,--no-entry",
        "-Wl,--export=combine",
        "-Wl,--strip-all",
        "-Wl,-z,stack-size=8192",
        "-Wall",
    ];
    let out = temporary()?;
    let built = Command::new("clang").args(FLAGS).arg("-o").arg(&out).arg(path).output();
    let module = match built {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(failed(
            "C needs clang and wasm-ld, and clang is not here: install them (Debian: apt-get install clang lld), or write an \
             expression or WAT"
                .to_owned(),
        )),
        Err(error) => Err(failed(format!("clang cannot be started: {error}"))),
        Ok(output) if !output.status.success() => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|line| line.contains("error")).or_else(|| text.lines().next());
            let line = line.unwrap_or("it does not say why").trim();
            Err(failed(match line.contains("wasm-ld") {
                true => format!("clang finds no wasm-ld: install it (Debian: apt-get install lld); it says: {line}"),
                false => format!("clang does not take {}: {line}", path.display()),
            }))
        }
        Ok(_) => std::fs::read(&out).map_err(|error| failed(format!("cannot read what clang has built: {error}"))),
    };
    // The file may not exist.
    let _ = std::fs::remove_file(&out);
    module
}

fn temporary() -> Result<PathBuf, OperatorError> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok(std::env::temp_dir().join(format!("tributary-operator-{}-{number}.wasm", std::process::id())))
}
