//! Runs `ip`, `tc` and `nft`, and turns their messages into errors.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::TestbedError;

/// The programs that a testbed needs, and their packages.
pub const NEEDED: [(&str, &str); 3] = [("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables")];

/// Fails at the first needed program that is not installed.
pub fn find_all() -> Result<(), TestbedError> {
    for (tool, package) in NEEDED {
        if path_of(tool).is_none() {
            return Err(TestbedError::MissingTool { tool, package });
        }
    }
    Ok(())
}

/// The path of a program. The administrator's folders are searched too, since they are often not on a login's path.
fn path_of(tool: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|folder| Path::new(folder).to_path_buf()))
        .map(|folder| folder.join(tool))
        .find(|candidate| candidate.is_file())
}

/// Runs a program with these arguments and returns its output.
pub fn run(tool: &'static str, args: &[&str]) -> Result<String, TestbedError> {
    feed(tool, args, "")
}

/// Runs a program with these arguments and this text as its input.
pub fn feed(tool: &'static str, args: &[&str], input: &str) -> Result<String, TestbedError> {
    let said = |message: String| TestbedError::Tool { command: format!("{tool} {}", args.join(" ")), message };
    let program = path_of(tool).unwrap_or_else(|| tool.into());
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| said(error.to_string()))?;
    // The text fits into a pipe, so that writing all of it before reading cannot block. A program that ended early says
    // why in its status.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| said(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(said(stderr.trim().replace('\n', "; ")))
    }
}
