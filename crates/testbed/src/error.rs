//! What can go wrong with a testbed, each as a sentence that says what to do.

use std::io;

/// Why a testbed could not be built or changed.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// Network namespaces are root's.
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
    /// A program said no.
    #[error("'{command}' failed: {message}")]
    Tool {
        /// The program and its arguments.
        command: String,
        /// What it said.
        message: String,
    },
    /// A value that no network has.
    #[error("{0}")]
    Options(String),
    /// The kernel refused a system call.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl TestbedError {
    /// The last system call's error, with what was tried.
    pub(crate) fn last_os(what: impl Into<String>) -> TestbedError {
        TestbedError::System { what: what.into(), error: io::Error::last_os_error() }
    }
}
