//! `conveyor plugin new`: a plugin of one's own, from a template in the binary.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The plugin's name in the templates, and what people see of it.
const NAME: &str = "my-plugin";
const LABEL: &str = "My plugin";
/// Longest name, characters.
const NAME_LIMIT: usize = 64;

/// Where the Rust template finds the SDK when no checkout is named: the repository of this workspace.
const RUST_ADDRESS: &str = "https://github.com/conveyor-automation/conveyor";
/// How the template says so.
const RUST_SDK: &str = r#"{ git = "https://github.com/conveyor-automation/conveyor" }"#;
/// The same for TypeScript.
const TYPESCRIPT_SDK: &str = r#""@conveyor/plugin-sdk": "^0.1.0""#;

macro_rules! typescript {
    ($name:literal) => {
        include_str!(concat!("../../../../../sdk/typescript/template/", $name))
    };
}

macro_rules! rust {
    ($name:literal) => {
        include_str!(concat!("../../../templates/plugin-rust/", $name))
    };
}

/// Files by the path that they get.
type Template = &'static [(&'static str, &'static str)];

const TYPESCRIPT: Template = &[
    (".gitignore", typescript!("gitignore")),
    ("README.md", typescript!("README.md")),
    ("env.example", typescript!("env.example")),
    ("package.json", typescript!("package.json")),
    ("process.json", typescript!("process.json")),
    ("src/main.ts", typescript!("src/main.ts")),
    ("src/plugin.ts", typescript!("src/plugin.ts")),
    ("test/plugin.test.ts", typescript!("test/plugin.test.ts")),
    ("tsconfig.json", typescript!("tsconfig.json")),
];

const RUST: Template = &[
    (".gitignore", rust!("gitignore")),
    ("Cargo.toml", rust!("manifest.toml")),
    ("README.md", rust!("README.md")),
    ("env.example", typescript!("env.example")),
    ("process.json", typescript!("process.json")),
    ("src/main.rs", rust!("src/main.rs")),
];

/// The language of a new plugin.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Language {
    /// TypeScript without a framework.
    Ts,
    /// Rust.
    Rust,
}

/// The command line of `conveyor plugin new`.
#[derive(Args, Debug)]
pub(crate) struct New {
    /// Its id: lower-case letters, digits and "-", beginning with a letter.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Its language.
    #[arg(long, value_enum)]
    pub(crate) lang: Language,
    /// Where to make it [default: ./NAME].
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// A checkout of Conveyor's repository to take the SDK from, instead of the package.
    #[arg(long, value_name = "DIR")]
    pub(crate) sdk: Option<PathBuf>,
}

/// Makes the plugin.
///
/// # Errors
/// Exit code 1: the folder holds something already, or cannot be written. Exit code 2: there is no
/// SDK where it is said to be.
pub(super) fn new(args: &New) -> Result<(), Failure> {
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let sdk = args.sdk.as_deref().map(|checkout| sdk(checkout, args.lang)).transpose()?;
    if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        return Err(Failure::Failed(anyhow::anyhow!(
            "{} is not empty; nothing was written. Name another folder with --folder",
            folder.display()
        )));
    }
    let (template, next) = match args.lang {
        Language::Ts => (TYPESCRIPT, "npm install && npm test"),
        Language::Rust => (RUST, "cargo test"),
    };
    for (path, text) in template {
        let text = filled(text, &args.name, sdk.as_deref(), args.lang);
        write(&folder.join(path), &text)
            .map_err(|error| anyhow::anyhow!("cannot write {}: {error}", folder.join(path).display()))?;
    }
    println!("made {}\nnext: cd {} && {next}", folder.display(), folder.display());
    if sdk.is_none() {
        println!("{}", from_afar(args.lang));
    }
    Ok(())
}

/// Where the SDK comes from when no checkout was named, and what to do where that is out of reach.
fn from_afar(language: Language) -> String {
    let source = match language {
        Language::Ts => "npm's registry (@conveyor/plugin-sdk)",
        Language::Rust => RUST_ADDRESS,
    };
    format!(
        "the SDK comes from {source}; where that cannot be reached, name a checkout of Conveyor: --sdk DIR"
    )
}

/// A template's text for this plugin.
fn filled(text: &str, name: &str, sdk: Option<&str>, language: Language) -> String {
    let text = text.replace(NAME, name).replace(LABEL, &label(name));
    match (sdk, language) {
        (None, _) => text,
        (Some(sdk), Language::Ts) => text.replace(
            TYPESCRIPT_SDK,
            &format!(r#""@conveyor/plugin-sdk": {}"#, quoted(&format!("file:{sdk}"))),
        ),
        (Some(sdk), Language::Rust) => text.replace(RUST_SDK, &format!("{{ path = {} }}", quoted(sdk))),
    }
}

/// A string of JSON, and of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn label(name: &str) -> String {
    let mut words = name.replace('-', " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
}

/// The SDK's folder in a checkout.
fn sdk(checkout: &Path, language: Language) -> Result<String, Failure> {
    let (inside, file) = match language {
        Language::Ts => ("sdk/typescript", "package.json"),
        Language::Rust => ("crates/plugin-sdk", "Cargo.toml"),
    };
    let folder = checkout.join(inside);
    let missing =
        || Failure::invalid(format!("{} holds no SDK: it has no {inside}/{file}", checkout.display()));
    if !folder.join(file).is_file() {
        return Err(missing());
    }
    let folder = fs::canonicalize(&folder).map_err(|_| missing())?;
    folder.to_str().map(str::to_owned).ok_or_else(missing)
}

/// Writes a file that must not be there yet.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    io::Write::write_all(&mut fs::File::create_new(path)?, text.as_bytes())
}

/// A plugin's name.
fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(allowed)
        && !text.ends_with('-')
        && text.len() <= NAME_LIMIT;
    if fits {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is no plugin name; use lower-case letters, digits and \"-\", beginning with a letter, at \
         most {NAME_LIMIT}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_lower_case_and_begins_with_a_letter() {
        for text in ["a", "my-first", "v2"] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
        for text in ["", "A", "2nd", "-a", "a-", "my_first", "../a", "имя", &"a".repeat(65)] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn without_a_checkout_the_sdk_is_where_the_repository_is_and_the_remedy_is_told() {
        let workspace = include_str!("../../../../../Cargo.toml");
        assert!(workspace.contains(&format!("repository = {}", quoted(RUST_ADDRESS))));
        assert_eq!(RUST_SDK, format!("{{ git = {} }}", quoted(RUST_ADDRESS)));
        for (template, language, told) in
            [(RUST, Language::Rust, RUST_SDK), (TYPESCRIPT, Language::Ts, TYPESCRIPT_SDK)]
        {
            let texts: Vec<_> =
                template.iter().map(|(_, text)| filled(text, "ask-all", None, language)).collect();
            let all = texts.concat();
            assert!(all.contains(told), "{language:?}");
            assert!(all.contains("--sdk") && from_afar(language).contains("--sdk"), "{language:?}");
        }
    }

    #[test]
    fn no_placeholder_is_left_and_the_sdk_is_the_named_one() {
        for (template, language) in [(TYPESCRIPT, Language::Ts), (RUST, Language::Rust)] {
            let texts: Vec<_> =
                template.iter().map(|(_, text)| filled(text, "ask-all", Some("/c/sdk"), language)).collect();
            let all = texts.concat();
            assert!(!all.contains(NAME) && !all.contains(LABEL));
            assert!(
                all.contains("plugin.ask-all.greet") && all.contains("Ask all") && all.contains("/c/sdk")
            );
        }
    }
}
