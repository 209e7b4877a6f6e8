//! What can be wrong with an operator, as sentences.

/// Why there is no operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The source is no module, or none that the sandbox takes.
    #[error("{0}")]
    Module(String),
    /// The module is not as the interface asks.
    #[error("the module {0}")]
    Interface(String),
    /// The self-test has found that the operator cannot be used.
    #[error("the operator {0}")]
    Unfit(String),
    /// The expression cannot be compiled.
    #[error("{0}")]
    Expression(String),
    /// A tool is missing, or a file cannot be read.
    #[error("{0}")]
    Source(String),
    /// The switch does not serve it.
    #[error("{0}")]
    NotAllowed(String),
}
