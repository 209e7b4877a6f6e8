//! The errors of operators, as sentences.

/// Why a source gives no operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The source is not a module, or not a module that the sandbox takes.
    #[error("{0}")]
    Module(String),
    /// The module does not follow the interface.
    #[error("the module {0}")]
    Interface(String),
    /// The self-test has found the operator unfit.
    #[error("the operator {0}")]
    Unfit(String),
    /// The expression cannot be compiled.
    #[error("{0}")]
    Expression(String),
    /// A tool is missing, or a file cannot be read.
    #[error("{0}")]
    Source(String),
    /// The switch does not serve this operator.
    #[error("{0}")]
    NotAllowed(String),
}
