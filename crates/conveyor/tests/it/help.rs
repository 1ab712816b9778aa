//! Help is complete.

use crate::command::conveyor;

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in [
        &["up"][..],
        &["demo"],
        &["run"],
        &["serve"],
        &["config"],
        &["doctor"],
        &["process", "validate"],
        &["process", "import"],
        &["process", "list"],
        &["process", "show"],
        &["process", "run"],
        &["runs", "list"],
        &["runs", "show"],
        &["runs", "output"],
        &["runs", "watch"],
        &["runs", "cancel"],
        &["runs", "confirm"],
        &["runs", "retry"],
        &["plugin", "list"],
        &["plugin", "show"],
        &["plugin", "versions"],
        &["plugin", "publish"],
        &["plugin", "enable"],
        &["plugin", "disable"],
        &["plugin", "remove"],
        &["plugin", "pin"],
        &["plugin", "unpin"],
        &["plugin", "yank"],
        &["plugin", "diff"],
        &["plugin", "explain"],
        &["plugin", "health"],
        &["plugin", "quarantine"],
        &["plugin", "release"],
        &["plugin", "limit"],
        &["docs"],
    ] {
        let said = conveyor(&[command, &["--help"]].concat(), &[]);
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("Example") && said.out.contains("conveyor "), "{command:?}: {}", said.out);
    }
}

#[test]
fn every_command_about_processes_and_runs_speaks_json() {
    for group in ["process", "runs"] {
        let said = conveyor(&[group, "--help"], &[]);
        let listed = said.out.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names =
            listed.map_while(|line| line.strip_prefix("  ")).filter_map(|line| line.split(' ').next());
        let names: Vec<&str> = names.filter(|name| !["", "help"].contains(name)).collect();
        assert!(names.len() >= 5, "{group}: {}", said.out);
        for name in names {
            let said = conveyor(&[group, name, "--help"], &[]);
            assert!(said.out.contains("--json"), "{group} {name}: {}", said.out);
        }
    }
}

#[test]
fn exit_codes_are_documented() {
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["process", "import", "--help"],
        &["process", "run", "--help"],
        &["runs", "watch", "--help"],
        &["runs", "confirm", "--help"],
        &["runs", "retry", "--help"],
        &["plugin", "publish", "--help"],
        &["plugin", "diff", "--help"],
        &["plugin", "explain", "--help"],
        &["plugin", "health", "--help"],
    ] {
        let said = conveyor(command, &[]);
        assert!(said.out.contains("Exit codes:\n  0  "), "{}", said.out);
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [&["fly"][..], &["run"], &["serve", "nobody"], &["demo", "--port-offset", "60000"]] {
        let said = conveyor(arguments, &[]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!said.err.is_empty());
    }
}
