//! `conveyor plugin new`, to a plugin that runs in the platform.

use crate::plugin::{LIMIT, examples, of_platform, run, spawn};
use serde_json::json;
use std::{fs, os::unix::fs::symlink, path::Path};
use system_tests::{Solo, binary, root};
use testkit::{Program, Stream};

/// Exit code and what was said.
async fn conveyor(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let program = Program::new(binary("conveyor")).args(["plugin", "new"]).args(arguments);
    let process = program.without_env(&["CONVEYOR_"]).current_dir(folder).spawn().unwrap();
    let status = process.wait(LIMIT).await.unwrap();
    (status.code(), process.text(Stream::Stdout) + &process.text(Stream::Stderr))
}

async fn succeeds(program: Program, folder: &Path) {
    let process = program.current_dir(folder).spawn().unwrap();
    let status = process.wait(LIMIT * 2).await.unwrap();
    assert!(status.success(), "{}{}", process.text(Stream::Stdout), process.text(Stream::Stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_typescript_plugin_compiles_passes_its_test_and_runs() {
    let Some(_) = examples() else { return };
    let folder = tempfile::tempdir().unwrap();
    let checkout = root().canonicalize().unwrap();
    let sdk = checkout.to_str().unwrap();
    let (code, said) = conveyor(folder.path(), &["my-first", "--lang", "ts", "--sdk", sdk]).await;
    assert_eq!(code, Some(0), "{said}");
    let plugin = folder.path().join("my-first");
    assert!(fs::read_to_string(plugin.join("package.json")).unwrap().contains("file:"));

    // What `npm install` brings, without a registry.
    let sdk = checkout.join("sdk/typescript");
    let modules = plugin.join("node_modules");
    fs::create_dir_all(modules.join("@conveyor")).unwrap();
    symlink(&sdk, modules.join("@conveyor/plugin-sdk")).unwrap();
    for name in ["zod", "@types", "typescript"] {
        symlink(sdk.join("node_modules").join(name), modules.join(name)).unwrap();
    }
    succeeds(Program::new("node").arg("node_modules/typescript/bin/tsc"), &plugin).await;
    succeeds(Program::new("node").args(["--test", "dist/test/plugin.test.js"]), &plugin).await;

    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let running = spawn(&solo, &plugin, "dist/src/main.js", &[]);
    running.wait_for_line("plugin_wire_outbound_manifest_ok", LIMIT).await.unwrap();
    try_process(&solo, &plugin).await;
}

/// The process that came with a new plugin, run once.
async fn try_process(solo: &Solo, plugin: &Path) {
    let document = fs::read_to_string(plugin.join("process.json")).unwrap();
    let ended = run(solo, &serde_json::from_str(&document).unwrap(), &json!({"name": "Ада"})).await;
    assert_eq!(*ended.finished(), json!({"greeting": "Hello, Ада! Hello, Ада!"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_rust_plugin_compiles_outside_the_workspace_passes_its_test_and_runs() {
    // Compiling takes minutes: with all else that `make test` builds.
    let Some(_) = examples() else { return };
    let folder = tempfile::tempdir().unwrap();
    let checkout = root().canonicalize().unwrap();
    let sdk = checkout.to_str().unwrap();
    let (code, said) = conveyor(folder.path(), &["my-outside", "--lang", "rust", "--sdk", sdk]).await;
    assert_eq!(code, Some(0), "{said}");
    let plugin = folder.path().join("my-outside");
    // The versions and the artifacts that are here already: nothing is fetched, little is compiled.
    fs::copy(checkout.join("Cargo.lock"), plugin.join("Cargo.lock")).unwrap();
    let cargo = |command| {
        Program::new(env!("CARGO"))
            .args([command, "--offline", "--quiet"])
            .args(["--config", r#"profile.dev.debug = "line-tables-only""#])
            .args(["--config", r#"profile.dev.package."*".debug = false"#])
            .env("CARGO_TARGET_DIR", checkout.join("target").to_str().unwrap())
    };
    for command in ["test", "build"] {
        let process = cargo(command).current_dir(&plugin).spawn().unwrap();
        let status = process.wait(LIMIT * 20).await.unwrap();
        assert!(status.success(), "{}", process.text(Stream::Stderr));
    }

    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let running = of_platform(Program::new(binary("my-outside")), &solo, &[]).spawn().unwrap();
    running.wait_for_line("plugin_wire_outbound_manifest_ok", LIMIT).await.unwrap();
    try_process(&solo, &plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_rust_plugin_names_itself_and_the_sdk() {
    let folder = tempfile::tempdir().unwrap();
    let checkout = root().canonicalize().unwrap();
    let (code, said) =
        conveyor(folder.path(), &["my-first", "--lang", "rust", "--sdk", checkout.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{said}");
    let read = |name: &str| fs::read_to_string(folder.path().join("my-first").join(name)).unwrap();
    let sdk = checkout.join("crates/plugin-sdk");
    assert!(read("Cargo.toml").contains(&format!("plugin-sdk = {{ path = {sdk:?} }}")));
    assert!(read("src/main.rs").contains(r#"Plugin::new("my-first", "#));
    assert!(read(".gitignore").contains("/target"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mine")).unwrap();
    fs::write(folder.path().join("mine/notes"), "precious").unwrap();
    for language in ["ts", "rust"] {
        let (code, said) = conveyor(folder.path(), &["mine", "--lang", language]).await;
        assert!(code == Some(1) && said.contains("not empty"), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path().join("mine")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["My-First", "../up", "2nd"] {
        let (code, said) = conveyor(folder.path(), &[name, "--lang", "ts"]).await;
        assert!(code == Some(2) && said.contains(name), "{said}");
    }
    let (code, said) = conveyor(folder.path(), &["ok", "--lang", "ts", "--sdk", "nowhere"]).await;
    assert!(code == Some(2) && said.contains("nowhere"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
