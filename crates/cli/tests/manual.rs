//! Completions and manual pages name every command, as `--help` does.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

fn tributary(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tributary")).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The commands that `--help` lists.
fn commands() -> BTreeSet<String> {
    let help = text(&tributary(&["--help"]));
    let (_, below) = help.split_once("Commands:\n").unwrap();
    let listed = below.lines().take_while(|line| !line.is_empty());
    let listed = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    listed.map(|line| line.split_whitespace().next().unwrap().to_string()).filter(|name| name != "help").collect()
}

#[test]
fn every_shell_completes_every_command() {
    assert_eq!(commands().len(), 11, "the first screen has what users need: {:?}", commands());
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&tributary(&["completions", shell]));
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
    let unknown = tributary(&["completions", "csh"]);
    assert_eq!(unknown.status.code(), Some(2));
}

/// What bash itself answers to `tributary sw<TAB>` and `tributary switch --cor<TAB>`.
#[test]
fn bash_completes_a_command_and_a_flag() {
    let script = text(&tributary(&["completions", "bash"]));
    let ask = |words: &str, last: usize| {
        let commands = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={last}; \
             _tributary tributary \"${{COMP_WORDS[{last}]}}\" \"\"; echo \"${{COMPREPLY[*]}}\""
        );
        text(&Command::new("bash").args(["-c", &commands]).output().unwrap()).trim().to_string()
    };
    assert_eq!(ask("tributary sw", 1), "switch");
    assert_eq!(ask("tributary switch --cor", 2), "--cores");
}

#[test]
fn every_command_has_a_manual_page_with_its_flags() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    text(&tributary(&["man", pages.to_str().unwrap()]));
    for command in commands() {
        let page = fs::read_to_string(pages.join(format!("tributary-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    let page = fs::read_to_string(pages.join("tributary-switch.1")).unwrap();
    assert!(page.contains("cores") && page.contains("UDP"), "{page}");
    let nowhere = tributary(&["man", "/proc/no"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("cannot write manual pages into /proc/no"));
}
