//! Starting the binary with nothing of this machine's configuration.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// What configures us; a developer's own settings must not reach a test.
pub(crate) const CONFIGURED: [&str; 12] = [
    "API_",
    "CONTROL_PLANE_",
    "CONVEYOR_",
    "DATABASE_",
    "EXECUTOR_",
    "FILE_",
    "PAYLOAD_",
    "PLUGIN_",
    "REDIS_",
    "RUNTIME_",
    "SECRET",
    "RUST_LOG",
];

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_conveyor");

/// What a command said and how it ended.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Said {
    /// The last line of standard output, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let line = self.out.lines().last().unwrap_or_default();
        serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{error}: {:?}, stderr: {}", self.out, self.err))
    }
}

/// Runs the binary to its end, in `folder`.
pub(crate) fn conveyor_in(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    let mut command = Command::new(BINARY);
    for (name, _) in
        std::env::vars().filter(|(name, _)| CONFIGURED.iter().any(|begin| name.starts_with(begin)))
    {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied()).current_dir(folder).output().unwrap().into()
}

/// Runs the binary to its end; it must not touch the folder it is started in.
pub(crate) fn conveyor(arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let said = conveyor_in(folder.path(), arguments, variables);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    said
}

/// A file of the repository's examples.
pub(crate) fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/processes").join(name);
    path.to_str().unwrap().to_owned()
}

/// A document in a file.
pub(crate) fn document(value: &serde_json::Value) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(file.path(), value.to_string()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}
