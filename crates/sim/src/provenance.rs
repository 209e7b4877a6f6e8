//! Where a result comes from: the program that made it, and the file that it was asked for.
//!
//! Results are kept, copied and compared. Two programs may give two results of one file, so every kept point of a sweep,
//! every report and every table says what made it, and nothing is taken from another program.

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A build of the simulator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The release.
    pub version: String,
    /// The commit that was checked out when its sources were compiled, with a plus if they differed from it; `None` if it
    /// was not built in the repository.
    pub commit: Option<String>,
    /// The hash of its sources: programs with equal hashes give equal results.
    pub sources: String,
}

impl Program {
    /// What tells this program from other builds of the same release: "0.1.0 commit 1a2b3c sources 0123".
    pub const BUILD: &str = match env!("TRIBUTARY_COMMIT").is_empty() {
        true => concat!(env!("CARGO_PKG_VERSION"), " sources ", env!("TRIBUTARY_SOURCES")),
        false => {
            concat!(
                env!("CARGO_PKG_VERSION"),
                " commit ",
                env!("TRIBUTARY_COMMIT"),
                " sources ",
                env!("TRIBUTARY_SOURCES")
            )
        }
    };

    /// This program.
    pub fn this() -> Program {
        let commit = env!("TRIBUTARY_COMMIT");
        Program {
            version: env!("CARGO_PKG_VERSION").to_string(),
            commit: (!commit.is_empty()).then(|| commit.to_string()),
            sources: env!("TRIBUTARY_SOURCES").to_string(),
        }
    }

    /// True if it gives the same results as this program.
    pub fn is_this(&self) -> bool {
        self.sources == env!("TRIBUTARY_SOURCES")
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tributary {}", self.version)?;
        if let Some(commit) = &self.commit {
            write!(f, " commit {commit}")?;
        }
        write!(f, " sources {}", self.sources)
    }
}

/// Where a report or a table comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The program that made it.
    #[serde(flatten)]
    pub program: Program,
    /// The SHA-256 of the file that it was asked for, as `sha256sum` prints it; `None` if there was no file.
    pub file: Option<String>,
}

impl Origin {
    /// A result of this program, without a file.
    pub fn here() -> Origin {
        Origin { program: Program::this(), file: None }
    }

    /// A result of this program, of a file with this text.
    pub fn of_file(text: &str) -> Origin {
        Origin { file: Some(sha256(text.as_bytes())), ..Origin::here() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program)?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, " file {file}"))
    }
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A path that is left out would let two programs with different results have one hash.
    #[test]
    fn the_hash_covers_every_crate_and_every_file_that_the_simulator_is_made_of() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let hashed: Vec<&str> = env!("TRIBUTARY_SOURCE_PATHS").split(' ').collect();
        let (mut crates, mut open) = (vec!["sim".to_string()], vec!["sim".to_string()]);
        while let Some(name) = open.pop() {
            let manifest = std::fs::read_to_string(package.join(format!("../{name}/Cargo.toml"))).unwrap();
            let (_, all) = manifest.split_once("\n[dependencies]\n").unwrap();
            let ours = all.split("\n[").next().unwrap().lines().filter_map(|line| line.strip_prefix("tributary-"));
            for dependency in ours.filter_map(|line| line.split('.').next()) {
                if !crates.iter().any(|known| known == dependency) {
                    crates.push(dependency.to_string());
                    open.push(dependency.to_string());
                }
            }
        }
        for name in crates.iter().filter(|name| *name != "sim") {
            assert!(hashed.contains(&&*format!("../{name}/src")), "build.rs lacks {name}: {hashed:?}");
        }
        let included = std::fs::read_to_string(package.join("src/cores/operators.rs")).unwrap()
            + &std::fs::read_to_string(package.join("src/cores/prices.rs")).unwrap();
        for path in included.split("/../../").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(hashed.contains(&&*format!("../../{path}")), "build.rs lacks {path}: {hashed:?}");
        }
        assert!(hashed.contains(&"src") && hashed.contains(&"data"));
    }

    #[test]
    fn an_origin_reads_as_one_line() {
        let program = Program { version: "1.2.3".into(), commit: Some("abc+".into()), sources: "0123".into() };
        let origin = Origin { program, file: Some("45".into()) };
        assert_eq!(origin.to_string(), "tributary 1.2.3 commit abc+ sources 0123 file 45");
        assert_eq!(Program::this().to_string(), format!("tributary {}", Program::BUILD));
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
