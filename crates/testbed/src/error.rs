//! The errors of a testbed, each as a sentence that says what to do.

use std::io;

/// Why a testbed could not be built or changed.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// Only root may make network namespaces.
    #[error("network namespaces need root; run the same command with sudo")]
    NotRoot,
    /// A program is not installed.
    #[error("'{tool}' is not installed; on Debian: apt-get install {package}")]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// Its package on Debian.
        package: &'static str,
    },
    /// A program failed.
    #[error("'{command}' failed: {message}")]
    Tool {
        /// The program and its arguments.
        command: String,
        /// The program's message.
        message: String,
    },
    /// A value that no network can have.
    #[error("{0}")]
    Options(String),
    /// The kernel refused a system call.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl TestbedError {
    /// The error of the last system call; `what` says what was tried.
    pub(crate) fn last_os(what: impl Into<String>) -> TestbedError {
        TestbedError::System { what: what.into(), error: io::Error::last_os_error() }
    }
}
